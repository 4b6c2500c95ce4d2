"""Salvage: a new session from what still verifies of a damaged one, which is left as it is.

Every line that matches its own hash was once written; which entry it followed is in the bytes that
are hashed. So the entries are found wherever they stand, two on one line or one after a stretch of
something else, and are taken as far as each follows the one before. Where that ends, the new
session does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

from attrs import frozen

from .ancestry import Ancestry
from .anchor import read_anchor
from .atomic import read_file
from .blobs import blobs_of
from .chain import GENESIS, Entry, EntryRef, entry_named
from .copying import copied, publish_copy
from .disk import Disk, storing
from .errors import SessionDamaged, SessionNotFound, Unsuitable
from .fold import Fold
from .layout import Layout
from .reader import with_payload, wrong_start
from .verify import verify_session

_GLUE = b'}{"hash":"'


@frozen(kw_only=True)
class Lost:
    """A stretch of a damaged log that is not in the new session."""

    first_seq: int | None
    """The first entry of it; None for bytes that are no entry and stand between two that are."""
    last_seq: int | None
    bytes: int
    """How many there are of it in the damaged log; none of what is missing altogether."""
    reason: str
    """Why it was not kept, as it is said after a colon: `entry 7: does not match its hash`."""


@frozen(kw_only=True)
class SalvageReport:
    """What came of salvaging a session."""

    session_id: str
    """The damaged one's."""
    new_session_id: str
    entries_kept: int
    """How many entries of the damaged log the new one has."""
    first_bad_seq: int
    """The first entry that does not verify, as `verify` names it."""
    reason: str
    """What is wrong with it, as the end of a sentence that begins with `entry 7`."""
    lost: tuple[Lost, ...]
    """In the order of the log; empty where all entries could be recovered."""
    pods: tuple[str, ...] = ()
    """The pods that were on the old session, and are on the new one now."""


class _Piece(NamedTuple):
    """A stretch of the damaged log: an entry that matches its hash, or something else."""

    offset: int
    raw: bytes
    size: int
    """Bytes, with the newline."""
    seq: int | None
    prev: str
    hash: str


def salvage(disk: Disk, layout: Layout, session_id: str, new_session_id: str) -> SalvageReport:
    """Write the new session and return what is in it and what is not. The caller has the lock.

    Raises:
        SessionNotFound: There is no such session.
        Unsuitable: It verifies.
        SessionDamaged: Not even its beginning verifies, or what it inherits does not.
    """
    found = verify_session(disk, layout, session_id)
    if found.ok:
        raise Unsuitable(
            session_id, "verifies: there is nothing to salvage", "use it as it is, or fork it"
        )

    bad = found.first_bad_seq or 0
    reason = found.reason or "does not verify"
    with storing(f"read session {session_id}"):
        pieces = list(_pieces(read_file(disk, layout.log(session_id))))

    anchor = _anchor(disk, layout, session_id)
    kept, stopped = _kept(disk, layout, session_id, _acknowledged(_chained(pieces), anchor))
    if not kept:
        raise _nothing(stopped or SessionDamaged(session_id, bad, reason, 0))

    stopped = stopped or SessionDamaged(session_id, bad, reason, bad)

    origin = {"recovered_from": [session_id, kept[-1].hash]}
    publish_copy(
        disk,
        layout,
        new_session_id,
        copied(kept[0], origin),
        (copied(entry) for entry in kept[1:]),
    )
    return SalvageReport(
        session_id=session_id,
        new_session_id=new_session_id,
        entries_kept=len(kept),
        first_bad_seq=bad,
        reason=reason,
        lost=tuple(_lost(pieces, kept, stopped, -1 if anchor is None else anchor.seq)),
    )


def _pieces(data: bytes) -> Iterator[_Piece]:
    offset = 0
    for line in data.split(b"\n"):
        size = min(len(line) + 1, len(data) - offset)
        whole = _piece(line, offset, size)
        parts = [whole] if whole.seq is not None else _unglued(line, offset)
        # Of entries on one line either all match their hashes, or none is taken for one.
        if any(part.seq is None for part in parts):
            parts = [whole] if size else []

        yield from parts
        offset += size


def _unglued(line: bytes, offset: int) -> list[_Piece]:
    """Return the entries that stand on one line. Inside an entry, these bytes cannot occur."""
    cuts = [0]
    while (at := line.find(_GLUE, cuts[-1])) >= 0:
        cuts.append(at + 1)

    spans = zip(cuts, [*cuts[1:], len(line)], strict=True)
    return [_piece(line[a:b], offset + a, b - a + (b == len(line))) for a, b in spans]


