"""Gemini end to end: `HttpClient` and its scheme against bytes on a real connection."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.worker.llm.client import KEY, Clock, answering, ask, endpoint, retries
from tests.worker.llm.wire import Reply, chunked, head, serving, sse
from worker.errors import ProviderRefused, ProviderUnavailable, StreamBroken
from worker.items import AssistantMessage, Item, Reasoning, Text, ToolCall, ToolResult, user_message
from worker.llm import (
    Answer,
    Answered,
    HttpClient,
    LlmRequest,
    ReasoningDelta,
    RequestOptions,
    RetryPolicy,
    StreamEvent,
    TextDelta,
    ToolCallDone,
    ToolSpec,
    Usage,
)
from worker.llm.schemes.gemini.scheme import GeminiScheme

pytestmark = pytest.mark.anyio

MODEL = "gemini-3.8-flash"
ONCE = RetryPolicy(max_attempts=1)
TOOLS = (ToolSpec("look", "Look it up.", {"type": "object", "properties": {"word": {}}}),)


def client(
    base_url: str = "http://provider.test",
    *,
    retry: RetryPolicy | None = None,
    transport: httpx.AsyncBaseTransport | None = None,
) -> HttpClient:
    """A client of Gemini at `base_url`."""
    clock = Clock()
    return HttpClient(
        endpoint(base_url.removesuffix("/v1"), provider="gemini", model=MODEL),
        GeminiScheme(),
        retry=retry,
        sleep=clock.sleep,
        now=clock.now,
        transport=transport,
    )


def chunk(*parts: dict[str, Any], finish: str = "", **more: Any) -> dict[str, Any]:
    candidate = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    return {"candidates": [candidate | ({"finishReason": finish} if finish else {})], **more}


def stream(*chunks: dict[str, Any]) -> bytes:
    """The chunks as Google sends them: lines end in CRLF, and nothing marks the end."""
    return sse(*chunks, done=False, newline="\r\n")


SAID = "Grüße, 世界 \U0001f378 a\u2028b"
STREAM = stream(
    chunk({"text": "Hm.", "thought": True}, usageMetadata={"promptTokenCount": 50}),
    chunk({"text": "Grüße, 世界 \U0001f378"}),
    chunk({"text": " a\u2028b"}),
    chunk(
        {
            "functionCall": {"name": "look", "args": {"word": "pod"}, "id": "fc_1"},
            "thoughtSignature": "Uy0x+/==",
        }
    ),
    chunk(
        {"text": ""},
        finish="STOP",
        usageMetadata={
            "promptTokenCount": 53,
            "cachedContentTokenCount": 40,
            "candidatesTokenCount": 15,
            "thoughtsTokenCount": 5,
        },
    ),
)
HELLO = stream(chunk({"text": "Hello"}, finish="STOP", usageMetadata={"promptTokenCount": 9}))


def answer_of(events: list[StreamEvent]) -> Answer:
    assert isinstance(events[-1], Answered)
    return events[-1].answer


def check(events: list[StreamEvent]) -> Answer:
    """The events of `STREAM`, whole."""
    answer = answer_of(events)
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == SAID
    assert events[0] == ReasoningDelta("Hm.")
    assert ToolCallDone("fc_1", "look", '{"word":"pod"}') in events
    thought, said, signature, call = answer.parts
    assert thought == Reasoning("Hm.", provider="gemini", model=MODEL)
    assert said == Text(SAID)
    assert signature == Reasoning("", blob="Uy0x+/==", provider="gemini", model=MODEL)
    assert isinstance(call, ToolCall)
    assert call.arguments == '{"word":"pod"}'
    assert answer.usage == Usage(53, 20, cache_read=40)
    assert answer.stop_reason == "tool_calls"
    return answer


async def test_a_call_its_result_and_the_answer() -> None:
    """What was received is in the next request byte for byte, which goes on where this one ends."""
    items: list[Item] = [user_message("Look it up.")]
    options = RequestOptions(max_tokens=99, temperature=0.5, reasoning_effort="low")
    replies = [Reply([head(), STREAM]), Reply([head(), HELLO])]
    async with serving(lambda n: replies[n - 1]) as server:
        first = client(server.base_url)
        answer = check(await ask(first, LlmRequest("Be brief.", items, TOOLS, options)))
        (call,) = [part for part in answer.parts if isinstance(part, ToolCall)]
        items += [
            AssistantMessage("a" * 32, answer.parts, "gemini", MODEL, answer.stop_reason),
            ToolResult("b" * 32, call.call_id, call.call_uid, "a pod", None, is_error=False),
        ]
        # Another client: nothing but the items is carried over, as behind a restart.
        again = client(server.base_url)
        events = await ask(again, LlmRequest("Be brief.", items, TOOLS, options))

    assert answer_of(events).parts == (Text("Hello"),)
    before, after = server.requests
    line, *headers = before.partition(b"\r\n\r\n")[0].decode().split("\r\n")
    assert line == f"POST /v1beta/models/{MODEL}:streamGenerateContent?alt=sse HTTP/1.1"
    assert f"x-goog-api-key: {KEY}" in headers
    assert not any(header.lower().startswith("authorization") for header in headers)

    body = json.loads(after.partition(b"\r\n\r\n")[2])
    assert body["generationConfig"] == {
        "maxOutputTokens": 99,
        "thinkingConfig": {"thinkingLevel": "low", "includeThoughts": True},
    }
    assert body["contents"][1:] == [
        {
            "role": "model",
            "parts": [
                {"text": "Hm.", "thought": True},
                {"text": SAID},
                {
                    "functionCall": {"id": "fc_1", "name": "look", "args": {"word": "pod"}},
                    "thoughtSignature": "Uy0x+/==",
                },
            ],
        },
        {
            "role": "user",
            "parts": [
                {
                    "functionResponse": {
                        "name": "look",
                        "id": "fc_1",
                        "response": {"output": "a pod"},
                    }
                }
            ],
        },
    ]
    contents = before[before.index(b'{"contents":') : before.index(b'],"systemInstruction"')]
    assert contents in after


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("size", [1, 7, 4096])
async def test_i16_any_line_end_and_any_chunk_size(newline: bytes, size: int) -> None:
    """I16, I17: also with characters split over chunks, and without a space behind the colon."""
    body = STREAM.replace(b"\r\n", newline).replace(b"data: ", b"data:")
    async with serving(Reply(chunked(body, size), then="keep")) as server:
        check(await ask(client(server.base_url)))


class _Pieces(httpx.AsyncByteStream):
    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece


async def _outcome(
    pieces: list[bytes],
) -> list[StreamEvent] | StreamBroken | ProviderUnavailable:
    transport = answering(lambda _: httpx.Response(200, stream=_Pieces(pieces)))
    asked = client(retry=ONCE, transport=transport)
    request = LlmRequest("", [user_message("Hi")])
    try:
        async with aclosing(asked.stream(request)) as events:
            return [event async for event in events]
    except (StreamBroken, ProviderUnavailable) as error:
        return error
    finally:
        await asked.aclose()


@given(st.lists(st.integers(1, len(STREAM) - 1), max_size=12))
def test_any_split_of_the_bytes_gives_the_same_events(cuts: list[int]) -> None:
    edges = [0, *sorted(set(cuts)), len(STREAM)]
    outcome = asyncio.run(_outcome([STREAM[a:b] for a, b in itertools.pairwise(edges)]))
    assert isinstance(outcome, list)
    check(outcome)
    assert len(outcome) == 7


def test_cut_at_every_byte_nothing_partial_is_whole() -> None:
    first_ends_at = STREAM.index(b"\r\n\r\n") + len(b"\r\n\r\n")
    called_at = STREAM.index(b"functionCall")

    async def run() -> None:
        for cut in range(len(STREAM)):
            outcome = await _outcome([STREAM[:cut]])
            if isinstance(outcome, list):
                # The last line ends may be missing, not more.
                assert cut >= len(STREAM) - 4, cut
                check(outcome)
            elif isinstance(outcome, StreamBroken):
                partial = outcome.partial
                assert partial is not None
                said = "".join(part.text for part in partial.parts if isinstance(part, Text))
                assert SAID.startswith(said)
                assert not any(isinstance(part, ToolCall) for part in partial.parts)
                assert cut < called_at or said == SAID
            else:
                assert cut < first_ends_at, cut

    asyncio.run(run())


# --- failures -----------------------------------------------------------------------------------

OVERLOADED = {"error": {"code": 503, "message": "Overloaded.", "status": "UNAVAILABLE"}}


async def asked(*replies: bytes) -> list[StreamEvent]:
    """The events of one request to a server that answers so, one reply after the other."""
    async with serving(lambda n: Reply([head(), replies[n - 1]])) as server:
        return await ask(client(server.base_url))


@pytest.mark.parametrize(
    "first",
    [
        stream(OVERLOADED),
        json.dumps([OVERLOADED]).encode(),
        stream({"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL"}]}),
        stream({"candidates": [{"finishReason": "OTHER"}]}),
    ],
)
async def test_j16_what_failed_before_any_content_is_asked_for_again(first: bytes) -> None:
    """J16: an error inside a stream of status 200 counts as one of its own status would."""
    events = await asked(first, HELLO)
    assert len(retries(events)) == 1
    assert answer_of(events).parts == (Text("Hello"),)


async def test_an_unreadable_call_behind_a_thought_lets_the_run_go_on() -> None:
    words = "Malformed function call: print(default_api.look(word=))"
    malformed = {"finishReason": "MALFORMED_FUNCTION_CALL", "finishMessage": words}
    events = await asked(
        stream(chunk({"text": "Hm.", "thought": True}), {"candidates": [malformed]})
    )
    call = answer_of(events).parts[-1]
    assert isinstance(call, ToolCall)
    assert call.name == "look"


async def test_a_blocked_prompt_is_refused_at_once_with_the_reason() -> None:
    with pytest.raises(ProviderRefused, match=r"the prompt was blocked.*PROHIBITED_CONTENT"):
        await asked(stream({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}))


async def test_j17_an_error_behind_content_breaks_the_stream_and_keeps_what_came() -> None:
    """J17: it is not asked for again, and its words are not lost."""
    with pytest.raises(StreamBroken, match="Overloaded") as caught:
        await asked(stream(chunk({"text": "Hel"}), OVERLOADED))
    assert caught.value.partial == Answer((Text("Hel"),), "partial", None, MODEL)


async def test_a_thinking_level_that_the_model_refuses_is_left_out() -> None:
    words = "Thinking level LOW is not supported for this model. Please retry with another."
    error = {"error": {"code": 400, "message": words, "status": "INVALID_ARGUMENT"}}
    refused = head("400 Bad Request", "application/json") + json.dumps(error).encode()
    replies = [Reply([refused]), Reply([head(), HELLO])]
    request = LlmRequest("", [user_message("Hi")], (), RequestOptions(reasoning_effort="low"))
    async with serving(lambda n: replies[n - 1]) as server:
        events = await ask(client(server.base_url), request)
    assert answer_of(events).parts == (Text("Hello"),)
    first, second = (json.loads(sent.partition(b"\r\n\r\n")[2]) for sent in server.requests)
    assert "thinkingConfig" in first["generationConfig"]
    assert "generationConfig" not in second


async def test_i21_an_answer_that_is_not_streamed_is_read() -> None:
    """I21: a server that knows no `alt=sse` sends a list of chunks."""
    body = json.dumps([chunk({"text": "Hel"}), chunk({"text": "lo"}, finish="STOP")]).encode()
    async with serving(Reply([head(content_type="application/json"), body])) as server:
        events = await ask(client(server.base_url))
    assert answer_of(events).parts == (Text("Hello"),)
