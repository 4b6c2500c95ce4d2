"""What can be searched for: the words of a log's entries, and how a hit is shown. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from worker.text import clean_text

from .chain import Entry

MESSAGE_CHARS = 200_000
"""How much of one message is searchable."""
TOOL_RESULT_CHARS = 20_000
"""How much of one tool result is searchable: its point, not a copy of every file it read."""

_ROLES = {
    "user_message": "user",
    "assistant_message": "assistant",
    "tool_result": "tool",
    "summary_message": "summary",
    "system_note": "note",
}
_SNIPPET_BEFORE = 40
_SNIPPET_CHARS = 120


class Message(NamedTuple):
    """One item as the search sees it."""

    seq: int
    """The entry it is in."""
    uid: str
    role: str
    text: str
    amends: bool
    """Whether it takes the place of what was known under its uid."""


def messages_of(entry: Entry) -> Iterator[Message]:
    """Yield what the entry adds to what can be searched for. Nothing that it holds raises."""
    data = entry.data
    for key in ("items", "history", "item"):
        held = data.get(key)
        for item in held if isinstance(held, list) else [held]:
            message = _message(entry.seq, item, amends=key == "item")
            if message is not None:
                yield message


def words_of(query: str) -> list[str]:
    """Return the words that a hit must contain, each as it was typed, punctuation included."""
    return clean_text(query).replace("\0", " ").split()


def snippet(text: str, words: list[str]) -> str:
    """Return the part of `text` around the first place where one of the words is, on one line."""
    places = [re.search(re.escape(word), text, re.IGNORECASE) for word in words]
    first = min((place.start() for place in places if place), default=0)
    start = max(0, first - _SNIPPET_BEFORE)
    cut = " ".join(text[start : start + _SNIPPET_CHARS].split())
    before = "…" if start else ""
    after = "…" if start + _SNIPPET_CHARS < len(text) else ""
    return f"{before}{cut}{after}"


def _message(seq: int, item: object, *, amends: bool) -> Message | None:
    if not isinstance(item, dict):
        return None

    kind, uid = item.get("type"), item.get("uid")
    role = _ROLES.get(kind) if isinstance(kind, str) else None
    if role is None or not isinstance(uid, str):
        return None

    # Blobs stay where they are: what stands here for one is no text.
    limit = TOOL_RESULT_CHARS if role == "tool" else MESSAGE_CHARS
    text = "\n".join(part for part in _texts(item) if isinstance(part, str) and part)
    return Message(seq, uid, role, text[:limit], amends) if text or amends else None


def _texts(item: dict[str, object]) -> Iterator[object]:
    yield from (item.get("text"), item.get("summary"), item.get("content"))
    parts = item.get("parts")
    for part in parts if isinstance(parts, list) else []:
        if isinstance(part, dict) and part.get("type") != "reasoning":
            yield from (part.get("text"), part.get("name"), part.get("arguments"))
