"""An engine's tools: which of them the model gets, and how a call reaches the engine."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from pod.context.engine import JsonDict
from pod.context.host import EngineHost
from pod.context.threads import CompactionPool
from pod.protocol import EngineNotice, ToolResult
from tests.fake_provider import Asked, Say, serving
from tests.pod.compaction.stories import an_answer
from tests.pod.context.engine_shelf import USE, Recorder, shelve
from tests.pod.pods import BIG_TOOL, chat, living, manifest, pointer
from worker.items import Item, user_message
from worker.tools import Tool

pytestmark = pytest.mark.anyio

EMPTY = {"type": "object", "properties": {}}
ITEMS: tuple[Item, ...] = (user_message("one"), an_answer("first"))


class Tooled(Recorder):
    """Offers `schemas`; answers `answer`."""

    def __init__(self, *schemas: Any, answer: Any = '{"hits": ["HIT"]}') -> None:
        super().__init__()
        self.schemas = list(schemas)
        self.answer = answer

    def get_tool_schemas(self) -> list[JsonDict]:
        return self.schemas

    def handle_tool_call(self, name: str, args: JsonDict, **kwargs: Any) -> str:
        self.note("handle_tool_call", name, args, **kwargs)
        if isinstance(self.answer, BaseException):
            raise self.answer

        made: str = self.answer
        return made


async def offered(engine: Recorder, *taken: str) -> tuple[list[Tool], list[str], EngineHost]:
    told: list[str] = []
    host = EngineHost(engine, lambda _name, text: told.append(text), 5.0, CompactionPool())
    return await host.tools(lambda: ITEMS, taken), told, host


async def test_schemas_may_be_bare_or_wrapped() -> None:
    bare = {"name": "look", "description": "Look.", "parameters": EMPTY}
    wrapped = {"type": "function", "function": {"name": "grep", "parameters": EMPTY}}
    tools, told, host = await offered(Tooled(bare, wrapped, {"name": "plain"}))
    assert [(t.name, t.description, t.parameters) for t in tools] == [
        ("look", "Look.", EMPTY),
        ("grep", "", EMPTY),
        ("plain", "", EMPTY),
    ]
    assert not told
    assert host.status["tools"] == ["look", "grep", "plain"]
    host.let_go()


async def test_a_name_that_is_taken_stays_with_whoever_has_it_and_that_is_told() -> None:
    tools, told, host = await offered(
        Tooled({"name": "read"}, {"name": "grep"}, {"name": "grep"}), "read", "write"
    )
    assert [tool.name for tool in tools] == ["grep"]
    assert told == [
        "its tool 'read' is left out: the pod has a tool of that name already",
        "its tool 'grep' is left out: the pod has a tool of that name already",
    ]
    host.let_go()


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({}, "no name"),
        ({"name": ""}, "no name"),
        ({"name": 7}, "no name"),
        ({"function": "grep"}, "no name"),
        ("grep", "no name"),
        (None, "no name"),
        ({"name": "not a name"}, "letters"),
        ({"name": "x" * 65}, "letters"),
        ({"name": "grep", "parameters": {"type": "array"}}, "no object"),
        ({"name": "grep", "parameters": {"properties": {"a": {1, 2}}}}, "no JSON"),
        ({"name": "grep", "parameters": {"default": float("nan")}}, "no JSON"),
    ],
)
async def test_what_is_no_tool_is_left_out_with_the_reason(schema: Any, why: str) -> None:
    tools, told, host = await offered(Tooled(schema, {"name": "grep"}))
    assert [tool.name for tool in tools] == ["grep"]
    assert len(told) == 1
    assert why in told[0]
    host.let_go()


@pytest.mark.parametrize("schemas", [None, "grep", 7, {"name": "grep"}])
async def test_schemas_that_are_no_list_are_none(schemas: Any) -> None:
    engine = Tooled()
    engine.schemas = schemas
    tools, told, host = await offered(engine)
    assert not tools
    assert len(told) == (schemas is not None)
    host.let_go()


async def test_an_engine_that_offers_none_is_not_asked() -> None:
    tools, told, host = await offered(Recorder())
    assert (tools, told) == ([], [])
    host.let_go()


async def test_a_call_reaches_the_engine_with_the_messages_of_that_moment() -> None:
    engine = Tooled({"name": "grep"})
    (tool,), _, host = await offered(engine)
    output = await tool.call({"q": "x"})
    assert json.loads(output.summary) == {"hits": ["HIT"]}
    (call,) = engine.of("handle_tool_call")
    assert call.args == ("grep", {"q": "x"})
    assert [row["message_uid"] for row in call.kwargs["messages"]] == [i.uid for i in ITEMS]
    assert call.thread.startswith("engine")
    host.let_go()


@pytest.mark.parametrize("error", [ValueError("no index"), KeyboardInterrupt("stop")])
async def test_an_error_is_json_word_for_word(error: BaseException) -> None:
    (tool,), told, host = await offered(Tooled({"name": "grep"}, answer=error))
    output = await tool.call({})
    said = json.loads(output.summary)["error"]
    assert said.startswith("Context engine tool 'grep' failed: ")
    assert str(error) in said
    assert output.is_error
    assert not told, "the model is told"
    host.let_go()


async def test_a_handler_of_two_arguments_gets_two() -> None:
    class Strict(Tooled):
        def handle_tool_call(  # type: ignore[override]  # as some are written
            self, name: str, args: JsonDict
        ) -> str:
            return json.dumps({"name": name, **args})

    (tool,), _, host = await offered(Strict({"name": "grep"}))
    assert json.loads((await tool.call({"q": 1})).summary) == {"name": "grep", "q": 1}
    host.let_go()


async def test_an_engine_that_blocks_fails_a_call_at_once() -> None:
    told: list[str] = []
    engine = Tooled({"name": "grep"})
    host = EngineHost(
        engine, lambda _n, text: told.append(text), 5.0, CompactionPool(), call_timeout_s=0.05
    )
    (tool,) = await host.tools(lambda: ITEMS)
    go = threading.Event()
    await host.calls.guarded("select_context", go.wait, 10)
    output = await asyncio.wait_for(tool.call({}), 2)
    assert output.is_error
    assert "still at an earlier call" in output.summary
    assert len(told) == 1
    go.set()
    host.let_go()


async def test_a_call_passes_what_every_call_passes(home: Path) -> None:
    """Permissions and hooks stand before it, as before any other tool."""
    engine = Tooled({"name": "toy_grep"}, {"name": "toy_sum"})
    shelve(home, lambda: engine)

    def script(asked: Asked, number: int) -> Say:
        if number == 1:
            return Say(calls=(("toy_grep", "{}"), ("toy_sum", "{}")))

        return Say("done")

    with serving(chat(script)) as served:
        extra = USE + '[permissions]\ntools = { toy_grep = "deny" }\n'
        async with living(manifest(home, served.base_url, extra), home) as story:
            await story.turns("one")
            results = {result.name: result for result in story.of(ToolResult)}
            assert results["toy_grep"].is_error
            assert not results["toy_sum"].is_error

    assert [call.args[0] for call in engine.of("handle_tool_call")] == ["toy_sum"]


@pytest.mark.moves_prefix("an engine of its own compacts without a summary")
async def test_they_are_there_on_every_surface(home: Path) -> None:
    """In a new session, after a compaction, in a fork and after a restart; with live messages."""
    made: list[Tooled] = []

    def make() -> Tooled:
        made.append(Tooled({"name": "toy_grep"}, {"name": "big"}))
        return made[-1]

    shelve(home, make)

    def script(asked: Asked, number: int) -> Say:
        last = asked.body["messages"][-1]
        if last["role"] == "user":
            return Say(calls=(("toy_grep", '{"q": 1}'),))

        return Say("done")

    with serving(chat(script)) as served:
        path = manifest(home, served.base_url, USE + BIG_TOOL)
        async with living(path, home) as story:
            await story.turns("one", "two")
            await story.pod.compact()
            await story.turns("three")
            await story.pod.new()
            await story.turns("four")
            async with await story.pod.fork() as child:
                await child.run("five")

            told = [notice.message for notice in story.of(EngineNotice)]
            assert told == ["its tool 'big' is left out: the pod has a tool of that name already"]
            hits = [result.summary for result in story.of(ToolResult)]
            assert hits == ['{"hits": ["HIT"]}'] * 4

        async with living(path, home, resume=pointer(home)) as story:
            await story.turns("six")

    for asked in served.asked:
        names = [tool["function"]["name"] for tool in asked.body["tools"]]
        assert names == ["big", "toy_grep"]

    calls = [call for engine in made for call in engine.of("handle_tool_call")]
    newest = [
        next(r["content"] for r in reversed(c.kwargs["messages"]) if r["role"] == "user")
        for c in calls
    ]
    assert sorted(newest) == ["five", "four", "one", "six", "three", "two"]
    assert all(c.kwargs["messages"][-1]["role"] == "assistant" for c in calls)
