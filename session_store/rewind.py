"""Going back in a session, and where a pod's pointer may go.

A log is only ever added to, so going back makes a new session: a fork by reference at the entry,
whose `session_start` has `rewound: true` besides `forked_from`. Lineage calls it a fork, for that
is how it came about. What sets it apart is the pod's pointer, which never follows a fork: a rewound
session is where the pod itself goes on, so the pointer moves to it. The session that was rewound
stays whole, with what came after the entry. Going back from a fork into what it inherits makes just
another fork of its parent.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from attrs import frozen

from .ancestry import Ancestry, origin_of
from .chain import Entry
from .errors import SessionDamaged, SessionNotFound, UnknownEntry
from .state import ForkPoint

REWOUND = "rewound"
"""The field of `session_start` that tells a session gone back to from any other fork."""


@frozen(kw_only=True)
class RewindPoint(ForkPoint):
    """Where going back leads to."""

    session_id: str
    """Whose entry it is: the session's own, or that of one that it goes on from."""


@frozen
class OwnLine:
    """What a session goes on from, without leaving the line that a pod follows."""

    ids: tuple[str, ...]
    """The session and those before it that it was compacted, rewound or mended from, nearest
    first. It ends at the first fork."""
    is_below_fork: bool
    """Whether a fork is where it ends, and not a session that began by itself."""


def own_line(ancestry: Ancestry, session_id: str) -> OwnLine:
    """Return what the session goes on from.

    Raises:
        SessionNotFound: There is no such session.
        SessionDamaged: Its beginning does not verify.
    """
    ids: list[str] = []
    for current, start in _upwards(ancestry, session_id):
        ids.append(current)
        origin = origin_of(start)
        if origin is not None and origin[1] == "fork" and start.data.get(REWOUND) is not True:
            return OwnLine(tuple(ids), is_below_fork=True)

    return OwnLine(tuple(ids), is_below_fork=False)


def rewind_point(ancestry: Ancestry, session_id: str, to: str) -> RewindPoint:
    """Return where going back to the entry `to` leads: there, or before an unfinished tool call.

    It may be an entry of the session itself, or one before it in any session that this one began
    from, also across a compaction.

    Raises:
        UnknownEntry: `to` names no entry of any of them, or several of one.
    """
    upto: int | None = None
    first: UnknownEntry | None = None
    for current, start in _upwards(ancestry, session_id):
        try:
            found = ancestry.find(current, to)
        except UnknownEntry as error:
            first = first or error
        else:
            if upto is None or found.seq <= upto:
                point = ancestry.fork_point(current, found.hash)
                return RewindPoint(
                    session_id=current,
                    hash=point.hash,
                    seq=point.seq,
                    moved=point.moved,
                    reason=point.reason,
                )

        upto = _where_it_began(ancestry, start)
        if upto is None:
            break

    raise first or UnknownEntry(session_id, to, "it came after what this session began from")


def _where_it_began(ancestry: Ancestry, start: Entry) -> int | None:
    for key in ("compacted_from", "forked_from"):
        match start.data.get(key):
            case [str(parent), str(digest)]:
                # A parent that is gone, or lacks the entry, has nothing to go back to.
                with suppress(SessionNotFound, SessionDamaged, UnknownEntry):
                    return ancestry.find(parent, digest).seq
            case _:
                pass

    return None


def _upwards(ancestry: Ancestry, session_id: str) -> Iterator[tuple[str, Entry]]:
    """Yield the session and all that it came from, nearest first, each with its first entry."""
    seen: set[str] = set()
    current: str | None = session_id
    while current is not None and current not in seen:
        seen.add(current)
        try:
            start = ancestry.first_entry(current)
        except (SessionNotFound, SessionDamaged):
            # Where one further up cannot be read, nothing is known of what was before it.
            if current == session_id:
                raise

            return

        yield current, start
        origin = origin_of(start)
        current = origin[0] if origin else None
