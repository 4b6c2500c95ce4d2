"""What a person asked for and is not done yet: each waits its turn, none is lost."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from attrs import define, field, frozen


@frozen
class Job:
    """Something that was asked for, as it was typed."""

    typed: str
    work: Callable[[], Awaitable[None]]
    asked_ms: int
    """When that was."""


@define(eq=False)
class Jobs:
    """Does one job after the other."""

    supervised: Callable[[Awaitable[object]], Awaitable[None]]
    """Carries something out; whatever goes wrong in there is told, and ends there."""
    on_idle: Callable[[], None]
    """Called when there is nothing to do, at the beginning too."""
    current: Job | None = field(default=None, init=False)
    waiting: deque[Job] = field(factory=deque, init=False)
    _wake: asyncio.Event = field(factory=asyncio.Event, init=False)

    @property
    def are_done(self) -> bool:
        """Whether there is nothing to do."""
        return self.current is None and not self.waiting

    def add(self, job: Job) -> None:
        """Have something done after what was asked for before."""
        self.waiting.append(job)
        self._wake.set()

    def take_back(self) -> list[str]:
        """Return what was not begun, as it was typed, and forget it."""
        typed = [job.typed for job in self.waiting]
        self.waiting.clear()
        return typed

    async def run(self) -> None:
        """Do what there is to do, until cancelled."""
        while True:
            self._wake.clear()
            while self.waiting:
                self.current = self.waiting.popleft()
                try:
                    await self.supervised(self.current.work())
                finally:
                    self.current = None

            self.on_idle()
            await self._wake.wait()
