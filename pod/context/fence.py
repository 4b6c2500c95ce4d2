"""The fence of one compaction attempt: who came first, the commit or the end of patience."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from .errors import EngineTimeout, FenceClosed

T = TypeVar("T")


class Fence:
    """Bounds one attempt: by silence (since the last `touch`) and altogether.

    An attempt that was given up cannot commit any more, however late it returns; one whose commit
    has begun cannot be given up. Limits that are None, 0 or less do not hold; the ceiling is never
    below the limit of silence. All methods may be called on any thread.
    """

    def __init__(
        self,
        *,
        idle_timeout_s: float | None = None,
        ceiling_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._idle_s = idle_timeout_s if idle_timeout_s and idle_timeout_s > 0 else None
        self._ceiling_s = ceiling_s if ceiling_s and ceiling_s > 0 else None
        if self._idle_s is not None and self._ceiling_s is not None:
            self._ceiling_s = max(self._ceiling_s, self._idle_s)
        self._clock = clock
        self._lock = threading.Lock()
        self._started = self._last_touch = clock()
        self._is_cancelled = False
        self._has_begun = False

    @property
    def last_touch(self) -> float:
        """When progress was last seen, by the fence's clock."""
        return self._last_touch

    @property
    def cancelled(self) -> bool:
        """Whether the attempt was given up; a worker may look and stop early."""
        return self._is_cancelled

    @property
    def committing(self) -> bool:
        """Whether the commit has begun."""
        return self._has_begun

    def touch(self) -> None:
        """Note progress, such as a streamed token."""
        self._last_touch = self._clock()

    def idle_s(self) -> float:
        """Return the time since progress was last seen."""
        return self._clock() - self._last_touch

    def remaining_s(self) -> float | None:
        """Return the time until the first limit is reached; None where none holds."""
        now = self._clock()
        left = []
        if self._idle_s is not None:
            left.append(self._last_touch + self._idle_s - now)
        if self._ceiling_s is not None:
            left.append(self._started + self._ceiling_s - now)
        return min(left) if left else None

    def cancel(self) -> bool:
        """Give the attempt up, and return True; return False when its commit has begun already."""
        with self._lock:
            if self._has_begun:
                return False

            self._is_cancelled = True
            return True

    def begin_commit(self) -> None:
        """Begin the commit, once and for all.

        Raises:
            FenceClosed: The attempt was given up, its time is over, or a commit has begun before.
        """
        with self._lock:
            if self._has_begun:
                raise FenceClosed("the commit of this compaction has begun already")

            remaining_s = self.remaining_s()
            if not self._is_cancelled and (remaining_s is None or remaining_s > 0):
                self._has_begun = True
                return

            self._is_cancelled = True

        raise FenceClosed("this compaction was given up; its late result is not used")

    async def wait(self, future: Future[T]) -> T:
        """Return the result of `future` while the limits hold; else give the attempt up.

        The work behind the future is not stopped by that, only its result refused. Cancelling the
        wait gives the attempt up too.

        Raises:
            EngineTimeout: Silent for too long, or over the ceiling.
            Exception: What the work raised.
        """
        wrapped = asyncio.wrap_future(future)
        try:
            while not wrapped.done():
                remaining_s = self.remaining_s()
                if remaining_s is not None and remaining_s <= 0 and self.cancel():
                    raise self._timeout()

                # While a commit runs there is no limit: it is never left half way.
                timeout_s = None if remaining_s is None or self._has_begun else remaining_s
                await asyncio.wait({wrapped}, timeout=timeout_s)

            return wrapped.result()
        finally:
            # Work that ended well is past this: what it made is the caller's to commit.
            if not wrapped.done() or wrapped.cancelled() or wrapped.exception() is not None:
                self.cancel()
                wrapped.cancel()

    def _timeout(self) -> EngineTimeout:
        if self._idle_s is not None and self.idle_s() >= self._idle_s:
            return EngineTimeout("the engine's compaction gave no sign of life", self._idle_s)

        return EngineTimeout("the engine's compaction was not done", self._ceiling_s or 0)
