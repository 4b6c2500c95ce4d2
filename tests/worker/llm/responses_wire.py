"""Builders for the events of a Responses stream."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

Event = dict[str, Any]


def part_event(kind: str, index: int, **more: Any) -> Event:
    """One event about a part of output item `index`."""
    return {"type": f"response.{kind}", "output_index": index, "item_id": "id_x", **more}


def added(index: int, item: Event) -> Event:
    """An output item began."""
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def done(index: int, item: Event) -> Event:
    """An output item ended."""
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def message(text: str = "", **more: Any) -> Event:
    """A message item; without text, as it begins."""
    content = [{"type": "output_text", "text": text, "annotations": []}] if text else []
    return {"type": "message", "id": "msg_1", "role": "assistant", "content": content, **more}


def refused(text: str) -> Event:
    """A message item that refuses."""
    return message() | {"content": [{"type": "refusal", "refusal": text}]}


def reasoning(*summary: str, blob: str | None = None, item_id: str = "rs_1", **more: Any) -> Event:
    """A reasoning item."""
    parts = [{"type": "summary_text", "text": text} for text in summary]
    return {
        "type": "reasoning",
        "id": item_id,
        "summary": parts,
        "encrypted_content": blob,
        **more,
    }


def call(call_id: str = "c1", name: str = "read", arguments: str = "", **more: Any) -> Event:
    """A function call item."""
    return {
        "type": "function_call",
        "id": "fc_1",
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
        **more,
    }


def response(status: str = "completed", output: Iterable[Event] = (), **more: Any) -> Event:
    """A response object."""
    fields = {"incomplete_details": None, "error": None, "usage": None}
    return {
        "id": "resp_1",
        "object": "response",
        "status": status,
        "output": list(output),
        **fields,
        **more,
    }


def ended(status: str = "completed", output: Iterable[Event] = (), **more: Any) -> Event:
    """The last event."""
    return {"type": f"response.{status}", "response": response(status, output, **more)}


def cut(reason: str | None) -> Event:
    """The last event of an answer that was cut."""
    return ended("incomplete", incomplete_details={"reason": reason})


def usage(input_tokens: int, output_tokens: int, **details: int) -> Event:
    """A usage object."""
    return {
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "input_tokens_details": details,
        "output_tokens_details": {"reasoning_tokens": 1},
        "total_tokens": input_tokens + output_tokens,
    }


def text_deltas(index: int, *pieces: str) -> list[Event]:
    """A message's text in pieces."""
    name = "output_text.delta"
    return [part_event(name, index, content_index=0, delta=piece) for piece in pieces]


def argument_deltas(index: int, *pieces: str) -> list[Event]:
    """A call's arguments in pieces."""
    return [part_event("function_call_arguments.delta", index, delta=piece) for piece in pieces]


def streamed_text(index: int, *pieces: str) -> list[Event]:
    """A whole message, as OpenAI streams it: all of its text four times."""
    text = "".join(pieces)
    part = {"type": "output_text", "text": text, "annotations": []}
    return [
        added(index, message()),
        part_event("content_part.added", index, content_index=0, part=part | {"text": ""}),
        *text_deltas(index, *pieces),
        part_event("output_text.done", index, content_index=0, text=text),
        part_event("content_part.done", index, content_index=0, part=part),
        done(index, message(text)),
    ]


def streamed_reasoning(index: int, *summary: str, blob: str = "BLOB") -> list[Event]:
    """A whole reasoning item, as OpenAI streams it; the blob at its beginning is not whole yet."""
    events = [added(index, reasoning(blob=blob[:2]))]
    for number, text in enumerate(summary):
        part = {"type": "summary_text", "text": text}
        at = {"summary_index": number}
        name = "reasoning_summary_part.added"
        events.append(part_event(name, index, part=part | {"text": ""}, **at))
        name = "reasoning_summary_text.delta"
        events += [part_event(name, index, delta=piece, **at) for piece in (text[:3], text[3:])]
        events.append(part_event("reasoning_summary_text.done", index, text=text, **at))
        events.append(part_event("reasoning_summary_part.done", index, part=part, **at))
    return [*events, done(index, reasoning(*summary, blob=blob))]


def streamed_call(index: int, call_id: str, *pieces: str) -> list[Event]:
    """A whole call, as OpenAI streams it."""
    whole = "".join(pieces)
    return [
        added(index, call(call_id, status="in_progress")),
        *argument_deltas(index, *pieces),
        part_event("function_call_arguments.done", index, arguments=whole, name="read"),
        done(index, call(call_id, arguments=whole, status="completed")),
    ]


def sse(*events: Event | str, newline: str = "\n") -> bytes:
    """The events as server-sent events, each named by its type, as OpenAI sends them."""
    lines: list[str] = []
    for event in events:
        if isinstance(event, str):
            lines += [f"data: {event}", ""]
        else:
            data = json.dumps(event, ensure_ascii=False)
            lines += [f"event: {event.get('type')}", f"data: {data}", ""]
    return "".join(line + newline for line in lines).encode()
