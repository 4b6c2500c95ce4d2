"""What a client does with what comes: hands it on, keeps the mirror right, finds ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from attrs import define, field

from pod.bus import EventBus
from pod.errors import PodError
from pod.protocol import ApprovalRequest, Envelope

from .connection import Connection
from .errors import ConnectionLost, RunUnknown
from .link import Link
from .mirror import Mirror
from .watch import CompactionWatch, RunWatch

LULL_S = 0.1
"""How long changes are gathered before what is mirrored is asked for, where nobody waits for it."""
_log = logging.getLogger("pod.client")


@define(eq=False)
class Feed:
    """The receiving half of a client. All calls come from the event loop's thread."""

    bus: EventBus = field(factory=EventBus)
    mirror: Mirror = field(factory=Mirror)
    runs: set[RunWatch] = field(factory=set, init=False)
    compactions: set[CompactionWatch] = field(factory=set, init=False)
    attending: int = field(default=0, init=False)
    """How many say that they would decide about calls."""
    on_attendance: Callable[[], None] = field(default=lambda: None, init=False)
    """Called when it may be another matter now whether anybody would."""
    _stale: asyncio.Event = field(factory=asyncio.Event, init=False)
    _is_waited_for: asyncio.Event = field(factory=asyncio.Event, init=False)
    _waiting: list[asyncio.Future[None]] = field(factory=list, init=False)

    # ------------------------------------------------------------------ what the link brings

    def deliver(self, envelope: Envelope) -> None:
        """Take the next event: first the mirror, so that who is called sees it as it is now."""
        if self.mirror.take(envelope):
            self._stale.set()

        for run in tuple(self.runs):
            run.take(envelope)

        for compaction in tuple(self.compactions):
            compaction.take(envelope)

        self.bus.relay(envelope)
        if isinstance(envelope.data, ApprovalRequest):
            self.on_attendance()

    def passed_over(self, launch: str, seq: int, event: str) -> None:
        """Take in an event that only a newer version knows."""
        self._stale.set()
        if event == "run_end":
            for run in tuple(self.runs):
                run.ended_unreadably(launch, seq)

    def heard_of(self, launch: str) -> None:
        """Take in that the pod is in `launch`, and that all events up to now were delivered."""
        for run in tuple(self.runs):
            run.heard_of(launch)

        self.on_attendance()

    def backlog(self) -> int:
        """Return how many events wait to be read by the slowest subscription."""
        return self.bus.backlog

    def attends(self) -> bool:
        """Tell whether anybody would decide about calls."""
        return self.attending > 0 or self.bus.wants(ApprovalRequest)

    # ------------------------------------------------------------------ the mirror

    async def fresh(self) -> None:
        """Return once the mirror knows all that the pod had when this was called.

        Raises `PodError` where it will not come to that.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self._stale.set()
        self._is_waited_for.set()
        await future

    async def meet(self, connection: Connection) -> None:
        """Bring the mirror up to date on a new connection."""
        await self.mirror.refresh(connection.send)

    async def keep_fresh(self, link: Link) -> None:
        """Bring the mirror up to date whenever it is not, until there is no more connection."""
        while True:
            await self._stale.wait()
            with suppress(TimeoutError):  # nobody is in a hurry
                async with asyncio.timeout(LULL_S):
                    await self._is_waited_for.wait()

            self._stale.clear()
            self._is_waited_for.clear()
            waiting, self._waiting = self._waiting, []
            try:
                connection = await link.ready()
            except PodError as error:
                _fail([*waiting, *self._waiting], error)
                return

            try:
                await self.mirror.refresh(connection.send)
            except ConnectionLost:
                self._waiting = waiting + self._waiting
                self._stale.set()  # again, on the next connection
                if waiting:
                    self._is_waited_for.set()
            except PodError as error:
                # A pod that is being closed says no more of itself.
                _log.debug("the pod cannot be mirrored: %s", error)
                _fail(waiting, error)
            else:
                for future in waiting:
                    if not future.done():
                        future.set_result(None)

    # ------------------------------------------------------------------ the end

    def close(self, error: PodError | None, why: Exception) -> None:
        """End every subscription, with `error` if any, and tell who waits `why`."""
        _fail(self._waiting, why)
        self._waiting = []
        for run in tuple(self.runs):
            message = f"it cannot be told how the run ended, and it may be going on: {why}"
            run.fail(RunUnknown(message, hint="connect again, and look at its status and history"))

        self.bus.close(error)


def _fail(waiting: list[asyncio.Future[None]], error: Exception) -> None:
    for future in waiting:
        if not future.done():
            future.set_exception(error)
            future.exception()  # whoever waits hears of it, if anybody still does
