"""What the index has of a log's entries: who each message is, and its words. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

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


CallUids: TypeAlias = dict[str, str] | list[str | None] | None
"""The uids of an answer's calls: by the provider's ids where each has its own, else in order."""


class Message(NamedTuple):
    """One item as the index sees it."""

    seq: int
    """The entry it is in."""
    ts: int
    uid: str
    role: str
    text: str
    amends: bool
    """Whether it takes the place of what was known under its uid."""
    absorbed: tuple[str, ...]
    call_uids: CallUids
    """Of the calls that it makes."""
    call_uid: str | None
    """Of the call that it answers."""


def messages_of(entry: Entry) -> Iterator[Message]:
    """Yield the messages that the entry adds or amends. Nothing that it holds raises."""
    data = entry.data
    for key in ("items", "history", "item"):
        held = data.get(key)
        for item in held if isinstance(held, list) else [held]:
            message = _message(entry, item, amends=key == "item")
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


def _message(entry: Entry, item: object, *, amends: bool) -> Message | None:
    if not isinstance(item, dict):
        return None

    kind, uid = item.get("type"), item.get("uid")
    role = _ROLES.get(kind) if isinstance(kind, str) else None
    if role is None or not isinstance(uid, str):
        return None

    # Blobs stay where they are: what stands here for one is no text.
    limit = TOOL_RESULT_CHARS if role == "tool" else MESSAGE_CHARS
    text = "\n".join(part for part in _texts(item) if isinstance(part, str) and part)
    return Message(
        seq=entry.seq,
        ts=entry.ts,
        uid=uid,
        role=role,
        text=text[:limit],
        amends=amends,
        absorbed=tuple(one for one in _list(item.get("absorbed_uids")) if isinstance(one, str)),
        call_uids=_call_uids(item) if role == "assistant" else None,
        call_uid=_uid(item.get("call_uid")) if role == "tool" else None,
    )


def _call_uids(item: dict[str, object]) -> CallUids:
    parts = [part for part in _list(item.get("parts")) if isinstance(part, dict)]
    calls = [part for part in parts if part.get("type") == "tool_call"]
    named = [(_uid(call.get("call_id")), _uid(call.get("call_uid"))) for call in calls]
    by_id = {key: uid for key, uid in named if key and uid}
    # One id may name several calls after two answers were folded into one: then a uid a place.
    if all(uid and key and by_id[key] == uid for key, uid in named):
        return by_id or None

    uids = [uid for _, uid in named]
    return uids if any(uids) else None


def _uid(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _texts(item: dict[str, object]) -> Iterator[object]:
    yield from (item.get("text"), item.get("summary"), item.get("content"))
    for part in _list(item.get("parts")):
        if isinstance(part, dict) and part.get("type") != "reasoning":
            yield from (part.get("text"), part.get("name"), part.get("arguments"))
