"""Salvage: a new session from what still verifies of a damaged one, which is left as it is.

The entries are taken wherever they stand in the file, as far as each follows the one before. Where
that ends, the new session does. A fork whose beginning, in other logs, cannot be read any more
stands alone then: it begins with what can be read of that, and goes on with all that it has itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from attrs import define, field, frozen

from .ancestry import Ancestry
from .anchor import read_anchor
from .atomic import read_file
from .blobs import blobs_of
from .chain import Entry, EntryRef
from .compacted import full_start
from .copying import Copied, copied, publish_copy
from .disk import Disk, storing
from .errors import NewerFormat, SessionDamaged, SessionNotFound, UnknownEntry, Unsuitable
from .family_lock import joining
from .fold import Fold, carried
from .heritage import Gap, Heritage, amends_what_is_lost, heritage, parent_of
from .layout import Layout
from .pieces import Piece, chained, pieces_of
from .reader import with_payload, wrong_start
from .state import SessionState
from .verify import verify_session

_NAMED = ("compacted_from", "forked_from")


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
    inherited_from: str | None = None
    """The session whose entries they are, where they are no entries of its own. `last_seq` is None
    then where it cannot be told how many there were."""


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


def salvage(disk: Disk, layout: Layout, session_id: str, new_session_id: str) -> SalvageReport:
    """Write the new session and return what is in it and what is not. The caller has the lock.

    Raises:
        SessionNotFound: There is no such session.
        Unsuitable: It verifies.
        SessionDamaged: Not even its beginning verifies, or nothing is left of it.
    """
    found = verify_session(disk, layout, session_id)
    if found.ok:
        raise Unsuitable(
            session_id, "verifies: there is nothing to salvage", "use it as it is, or fork it"
        )

    bad = found.first_bad_seq or 0
    reason = found.reason or "does not verify"
    with storing(f"read session {session_id}"):
        pieces = list(pieces_of(read_file(disk, layout.log(session_id))))

    anchor = _anchor(disk, layout, session_id)
    copy = _Copy(disk, layout, session_id)
    # What it refers to must not be removed before it is there.
    with joining(layout):
        copy.take_all(_acknowledged(chained(pieces), anchor))
        kept = copy.kept
        if not kept or copy.is_empty:
            raise _nothing(copy.stopped or SessionDamaged(session_id, bad, reason, 0))

        publish_copy(disk, layout, new_session_id, copy.start(), copy.rest)

    stopped = copy.stopped or SessionDamaged(session_id, bad, reason, bad)
    lost = _lost(pieces, copy, stopped, -1 if anchor is None else anchor.seq)
    return SalvageReport(
        session_id=session_id,
        new_session_id=new_session_id,
        entries_kept=len(kept),
        first_bad_seq=bad,
        reason=reason,
        lost=(*map(_lost_before, copy.gaps), *lost),
    )


@define
class _Copy:
    """The new session in the making: the entries that a session can be made of, and from what."""

    disk: Disk
    layout: Layout
    session_id: str
    kept: list[Entry] = field(factory=list)
    rest: list[Copied] = field(factory=list)
    """What becomes of those after the first."""
    left_out: dict[int, str] = field(factory=dict)
    """Entries among those kept that have nothing to be about any more, and why."""
    stopped: SessionDamaged | None = None
    """What is wrong with the entry after the last that was kept."""
    _fold: Fold = field(factory=Fold)
    _alone: Heritage | None = None
    """What it begins with, where that is not the parent's by reference."""

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """What is missing of its inheritance."""
        return self._alone.gaps if self._alone else ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing that was said is left of a session whose beginning is lost."""
        return bool(self.gaps) and not self._fold.state().history

    def take_all(self, entries: Iterable[Entry]) -> None:
        """Take the entries, as far as they mean something."""
        blobs = blobs_of(self.disk, self.layout)
        try:
            for entry in entries:
                if entry.seq == 0:
                    self._begin(entry)

                self._take(entry, with_payload(entry, self.session_id, blobs))
        except SessionDamaged as error:
            self.stopped = error

    def start(self) -> Copied:
        """Return the first entry of the new session."""
        first = self.kept[0]
        origin = {"recovered_from": [self.session_id, self.kept[-1].hash]}
        start = copied(first, origin)
        ancestry = Ancestry(self.disk, self.layout)
        fields = {
            key: value
            for key, value in start.fields.items()
            if key not in _NAMED or _is_there(ancestry, self.layout, value)
        }
        if self._alone is not None:
            fields = _full(fields, self._alone.state)

        return start._replace(fields=fields)

    def _begin(self, entry: Entry) -> None:
        _check_start(entry, self.session_id)
        if entry.data.get("history") is not None:
            return

        parent, upto = parent_of(self.session_id, entry)
        state: SessionState
        try:
            state = Ancestry(self.disk, self.layout).state(parent, upto)
        except NewerFormat:
            raise
        except (SessionDamaged, SessionNotFound, UnknownEntry):
            self._alone = heritage(self.disk, self.layout, self.session_id, entry)
            state = self._alone.state

        self._fold = Fold(state)

    def _take(self, entry: Entry, whole: Entry) -> None:
        if self.gaps and amends_what_is_lost(whole, self._fold):
            self.left_out[entry.seq] = "changes what is lost"
            return

        self._fold.take(whole)
        self.kept.append(entry)
        if entry.seq > 0:
            fitting = self._fitting(entry) if self.gaps else copied(entry)
            self.rest += [fitting] if fitting is not None else []

    def _fitting(self, entry: Entry) -> Copied | None:
        """Return the copy of an entry that may count items which are not there any more."""
        match entry.kind:
            case "usage":
                # The prompt that was measured held them; the next request will be measured anew.
                there = len(self._fold.state().history)
                return copied(entry, {"history_len": min(entry.data["history_len"], there)})
            case "prune_advanced":
                uids = [item.uid for item in self._fold.state().history]
                upto = entry.data.get("upto_uid")
                if upto not in uids:
                    return None

                return copied(entry, {"upto_index": uids.index(upto) + 1})
            case _:
                return copied(entry)


def _full(fields: dict[str, object], state: SessionState) -> dict[str, object]:
    """Return the fields of a start that inherits nothing: `forked_from` is left out of it."""
    own = {key: value for key, value in fields.items() if value is not None}
    own.pop("forked_from", None)
    return {**own, "carried": carried(state), **full_start(state, state.history, own)}


def _is_there(ancestry: Ancestry, layout: Layout, origin: object) -> bool:
    """Tell whether what the session names as its origin can be proved, or was removed on purpose.

    A new session that names what cannot be proved would be damaged in its turn.
    """
    match origin:
        case [str(parent), str(digest)]:
            return layout.is_removed(parent) or not ancestry.why_missing(parent, digest)
        case _:
            return True


def _check_start(entry: Entry, session_id: str) -> None:
    verdict = wrong_start(entry, session_id)
    if verdict is not None:
        raise SessionDamaged(session_id, 0, verdict.reason, 0)


def _lost_before(gap: Gap) -> Lost:
    return Lost(
        first_seq=gap.first_seq,
        last_seq=gap.last_seq,
        bytes=0,
        reason=gap.reason,
        inherited_from=gap.session_id,
    )


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
    pieces: list[Piece], copy: _Copy, stopped: SessionDamaged, acknowledged: int
) -> Iterator[Lost]:
    """Yield what of the log is not among what was kept, neighbours of one reason together."""
    kept = copy.kept
    have = {entry.offset for entry in kept}
    orphans = {p.seq for p in pieces if p.seq is not None and p.offset not in have}
    known = orphans | {entry.seq for entry in kept}
    left: list[tuple[int | None, int, str]] = []
    place = 0
    for piece in pieces:
        if piece.offset in have:
            place = (piece.seq or 0) + 1
        elif piece.seq is not None:
            why = copy.left_out.get(piece.seq) or _why_orphan(piece.seq, kept[-1].seq, stopped)
            left.append((piece.seq, piece.size, why))
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


def _why_orphan(seq: int, last: int, stopped: SessionDamaged) -> str:
    if stopped.seq == seq:
        return stopped.reason

    if seq <= last:
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
