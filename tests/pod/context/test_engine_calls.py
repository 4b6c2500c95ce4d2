"""Supervised calls into an engine: one that blocks, one that raises, one that asks the loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pod.context.engine import JsonDict
from pod.context.facts import Beginning, ModelFacts
from pod.context.host import EngineHost
from pod.context.status import LONGEST_TEXT, status_of
from pod.context.threads import CompactionPool
from pod.protocol import EngineNotice
from tests.fake_provider import counting, serving
from tests.pod.compaction.stories import an_answer
from tests.pod.context.engine_shelf import USE, Recorder, shelve
from tests.pod.desk import until
from tests.pod.pods import KEY, living, manifest
from worker import Worker
from worker.items import Item, user_message
from worker.llm import ScriptedClient
from worker.llm.types import Usage

pytestmark = pytest.mark.anyio

ITEMS: tuple[Item, ...] = (user_message("one"), an_answer("first"))


def hosting(engine: Recorder, **more: Any) -> tuple[EngineHost, list[str]]:
    told: list[str] = []
    host = EngineHost(engine, lambda _n, t: told.append(t), 5.0, CompactionPool(), **more)
    return host, told


def a_worker() -> Worker:
    worker = Worker(ScriptedClient(()))
    worker.set_history(ITEMS)
    return worker


# ------------------------------------------------------------------ one that blocks


class Blocking(Recorder):
    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()

    def select_context(self, request_messages: list[JsonDict], **_: object) -> None:
        self.note("select_context")
        self.go.wait(10)


async def test_an_engine_that_never_answers_is_waited_for_once_and_told_of_once() -> None:
    engine = Blocking()
    host, told = hosting(engine, call_timeout_s=0.2)
    worker = a_worker()
    began = time.monotonic()
    assert await host.select(worker, list(ITEMS)) is None
    assert time.monotonic() - began >= 0.2
    began = time.monotonic()
    for _ in range(20):
        assert await host.select(worker, list(ITEMS)) is None
        host.after_response(Usage(10, 1))
        await host.turn_complete(ITEMS, interrupted=False)

    # Waited for each time, it would have been 8 s.
    assert time.monotonic() - began < 3, "later calls are given up at once"
    assert len(told) == 1
    assert "select_context took over 0.2 s" in told[0]
    assert engine.hooks == ["select_context"], "nothing is kept for it either"
    engine.go.set()
    await asyncio.to_thread(until, lambda: not host.calls.is_stuck)
    assert await host.select(worker, list(ITEMS)) is None
    assert engine.hooks == ["select_context"] * 2, "it answers again, and is asked again"
    host.let_go()


async def test_the_loop_runs_on_while_an_engine_works() -> None:
    engine = Blocking()
    host, _ = hosting(engine)
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.005)

    ticking = asyncio.create_task(tick())
    asyncio.get_running_loop().call_later(0.1, engine.go.set)
    await host.select(a_worker(), list(ITEMS))
    ticking.cancel()
    assert ticks >= 5
    host.let_go()


def on_the_loop(loop: asyncio.AbstractEventLoop) -> Callable[[], str]:
    """What a plugin's `call_llm` comes to: it has the loop do something, and waits for it."""

    async def answer() -> str:
        await asyncio.sleep(0.01)
        return "from the loop"

    return lambda: asyncio.run_coroutine_threadsafe(answer(), loop).result(5)


async def test_an_engine_that_waits_for_the_loop_gets_its_answer_in_every_hook() -> None:
    ask = on_the_loop(asyncio.get_running_loop())

    class Asking(Recorder):
        def select_context(self, request_messages: list[JsonDict], **_: object) -> Any:
            return [{"role": "user", "content": ask()}]

        def handle_tool_call(self, name: str, args: JsonDict, **_: object) -> str:
            return ask()

        def get_tool_schemas(self) -> list[JsonDict]:
            return [{"name": ask().replace(" ", "_")}]

        def compress(self, messages: list[JsonDict], *_: Any, **__: Any) -> list[JsonDict]:
            return [{"role": "user", "content": ask()}]

    host, told = hosting(Asking())
    chosen = await host.select(a_worker(), list(ITEMS))
    assert chosen is not None
    (tool,) = await host.tools(lambda: ITEMS)
    assert (await tool.call({})).summary == "from the loop"
    assert not told
    host.let_go()


