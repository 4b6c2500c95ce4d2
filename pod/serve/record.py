"""One event as it is sent: encoded once, shared by everybody who is sent it, and counted once."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence

from attrs import define, field, frozen

from pod.protocol import Envelope, ReasoningDelta, TextDelta, ToolCallArgsDelta

OVERHEAD_BYTES = 400
"""About what a record takes beside its line: the objects around it."""

Delta = TextDelta | ReasoningDelta | ToolCallArgsDelta


@define(eq=False)
class Record:
    """A line that is sent. Not every line is an event: answers are sent too."""

    line: bytes
    """With its newline."""
    seq: int = 0
    """0: no event. Of joined deltas, the last one's."""
    launch: str = ""
    event: str = ""
    first_seq: int = 0
    """Of joined deltas, the first one's; else as `seq`."""
    delta: Envelope | None = None
    """The event itself, where it is a delta, so that it can be joined with others."""
    holders: int = field(default=0, init=False)
    """How many hold it: subscribers that have yet to be sent it, and the ring."""

    @property
    def size(self) -> int:
        """How many bytes of memory it takes, about. A delta's text is there a second time."""
        copies = 1 if self.delta is None else 2
        return copies * len(self.line) + OVERHEAD_BYTES


def record_of(envelope: Envelope) -> Record:
    """Return an event encoded."""
    return Record(
        line=envelope.to_json() + b"\n",
        seq=envelope.seq,
        launch=envelope.launch,
        event=envelope.event,
        first_seq=envelope.first_seq or envelope.seq,
        delta=envelope if isinstance(envelope.data, Delta) else None,
    )


@frozen(eq=False)
class Parcel:
    """Events that are handed to many at once, put together once for all of them."""

    records: tuple[Record, ...]
    data: bytes
    """Their lines."""

    @classmethod
    def of(cls, records: Sequence[Record], wanted: Callable[[str], bool]) -> Parcel:
        """Return those of the records whose events are wanted."""
        chosen = tuple(record for record in records if wanted(record.event))
        alone = len(chosen) == 1
        return cls(chosen, chosen[0].line if alone else b"".join(r.line for r in chosen))


@define(eq=False)
class Meter:
    """Counts the bytes of all records that somebody holds, each of them once."""

    limit: int
    held: int = 0

    @property
    def is_over(self) -> bool:
        """Whether more is held than may be."""
        return self.held > self.limit

    def hold(self, record: Record) -> None:
        """Count one more holder."""
        if record.holders == 0:
            self.held += record.size

        record.holders += 1

    def drop(self, record: Record) -> None:
        """Count one holder less."""
        record.holders -= 1
        if record.holders == 0:
            self.held -= record.size


@frozen
class _Joined:
    key: tuple[str, str, int, int]
    record: weakref.ref[Record]
    """Kept only by those that are yet to be sent it, who are counted."""


@define(eq=False)
class Joiner:
    """Joins deltas that follow each other. What many slow subscribers need alike is made once."""

    _last: list[_Joined] = field(factory=list)

    def join(self, records: Sequence[Record]) -> list[Record]:
        """Return the records with each run of deltas of one stream made one of them."""
        joined: list[Record] = []
        run: list[Record] = []
        for record in records:
            if run and _stream(record) != _stream(run[0]):
                joined.append(self._one(run))
                run = []

            if record.delta is None:
                joined.append(record)
            else:
                run.append(record)

        if run:
            joined.append(self._one(run))

        return joined

    def _one(self, run: list[Record]) -> Record:
        if len(run) == 1:
            return run[0]

        key = (run[0].launch, _stream(run[0]), run[0].first_seq, run[-1].seq)
        known = next((held.record() for held in self._last if held.key == key), None)
        if known is None:
            known = _merged(run)
            self._last = [*self._last[-7:], _Joined(key, weakref.ref(known))]

        return known


def _stream(record: Record) -> str:
    """Return which stream of text a delta belongs to; empty for what is no delta."""
    if record.delta is None:
        return ""

    data = record.delta.data
    return f"{record.event} {data.call_id}" if isinstance(data, ToolCallArgsDelta) else record.event


def _merged(run: Sequence[Record]) -> Record:
    deltas = [record.delta for record in run if record.delta is not None]
    texts = [delta.data.text for delta in deltas if isinstance(delta.data, Delta)]
    last = deltas[-1]
    data = last.data.model_copy(update={"text": "".join(texts)})
    first_seq = run[0].first_seq
    return record_of(Envelope(last.seq, last.launch, last.ts, data, first_seq=first_seq))
