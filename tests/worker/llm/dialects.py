"""Every dialect as bytes on a wire: what tests of the transport need of each, and no more."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from attrs import frozen

from tests.worker.llm import responses_wire, wire
from tests.worker.llm.client import Clock, Handler, Provider, answering, ask, endpoint
from worker.errors import ProviderError
from worker.llm import HttpClient, OpenAiChatScheme, RetryPolicy, Scheme
from worker.llm.schemes.anthropic.scheme import AnthropicScheme
from worker.llm.schemes.gemini.scheme import GeminiScheme
from worker.llm.schemes.ollama.scheme import OllamaScheme
from worker.llm.schemes.responses.scheme import OpenAiResponsesScheme

Event = dict[str, Any]


@frozen
class Dialect:
    """One scheme, and bytes that it reads."""

    provider: str
    scheme: Scheme
    url: str
    """The path of a request to a server at `http://host/v1`."""
    begin: Callable[[], bytes]
    """What comes before any content."""
    text: Callable[[str], bytes]
    """One more piece of text, in one event."""
    half_call: Callable[[], bytes]
    """A tool call whose arguments break off."""
    call: Callable[[str], bytes]
    """A whole call of `look` and the end of the answer; the argument is the value of `word`."""
    end: Callable[[], bytes]
    """The end of an answer that was text."""
    error: Callable[[str, str], bytes]
    """An error inside the stream: the provider's code, and its words."""
    overload: str
    """The code that says that there is no capacity."""
    refusal: str
    """The code that says that the request is invalid."""
    keep_alive: bytes
    """What keeps the connection open and says nothing."""

    def __str__(self) -> str:
        return self.provider

    def hello(self, *pieces: str) -> bytes:
        """A whole answer of some text."""
        texts = map(self.text, pieces or ("Hel", "lo"))
        return b"".join((self.begin(), *texts, self.end()))

    def event(self, data: object) -> bytes:
        """`data` as one event of the stream; text and bytes stand for themselves."""
        data = data if isinstance(data, str | bytes) else json.dumps(data)
        data = data.encode() if isinstance(data, str) else data
        return b"data: " + data + b"\n\n" if self.scheme.framing == "sse" else data + b"\n"

    def client(
        self,
        base_url: str = "http://provider.test/v1",
        *,
        handler: Handler | None = None,
        clock: Clock | None = None,
        retry: RetryPolicy | None = None,
        **changes: Any,
    ) -> HttpClient:
        """A client that speaks this dialect, to the server at `base_url` or to `handler`."""
        clock = clock or Clock()
        return HttpClient(
            endpoint(base_url, provider=self.provider, **changes),
            self.scheme,
            retry=retry,
            sleep=clock.sleep,
            now=clock.now,
            transport=answering(handler) if handler else None,
        )


# --- Chat Completions ---------------------------------------------------------------------------


def _chat_call(word: str) -> bytes:
    arguments = json.dumps({"word": word})
    return wire.sse(
        wire.chunk(wire.call_delta(0, "c1", "look", arguments)), wire.chunk(finish="tool_calls")
    )


CHAT = Dialect(
    provider="openai_compatible",
    scheme=OpenAiChatScheme(),
    url="/v1/chat/completions",
    begin=lambda: wire.sse(wire.chunk({"role": "assistant", "content": ""}), done=False),
    text=lambda text: wire.sse(wire.chunk({"content": text}), done=False),
    half_call=lambda: wire.sse(
        wire.chunk(wire.call_delta(0, "c1", "look", '{"word":"ha')), done=False
    ),
    call=_chat_call,
    end=lambda: wire.sse(wire.chunk(finish="stop"), wire.usage_chunk(9, 2)),
    error=lambda code, words: wire.sse({"error": {"message": words, "code": code}}, done=False),
    overload="server_is_overloaded",
    refusal="invalid_request_error",
    keep_alive=b": keep-alive\n\n",
)

# --- Anthropic ----------------------------------------------------------------------------------


def _named(*events: Event) -> bytes:
    return b"".join(
        f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n".encode()
        for event in events
    )


def _delta(**delta: Any) -> Event:
    return {"type": "content_block_delta", "index": 0, "delta": delta}


def _ended(reason: str) -> bytes:
    usage = {"output_tokens": 2}
    return _named(
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage},
        {"type": "message_stop"},
    )


def _message(block: Event) -> bytes:
    message = {"id": "msg_1", "role": "assistant", "content": [], "usage": {"input_tokens": 9}}
    return _named(
        {"type": "message_start", "message": {"type": "message", "model": "m", **message}},
        {"type": "content_block_start", "index": 0, "content_block": block},
    )


def _tool_use(partial: str) -> bytes:
    block = {"type": "tool_use", "id": "c1", "name": "look", "input": {}}
    return _message(block) + _named(_delta(type="input_json_delta", partial_json=partial))


