"""Anthropic's dialect on a real connection: requests as they arrive, streams as they are sent."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.worker.llm.client import KEY, Clock, answering, ask, endpoint, retries
from tests.worker.llm.wire import Reply, chunked, head, serving
from worker.errors import (
    BadAnswer,
    ContextOverflow,
    ProviderError,
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
from worker.llm import (
    Answered,
    HttpClient,
    LlmRequest,
    RequestOptions,
    RetryPolicy,
    StreamEvent,
    Usage,
)
from worker.llm.schemes.anthropic.scheme import AnthropicScheme

pytestmark = pytest.mark.anyio

MODEL = "claude-opus-5-5"
RECORDED = Path(__file__).parents[4] / "shared/realdata/sse_anthropic_thinking_stream.yaml"


def client(base_url: str = "http://provider.test", **more: Any) -> HttpClient:
    clock = more.pop("clock", None) or Clock()
    handler = more.pop("handler", None)
    retry = more.pop("retry", None)
    return HttpClient(
        endpoint(base_url, **({"provider": "anthropic", "model": MODEL} | more)),
        AnthropicScheme(),
        retry=retry,
        sleep=clock.sleep,
        now=clock.now,
        transport=answering(handler) if handler else None,
    )


def sse(*events: dict[str, Any]) -> bytes:
    return "".join(
        f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n"
        for event in events
    ).encode()


def start(**usage: int) -> dict[str, Any]:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "usage": usage}
    return {"type": "message_start", "message": message}


def block(index: int, fields: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": fields},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def end(reason: str) -> list[dict[str, Any]]:
    usage = {"output_tokens": 42}
    delta = {"stop_reason": reason, "stop_sequence": None}
    return [
        {"type": "message_delta", "delta": delta, "usage": usage},
        {"type": "message_stop"},
    ]


STREAM = sse(
    start(input_tokens=3, cache_read_input_tokens=100, output_tokens=1),
    {"type": "ping"},
    *block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "Hm. 世界"},
        {"type": "signature_delta", "signature": "c2ln+/="},
    ),
    *block(
        1,
        {"type": "text", "text": ""},
        {"type": "text_delta", "text": "Grüße \u2028"},
        {"type": "text_delta", "text": "\U0001f378 a\u0085b"},
    ),
    *block(
        2,
        {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}},
        {"type": "input_json_delta", "partial_json": '{"word":'},
        {"type": "input_json_delta", "partial_json": '"pod"}'},
    ),
    *block(3, {"type": "tool_use", "id": "toolu_2", "name": "now", "input": {}}),
    *end("tool_use"),
)


def check(events: list[StreamEvent]) -> None:
    """The events of `STREAM`, whole."""
    assert isinstance(events[-1], Answered)
    answer = events[-1].answer
    reasoning, text, look, now = answer.parts
    assert reasoning == Reasoning("Hm. 世界", "c2ln+/=", None, "anthropic", MODEL)
    assert text == Text("Grüße \u2028\U0001f378 a\u0085b")
    assert isinstance(look, ToolCall)
    assert isinstance(now, ToolCall)
    assert (look.call_id, look.arguments) == ("toolu_1", '{"word":"pod"}')
    assert (now.call_id, now.arguments) == ("toolu_2", "{}")
    assert (answer.stop_reason, answer.usage) == ("tool_calls", Usage(103, 42, 100))


async def test_a_turn_with_thinking_and_tools_end_to_end() -> None:
    async with serving(Reply(chunked(STREAM, 7), then="keep")) as server:
        base_url = server.base_url.removesuffix("/v1")
        first = await ask(client(base_url), LlmRequest("S", [user_message("Hi")]))
        check(first)

        assert isinstance(first[-1], Answered)
        parts = first[-1].answer.parts
        items: list[Item] = [
            user_message("Hi"),
            AssistantMessage(new_uid(), parts, "anthropic", MODEL, "tool_calls"),
            ToolResult(new_uid(), "toolu_1", new_uid(), "a word", None, is_error=False),
            ToolResult(new_uid(), "toolu_2", new_uid(), "no clock", None, is_error=True),
        ]
        check(await ask(client(base_url), LlmRequest("S", items)))

        start_line, _, rest = server.requests[1].partition(b"\r\n")
        header_lines, _, body = rest.partition(b"\r\n\r\n")
        assert start_line == b"POST /v1/messages HTTP/1.1"
        headers = dict(line.lower().split(": ", 1) for line in header_lines.decode().split("\r\n"))
        assert headers["x-api-key"] == KEY
        assert headers["anthropic-version"] == "2023-06-01"
        assert "authorization" not in headers
        thinking, text, look, now = json.loads(body)["messages"][1]["content"]
        assert thinking == {"type": "thinking", "thinking": "Hm. 世界", "signature": "c2ln+/="}
        assert text["type"] == "text"
        assert (look["input"], now["input"]) == ({"word": "pod"}, {})


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(st.lists(st.integers(1, len(STREAM) - 1), max_size=12))
async def test_any_chunking_is_the_same_answer(cuts: list[int]) -> None:
    edges = [0, *sorted(set(cuts)), len(STREAM)]
    pieces = [STREAM[a:b] for a, b in itertools.pairwise(edges)]
    async with serving(Reply([head(), *pieces])) as server:
        check(await ask(client(server.base_url)))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(st.integers(0, len(STREAM)))
async def test_a_stream_cut_at_any_byte_is_the_whole_answer_or_an_error(cut: int) -> None:
    async with serving(Reply([head(), STREAM[:cut]])) as server:
        try:
            events = await ask(client(server.base_url, retry=RetryPolicy(max_attempts=1)))
        except StreamBroken as error:
            kept = error.partial.parts if error.partial else ()
            assert not any(isinstance(part, ToolCall) for part in kept)
        except ProviderUnavailable:
            assert cut < STREAM.index(b"thinking_delta") + 100  # before any content
        else:
            check(events)


# --- failures -----------------------------------------------------------------------------------


def error_event(kind: str, message: str = "No.") -> bytes:
    return sse({"type": "error", "error": {"type": kind, "message": message}})


async def test_overload_before_any_content_is_tried_again() -> None:
    # J16
    def script(number: int) -> Reply:
        body = sse(start()) + error_event("overloaded_error") if number == 1 else STREAM
        return Reply([head(), body])

    async with serving(script) as server:
        events = await ask(client(server.base_url))
    assert len(retries(events)) == 1
    check(events[1:])


async def test_an_error_after_content_breaks_the_answer_off() -> None:
    body = STREAM[: STREAM.index(b"event: message_delta")] + error_event("overloaded_error")
    async with serving(Reply([head(), body])) as server:
        with pytest.raises(StreamBroken) as caught:
            await ask(client(server.base_url))
    assert caught.value.code == "overloaded_error"
    assert caught.value.partial is not None
    assert [type(part) for part in caught.value.partial.parts] == [Reasoning, Text]


async def test_a_refused_request_inside_a_stream_is_not_repeated() -> None:
    # J17
    async with serving(Reply([head(), error_event("invalid_request_error", "bad")])) as server:
        with pytest.raises(ProviderRefused, match="bad"):
            await ask(client(server.base_url))
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("status", "error", "expected"),
    [
        ("401 Unauthorized", {"type": "authentication_error", "message": "no"}, ProviderRefused),
        ("529 Overloaded", {"type": "overloaded_error", "message": "no"}, ProviderUnavailable),
        (
            "400 Bad Request",
            {
                "type": "invalid_request_error",
                "message": "prompt is too long: 210000 tokens > 200000 maximum",
            },
            ContextOverflow,
        ),
        ("413 Too Large", {"type": "request_too_large", "message": "no"}, ContextOverflow),
    ],
)
async def test_statuses(status: str, error: dict[str, str], expected: type[ProviderError]) -> None:
    body = json.dumps({"type": "error", "error": error}).encode()
    async with serving(Reply([head(status, "application/json"), body])) as server:
        with pytest.raises(expected):
            await ask(client(server.base_url, retry=RetryPolicy(max_attempts=1)))


@pytest.mark.parametrize(
    ("model", "words", "left_out"),
    [
        ("claude-sonnet-4-5", "`temperature` is deprecated for this model.", "temperature"),
        (
            "claude-haiku-5-5",
            '"thinking.type.disabled" is not supported for this model. Use "output_config.effort".',
            "thinking",
        ),
    ],
)
async def test_an_option_that_the_model_refuses_is_left_out(
    model: str, words: str, left_out: str
) -> None:
    error = {"type": "error", "error": {"type": "invalid_request_error", "message": words}}
    refused = [head("400 Bad Request", "application/json"), json.dumps(error).encode()]
    options = RequestOptions(temperature=0.5, reasoning_effort="none")
    request = LlmRequest("S", [user_message("Hi")], (), options)
    async with serving(
        lambda number: Reply(refused if number == 1 else [head(), STREAM])
    ) as server:
        events = await ask(client(server.base_url, model=model), request)
    assert isinstance(events[-1], Answered)
    first, second = (json.loads(sent.partition(b"\r\n\r\n")[2]) for sent in server.requests)
    assert left_out in first
    assert left_out not in second


async def test_a_base_url_may_end_with_the_version() -> None:
    async with serving(Reply([head(), STREAM])) as server:
        check(await ask(client(server.base_url)))
    assert server.base_url.endswith("/v1")
    assert server.requests[0].startswith(b"POST /v1/messages ")


async def test_a_server_that_does_not_stream_is_understood() -> None:
    whole = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": "Hi"}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 2, "output_tokens": 1},
    }
    reply = Reply([head(content_type="application/json"), json.dumps(whole).encode()])
    async with serving(reply) as server:
        events = await ask(client(server.base_url))
    assert isinstance(events[-1], Answered)
    assert events[-1].answer.parts == (Text("Hi"),)


async def test_an_answer_in_another_dialect_is_told() -> None:
    chunk = b'data: {"object":"chat.completion.chunk","choices":[]}\n\n'
    async with serving(Reply([head(), chunk])) as server:
        with pytest.raises(BadAnswer, match="not its protocol"):
            await ask(client(server.base_url))


# --- recorded -----------------------------------------------------------------------------------


@pytest.mark.skipif(not RECORDED.exists(), reason=f"{RECORDED} is not here")
async def test_a_recorded_stream_is_read() -> None:
    import yaml

    recorded = yaml.safe_load(RECORDED.read_text(encoding="utf-8"))
    stream = recorded["interactions"][0]["response"]["body"]["string"]
    async with serving(Reply([head(), stream.encode()])) as server:
        events = await ask(client(server.base_url))
    assert isinstance(events[-1], Answered)
    answer = events[-1].answer
    reasoning, text = answer.parts
    assert isinstance(reasoning, Reasoning)
    assert isinstance(text, Text)
    assert reasoning.text.startswith("This is a straightforward question about pedestrian safety")
    signature = reasoning.signature or ""
    assert signature.startswith("EvMCCkYICxgCKkCHP2cSuEdc")
    assert signature in stream
    assert answer.stop_reason == "end"
    assert answer.usage is not None
    assert answer.usage.input_tokens == 43
