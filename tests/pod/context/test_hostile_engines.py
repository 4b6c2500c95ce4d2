"""Engines that give anything back, everywhere: a host goes on, and says so in plain words."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pod.compaction.plan import CompactionError, CompactionRequest
from pod.context.decisions import Decision, Situation
from pod.context.engine import ContextEngine
from pod.context.facts import Beginning, ModelFacts
from pod.context.host import EngineHost
from pod.context.threads import CompactionPool
from pod.errors import RequestCancelled
from tests.pod.compaction.stories import an_answer
from worker import Worker
from worker.items import Item, user_message
from worker.llm import ScriptedClient
from worker.llm.types import Usage
from worker.ports import Selection

ITEMS: tuple[Item, ...] = tuple(
    item for n in range(3) for item in (user_message(f"q{n}"), an_answer(f"a{n}"))
)


class Raises:
    """Stands for an error that is raised."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __repr__(self) -> str:
        return f"Raises({self.error!r})"


class Unlike:
    """Is like nothing, and says so on every occasion."""

    def __bool__(self) -> bool:
        raise ValueError("neither true nor false")

    def __iter__(self) -> Any:
        raise ValueError("no parts")

    def __eq__(self, other: object) -> bool:
        raise ValueError("not to be compared")

    __hash__ = None  # type: ignore[assignment]  # not to be hashed either


errors = st.sampled_from(
    [
        ValueError("no"),
        TypeError("x"),
        RecursionError(),
        MemoryError(),
        StopIteration(),
        KeyboardInterrupt("stop"),
        SystemExit(3),
    ]
).map(Raises)
rows: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    st.sampled_from(["role", "content", "tool_calls", "tool_call_id", "message_uid", "_x"]),
    st.sampled_from(["user", "assistant", "tool", "system", "text", "", None, 7, [], {}, [{}]]),
    max_size=4,
)
anything = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.lists(rows, max_size=4),
    st.tuples(st.booleans(), st.none() | st.text(max_size=5)),
    st.dictionaries(st.text(max_size=5), st.integers(), max_size=2),
    st.builds(Unlike),
    errors,
)
HOOKS = tuple(
    name
    for name in vars(ContextEngine)
    if not name.startswith("_") and name not in {"name", "model_thresholds"}
)
EXTRAS = (
    "bind_session_state",
    "carry_over_new_session_context",
    "get_active_compression_failure_cooldown",
    "_last_compress_aborted",
    "_last_summary_error",
    "awaiting_real_usage_after_compression",
)
behaviours = st.fixed_dictionaries(dict.fromkeys((*HOOKS, *EXTRAS), anything))


class Hostile:
    """An engine by its shape alone."""

    name = "hostile"

    def __init__(self, behaviour: dict[str, Any]) -> None:
        for name, value in behaviour.items():
            is_attribute = name in EXTRAS[3:] or not callable(getattr(ContextEngine, name, min))
            if not is_attribute:
                setattr(self, name, self._hook(value))
            elif not isinstance(value, Raises):
                setattr(self, name, value)

    @staticmethod
    def _hook(value: Any) -> Any:
        def hook(*_args: Any, **_kwargs: Any) -> Any:
            if isinstance(value, Raises):
                raise value.error

            return value

        return hook


async def a_life(engine: Any) -> list[str]:
    """Take an engine through everything that a pod does with one; return what was told."""
    told: list[str] = []
    host = EngineHost(engine, lambda _name, text: told.append(text), 5.0, CompactionPool())
    try:
        await lived(host)
    finally:
        host.let_go()

    return told


async def lived(host: EngineHost) -> None:
    worker = Worker(ScriptedClient(()), system_prompt="S")
    worker.set_history(ITEMS)
    request = CompactionRequest("s", "h", ITEMS, 0, "engine", 100, 90, 0, memory_context="tea")
    await host.introduce(ModelFacts("m", 1_000, thresholds={"m": 0.5}), "s1")
    await host.start(Beginning("s1", left="s0", carries_over=True))
    for tool in await host.tools(lambda: ITEMS):
        await tool.call({})

    host.new_run()
    decision = await host.wants_compaction(Situation(ITEMS, 100, 90, at_turn_start=True))
    assert isinstance(decision, Decision)
    chosen = await host.select(worker, list(ITEMS))
    assert chosen is None or isinstance(chosen, Selection)
    host.after_response(Usage(10, 1))
    host.after_response(Usage())
    assert await host.finds_content(request) in (True, False)
    assert await host.wants_memory(request) in (True, False)
    said = await host.routine_message("compress", "compacting", model="m")
    assert said is None or isinstance(said, str)
    attempt = await host.compactions.admit()
    # A plan, or its failure in our words.
    with suppress(CompactionError):
        plan = await host.make_plan(attempt, request)
        assert all(isinstance(item.uid, str) for item in plan.history)

    host.compactions.close(attempt)
    await host.boundary(attempt, ITEMS, "s2", 50)
    await host.turn_complete(ITEMS, interrupted=False, turn_id="t")
    await host.end("s2", ITEMS)
    json.dumps(host.status)


@settings(max_examples=60)
@given(behaviours)
def test_whatever_an_engine_gives_back_a_host_goes_on(behaviour: dict[str, Any]) -> None:
    try:
        told = asyncio.run(a_life(Hostile(behaviour)))
    except RequestCancelled:
        return  # An engine may do that: by raising what is no `Exception`.

    assert all(line == line.strip() and "\n" not in line for line in told), told
    assert len(told) == len(set(told)), "each thing once"
