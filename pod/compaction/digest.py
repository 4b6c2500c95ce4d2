"""A digest: what takes a summary's place when no model can write one and the window is full. Pure.

It is drawn from the items alone, always the same for the same items, and says that it is a digest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import orjson

from pod.compaction.checks import SECTIONS
from worker.items import (
    AssistantMessage,
    Item,
    SummaryMessage,
    ToolCall,
    ToolResult,
    UserMessage,
    is_turn_start,
)
from worker.text import clean_text, cut_middle, first_line

MARK = "(This is a digest made without a model: the summarizer failed. Details are in the log.)"
NEWEST_USER_MESSAGES = 8
MOST_FILES = 40
MOST_ERRORS = 5
MOST_CALLS = 20

_PATH_KEY = re.compile(r"(^|_)(path|file|filename|files|paths)$", re.IGNORECASE)


def digest(items: Sequence[Item], max_bytes: int) -> str:
    """Return a digest of `items` in the four sections of a summary, within about `max_bytes`."""
    room = max(400, max_bytes // 4)
    users = [item.text for item in items if is_turn_start(item) and isinstance(item, UserMessage)]
    earlier = [item.text for item in items if isinstance(item, SummaryMessage)]
    task = [cut_middle(text, room) for text in (earlier[-1:] or users[:1])]
    newest = [f"- asked: {first_line(text, 300)}" for text in users[-NEWEST_USER_MESSAGES:]]
    last = [item.text for item in items if isinstance(item, AssistantMessage) and item.text]
    bodies = (
        [MARK, *task],
        [*newest, *_calls(items)],
        [*_files(items), *_errors(items)],
        [f"- last said: {cut_middle(text, room)}" for text in last[-1:]],
    )
    parts = []
    for section, lines in zip(SECTIONS, bodies, strict=True):
        body = cut_middle("\n".join(lines) or "- nothing recorded", room)
        parts.append(f"{section}\n{body}")

    return clean_text("\n\n".join(parts))


def _tool_calls(items: Sequence[Item]) -> Iterator[ToolCall]:
    for item in items:
        if isinstance(item, AssistantMessage):
            yield from item.tool_calls


def _calls(items: Sequence[Item]) -> list[str]:
    calls = list(_tool_calls(items))
    shown = [
        f"- called {call.name} {first_line(call.arguments, 120)}" for call in calls[-MOST_CALLS:]
    ]
    left_out = len(calls) - len(shown)
    return [f"- {left_out} earlier calls", *shown] if left_out else shown


def _files(items: Sequence[Item]) -> list[str]:
    found: dict[str, str] = {}
    for call in _tool_calls(items):
        for path in _paths(call.arguments):
            found.pop(path, None)  # The newest mention counts for the order.
            found[path] = call.name

    return [f"- file {path} ({tool})" for path, tool in list(found.items())[-MOST_FILES:]]


def _paths(arguments: str) -> Iterator[str]:
    try:
        value = orjson.loads(arguments or "{}")
    except orjson.JSONDecodeError:
        return

    if not isinstance(value, dict):
        return

    for key, held in value.items():
        if _PATH_KEY.search(key):
            yield from (text for text in ([held] if isinstance(held, str) else _texts(held)))


def _texts(value: object) -> list[str]:
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []


def _errors(items: Sequence[Item]) -> list[str]:
    errors = [item for item in items if isinstance(item, ToolResult) and item.is_error]
    return [f"- error: {first_line(item.summary, 200)}" for item in errors[-MOST_ERRORS:]]
