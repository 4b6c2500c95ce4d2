"""The hub: every event of a pod, encoded once, to everybody who subscribed. It waits for nobody."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack

from attrs import define, field, frozen

from pod.bus import EventBus
from pod.protocol import Envelope, Lagged
from pod.protocol.wire import HEARTBEAT_S, Heartbeat, heartbeat_line

from .connection import Connection
from .ledger import Ledger
from .outbox import Outbox
from .record import Joiner, Meter, Parcel, Record, record_of
from .ring import Ring

_log = logging.getLogger("pod.serve")

TOTAL_BYTES = 36 << 20
"""How much all that is held for subscribers may be, as counted, in one pod.

What comes on top (connections, what is made while deltas are joined, gaps that the allocator
leaves) was measured at 18 to 25 MiB with a thousand that stalled: 64 MiB of memory together.
"""
_CAUGHT_UP_BY = 64
"""How many events are handed over at once to somebody who catches up."""
_BURST_EVENTS = 128
_BURST_BYTES = 1 << 18
"""How much waits until the loop goes on, and no longer: part of what a subscriber may be behind."""


@frozen(eq=False)
class Wish:
    """What a subscriber wants."""

    names: frozenset[str] | None
    """Names of events; None for all."""
    attends: Callable[[], AbstractContextManager[object]] | None = None
    """Entered while it is subscribed, where it could answer what a pod asks."""

    def covers(self, event: str) -> bool:
        """Tell whether an event of that name is wanted."""
        return self.names is None or event in self.names


@frozen(eq=False)
class Before:
    """What comes before the events that are held."""

    launch: str
    from_seq: int
    """Where it begins."""
    batches: Callable[[], Iterable[list[Record]]]
    """Called, and iterated, in threads: it may read logs."""


@define(eq=False)
class Subscriber:
    """A connection that is sent events."""

    connection: Connection
    wish: Wish
    is_live: bool = False
    """Whether it has all there was, and is handed what comes."""
    launch: str = ""
    next_seq: int = 0
    """While it is not live: what it is to be handed next, and of which launch that is."""
    kept: list[Record] = field(factory=list)
    """The first of what it is to be handed, so that it gets some, however fast others come."""
    catching_up: asyncio.Task[None] | None = None
    undo: ExitStack = field(factory=ExitStack)


@define(eq=False)
class Hub:
    """Hands the events of one bus to subscribers. All calls come from the loop's thread."""

    bus: EventBus
    ledger: Ledger | None = None
    heartbeat_s: float = HEARTBEAT_S
    clock: Callable[[], float] = time.time
    meter: Meter = field(factory=lambda: Meter(TOTAL_BYTES))
    ring: Ring = field(init=False)
    seq: int = field(default=0, init=False)
    """The last event that was handed out."""
    _cut_off: set[Connection] = field(factory=set, init=False)
    """Those that are yet to take the last there is for them."""
    _joiner: Joiner = field(factory=Joiner, init=False)
    _subscribers: dict[Connection, Subscriber] = field(factory=dict, init=False)
    _burst: list[Record] = field(factory=list, init=False)
    """Events that came since the loop last went on; they are handed out together."""
    _burst_bytes: int = field(default=0, init=False)
    _is_flush_due: bool = field(default=False, init=False)
    _beat: asyncio.TimerHandle | None = field(default=None, init=False)
    _stop: Callable[[], None] | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.ring = Ring(self.meter)

    # ------------------------------------------------------------------ life

    def start(self) -> None:
        """Hear the bus from now on; before the pod is launched, for launching tells of things."""
        self.seq = self.bus.seq
        self._stop = self.bus.listen(self._on_event)
        self._next_beat()

    def outbox(self) -> Outbox:
        """Return an empty outbox that is counted with all the others."""
        return Outbox(self.meter, self._joiner)

    async def finish(self, timeout_s: float) -> None:
        """Return once every subscriber was handed all there is, or `timeout_s` is over."""
        tasks = [s.catching_up for s in self._subscribers.values() if s.catching_up is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=max(0.0, timeout_s))

        self.flush()

    def close(self) -> None:
        """Hear nothing more."""
        if self._stop is not None:
            self._stop()

        if self._beat is not None:
            self._beat.cancel()

        if self.ledger is not None:
            self.ledger.close()

    def end_subscriptions(self) -> None:
        """Hand out nothing more; what was handed out already is still sent."""
        self.flush()
        for subscriber in tuple(self._subscribers.values()):
            self._forget(subscriber)

    # ------------------------------------------------------------------ subscribers

    def __len__(self) -> int:
        """How many are subscribed."""
        return len(self._subscribers)

    def is_subscribed(self, connection: Connection) -> bool:
        """Tell whether the connection is subscribed."""
        return connection in self._subscribers

    def subscribe(
        self,
        connection: Connection,
        wish: Wish,
        *,
        from_seq: int | None = None,
        before: Before | None = None,
    ) -> None:
        """Send events: those of `before`, those held from `from_seq` on, and what comes."""
        self.flush()
        next_seq = self.seq + 1 if from_seq is None else from_seq
        subscriber = Subscriber(connection, wish, launch=self.bus.launch, next_seq=next_seq)
        self._subscribers[connection] = subscriber
        connection.is_subscribed = True
        if wish.attends is not None:
            subscriber.undo.enter_context(wish.attends())

        if before is None and next_seq > self.seq:
            subscriber.is_live = True
        else:
            if self.ring.holds(next_seq):
                subscriber.kept = self.ring.after(next_seq, _CAUGHT_UP_BY)
                for record in subscriber.kept:
                    self.meter.hold(record)

            work = self._caught_up(subscriber, before)
            subscriber.catching_up = asyncio.create_task(work, name="catch-up")

    def unsubscribe(self, connection: Connection) -> tuple[str, int] | None:
        """Send no more events; returns the launch and number of the first that was not sent.

        None where the connection was not subscribed.
        """
        self._cut_off.discard(connection)
        self.flush()
        subscriber = self._subscribers.get(connection)
        if subscriber is None:
            return None

        self._forget(subscriber)
        dropped = connection.outbox.cut()
        if dropped is not None:
            return dropped.launch, dropped.first_seq

        if subscriber.is_live:
            return self.bus.launch, self.seq + 1

        return subscriber.launch, subscriber.next_seq

    def _forget(self, subscriber: Subscriber) -> None:
        self._subscribers.pop(subscriber.connection, None)
        subscriber.connection.is_subscribed = False
        subscriber.undo.close()
        # Each holds the other, and what it is about to hand over: they are not left to a collector.
        task, subscriber.catching_up = subscriber.catching_up, None
        if task is not None:
            task.cancel()  # where it is what goes on just now, it ends at its next wait

        self._let_go(subscriber)  # one that has not begun ends without a trace

    # ------------------------------------------------------------------ what comes

    def _on_event(self, envelope: Envelope) -> None:
        if self.ledger is not None:
            # Before anybody is sent it: whatever a subscriber has seen, a later launch knows of.
            self.ledger.note(envelope)

        self.seq = envelope.seq
        record = record_of(envelope)
        self.ring.append(record)
        self._burst.append(record)
        self._burst_bytes += len(record.line)
        if len(self._burst) >= _BURST_EVENTS or self._burst_bytes >= _BURST_BYTES:
            self.flush()
        elif not self._is_flush_due:
            self._is_flush_due = True
            asyncio.get_running_loop().call_soon(self._flush_when_due)

    def _flush_when_due(self) -> None:
        self._is_flush_due = False
        self.flush()

    def flush(self) -> None:
        """Hand out what came, now; before anything that should come after it."""
        burst, self._burst, self._burst_bytes = self._burst, [], 0
        if not burst:
            return

        parcels: dict[frozenset[str] | None, Parcel] = {}
        for subscriber in tuple(self._subscribers.values()):
            if not subscriber.is_live:
                continue

            names = subscriber.wish.names
            parcel = parcels.get(names)
            if parcel is None:
                parcel = parcels[names] = Parcel.of(burst, subscriber.wish.covers)

            if parcel.records:
                missed = subscriber.connection.hand(parcel)
                if missed is not None:
                    self._cut(subscriber, missed)

        if self.meter.is_over:
            self._shed()

    def _cut(self, subscriber: Subscriber, missed: Record) -> None:
        """End a subscription that fell too far behind, telling where it can be taken up."""
        connection = subscriber.connection
        first = connection.outbox.cut() or missed
        self._cut_at(subscriber, first.launch, first.first_seq)

    def _cut_at(self, subscriber: Subscriber, launch: str, next_seq: int) -> None:
        connection = subscriber.connection
        self._forget(subscriber)
        # Its number is the one before, so that whoever goes on after the last number is right.
        data = Lagged(next_seq=next_seq)
        envelope = Envelope(next_seq - 1, launch, int(self.clock() * 1000), data)
        connection.send(envelope.to_json() + b"\n")
        connection.leave()
        if not connection.is_closed:
            self._cut_off.add(connection)

    def _shed(self) -> None:
        """Hold less: of what is there to resume from first, then of whoever is furthest behind."""
        while self.meter.is_over and self.ring.shrink():
            pass

        # Of those a line that was begun is held, which may be large and nobody else's.
        while self.meter.is_over and self._cut_off:
            self._cut_off.pop().close()

        while self.meter.is_over:
            furthest = max(
                self._subscribers.values(),
                key=lambda s: s.connection.outbox.event_bytes,
                default=None,
            )
            if furthest is None or furthest.connection.outbox.events == 0:
                return

            self._cut(furthest, next(iter(furthest.connection.outbox)))

    # ------------------------------------------------------------------ what was

    async def _caught_up(self, subscriber: Subscriber, before: Before | None) -> None:
        try:
            await self._catch_up(subscriber, before)
        # The supervision point of a task that nobody waits for: whoever subscribed is told.
        except Exception:  # noqa: BLE001  nobody else would hear of it
            _log.exception("a subscriber cannot be told what it missed")
            self._cut_at(subscriber, subscriber.launch, subscriber.next_seq)
        finally:
            self._let_go(subscriber)

    def _let_go(self, subscriber: Subscriber) -> list[Record]:
        """Keep nothing for a subscriber any more; returns what was kept."""
        kept, subscriber.kept = subscriber.kept, []
        for record in kept:
            self.meter.drop(record)

        return kept

    async def _catch_up(self, subscriber: Subscriber, before: Before | None) -> None:
        connection = subscriber.connection
        if before is not None:
            await self._tell_before(subscriber, before)

        while subscriber.next_seq <= self.seq and not connection.is_closed:
            batch = self._let_go(subscriber)
            if not batch and not self.ring.holds(subscriber.next_seq):
                self._cut_at(subscriber, self.bus.launch, subscriber.next_seq)
                return

            batch = batch or self.ring.after(subscriber.next_seq, _CAUGHT_UP_BY)
            subscriber.next_seq = batch[-1].seq + 1
            self._pass_on(subscriber, batch)
            await connection.drained()

        self.flush()  # of which it was handed its part already
        subscriber.is_live = True
        subscriber.catching_up = None
        # Whoever waits for something that was missed knows now whether it is still to come.
        connection.send(self._heartbeat())

    async def _tell_before(self, subscriber: Subscriber, before: Before) -> None:
        then = (subscriber.launch, subscriber.next_seq)
        subscriber.launch, subscriber.next_seq = before.launch, before.from_seq
        batches = iter(await asyncio.to_thread(before.batches))
        while (batch := await asyncio.to_thread(next, batches, None)) is not None:
            subscriber.launch, subscriber.next_seq = batch[-1].launch, batch[-1].seq + 1
            self._pass_on(subscriber, batch)
            await subscriber.connection.drained()

        subscriber.launch, subscriber.next_seq = then

    def _pass_on(self, subscriber: Subscriber, batch: Iterable[Record]) -> None:
        connection = subscriber.connection
        for record in batch:
            # A snapshot is no event that could be wanted or not: it says where the others begin.
            if record.event == "snapshot" or subscriber.wish.covers(record.event):
                connection.outbox.add(record)

        connection.flush()
        if self.meter.is_over:
            self._shed()

    # ------------------------------------------------------------------ heartbeat

    def _next_beat(self) -> None:
        loop = asyncio.get_running_loop()
        self._beat = loop.call_later(self.heartbeat_s, self._on_beat)

    def _heartbeat(self) -> bytes:
        return heartbeat_line(Heartbeat(self.bus.launch, self.seq, int(self.clock() * 1000)))

    def _on_beat(self) -> None:
        self.flush()
        line = self._heartbeat()
        for subscriber in tuple(self._subscribers.values()):
            if subscriber.is_live and not subscriber.connection.outbox:
                subscriber.connection.send(line)

        self._next_beat()