ANTHROPIC = Dialect(
    provider="anthropic",
    scheme=AnthropicScheme(),
    url="/v1/messages",
    begin=lambda: _message({"type": "text", "text": ""}),
    text=lambda text: _named(_delta(type="text_delta", text=text)),
    half_call=lambda: _tool_use('{"word":"ha'),
    call=lambda word: _tool_use(json.dumps({"word": word})) + _ended("tool_use"),
    end=lambda: _ended("end_turn"),
    error=lambda code, words: _named({"type": "error", "error": {"type": code, "message": words}}),
    overload="overloaded_error",
    refusal="invalid_request_error",
    keep_alive=b'event: ping\ndata: {"type": "ping"}\n\n',
)

# --- Responses ----------------------------------------------------------------------------------


def _responses_call(word: str) -> bytes:
    arguments = json.dumps({"word": word})
    events = responses_wire.streamed_call(0, "c1", arguments)
    renamed = json.loads(json.dumps(events).replace('"read"', '"look"'))
    return responses_wire.sse(*renamed, responses_wire.ended())


RESPONSES = Dialect(
    provider="openai_responses",
    scheme=OpenAiResponsesScheme(),
    url="/v1/responses",
    begin=lambda: responses_wire.sse(
        {"type": "response.created", "response": responses_wire.response("in_progress")},
        responses_wire.added(0, responses_wire.message()),
    ),
    text=lambda text: responses_wire.sse(*responses_wire.text_deltas(0, text)),
    half_call=lambda: responses_wire.sse(
        responses_wire.added(0, responses_wire.call("c1", "look")),
        *responses_wire.argument_deltas(0, '{"word":"ha'),
    ),
    call=_responses_call,
    end=lambda: responses_wire.sse(responses_wire.ended()),
    error=lambda code, words: responses_wire.sse(
        {"type": "error", "code": code, "message": words, "param": None, "sequence_number": 1}
    ),
    overload="server_is_overloaded",
    refusal="invalid_request_error",
    keep_alive=b'event: keepalive\ndata: {"type":"keepalive","sequence_number":3}\n\n',
)

# --- Gemini -------------------------------------------------------------------------------------


def _candidate(*parts: Event, **more: Any) -> bytes:
    content = {"role": "model", "parts": list(parts)}
    return wire.sse({"candidates": [{"content": content, "index": 0, **more}]}, done=False)


GEMINI = Dialect(
    provider="gemini",
    scheme=GeminiScheme(),
    url="/v1/models/m:streamGenerateContent",
    begin=lambda: _candidate({"text": ""}),
    text=lambda text: _candidate({"text": text}),
    half_call=lambda: _candidate(
        {"functionCall": {"name": "look", "partialArgs": [], "willContinue": True}}
    ),
    call=lambda word: _candidate(
        {"functionCall": {"name": "look", "args": {"word": word}}}, finishReason="STOP"
    ),
    end=lambda: _candidate({"text": ""}, finishReason="STOP"),
    error=lambda code, words: json.dumps(
        {
            "error": {
                "code": 503 if code == "UNAVAILABLE" else 400,
                "status": code,
                "message": words,
            }
        },
        indent=2,
    ).encode(),
    overload="UNAVAILABLE",
    refusal="INVALID_ARGUMENT",
    keep_alive=b": keep-alive\n\n",
)

# --- Ollama -------------------------------------------------------------------------------------


def _line(content: str = "", **fields: Any) -> bytes:
    message = {"role": "assistant", "content": content, **fields.pop("message", {})}
    line = {"model": "m", "created_at": "2026-11-30T12:00:00Z", "message": message, "done": False}
    return json.dumps(line | fields, ensure_ascii=False).encode() + b"\n"


def _ollama_call(word: str) -> bytes:
    called = {"tool_calls": [{"function": {"name": "look", "arguments": {"word": word}}}]}
    return _line(message=called) + _line(done=True, done_reason="stop")


OLLAMA = Dialect(
    provider="ollama",
    scheme=OllamaScheme(),
    url="/api/chat",
    begin=_line,
    text=_line,
    half_call=lambda: b'{"model":"m","message":{"role":"assistant","tool_calls":[{"func',
    call=_ollama_call,
    end=lambda: _line(done=True, done_reason="stop", prompt_eval_count=9, eval_count=2),
    error=lambda code, words: json.dumps({"error": words, "code": code}).encode() + b"\n",
    overload="overloaded",
    refusal="invalid_request_error",
    keep_alive=b"\n",
)

DIALECTS = (CHAT, ANTHROPIC, RESPONSES, GEMINI, OLLAMA)
EVENT_STREAMS = tuple(dialect for dialect in DIALECTS if dialect.scheme.framing == "sse")
"""Those whose streams are server-sent events; the others' are lines of JSON."""


async def failed(dialect: Dialect, *answers: httpx.Response | bytes) -> tuple[ProviderError, int]:
    """The error that a request ends with, and how often it was sent."""
    provider = Provider(*answers)
    with pytest.raises(ProviderError) as error:
        await ask(dialect.client(handler=provider))
    return error.value, len(provider.requests)
