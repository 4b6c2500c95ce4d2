"""What items say to a model, the same words in every dialect."""

from __future__ import annotations

import json
import re

import orjson

from worker.items import SummaryMessage, SystemNote, ToolCall, ToolResult
from worker.text import NO_OUTPUT, SUMMARY_LABEL, clean_text, is_blank


def summary_text(item: SummaryMessage) -> str:
    """Return a summary as the user-role text that it is sent as."""
    return f"{SUMMARY_LABEL}\n\n{clean_text(item.text)}"


def note_text(item: SystemNote) -> str:
    """Return a note as the user-role text that it is sent as."""
    return f"[note: {clean_text(item.kind)}]\n{clean_text(item.text)}"


def result_text(item: ToolResult) -> str:
    """Return what a tool's result says: the summary, and the content under it. Never empty."""
    lines = [text for text in (item.summary, item.content) if text and not is_blank(text)]
    return clean_text("\n".join(lines)) or NO_OUTPUT


def sent_name(name: str) -> str:
    """Return the name of a tool as it is sent: providers take 1 to 64 letters, digits, `_`, `-`."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64] or "unnamed"


def sent_arguments(call: ToolCall) -> str:
    """Return a call's arguments as they are sent back: the text received, or `{}`.

    Providers parse what they are sent back; the text as received stays in the history. Of a key
    that stands there twice, which some refuse, the last is sent.
    """
    arguments = clean_text(call.arguments)
    if not is_json_object(arguments):
        return "{}"

    has_repeats = False

    def read(pairs: list[tuple[str, object]]) -> dict[str, object]:
        nonlocal has_repeats
        found = dict(pairs)
        has_repeats = has_repeats or len(found) < len(pairs)
        return found

    try:
        value = json.loads(arguments, object_pairs_hook=read)
    except RecursionError:
        return "{}"

    return (
        json.dumps(value, ensure_ascii=False, separators=(",", ":")) if has_repeats else arguments
    )


def is_json_object(text: str) -> bool:
    """Tell whether `text` is one whole JSON object."""
    if not text.lstrip().startswith("{"):
        return False

    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False

    return True