def _piece(raw: bytes, offset: int, size: int) -> _Piece:
    entry = entry_named(raw, offset)
    if entry is None:
        return _Piece(offset, raw, size, None, "", "")

    return _Piece(offset, raw, size, entry.seq, entry.data["prev"], entry.hash)


def _chained(pieces: Iterable[_Piece]) -> Iterator[Entry]:
    """Yield the entries as far as each follows the one before."""
    following: dict[tuple[str, int], _Piece] = {}
    for piece in pieces:
        if piece.seq is not None:
            following.setdefault((piece.prev, piece.seq), piece)

    prev, seq = GENESIS, 0
    while (found := following.get((prev, seq))) is not None:
        entry = entry_named(found.raw, found.offset)
        assert entry is not None, "it was one just now"  # noqa: S101  a defect, not a damage
        yield entry
        prev, seq = entry.hash, seq + 1


def _kept(
    disk: Disk, layout: Layout, session_id: str, chained: Iterable[Entry]
) -> tuple[list[Entry], SessionDamaged | None]:
    """Return the entries that a session can be made of, and what is wrong with the next one."""
    kept: list[Entry] = []
    fold, blobs = Fold(), blobs_of(disk, layout)
    try:
        for entry in chained:
            if entry.seq == 0:
                _check_start(entry, session_id)
                if entry.data.get("history") is None:
                    fold = Fold(Ancestry(disk, layout).inherited(session_id))

            fold.take(with_payload(entry, session_id, blobs))
            kept.append(entry)
    except SessionDamaged as error:
        return kept, error
    except SessionNotFound as error:  # its own first line stands somewhere else in the file
        return [], SessionDamaged(session_id, 0, f"is not where it should be ({error.message})", 0)

    return kept, None


def _check_start(entry: Entry, session_id: str) -> None:
    verdict = wrong_start(entry, session_id)
    if verdict is not None:
        raise SessionDamaged(session_id, 0, verdict.reason, 0)


def _nothing(error: SessionDamaged) -> SessionDamaged:
    hint = "nothing of it can be salvaged, and nothing was changed"
    return SessionDamaged(error.session_id, error.seq, error.reason, 0, hint)


def _anchor(disk: Disk, layout: Layout, session_id: str) -> EntryRef | None:
    """Return the highest entry that the anchor knows of, or None where it knows nothing."""
    try:
        anchor = read_anchor(disk, layout.anchor(session_id))
    except ValueError:
        return None

    return None if anchor is None else EntryRef(anchor.seq, anchor.hash)


def _acknowledged(entries: Iterable[Entry], anchor: EntryRef | None) -> Iterator[Entry]:
    """Yield the entries up to one that stands where another was acknowledged."""
    for entry in entries:
        if anchor is not None and entry.seq == anchor.seq and entry.hash != anchor.hash:
            return

        yield entry


def _lost(
    pieces: list[_Piece], kept: list[Entry], stopped: SessionDamaged, acknowledged: int
) -> Iterator[Lost]:
    """Yield what of the log is not among `kept`, neighbours of one reason together."""
    have = {entry.offset for entry in kept}
    orphans = {p.seq for p in pieces if p.seq is not None and p.offset not in have}
    known = orphans | {entry.seq for entry in kept}
    left: list[tuple[int | None, int, str]] = []
    place = 0
    for piece in pieces:
        if piece.offset in have:
            place = (piece.seq or 0) + 1
        elif piece.seq is not None:
            left.append((piece.seq, piece.size, _why_orphan(piece.seq, len(kept), stopped)))
            place = piece.seq + 1
        elif place in known:
            left.append((None, piece.size, "no entry, and none is missing there"))
        else:
            why = stopped.reason if place == stopped.seq else "does not verify"
            left.append((place, piece.size, why))
            place += 1

    named = known | {seq for seq, _, _ in left if seq is not None}
    highest = max(acknowledged, *named)
    gone = [seq for seq in range(highest + 1) if seq not in named]
    left += [(seq, 0, "is not there") for seq in gone]
    left.sort(key=lambda one: (one[0] is not None, one[0] or 0))
    yield from _grouped(left)


def _why_orphan(seq: int, kept: int, stopped: SessionDamaged) -> str:
    if stopped.seq == seq:
        return stopped.reason

    if seq < kept:
        return "there a second time, with something else in it"

    return "follows what is lost"


def _grouped(left: list[tuple[int | None, int, str]]) -> Iterator[Lost]:
    counted = enumerate(left)
    for (_, reason), group in groupby(
        counted, lambda one: (None if one[1][0] is None else one[1][0] - one[0], one[1][2])
    ):
        members = [member for _, member in group]
        yield Lost(
            first_seq=members[0][0],
            last_seq=members[-1][0],
            bytes=sum(size for _, size, _ in members),
            reason=reason,
        )
