"""What a subscriber missed: where it comes from, and how it is put together.

From the ring while it is held there. Else from the logs, as durable events, by what the ledger says
of their numbers; what was written to the logs and is not in the ledger is told too. Else nobody can
say, and a snapshot takes its place.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from attrs import define, field, frozen

from pod.pod import Pod
from pod.protocol import Envelope, EventData, SessionChanged, Snapshot, event_name
from pod.protocol.methods import HistoryAnswer, HistoryParams, Replay
from pod.protocol.wire import WireError
from session_store import Entry, FileSessionStore, Position, SessionStoreError

from .history import page_of
from .hub import Before, Hub
from .ledger import Launch, Ledger, Ref, Row, read_ledger
from .reconstruct import Teller
from .record import Record, record_of

_BATCH = 64
_BATCH_BYTES = 1 << 20
"""How much is handed over at once. A single larger one is let through."""
_TRIES = 3
_log = logging.getLogger("pod.serve")
Batches = Callable[[], Iterator[list[Record]]]


@frozen(eq=False)
class Plan:
    """What a subscriber is given."""

    replay: Replay
    reason: Literal["too_old", "other_launch"] | None = None
    from_seq: int | None = None
    """From where on the events come that are held; None: from now on."""
    before: Before | None = None
    """What comes before those."""


@frozen
class Stretch:
    """Part of what was missed: the durable events of one launch, and what nobody numbered."""

    rows: tuple[Row, ...]
    """The first ones may be of the same entry as the first that is wanted."""
    from_seq: int
    """The first number wanted."""
    until: Row | None = None
    """What the launch after it began with; None for the present launch."""
    is_past: bool = True
    """Whether that launch is over."""


@define(eq=False)
class Replays:
    """Plans what a subscriber is given of what was. Its plans are made on the loop's thread."""

    pod: Pod
    hub: Hub
    store: Callable[[], FileSessionStore]
    ledger: Ledger | None
    since_ms: int
    """When the present launch began, in milliseconds of Unix time."""

    async def plan(self, from_seq: int | None, launch: str | None) -> Plan:
        """Return how to give somebody the events from `from_seq` of `launch` on.

        Raises:
            WireError: That is a number of the present launch that is yet to come.
        """
        own = self.hub.bus.launch
        if from_seq is None:
            if launch is not None and launch != own:
                message = "subscribe: a launch says of which one from_seq is, which is missing"
                raise WireError("bad_params", message)

            return Plan("none")

        if launch is None or launch == own:
            held = self._held(from_seq)
            if held is not None:
                return held

        return await self._missed(from_seq, launch or own)

    def _held(self, from_seq: int) -> Plan | None:
        seq = self.hub.seq
        if from_seq > seq + 1:
            message = f"event {from_seq} is yet to come: the last one of this launch is {seq}"
            hint = "each launch numbers its events anew; name the launch that from_seq is of"
            raise WireError("ahead", message, hint=hint)

        if from_seq == seq + 1:
            return Plan("none", from_seq=from_seq)

        return Plan("memory", from_seq=from_seq) if self.hub.ring.holds(from_seq) else None

    async def _missed(self, from_seq: int, launch: str) -> Plan:
        own = self.hub.bus.launch
        reason: Literal["too_old", "other_launch"] = "too_old" if launch == own else "other_launch"
        launches, held_from = await self._noted()
        way = stretches(launches, launch, from_seq, own=own, before_seq=held_from)
        if way is None:
            told = Before(launch, from_seq, self._snapshot(self.hub.seq))
            return Plan("snapshot", reason, self.hub.seq + 1, told)

        snapshot = self._snapshot(held_from - 1)
        session_id = self.pod.session_id

        def batches() -> Iterator[list[Record]]:
            telling = Retelling(self.store(), session_id, self.since_ms)
            try:
                yield from telling.batches(way)
            except SessionStoreError as error:
                _log.warning("what a subscriber missed cannot be read: %s", error)
                yield from snapshot()

        return Plan("log", reason, held_from, Before(launch, from_seq, batches))

    async def _noted(self) -> tuple[list[Launch], int]:
        """Return what the ledger has, and from where on events are held that it need not have."""
        if self.ledger is None:
            return [], self._held_from()

        for _ in range(_TRIES):
            seq = self.hub.seq
            launches = await asyncio.to_thread(read_ledger, self.ledger.path)
            # Else events came while it was read, and were let go of: it may not have had them yet.
            if self._held_from() <= seq + 1:
                return launches, self._held_from()

        return [], self._held_from()

    def _held_from(self) -> int:
        return self.hub.ring.first_seq or self.hub.seq + 1

    def _snapshot(self, seq: int) -> Batches:
        """Return where the pod stands now, as what came up to `seq`."""
        status = self.pod.status()
        data = Snapshot(
            session_id=status.session_id,
            state=status.state,
            history_len=status.history_len,
            occupancy=status.occupancy,
        )
        record = record_of(Envelope(seq, self.hub.bus.launch, int(time.time() * 1000), data))
        return lambda: iter([[record]])

    async def page_of_session(self, params: HistoryParams, *, seq: int) -> HistoryAnswer:
        """Return a page of the history of a session that the pod is not on now.

        Raises `SessionStoreError` where it cannot be read.
        """
        session_id = params.session_id or ""
        state = await asyncio.to_thread(lambda: self.store().restore(session_id))
        return page_of(state.history, params, session_id=session_id, seq=seq)


