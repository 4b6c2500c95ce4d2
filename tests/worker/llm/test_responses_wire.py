"""The Responses dialect through a client: real bytes, cut in every way, and the turn after."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

import attrs
import httpx
import pytest

from tests.worker.llm.client import Clock, endpoint
from tests.worker.llm.responses_wire import (
    added,
    argument_deltas,
    call,
    done,
    ended,
    message,
    response,
    sse,
    streamed_call,
    streamed_reasoning,
    streamed_text,
    text_deltas,
    usage,
)
from tests.worker.llm.wire import Reply, chunked, head, serving
from worker.answers import message_of
from worker.errors import (
    BadAnswer,
    ContextOverflow,
    ProviderRefused,
    ProviderUnavailable,
    StreamBroken,
)
from worker.items import (
    AssistantMessage,
    Item,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    new_uid,
    user_message,
)
from worker.items_json import dump_items, load_items
from worker.llm import (
    Answered,
    HttpClient,
    LlmRequest,
    RetryPolicy,
    StreamEvent,
    ToolCallDone,
    ToolSpec,
)
from worker.llm.schemes.responses.scheme import OpenAiResponsesScheme
from worker.projection import repair

pytestmark = pytest.mark.anyio

TOOLS = (ToolSpec("read", "Read a file.", {"type": "object", "properties": {}}),)
REQUEST = LlmRequest("You help.", [user_message("Hi")], TOOLS)
EVENTS = [
    {"type": "response.created", "response": response("in_progress")},
    *streamed_reasoning(0, "Let me see.", "And then."),
    *streamed_text(1, "Hel", "lo ", "你\u2028好"),
    *streamed_call(2, "c1", '{"p":', "1}"),
    ended(output=[message("Hello 你\u2028好")], usage=usage(9, 2, cached_tokens=4)),
]


@attrs.frozen
class Pieces(httpx.AsyncByteStream):
    """A body in pieces of one size."""

    data: bytes
    size: int

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for at in range(0, len(self.data), self.size):
            yield self.data[at : at + self.size]


def client(base_url: str, transport: httpx.AsyncBaseTransport | None = None) -> HttpClient:
    clock = Clock()
    return HttpClient(
        endpoint(base_url, provider="openai_responses", model="gpt-5"),
        OpenAiResponsesScheme(),
        retry=RetryPolicy(max_attempts=2),
        sleep=clock.sleep,
        now=clock.now,
        transport=transport,
    )


async def ask(asked: HttpClient, request: LlmRequest = REQUEST) -> list[StreamEvent]:
    async with aclosing(asked.stream(request)) as stream:
        return [event async for event in stream]


async def told(
    data: bytes, *, size: int = 1 << 20, content_type: str = "text/event-stream", status: int = 200
) -> list[StreamEvent]:
    """What a client tells of a body that comes in pieces of `size` bytes."""

    def answer(request: httpx.Request) -> httpx.Response:
        headers = {"content-type": content_type}
        return httpx.Response(status, headers=headers, stream=Pieces(data, size))

    asked = client("http://provider.test/v1", httpx.MockTransport(answer))
    try:
        return await ask(asked)
    finally:
        await asked.aclose()


def without_uids(events: list[StreamEvent]) -> list[Any]:
    *before, last = events
    assert isinstance(last, Answered)
    parts = [
        attrs.evolve(part, call_uid="") if isinstance(part, ToolCall) else part
        for part in last.answer.parts
    ]
    return [*before, attrs.evolve(last.answer, parts=tuple(parts))]


async def test_what_was_thought_goes_back_with_the_turn_after_also_from_a_file() -> None:
    bodies = [
        sse(*streamed_reasoning(0, "Read it.", "Then."), *streamed_call(1, "c1", "{}"), ended()),
        sse(*streamed_text(0, "Done."), ended()),
    ]
    async with serving(lambda number: Reply(chunked(bodies[number - 1], 50))) as server:
        asked = client(server.base_url)
        first = (await ask(asked))[-1]
        assert isinstance(first, Answered)
        item = message_of(first.answer, asked)
        assert item is not None
        history: list[Item] = [
            *REQUEST.items,
            item,
            ToolResult(new_uid(), "c1", new_uid(), "a line", None, is_error=False),
        ]
        restored = load_items(json.loads(json.dumps(dump_items(history))))
        last = (await ask(asked, attrs.evolve(REQUEST, items=repair(restored))))[-1]
        await asked.aclose()

    assert isinstance(last, Answered)
    assert last.answer.parts == (Text("Done."),)
    one, two = (request.partition(b"\r\n\r\n") for request in server.requests)
    assert one[0].startswith(b"POST /v1/responses HTTP/1.1")
    before, after = json.loads(one[2]), json.loads(two[2])
    assert after["input"][: len(before["input"])] == before["input"]
    assert after["input"][1:] == [
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [
                {"type": "summary_text", "text": "Read it."},
                {"type": "summary_text", "text": "Then."},
            ],
            "encrypted_content": "BLOB",
        },
        {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "a line"},
    ]


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 100, 1 << 20])
async def test_however_the_bytes_are_cut_the_events_are_the_same(size: int, newline: str) -> None:
    # I14, I16, I17.
    whole = without_uids(await told(sse(*EVENTS)))
    assert without_uids(await told(sse(*EVENTS, newline=newline), size=size)) == whole


async def test_a_stream_cut_at_any_byte_is_whole_or_broken() -> None:
    # I06: a call of which something is missing never comes out as one.
    data = sse(
        added(0, message()),
        *text_deltas(0, "Hel", "lo"),
        added(1, call()),
        *argument_deltas(1, '{"p":', "1}"),
        done(1, call(arguments='{"p":1}')),
        {"type": "response.completed", "response": {}},
    )
    last = data.rindex(b"event: ")
    for end in range(len(data) + 1):
        try:
            events = await told(data[:end])
        except (StreamBroken, ProviderUnavailable) as error:
            assert end < len(data)
            partial = error.partial if isinstance(error, StreamBroken) else None
            assert partial is None or partial.parts in {(Text("Hel"),), (Text("Hello"),)}
        else:
            assert end > last
            assert ToolCallDone("c1", "read", '{"p":1}') in events


async def test_a_body_that_is_not_streamed_is_the_same_answer() -> None:
    output = [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "B"},
        message("Hi"),
    ]
    data = json.dumps(response(output=output, usage=usage(9, 2))).encode()
    last = (await told(data, content_type="application/json"))[-1]
    assert isinstance(last, Answered)
    assert [type(part) for part in last.answer.parts] == [Reasoning, Text]


@pytest.mark.parametrize(
    ("event", "error"),
    [
        ({"type": "error", "code": "insufficient_quota", "message": "No credit"}, ProviderRefused),
        (
            ended("failed", error={"code": "rate_limit_exceeded", "message": "Slow down"}),
            ProviderUnavailable,
        ),
        (
            ended("failed", error={"code": "context_length_exceeded", "message": "Too long"}),
            ContextOverflow,
        ),
        (
            ended("failed", error={"code": "invalid_prompt", "message": "Not that"}),
            ProviderRefused,
        ),
    ],
)
async def test_errors_before_any_content_are_what_a_status_would_be(
    event: dict[str, Any], error: type[Exception]
) -> None:
    # J16, J17.
    created = {"type": "response.created", "response": response("in_progress")}
    with pytest.raises(error):
        await told(sse(created, event))


async def test_an_error_after_content_breaks_the_stream_and_keeps_the_text() -> None:
    failed = ended("failed", error={"code": "server_error", "message": "Oh no"})
    with pytest.raises(StreamBroken, match="Oh no") as caught:
        await told(sse(*streamed_text(0, "Hello"), failed))
    assert caught.value.partial is not None
    assert caught.value.partial.parts == (Text("Hello"),)


@pytest.mark.parametrize(
    ("body", "content_type"),
    [(b"<html><title>Hm</title></html>", "text/html"), (b'{"answer":1}', "application/json")],
)
async def test_a_body_that_is_no_answer_is_not_taken_for_an_empty_one(
    body: bytes, content_type: str
) -> None:
    # I21.
    with pytest.raises(BadAnswer):
        await told(body, content_type=content_type)


@pytest.mark.parametrize(
    ("error", "left"),
    [
        pytest.param(
            {
                "message": "The encrypted content gAAA...DQ== could not be verified.",
                "param": None,
                "code": "invalid_encrypted_content",
            },
            lambda sent: [item["type"] for item in sent["input"]] == ["message", "message"],
            marks=pytest.mark.moves_prefix(reason="the reasoning that was refused is left out"),
        ),
        (
            {
                "message": "Your organization must be verified to generate reasoning summaries.",
                "param": "reasoning.summary",
                "code": "unsupported_value",
            },
            lambda sent: "reasoning" not in sent and len(sent["input"]) == 3,
        ),
    ],
)
async def test_what_the_server_refuses_by_name_is_left_out_of_a_second_request(
    error: dict[str, Any], left: Callable[[dict[str, Any]], bool]
) -> None:
    refused = json.dumps({"error": error | {"type": "invalid_request_error"}}).encode()
    whole = sse(*streamed_text(0, "Hello"), ended())

    def script(number: int) -> Reply:
        if number == 1:
            return Reply([head("400 Bad Request", "application/json"), refused])
        return Reply([head(), whole])

    thought = Reasoning("t", "rs_1", "BLOB", "openai_responses", "gpt-5")
    parts = (thought, Text("Hi"))
    item = AssistantMessage(new_uid(), parts, "openai_responses", "gpt-5", "end")
    async with serving(script) as server:
        asked = client(server.base_url)
        last = (await ask(asked, attrs.evolve(REQUEST, items=[*REQUEST.items, item])))[-1]
        await asked.aclose()
    assert isinstance(last, Answered)
    assert len(server.requests) == 2
    assert left(json.loads(server.requests[1].partition(b"\r\n\r\n")[2]))


async def test_a_drop_before_any_content_is_tried_again() -> None:
    # J14.
    def script(number: int) -> Reply:
        created = sse({"type": "response.created", "response": response("in_progress")})
        whole = sse(*streamed_text(0, "Hello"), ended())
        return Reply([head(), created if number == 1 else whole])

    async with serving(script) as server:
        asked = client(server.base_url)
        last = (await ask(asked))[-1]
        await asked.aclose()
    assert isinstance(last, Answered)
    assert last.answer.parts == (Text("Hello"),)
    assert len(server.requests) == 2
