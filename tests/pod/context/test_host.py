"""The host by itself: how it calls an engine, and what it does with what comes back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pod.compaction.plan import CompactionPlan, CompactionRequest
from pod.context.decisions import Situation
from pod.context.engine import ContextEngine, JsonDict, Message
from pod.context.facts import Beginning
from pod.context.host import EngineHost, ModelFacts
from pod.context.threads import CompactionPool
from tests.pod.compaction.stories import an_answer
from worker.items import Item, user_message
from worker.llm.types import Usage

pytestmark = pytest.mark.anyio


class Plain(ContextEngine):
    """What an engine must have; what it was called with is kept."""

    name = "plain"

    def __init__(self) -> None:
        self.calls: list[str] = []

    def update_from_response(self, usage: JsonDict) -> None:
        self.calls.append("update_from_response")

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        self.calls.append("should_compress")
        return False

    def compress(self, messages: list[Message], *args: Any, **kwargs: Any) -> list[Message]:
        self.calls.append("compress")
        return messages[-1:]


def hosting(engine: ContextEngine, told: list[str], **more: Any) -> EngineHost:
    return EngineHost(engine, lambda _name, text: told.append(text), 5.0, CompactionPool(), **more)


ITEMS: tuple[Item, ...] = (user_message("one"), an_answer("first"), user_message("two"))


def asking(items: tuple[Item, ...] = ITEMS, **more: Any) -> CompactionRequest:
    numbers: dict[str, Any] = {
        "session_id": "s",
        "head_hash": "h",
        "items": items,
        "watermark": 0,
        "trigger": "engine",
        "threshold": 1_000,
        "occupancy": 900,
        "generation": 0,
    }
    return CompactionRequest(**(numbers | more))


async def planned(host: EngineHost, request: CompactionRequest) -> CompactionPlan:
    attempt = await host.compactions.admit()
    try:
        return await host.make_plan(attempt, request)
    finally:
        host.compactions.close(attempt)


# ------------------------------------------------------------------ compress and its arguments


async def test_memory_reaches_an_engine_that_takes_it() -> None:
    given: list[dict[str, Any]] = []

    class Remembering(Plain):
        def compress(self, messages: list[Message], *args: Any, **kwargs: Any) -> list[Message]:
            given.append(kwargs)
            return messages[-1:]

    told: list[str] = []
    host = hosting(Remembering(), told)
    await planned(host, asking(memory_context="password=hunter2-hunter2 and likes tea"))
    await planned(host, asking())
    assert "likes tea" in given[0]["memory_context"]
    assert "memory_context" not in given[1], "blank memory is never passed"
    assert not told
    host.let_go()


async def test_memory_that_an_engine_does_not_take_is_told_once_word_for_word() -> None:
    class Strict(Plain):
        def compress(  # type: ignore[override]  # as old engines have it
            self, messages: list[Message], current_tokens: int | None = None
        ) -> list[Message]:
            self.calls.append("compress")
            return messages[-1:]

    engine = Strict()
    told: list[str] = []
    host = hosting(engine, told)
    for _ in range(2):
        await planned(host, asking(memory_context="likes tea"))
        await asyncio.sleep(0)

    warning = (
        "context engine plain does not accept memory_context; "
        "continuing without provider-supplied summary context"
    )
    assert told == [warning]
    assert engine.calls == ["compress", "compress"]
    host.let_go()


# ------------------------------------------------------------------ around every call


async def test_every_call_is_made_inside_of_around_in_the_thread_that_makes_it() -> None:
    inside: list[int] = []
    outside: list[str] = []

    @contextmanager
    def around() -> Iterator[None]:
        inside.append(threading.get_ident())
        try:
            yield
        finally:
            inside.remove(threading.get_ident())

    class Watched(Plain):
        def __getattribute__(self, name: str) -> Any:
            value = super().__getattribute__(name)
            if not callable(value) or name.startswith("__"):
                return value

            def call(*args: object, **kwargs: object) -> object:
                if threading.get_ident() not in inside:
                    outside.append(name)

                seen.append(name)
                return value(*args, **kwargs)

            return call

        def get_tool_schemas(self) -> list[JsonDict]:
            return [{"name": "look", "parameters": {"type": "object", "properties": {}}}]

    seen: list[str] = []
    host = hosting(Watched(), [], around=around)
    await host.introduce(ModelFacts("m", 1_000), "s1")
    await host.start(Beginning("s1", "/h", left="s0"))
    host.after_response(Usage(10, 2))
    await host.wants_compaction(Situation(ITEMS, 10, 10))
    await planned(host, asking())
    await host.boundary(None, ITEMS, "s2", 5)
    (tool,) = await host.tools(lambda: ITEMS)
    await tool.call({})
    await host.turn_complete(ITEMS, interrupted=False)
    await host.end("s2", ITEMS)
    host.let_go()
    wanted = {
        "update_model",
        "on_session_reset",
        "on_session_start",
        "on_session_end",
        "update_from_response",
        "should_compress",
        "compress",
        "get_tool_schemas",
        "handle_tool_call",
    }
    assert wanted <= set(seen)
    assert not outside