# --- what is to be told ---------------------------------------------------------------------


def stretches(
    launches: Sequence[Launch], launch: str, from_seq: int, *, own: str, before_seq: int
) -> list[Stretch] | None:
    """Return what was missed since `from_seq` of `launch`, up to `before_seq` of the launch `own`.

    None where the ledger does not have all of it.
    """
    index = next((n for n, known in enumerate(launches) if known.launch == launch), None)
    if index is None or launches[-1].launch != own:
        return None

    way: list[Stretch] = []
    for known in launches[index:]:
        first = from_seq if known.launch == launch else 1
        if known.since < 0 or known.since > first:
            return None

        rows = tuple(row for row in known.rows if known.launch != own or row.seq < before_seq)
        way.append(Stretch(_from(rows, first), first, is_past=known.launch != own))

    return [
        Stretch(
            stretch.rows, stretch.from_seq, _next_row(launches[index + n + 1 :]), stretch.is_past
        )
        for n, stretch in enumerate(way)
    ]


def _next_row(launches: Sequence[Launch]) -> Row | None:
    return next((row for launch in launches for row in launch.rows if row.ref[1] >= 0), None)


def _from(rows: Sequence[Row], seq: int) -> tuple[Row, ...]:
    """Return the rows from `seq` on, and what is needed of those before.

    That is the last one that names an entry, from which on the logs are looked at, and all that
    tell of the same entry as the first that is wanted.
    """
    start = next((n for n, row in enumerate(rows) if row.seq >= seq), len(rows))
    while start and rows[start - 1].ref[1] < 0:
        start -= 1

    start = max(0, start - 1)
    while start and rows[start - 1].ref == rows[start].ref:
        start -= 1

    return tuple(rows[start:])


def batched(records: Iterator[Record]) -> Iterator[list[Record]]:
    """Yield the records a few at a time: no more than somebody may be behind anyway."""
    batch: list[Record] = []
    size = 0
    for record in records:
        if batch and (len(batch) == _BATCH or size + len(record.line) > _BATCH_BYTES):
            yield batch
            batch, size = [], 0

        batch.append(record)
        size += len(record.line)

    if batch:
        yield batch


# --- telling it again -----------------------------------------------------------------------


@define(eq=False)
class _Walk:
    """A session's entries, told again one after the other, and kept until they are asked for."""

    store: FileSessionStore
    session_id: str
    teller: Teller
    told: dict[int, list[EventData]] = field(factory=dict)
    at: int = -1
    """The last entry that was read."""
    _after: Position = field(factory=Position)
    _entries: Iterator[Entry] | None = None

    def next(self) -> Entry | None:
        if self._entries is None:
            self._entries = self.store.entries(self.session_id, self._after)

        entry = next(self._entries, None)
        if entry is not None:
            self.at, self._after = entry.seq, entry.next
            self.told[entry.seq] = self.teller.take(entry)

        return entry

    def pause(self) -> None:
        """Hold no file, and no entry, until the next one is asked for."""
        self._entries = None

    def of(self, row: Row) -> EventData | None:
        """Return what the row's entry was told as. What came long before is let go of."""
        seq = row.ref[1]
        while self.at < seq and self.next() is not None:
            self.told.pop(self.at - _SLACK, None)

        told = self.told.get(seq, [])
        found = next((data for data in told if event_name(type(data)) == row.event), None)
        if found is not None:
            told.remove(found)

        return found


