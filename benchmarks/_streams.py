"""Answers as providers stream them: many small events with the fields that real ones have."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from _history import prose

if TYPE_CHECKING:
    from worker.llm import Scheme

CODE = 'def f(x):\n    """Say it."""\n    return {"a": x, "b": [x]}\n\n'


class Dialect(NamedTuple):
    """A provider's scheme, and how it streams pieces of text."""

    provider: str
    scheme: Callable[[], Scheme]
    stream: Callable[[list[str]], list[bytes]]
    """The whole answer, one event each."""


def words(count: int) -> list[str]:
    """Return pieces of prose, a word each."""
    return [f" {word}" for word in prose(1, count * 8).split()[:count]]


def tokens_of_code(count: int) -> list[str]:
    """Return pieces of code: about every third has something to escape."""
    text = CODE * (count * 4 // len(CODE) + 1)
    return [text[at : at + 4] for at in range(0, count * 4, 4)]


def dialects() -> list[Dialect]:
    """Return every dialect; the schemes load with them."""
    from worker.llm import OpenAiChatScheme
    from worker.llm.schemes.anthropic.scheme import AnthropicScheme
    from worker.llm.schemes.gemini.scheme import GeminiScheme
    from worker.llm.schemes.ollama.scheme import OllamaScheme
    from worker.llm.schemes.responses.scheme import OpenAiResponsesScheme

    return [
        Dialect("openai_compatible", OpenAiChatScheme, _chat),
        Dialect("openai", OpenAiChatScheme, _padded_chat),
        Dialect("anthropic", AnthropicScheme, _anthropic),
        Dialect("openai_responses", OpenAiResponsesScheme, _responses),
        Dialect("gemini", GeminiScheme, _gemini),
        Dialect("ollama", OllamaScheme, _ollama),
    ]


def _sse(value: dict[str, Any] | str, name: str = "") -> bytes:
    data = value if isinstance(value, str) else _json(value)
    return (f"event: {name}\n" if name else "").encode() + f"data: {data}\n\n".encode()


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _chunks(pieces: list[str]) -> Iterator[dict[str, Any]]:
    deltas: list[tuple[dict[str, Any], str | None]] = [({"role": "assistant", "content": ""}, None)]
    deltas += [({"content": piece}, None) for piece in pieces]
    for delta, reason in (*deltas, ({}, "stop")):
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        yield {
            "id": "chatcmpl-CfXPWuTqlmNvhZJ1wq4b3tV7S",
            "object": "chat.completion.chunk",
            "created": 1796040000,
            "model": "some-model-2026-11-01",
            "system_fingerprint": "fp_5e3f2c0d1b",
            "choices": [choice],
            "usage": None,
        }


def _chat(pieces: list[str]) -> list[bytes]:
    return [*map(_sse, _chunks(pieces)), _sse("[DONE]")]


def _padded_chat(pieces: list[str]) -> list[bytes]:
    """OpenAI's own: each event is padded to hide how long its text is."""
    padded = (
        chunk | {"obfuscation": "aBcDeFgHiJ"[: number % 10]}
        for number, chunk in enumerate(_chunks(pieces))
    )
    return [*map(_sse, padded), _sse("[DONE]")]


def _anthropic(pieces: list[str]) -> list[bytes]:
    usage = {"input_tokens": 25, "output_tokens": 1}
    message = {
        "id": "msg_01",
        "type": "message",
        "role": "assistant",
        "content": [],
        "usage": usage,
    }
    block = {"type": "text", "text": ""}
    ended = {"stop_reason": "end_turn", "stop_sequence": None}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": block},
        *(
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "text_delta", "text": piece},
            }
            for piece in pieces
        ),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": ended, "usage": {"output_tokens": len(pieces)}},
        {"type": "message_stop"},
    ]
    return [_sse(event, event["type"]) for event in events]


def _responses(pieces: list[str]) -> list[bytes]:
    at = {"item_id": "msg_68a0c1f2b3d4819fa0b1c2d3e4f5a6b7", "output_index": 0}
    item = {"id": at["item_id"], "type": "message", "role": "assistant", "content": []}
    text = "".join(pieces)
    whole = item | {"content": [{"type": "output_text", "text": text, "annotations": []}]}
    response = {"id": "resp_1", "object": "response", "status": "in_progress", "output": []}
    usage = {"input_tokens": 25, "output_tokens": len(pieces), "total_tokens": 25 + len(pieces)}
    completed = response | {"status": "completed", "output": [whole], "usage": usage}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": response},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        *(
            {
                "type": "response.output_text.delta",
                "sequence_number": number,
                **at,
                "content_index": 0,
                "delta": piece,
                "logprobs": [],
                "obfuscation": "aBcDeFgHiJ"[: number % 10],
            }
            for number, piece in enumerate(pieces, 4)
        ),
        {"type": "response.output_text.done", **at, "content_index": 0, "text": text},
        {"type": "response.output_item.done", "output_index": 0, "item": whole},
        {"type": "response.completed", "response": completed},
    ]
    return [_sse(event, event["type"]) for event in events]


def _gemini(pieces: list[str]) -> list[bytes]:
    events = []
    for number, piece in enumerate((*pieces, ""), 1):
        content = {"parts": [{"text": piece}], "role": "model"}
        candidate: dict[str, Any] = {"content": content, "index": 0}
        if number > len(pieces):
            candidate["finishReason"] = "STOP"
        usage = {
            "promptTokenCount": 25,
            "candidatesTokenCount": number,
            "totalTokenCount": 25 + number,
            "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 25}],
        }
        more = {"modelVersion": "gemini-x", "responseId": "kq0saJ2fLqW0xN8P2u6e4A0"}
        events.append(_sse({"candidates": [candidate], "usageMetadata": usage, **more}))
    return events


def _ollama(pieces: list[str]) -> list[bytes]:
    lines = []
    for number, piece in enumerate((*pieces, "")):
        is_last = number == len(pieces)
        line: dict[str, Any] = {
            "model": "some-model",
            "created_at": f"2026-11-30T12:00:{number // 100 % 60:02}.{number % 100:02}5406455Z",
            "message": {"role": "assistant", "content": piece},
            "done": is_last,
        }
        if is_last:
            line |= {"done_reason": "stop", "prompt_eval_count": 25, "eval_count": number}
        lines.append(f"{_json(line)}\n".encode())
    return lines
