"""How long an answer is waited for: a silence, and the whole of it."""

from __future__ import annotations

import asyncio
import math
from types import TracebackType
from typing import Self

from worker.llm.endpoint import Endpoint


class Expired(Exception):
    """What was waited for did not come in time. Its message says so: "fell silent for 60 s"."""


class Patience:
    """The limits of one attempt, entered for each wait. The clock of the whole runs from the start.

    Entering is cheap: there is one timer, not one a wait, and it is moved when it goes off early.
    Every wait raises `Expired` after `idle_timeout_s` of it, or once `total_timeout_s` are over.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._loop = asyncio.get_running_loop()
        self._time = self._loop.time
        self._idle_s = endpoint.idle_timeout_s
        self._total_s = endpoint.total_timeout_s
        self._ends_at = self._time() + self._total_s
        self._until = 0.0
        self._what = ""
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._has_expired = False
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = math.inf

    def until(self, what: str) -> Self:
        """Name what the other side did if a wait is in vain from now on: "fell silent"."""
        self._what = what
        return self

    def __enter__(self) -> None:
        """Begin to wait."""
        now = self._time()
        self._until = min(now + self._idle_s, self._ends_at)
        task = asyncio.current_task(self._loop)
        if task is None:
            raise RuntimeError("only a task can wait")
        if now >= self._until:
            raise Expired(self._reason())

        self._task, self._cancelling = task, task.cancelling()
        if self._rings_at > self._until:
            self._set_timer()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the wait."""
        task, self._task = self._task, None
        if not self._has_expired or task is None:
            return

        self._has_expired = False
        # A cancellation from outside that came at the same time goes on.
        is_ours = task.uncancel() <= self._cancelling
        if is_ours and kind is asyncio.CancelledError:
            raise Expired(self._reason()) from None

    def close(self) -> None:
        """Stop the timer; idempotent."""
        if self._timer is not None:
            self._timer.cancel()

    def _set_timer(self) -> None:
        self.close()
        self._rings_at = self._until
        self._timer = self._loop.call_at(self._rings_at, self._ring)

    def _ring(self) -> None:
        self._rings_at = math.inf
        if self._task is None:
            return  # Nobody waits; the next one who does sets the timer.

        if self._time() < self._until:
            self._set_timer()
            return

        self._has_expired = True
        self._task.cancel()

    def _reason(self) -> str:
        if self._until >= self._ends_at:
            return f"did not end its answer within {self._total_s:g} s"
        return f"{self._what} for {self._idle_s:g} s"
