"""The newest events of a launch, held for whoever resumes."""

from __future__ import annotations

from collections import deque
from itertools import islice

from attrs import define, field

from .record import Meter, Record

RING_EVENTS = 8_192
RING_BYTES = 16 << 20


@define(eq=False)
class Ring:
    """The newest events, without a gap: their numbers rise by one."""

    meter: Meter
    max_events: int = RING_EVENTS
    max_bytes: int = RING_BYTES
    _records: deque[Record] = field(factory=deque, init=False)
    _bytes: int = field(default=0, init=False)

    @property
    def first_seq(self) -> int | None:
        """The oldest event that is held; None while nothing is."""
        return self._records[0].seq if self._records else None

    def append(self, record: Record) -> None:
        """Hold an event, and let go of the oldest where that is too much."""
        self._records.append(record)
        self._bytes += record.size
        self.meter.hold(record)
        while len(self._records) > self.max_events or self._bytes > self.max_bytes:
            self._let_go()

    def shrink(self) -> bool:
        """Let go of the older half; tell whether anything was left to let go of."""
        few = len(self._records) < 2
        for _ in range(len(self._records) // 2):
            self._let_go()

        return not few

    def holds(self, seq: int) -> bool:
        """Tell whether `seq` is held."""
        return bool(self._records) and self._records[0].seq <= seq <= self._records[-1].seq

    def after(self, seq: int, limit: int) -> list[Record]:
        """Return up to `limit` events from `seq` on; `seq` itself must be held."""
        start = seq - self._records[0].seq
        return list(islice(self._records, start, start + limit))

    def _let_go(self) -> None:
        record = self._records.popleft()
        self._bytes -= record.size
        self.meter.drop(record)
