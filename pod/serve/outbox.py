"""What one connection is yet to be sent: a bounded queue of shared lines. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice

from attrs import define, field

from .record import Joiner, Meter, Record

MAX_EVENTS = 256
"""How many events a subscriber may fall behind."""
MAX_EVENT_BYTES = 1 << 20
"""How many bytes of events a subscriber may fall behind. A single larger one is let through."""
_BUFFERS_AT_ONCE = 64


@define(eq=False)
class Outbox:
    """Lines in the order in which they are sent. Events are bounded, answers by who asks."""

    meter: Meter
    joiner: Joiner
    _queue: deque[Record] = field(factory=deque, init=False)
    _offset: int = field(default=0, init=False)
    """How many bytes of the first line were sent already."""
    events: int = field(default=0, init=False)
    event_bytes: int = field(default=0, init=False)
    other_bytes: int = field(default=0, init=False)
    """Bytes of lines that are no events."""

    def __bool__(self) -> bool:
        """Whether there is anything to send."""
        return bool(self._queue)

    # ------------------------------------------------------------------ what is put in

    def add(self, record: Record) -> None:
        """Put in a line, whatever is there already."""
        self._queue.append(record)
        self._count(record)

    def offer(self, record: Record) -> bool:
        """Put in an event if there is room, after joining deltas if need be; tell whether."""
        size = len(record.line)
        if self.events and not self._has_room(size):
            self._join()
            if not self._has_room(size):
                return False

        self.add(record)
        return True

    def _has_room(self, size: int) -> bool:
        return self.events < MAX_EVENTS and self.event_bytes + size <= MAX_EVENT_BYTES

    def _join(self) -> None:
        begun = [self._queue.popleft()] if self._offset else []
        rest = list(self._queue)
        joined = self.joiner.join(rest)
        if len(joined) < len(rest):
            self._forget(rest)
            self._queue = deque(joined)
            for record in joined:
                self._count(record)

        self._queue.extendleft(begun)

    def cut(self) -> Record | None:
        """Drop all events but one whose sending has begun; return the first that was dropped."""
        begun = [self._queue.popleft()] if self._offset else []
        dropped = [record for record in self._queue if record.seq]
        kept = [record for record in self._queue if not record.seq]
        self._forget(dropped)
        self._queue = deque((*begun, *kept))
        return dropped[0] if dropped else None

    def clear(self) -> None:
        """Drop everything."""
        self._forget(self._queue)
        self._queue.clear()
        self._offset = 0

    # ------------------------------------------------------------------ what is taken out

    def buffers(self) -> list[memoryview | bytes]:
        """Return what to send next: as many lines as one call of the system takes."""
        lines: list[memoryview | bytes] = [r.line for r in islice(self._queue, _BUFFERS_AT_ONCE)]
        if self._offset:
            lines[0] = memoryview(lines[0])[self._offset :]

        return lines

    def sent(self, size: int) -> None:
        """Note that the next `size` bytes were sent."""
        self._offset += size
        while self._queue and self._offset >= len(self._queue[0].line):
            record = self._queue.popleft()
            self._offset -= len(record.line)
            self._uncount(record)

    # ------------------------------------------------------------------ counting

    def _count(self, record: Record) -> None:
        self.meter.hold(record)
        if record.seq:
            self.events += 1
            self.event_bytes += len(record.line)
        else:
            self.other_bytes += len(record.line)

    def _uncount(self, record: Record) -> None:
        self.meter.drop(record)
        if record.seq:
            self.events -= 1
            self.event_bytes -= len(record.line)
        else:
            self.other_bytes -= len(record.line)

    def _forget(self, records: deque[Record] | list[Record]) -> None:
        for record in records:
            self._uncount(record)

    def __iter__(self) -> Iterator[Record]:
        """Yield the lines that are yet to be sent, the one that was begun included."""
        return iter(self._queue)
