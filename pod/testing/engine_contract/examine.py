"""What can be said of messages without knowing their engine. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from pod.context.engine import Message
from pod.context.rows import (
    ABSORBED_MESSAGE_UIDS,
    COMPRESSED_SUMMARY,
    MESSAGE_UID,
    TOOL_CALL_UID,
    TOOL_CALL_UIDS,
)
from worker.text import SUMMARY_LABEL, utf8_len

ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})
IDENTITY = (MESSAGE_UID, ABSORBED_MESSAGE_UIDS, TOOL_CALL_UIDS, TOOL_CALL_UID)
BYTES_PER_TOKEN = 3.5
ROW_TOKENS = 5
IMAGE_TOKENS = 1_600


def text_of(row: Message) -> str:
    """Return the text of a message, its parts joined by newlines; images are left out."""
    content = row.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""

    parts = (part.get("text") if isinstance(part, dict) else part for part in content)
    return "\n".join(text for text in parts if isinstance(text, str))


def calls_of(row: Message) -> list[tuple[str, str, str]]:
    """Return the calls of a message: id, name, arguments. Malformed ones are left out."""
    calls = row.get("tool_calls")
    if row.get("role") != "assistant" or not isinstance(calls, list):
        return []

    return [
        (str(call.get("id")), str(function.get("name")), str(function.get("arguments")))
        for call in calls
        if isinstance(call, dict) and isinstance(function := call.get("function"), dict)
    ]


def tokens(rows: Sequence[Message]) -> int:
    """Return a rough size of what a model is sent; identity fields weigh nothing."""
    return round(sum(map(_row_tokens, rows)))


def _row_tokens(row: Message) -> float:
    content = row.get("content")
    parts = content if isinstance(content, list) else []
    images = sum(isinstance(part, dict) and "image_url" in part for part in parts)
    said = utf8_len(text_of(row)) + sum(utf8_len(n) + utf8_len(a) for _, n, a in calls_of(row))
    return ROW_TOKENS + said / BYTES_PER_TOKEN + IMAGE_TOKENS * images


def visible(row: Message) -> tuple[object, ...]:
    """Return what a model sees of a message; equal for messages that say the same."""
    content = row.get("content")
    seen = (
        json.dumps(content, sort_keys=True, default=repr)
        if isinstance(content, list)
        else content or ""
    )
    return (row.get("role"), seen, tuple(calls_of(row)), row.get("tool_call_id"))


def identity(row: Message) -> dict[str, object]:
    """Return the identity fields that a message has."""
    return {key: row[key] for key in IDENTITY if key in row}


def uid_of(row: Message) -> str | None:
    """Return the message's uid, or None where it has none that counts."""
    uid = row.get(MESSAGE_UID)
    return uid if isinstance(uid, str) and uid.strip() else None


def orphan_results(rows: Sequence[Message]) -> list[str]:
    """Return the ids of results whose call does not stand before them, undivided."""
    waiting: Counter[str] = Counter()
    orphans = []
    for row in rows:
        if row.get("role") != "tool":
            waiting = Counter(call_id for call_id, _, _ in calls_of(row))
            continue

        call_id = str(row.get("tool_call_id"))
        if waiting[call_id] > 0:
            waiting[call_id] -= 1
        else:
            orphans.append(call_id)

    return orphans


def unanswered_calls(rows: Sequence[Message]) -> list[str]:
    """Return the ids of calls that no result follows."""
    waiting: Counter[str] = Counter()
    unanswered: list[str] = []
    for row in [*rows, {"role": "end"}]:
        if row.get("role") == "tool":
            waiting[str(row.get("tool_call_id"))] -= 1
            continue

        unanswered += (+waiting).elements()
        waiting = Counter(call_id for call_id, _, _ in calls_of(row))

    return unanswered


def newest_user(rows: Sequence[Message]) -> Message | None:
    """Return the newest message that a person wrote: no summary."""
    return next((row for row in reversed(rows) if is_real_user(row)), None)


def is_real_user(row: Message) -> bool:
    """Tell whether a person wrote the message, as far as that can be told."""
    if row.get("role") != "user" or row.get(COMPRESSED_SUMMARY) is True:
        return False

    return not text_of(row).startswith(SUMMARY_LABEL)


def same_rows(left: Sequence[Message], right: Sequence[Message]) -> bool:
    """Tell whether a model would see no difference."""
    return [*map(visible, left)] == [*map(visible, right)]


def shown(value: object, most: int = 60) -> str:
    """Return a value as it may stand in a line of a report."""
    text = repr(value)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def cannot_be_json(value: object) -> str:
    """Return why a value is no JSON as it stands, or nothing."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        return str(error)

    return _odd_key(value)


def _odd_key(value: object) -> str:
    """Return the complaint about a key that is no text, which JSON would turn into some."""
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            odd = [key for key in item if not isinstance(key, str)]
            if odd:
                return f"the key {odd[0]!r} is no text"

            pending += item.values()
        elif isinstance(item, list | tuple):
            pending += item

    return ""