_SLACK = 64
"""By how many entries events may come out of the order of their entries: calls run at once."""


@define(eq=False)
class Retelling:
    """Tells what was missed again, from the logs. Reads files: not for the loop's thread."""

    store: FileSessionStore
    session_id: str
    """Where the pod is now."""
    since_ms: int
    """When the present launch began."""
    _walk: _Walk | None = None

    def batches(self, way: Sequence[Stretch]) -> Iterator[list[Record]]:
        """Yield what `records` does, a few at a time; in between no file is held open."""
        for batch in batched(self.records(way)):
            if self._walk is not None:
                self._walk.pause()

            yield batch

    def records(self, way: Sequence[Stretch]) -> Iterator[Record]:
        """Yield the events of each stretch, in order.

        Raises `SessionStoreError` where a log cannot be read.
        """
        for stretch in way:
            last: Row | None = None
            place = ("", -1)
            for row in stretch.rows:
                last = row
                place = _place_after(row, place)
                data = self._told(row)
                if data is not None and row.seq >= stretch.from_seq:
                    ref = row.ref if row.ref[1] >= 0 else None
                    yield record_of(Envelope(row.seq, row.launch, row.ts, data, ref))

            if last is not None and stretch.is_past:
                yield from self._unnumbered(last, place, stretch)

    def _told(self, row: Row) -> EventData | None:
        session_id, entry = row.ref
        if entry < 0:
            return _moved(row, session_id)

        return self._at(session_id).of(row)

    def _at(self, session_id: str) -> _Walk:
        """Return the walk through a session; from its beginning, where it is another one now."""
        walk = self._walk
        if walk is None or walk.session_id != session_id:
            teller = Teller(session_id)
            if walk is not None:
                teller.go_on_from(walk.teller)

            walk = self._walk = _Walk(self.store, session_id, teller)

        return walk

    def _unnumbered(self, last: Row, place: Ref, stretch: Stretch) -> Iterator[Record]:
        """Yield what the logs have after a launch's last event and before the next launch.

        Nobody was sent that: an event is in the ledger before it is sent. So it may have any
        number that is new to whoever asks.
        """
        number = max(last.seq + 1, stretch.from_seq)
        for session_id, after in self._line(place, stretch):
            walk = self._at(session_id)
            while (entry := walk.next()) is not None:
                if self._is_later(session_id, entry, stretch):
                    break

                told = walk.told.pop(entry.seq) if entry.seq > after else []
                for data in told:
                    ref = (session_id, entry.seq)
                    yield record_of(Envelope(number, last.launch, entry.ts, data, ref))
                    number += 1

    def _line(self, place: Ref, stretch: Stretch) -> Iterator[Ref]:
        """Yield the sessions that the log goes on in, and the entry after which it does."""
        yield place
        goal = stretch.until.ref[0] if stretch.until is not None else self.session_id
        names = self.store.lineage(goal)
        ids = [name for name, _ in names]
        if place[0] in ids:
            for name, how in names[ids.index(place[0]) + 1 :]:
                if how != "compact":
                    return

                yield name, -1

    def _is_later(self, session_id: str, entry: Entry, stretch: Stretch) -> bool:
        """Tell whether an entry belongs to the launch after."""
        if stretch.until is not None:
            return stretch.until.ref[0] == session_id and entry.seq >= stretch.until.ref[1]

        return entry.ts >= self.since_ms


def _place_after(row: Row, place: Ref) -> Ref:
    """Return the session that is written after a row, and its last entry that was told of."""
    if row.ref[1] >= 0:
        return row.ref

    return place if place[0] == row.to else (row.to, -1)


def _moved(row: Row, old: str) -> EventData | None:
    reasons: tuple[Literal["compaction", "new", "rewind", "head_mismatch"], ...]
    reasons = ("compaction", "new", "rewind", "head_mismatch")
    reason = next((reason for reason in reasons if reason == row.reason), None)
    if reason is None:
        return None

    return SessionChanged(old_session_id=old, new_session_id=row.to, reason=reason)
