"""In every dialect, the bytes of a tool call behind a thought that the provider gives proof of."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from typing import Any

from tests.worker.llm import responses_wire as responses
from tests.worker.llm import wire
from tests.worker.llm.dialects import Dialect

THOUGHT = "THE-THOUGHT"
PROOF = b64encode(b"THE-PROOF-OF-THE-THOUGHT").decode()


def called(dialect: Dialect, arguments: str) -> bytes:
    """An answer that thinks and calls `look` with these arguments, just as they are."""
    return _CALLS[dialect.provider](arguments)


def _chat(arguments: str) -> bytes:
    return wire.sse(
        wire.chunk({"reasoning_content": THOUGHT}),
        wire.chunk(wire.call_delta(0, "c1", "look", arguments)),
        wire.chunk(finish="tool_calls"),
    )


def _anthropic(arguments: str) -> bytes:
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = [
        (
            {"type": "thinking", "thinking": "", "signature": ""},
            [
                {"type": "thinking_delta", "thinking": THOUGHT},
                {"type": "signature_delta", "signature": PROOF},
            ],
        ),
        ({"type": "redacted_thinking", "data": f"{PROOF}2"}, []),
        (
            {"type": "tool_use", "id": "c1", "name": "look", "input": {}},
            [{"type": "input_json_delta", "partial_json": arguments}],
        ),
    ]
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {"id": "m1"}}]
    for index, (block, deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [{"type": "content_block_delta", "index": index, "delta": d} for d in deltas]
        events.append({"type": "content_block_stop", "index": index})
    events.append({"type": "message_delta", "delta": {"stop_reason": "tool_use"}})
    return wire.sse(*events, {"type": "message_stop"}, done=False)


def _responses(arguments: str) -> bytes:
    return responses.sse(
        *responses.streamed_reasoning(0, THOUGHT, blob=PROOF),
        responses.done(1, responses.call("c1", "look", arguments)),
        responses.ended(),
    )


def _gemini(arguments: str) -> bytes:
    parts = [
        {"text": THOUGHT, "thought": True},
        {
            "functionCall": {"name": "look", "args": _value(arguments)},
            "thoughtSignature": PROOF,
        },
    ]
    content = {"role": "model", "parts": parts}
    return wire.sse({"candidates": [{"content": content, "finishReason": "STOP"}]}, done=False)


def _ollama(arguments: str) -> bytes:
    function = {"name": "look", "arguments": _value(arguments)}
    message = {"role": "assistant", "content": "", "thinking": THOUGHT}
    line = {"message": message | {"tool_calls": [{"function": function}]}, "done": True}
    return json.dumps(line | {"done_reason": "stop"}).encode() + b"\n"


def _value(arguments: str) -> object:
    """What arguments that come as JSON, and not as text of it, would be."""
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


_CALLS: dict[str, Callable[[str], bytes]] = {
    "openai_compatible": _chat,
    "anthropic": _anthropic,
    "openai_responses": _responses,
    "gemini": _gemini,
    "ollama": _ollama,
}