async def test_calls_are_made_one_after_the_other_in_one_thread() -> None:
    at_once = 0
    most = 0

    class Counting(Recorder):
        def select_context(self, request_messages: list[JsonDict], **_: object) -> None:
            nonlocal at_once, most
            at_once += 1
            most = max(most, at_once)
            time.sleep(0.01)
            at_once -= 1

    host, _ = hosting(Counting())
    worker = a_worker()
    await asyncio.gather(*(host.select(worker, list(ITEMS)) for _ in range(10)))
    assert most == 1
    host.let_go()


# ------------------------------------------------------------------ one that raises


async def test_each_callback_of_a_session_is_on_its_own() -> None:
    class Failing(Recorder):
        def __getattribute__(self, name: str) -> Any:
            hooks = ("update_model", "on_session_", "bind_", "carry_over", "on_turn")
            if name.startswith(hooks):
                return lambda *_args, **_kwargs: self.fail(name)

            return super().__getattribute__(name)

        def fail(self, name: str) -> None:
            self.note(name)
            raise ValueError(name)

    engine = Failing()
    host, told = hosting(engine)
    await host.introduce(ModelFacts("m", 1_000), "s1")
    await host.start(Beginning("s1", left="s0", carries_over=True))
    await host.turn_complete(ITEMS, interrupted=False)
    await host.end("s1", ITEMS)
    wanted = [
        "update_model",
        "bind_session_state",
        "on_session_reset",
        "on_session_start",
        "carry_over_new_session_context",
        "on_turn_complete",
        "on_session_end",
    ]
    assert engine.hooks == wanted
    assert [line.split()[0] for line in told] == wanted
    host.let_go()


# ------------------------------------------------------------------ its numbers


def test_the_numbers_are_plain_and_within_bounds() -> None:
    engine = Recorder()

    def status() -> dict[Any, Any]:
        return {
            "text": "x" * 1_000,
            "nested": {"deep": [1, {"a": object()}]},
            "nan": float("nan"),
            "object": object(),
            "usage_percent": 12.5,
            "is_busy": True,
            "nothing": None,
            7: "no text",
            "many": list(range(1_000)),
        }

    vars(engine).update(get_status=status, last_prompt_tokens=-1, threshold_tokens=500)
    said = status_of(engine)
    assert said["last_prompt_tokens"] == 0
    assert said["threshold_tokens"] == 500
    assert said["text"] == "x" * LONGEST_TEXT
    assert said["nested"] == {"deep": [1, {}]}
    assert (said["usage_percent"], said["is_busy"], said["nothing"]) == (12.5, True, None)
    assert not {"nan", "object", 7} & set(said)
    assert len(said["many"]) == 40  # type: ignore[arg-type]  # a list


async def test_a_pod_s_status_shows_them_without_waiting(home: Path) -> None:
    """Also those of the built-in, and never one that is asked in vain."""

    class Telling(Recorder):
        go = threading.Event()
        waits = False

        def get_status(self) -> JsonDict:
            if self.waits:
                self.go.wait(5)

            return super().get_status() | {"model_key": KEY, "mine": 3}

    engine = Telling()
    shelve(home, lambda: engine)
    with serving(counting) as served:
        async with living(manifest(home, served.base_url, USE), home) as story:
            status = story.pod.status().engine_status
            assert (status["context_length"], status["mine"]) == (200_000, 3)
            assert status["threshold_tokens"] == 150_000
            assert status["tools"] == []
            assert KEY not in str(status)
            engine.waits = True
            await story.pod.run("one")
            began = time.monotonic()
            assert story.pod.status().engine_status["mine"] == 3
            assert time.monotonic() - began < 4, "it does not wait for the engine, which takes 5 s"
            engine.go.set()
            engine.waits = False

        extra = "[compaction]\ncompact_threshold = 5000\n"
        async with living(manifest(home, served.base_url, extra, name="own"), home) as story:
            await story.pod.run("one")
            status = story.pod.status().engine_status
            assert status["threshold_tokens"] == 5_000
            assert status["context_length"] == 200_000
            assert isinstance(status["last_prompt_tokens"], int)
            assert status["last_prompt_tokens"] > 0
            assert not story.of(EngineNotice)
