"""What can still be read of a damaged inheritance: the beginning of a fork, kept in other logs.

Of each session that a fork inherits from, the entries count as far as each follows the one before,
and no further than the fork. What is lost of one leaves a gap; what came after it in the others,
and in the fork itself, is whole all the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

from attrs import frozen

from .blobs import blobs_of
from .chain import FORMAT, Entry, EntryRef
from .disk import Disk, storing
from .errors import InvalidSessionId, NewerFormat, SessionDamaged, UnsafePath
from .fold import Fold
from .layout import Layout
from .pieces import chained, pieces_of
from .reader import with_payload, wrong_start
from .recovery import Newer
from .state import SessionState


class Gap(NamedTuple):
    """Entries that a session inherits and that cannot be read any more."""

    session_id: str
    """Whose they are."""
    first_seq: int
    last_seq: int | None
    """None where it cannot be told how many they are."""
    reason: str


@frozen
class Heritage:
    """What a session begins with."""

    state: SessionState
    """As far as it can be read."""
    gaps: tuple[Gap, ...] = ()
    """What is missing of it, of the oldest session first; none where all of it is there."""


class _Part(NamedTuple):
    """What can be read of one session that is inherited from."""

    entries: list[Entry]
    gap: Gap | None


NOTHING = Heritage(SessionState(session_id="", head=EntryRef(-1, "")))


def heritage(disk: Disk, layout: Layout, session_id: str, start: Entry) -> Heritage:
    """Return what the session of this first entry inherits, as far as it can be read.

    Raises:
        SessionDamaged: It names nothing to inherit from, or itself.
        NewerFormat: A session that it inherits from is of a format that is not known.
        StorageFailed: One of them cannot be read.
    """
    parts: list[_Part] = []
    seen = {session_id}
    while start.data.get("history") is None:
        parent, upto = parent_of(session_id, start)
        if parent in seen:
            raise SessionDamaged(session_id, 0, "inherits from itself", 0)

        seen.add(parent)
        parts.append(_part(disk, layout, parent, upto))
        if not parts[-1].entries:
            break

        start = parts[-1].entries[0]

    return _put_together(parts)


def parent_of(session_id: str, start: Entry) -> tuple[str, str]:
    """Return the session and the entry that one begins from whose history is inherited.

    Raises:
        SessionDamaged: It names none.
    """
    match start.data.get("forked_from"):
        case [str(parent), str(upto)]:
            return parent, upto
        case _:
            raise SessionDamaged(session_id, 0, "inherits a history and names no parent", 0)


def amends_what_is_lost(entry: Entry, fold: Fold) -> bool:
    """Tell whether the entry changes an item that is not in the history so far."""
    if entry.kind != "item_amended":
        return False

    item = entry.data.get("item")
    uid = item.get("uid") if isinstance(item, dict) else None
    return all(known.uid != uid for known in fold.state().history)


def _put_together(parts: list[_Part]) -> Heritage:
    state = NOTHING.state
    gaps: list[Gap] = []
    for entries, gap in reversed(parts):
        fold = Fold(state)
        for entry in entries:
            if not (gaps and amends_what_is_lost(entry, fold)):
                fold.take(entry)

        state = fold.state()
        gaps += [gap] if gap is not None else []

    return Heritage(state, tuple(gaps))


def _part(disk: Disk, layout: Layout, session_id: str, upto: str) -> _Part:
    try:
        with storing(f"read session {session_id}"):
            data = _bytes_of(disk, layout, session_id)
    except (InvalidSessionId, UnsafePath) as error:
        return _Part([], Gap(session_id, 0, None, f"cannot be read: {error.message}"))

    if data is None:
        return _Part([], Gap(session_id, 0, None, "is not there"))

    pieces = list(pieces_of(data))
    if not pieces:
        return _Part([], Gap(session_id, 0, None, "is empty"))

    entries: list[Entry] = []
    reason = ""
    try:
        for entry in _sound(disk, layout, session_id, chained(pieces)):
            entries.append(entry)
            if entry.hash == upto:
                return _Part(entries, None)
    except NewerFormat:
        raise
    except SessionDamaged as error:
        reason = error.reason

    end = entries[-1].offset if entries else -1
    reason = reason or ("does not verify" if pieces[-1].offset > end else "is not there")
    last = next((piece.seq for piece in pieces if piece.hash == upto), None)
    return _Part(entries, Gap(session_id, len(entries), last, reason))


def _sound(
    disk: Disk, layout: Layout, session_id: str, entries: Iterable[Entry]
) -> Iterable[Entry]:
    """Yield the entries with their payloads, as far as they mean something."""
    blobs = blobs_of(disk, layout)
    fold: Fold | None = None
    for entry in entries:
        if fold is None:
            _check_start(entry, session_id)
            # What it inherits is put together later; here it is only seen whether it can be read.
            fold = Fold(NOTHING.state)

        whole = with_payload(entry, session_id, blobs)
        if not amends_what_is_lost(whole, fold):
            fold.take(whole)

        yield whole


def _check_start(entry: Entry, session_id: str) -> None:
    verdict = wrong_start(entry, session_id)
    if isinstance(verdict, Newer):
        raise NewerFormat(session_id, verdict.format, FORMAT)

    if verdict is not None:
        raise SessionDamaged(session_id, 0, verdict.reason, 0)


def _bytes_of(disk: Disk, layout: Layout, session_id: str) -> bytes | None:
    try:
        fd = layout.open_log(disk, session_id, os.O_RDONLY)
    except FileNotFoundError:
        return None

    with os.fdopen(fd, "rb") as file:
        return file.read()
