"""The event bus of one pod: numbers events and hands them to whoever listens, never waiting."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from types import TracebackType
from typing import Self, TypeVar, cast

from attrs import define, field, frozen

from pod.protocol import Envelope, EventData, Lagged
from worker.items import new_uid

QUEUE_LIMIT = 4_096
"""How many events a subscriber may fall behind before it is cut off."""

E = TypeVar("E", bound=EventData)
_log = logging.getLogger("pod.events")


class Subscription:
    """The events of some types from now on, as an asynchronous iterator of their data.

    It ends when the pod closes. A subscriber that falls more than `QUEUE_LIMIT` events behind gets
    a last `Lagged` and then the end: the pod never waits for it. `envelopes` gives the same events
    with their numbers.
    """

    def __init__(self, bus: EventBus, types: tuple[type[EventData], ...]) -> None:
        self._bus = bus
        self._types = types
        self._queue: deque[Envelope] = deque()
        self._wake = asyncio.Event()
        self._ended = False
        self._error: Exception | None = None

    def offer(self, envelope: Envelope) -> None:
        """Take an event, if it is of the wanted types and there is room."""
        if self._ended or (self._types and not isinstance(envelope.data, self._types)):
            return

        if len(self._queue) >= QUEUE_LIMIT:
            lagged = Lagged(next_seq=envelope.seq)
            self._queue.append(Envelope(envelope.seq, envelope.launch, envelope.ts, lagged))
            self.end()
            return

        self._queue.append(envelope)
        self._wake.set()

    @property
    def backlog(self) -> int:
        """How many events wait to be read."""
        return len(self._queue)

    def names(self, cls: type[EventData]) -> bool:
        """Tell whether `cls` is one of the types that were asked for by name."""
        return cls in self._types

    def end(self, error: Exception | None = None) -> None:
        """Let the iteration end once what is queued was read, or raise `error` then."""
        if not self._ended:
            self._error = error

        self._ended = True
        self._bus.forget(self)
        self._wake.set()

    def __aiter__(self) -> AsyncIterator[EventData]:
        return self

    async def __anext__(self) -> EventData:
        return (await self._next()).data

    async def envelopes(self) -> AsyncIterator[Envelope]:
        """Yield the events as published: numbered, and with their place in the log."""
        with suppress(StopAsyncIteration):  # inside a generator it would be an error
            while True:
                yield await self._next()

    async def _next(self) -> Envelope:
        while not self._queue:
            if self._error is not None:
                raise self._error

            if self._ended:
                raise StopAsyncIteration

            self._wake.clear()
            await self._wake.wait()

        return self._queue.popleft()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()


@frozen(eq=False)
class _Listener:
    """Somebody who is called on events: on all, or on those of one type."""

    callback: Callable[[Envelope], None]
    cls: type[EventData] | None = None


@define(eq=False)
class EventBus:
    """Numbers and publishes the events of one launch. All calls come from the loop's thread."""

    clock: Callable[[], float] = time.time
    launch: str = field(factory=new_uid)
    _seq: int = 0
    _listeners: list[_Listener] = field(factory=list)
    _subscriptions: list[Subscription] = field(factory=list)
    _undelivered: deque[Envelope] = field(factory=deque)
    _is_delivering: bool = False
    _is_closed: bool = False
    _closed_by: Exception | None = None

    @property
    def seq(self) -> int:
        """The number of the last event that was published; 0 before the first."""
        return self._seq

    def publish(self, data: EventData, ref: tuple[str, int] | None = None) -> Envelope:
        """Number an event and hand it to every listener and subscriber; returns its envelope.

        A listener that raises is logged and harms nobody. What a listener publishes comes to all
        after the event that it heard.
        """
        self._seq += 1
        envelope = Envelope(self._seq, self.launch, int(self.clock() * 1000), data, ref)
        self.relay(envelope)
        return envelope

    def relay(self, envelope: Envelope) -> None:
        """Hand on an event that has its number already, as it came from another process."""
        self._undelivered.append(envelope)
        if self._is_delivering:
            return

        self._is_delivering = True
        try:
            while self._undelivered:
                self._deliver(self._undelivered.popleft())
        finally:
            self._is_delivering = False

    def _deliver(self, envelope: Envelope) -> None:
        for listener in tuple(self._listeners):
            if listener.cls is not None and not isinstance(envelope.data, listener.cls):
                continue

            try:
                listener.callback(envelope)
            except Exception:  # noqa: BLE001  supervision point of foreign callbacks
                _log.exception("a listener failed on %s", envelope.event)

        for subscription in tuple(self._subscriptions):
            subscription.offer(envelope)

    def listen(self, callback: Callable[[Envelope], None]) -> Callable[[], None]:
        """Call `callback(envelope)` on every event from now on. Returns how to stop it."""
        return self._added(_Listener(callback))

    def on(self, cls: type[E], callback: Callable[[E], None]) -> Callable[[], None]:
        """Call `callback(data)` on every event of one type. Returns how to stop it."""

        def with_data(envelope: Envelope) -> None:
            callback(cast("E", envelope.data))  # of this type: no other is handed over

        return self._added(_Listener(with_data, cls))

    def wants(self, cls: type[EventData]) -> bool:
        """Tell whether anybody asked for just this event, by `on` or as one of a subscription."""
        by_name = any(listener.cls is cls for listener in self._listeners)
        return by_name or any(subscription.names(cls) for subscription in self._subscriptions)

    def _added(self, listener: _Listener) -> Callable[[], None]:
        self._listeners.append(listener)

        def stop() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return stop

    def subscribe(self, *types: type[EventData]) -> Subscription:
        """Return a subscription to events of `types`, or to all, from now on.

        After `close` it is one that has ended.
        """
        subscription = Subscription(self, types)
        self._subscriptions.append(subscription)
        if self._is_closed:
            subscription.end(self._closed_by)

        return subscription

    def forget(self, subscription: Subscription) -> None:
        """Drop a subscription that ended."""
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)

    @property
    def backlog(self) -> int:
        """How many events the slowest subscription has still to read."""
        return max((subscription.backlog for subscription in self._subscriptions), default=0)

    def close(self, error: Exception | None = None) -> None:
        """End every subscription once its queue is read, with `error` if any; drop listeners."""
        self._is_closed, self._closed_by = True, error
        for subscription in tuple(self._subscriptions):
            subscription.end(error)

        self._listeners.clear()
