"""Streams of the chat family through the whole client: cut into any pieces, or off at any byte."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from attrs import frozen

from tests.worker.llm.client import ask, endpoint
from tests.worker.llm.wire import call_delta, chunk, sse, usage_chunk
from worker.errors import (
    ContextOverflow,
    ProviderError,
    ProviderUnavailable,
    StreamBroken,
)
from worker.items import Reasoning, Text, ToolCall, user_message
from worker.llm import (
    Answer,
    Answered,
    HttpClient,
    LlmRequest,
    OpenAiChatScheme,
    RequestOptions,
    RetryPolicy,
    Scheme,
    StreamEvent,
    TextDelta,
)
from worker.llm.schemes.chat.servers import OPENROUTER
from worker.llm.schemes.ollama.scheme import OllamaScheme

pytestmark = pytest.mark.anyio


def ollama_line(content: str = "", **fields: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": content, **fields.pop("message", {})}
    return {"model": "m", "created_at": "2026-11-30", "message": message, "done": False, **fields}


def json_lines(*lines: dict[str, Any], newline: str = "\n") -> bytes:
    return "".join(json.dumps(each, ensure_ascii=False) + newline for each in lines).encode()


def details(text: str, **more: Any) -> dict[str, Any]:
    entry = {"type": "reasoning.text", "text": text, "index": 0, "format": "f", **more}
    return chunk({"reasoning_details": [entry], "reasoning": text})


CHAT = sse(
    chunk({"role": "assistant", "content": ""}),
    details("Hm, "),
    details("\u2028so\u0085."),
    details("", signature="S+/="),
    chunk({"content": "你好"}),
    chunk({"content": "再见"}),
    chunk({"content": "a"}),
    chunk(call_delta(0, "c1", "read", '{"p":')),
    chunk(call_delta(0, None, None, '"ü"}')),
    chunk(call_delta(1, "c2", "read", "{}")),
    chunk(finish="tool_calls"),
    usage_chunk(9, 2),
)
OLLAMA = json_lines(
    ollama_line(message={"thinking": "Hm, "}),
    ollama_line(message={"thinking": "\u2028so\u0085."}),
    ollama_line("你好"),
    ollama_line("再见"),
    ollama_line("a"),
    ollama_line(message={"tool_calls": [{"function": {"name": "read", "arguments": {"p": "ü"}}}]}),
    ollama_line(done=True, done_reason="stop", prompt_eval_count=9, eval_count=2),
)


@frozen
class _Body(httpx.AsyncByteStream):
    """A body in pieces, which ends, or whose connection is lost then."""

    pieces: list[bytes]
    is_lost: bool = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            yield piece
        if self.is_lost:
            raise httpx.ReadError("connection reset by peer")


async def stream(
    scheme: Scheme, pieces: list[bytes], *, is_lost: bool = False, status: int = 200, **more: Any
) -> tuple[list[StreamEvent], httpx.Request]:
    requests: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        types = {"sse": "text/event-stream", "ndjson": "application/x-ndjson"}
        headers = {"content-type": types[scheme.framing]}
        return httpx.Response(status, headers=headers, stream=_Body(pieces, is_lost))

    client = HttpClient(
        endpoint(**({"base_url": "http://127.0.0.1:11434/v1"} | more)),
        scheme,
        retry=RetryPolicy(max_attempts=1),
        transport=httpx.MockTransport(handler),
    )
    request = LlmRequest("S", [user_message("Hi")], options=RequestOptions(max_tokens=5))
    return await ask(client, request), requests[0]


def answer_in(events: list[StreamEvent]) -> Answer:
    last = events[-1]
    assert isinstance(last, Answered)
    # What is made up here is another each time.
    parts = tuple(
        ToolCall("", part.name, part.arguments, "") if isinstance(part, ToolCall) else part
        for part in last.answer.parts
    )
    return Answer(parts, last.answer.stop_reason, last.answer.usage, last.answer.model)


both = pytest.mark.parametrize(
    ("scheme", "body"),
    [
        pytest.param(OpenAiChatScheme(OPENROUTER), CHAT, id="chat"),
        pytest.param(OllamaScheme(), OLLAMA, id="ollama"),
    ],
)


@both
@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 1000])
async def test_i14_i16_any_pieces_come_to_the_same(scheme: Scheme, body: bytes, size: int) -> None:
    events, _ = await stream(scheme, [body])
    whole = answer_in(events)
    assert {type(part).__name__ for part in whole.parts} == {"Reasoning", "Text", "ToolCall"}
    assert Text("你好再见a") in whole.parts

    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    again, _ = await stream(scheme, pieces)
    assert answer_in(again) == whole
    assert list(map(type, again)) == list(map(type, events))
    said = [event.text for event in again if isinstance(event, TextDelta)]
    assert said == ["你好", "再见", "a"]


@both
async def test_i17_other_line_ends_come_to_the_same(scheme: Scheme, body: bytes) -> None:
    events, _ = await stream(scheme, [body])
    others, _ = await stream(scheme, [body.replace(b"\n", b"\r\n")])
    assert answer_in(others) == answer_in(events)


@both
@pytest.mark.parametrize("is_lost", [False, True])
async def test_cut_off_anywhere_it_is_the_same_answer_or_a_broken_one(
    scheme: Scheme, body: bytes, is_lost: bool
) -> None:
    events, _ = await stream(scheme, [body])
    whole = answer_in(events)
    for cut in range(0, len(body) - 1, 4):
        try:
            told, _ = await stream(scheme, [body[:cut]], is_lost=is_lost)
        except ProviderError as error:
            failed = error
        else:
            assert answer_in(told).parts == whole.parts
            continue

        # Where nothing had arrived yet, it may be asked again.
        assert isinstance(failed, (StreamBroken, ProviderUnavailable)), (cut, failed)
        partial = failed.partial if isinstance(failed, StreamBroken) else None
        kept = partial.parts if partial else ()
        assert not [part for part in kept if isinstance(part, ToolCall)]


async def test_ollama_is_asked_at_the_root_of_the_server_also_where_v1_is_named() -> None:
    for base_url in ("http://127.0.0.1:11434", "http://127.0.0.1:11434/v1"):
        _, request = await stream(OllamaScheme(8192), [OLLAMA], base_url=base_url, api_key=None)
        assert str(request.url) == "http://127.0.0.1:11434/api/chat"
        assert json.loads(request.content)["options"] == {"num_ctx": 8192, "num_predict": 5}
        assert "authorization" not in request.headers


@pytest.mark.parametrize(
    "message",
    [
        "request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it",
        "the input length exceeds the context length",
    ],
)
async def test_a_prompt_that_ollama_may_not_cut_is_an_overflow(message: str) -> None:
    body = json.dumps({"error": message}).encode()
    with pytest.raises(ContextOverflow):
        await stream(OllamaScheme(8192), [body], status=400)
    # It may also be noticed only once the answer has begun.
    with pytest.raises(ContextOverflow):
        await stream(OllamaScheme(8192), [json_lines({"error": message})])


async def test_an_answer_in_one_piece_is_read_as_well() -> None:
    whole = ollama_line("Hi", done=True, done_reason="stop")
    for body in (json.dumps(whole).encode(), json.dumps(whole, indent=2).encode()):
        events, _ = await stream(OllamaScheme(), [body])
        assert answer_in(events).parts == (Text("Hi"),)


@both
async def test_many_events_alike_are_read_as_one_by_one(scheme: Scheme, body: bytes) -> None:
    words = [f"word{number} " for number in range(50)]
    if scheme.framing == "sse":
        entry = {"type": "reasoning.text", "index": 0}
        thoughts = [chunk({"reasoning_details": [entry | {"text": word}]}) for word in words]
        data = sse(*thoughts, *(chunk({"content": word}) for word in words), chunk(finish="stop"))
    else:
        thoughts = [ollama_line(message={"thinking": word}) for word in words]
        data = json_lines(*thoughts, *map(ollama_line, words), ollama_line(done=True))
    events, _ = await stream(scheme, [data])
    reasoning, text = answer_in(events).parts
    assert isinstance(reasoning, Reasoning)
    assert reasoning.text == "".join(words)
    assert text == Text("".join(words))
    assert len(events) == 101
