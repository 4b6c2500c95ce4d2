"""What items say to a model, the same words in every dialect."""

from __future__ import annotations

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


def sent_arguments(call: ToolCall) -> str:
    """Return a call's arguments as they are sent back: the text received, or `{}`.

    Providers parse what they are sent back; the text as received stays in the history.
    """
    arguments = clean_text(call.arguments)
    return arguments if is_json_object(arguments) else "{}"


def is_json_object(text: str) -> bool:
    """Tell whether `text` is one whole JSON object."""
    if not text.lstrip().startswith("{"):
        return False

    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False

    return True
