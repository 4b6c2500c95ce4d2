"""The threads that plugins run in: the event loop never waits in one, and exit waits for none.

`EngineThread` makes one pod's calls one after the other. `CompactionPool` runs compactions, of
all pods of the process. Both are daemons: a plugin that never returns is left behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import itertools
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

from attrs import define, field

from .errors import EngineInterrupted, EngineTimeout
from .fence import Fence

__all__ = ["CompactionPool", "EngineThread", "Fence", "compaction_pool"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

POOL_WORKERS = 4
"""How many compactions run at once in this process; there is no queue."""

_numbers = itertools.count(1)


@define(eq=False)
class _Job(Generic[T_co]):
    """A call that is to be made elsewhere, with the caller's context variables."""

    function: Callable[[], T_co]
    future: Future[T_co] = field(factory=Future)
    _context: contextvars.Context = field(factory=contextvars.copy_context)

    def run(self) -> Callable[[], None]:
        """Make the call, unless it was given up before it began; return what hands over its end."""
        if not self.future.set_running_or_notify_cancel():
            return _nothing

        try:
            result = self._context.run(self.function)
        except BaseException as caught:  # noqa: BLE001  supervision point: handed to whoever waits
            return functools.partial(self.future.set_exception, _deliverable(caught))

        return functools.partial(self.future.set_result, result)


def _nothing() -> None:
    """Hand over nothing."""


class EngineThread:
    """The one thread in which a pod's engine is called, in order. It begins with the first call."""

    def __init__(self, name: str = "engine") -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[_Job[object] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._ended: Future[None] = Future()
        self._open = 0
        self._busy_since: float | None = None

    @property
    def busy_s(self) -> float:
        """For how long the call that is being made has been running; 0 when there is none."""
        since = self._busy_since
        return 0.0 if since is None else time.monotonic() - since

    async def call(
        self,
        function: Callable[..., T],
        *args: object,
        timeout_s: float | None = None,
        **kwargs: object,
    ) -> T:
        """Return what `function` returns, or raise what it raises, once it ran in the thread.

        Cancelled, or past `timeout_s`, a call that has not begun is never made; one that has begun
        is left to itself, and calls after it wait for it. `timeout_s` counts from now.

        Raises:
            EngineTimeout: No answer in time.
            EngineInterrupted: The function raised something that is no `Exception`.
        """
        job = _Job(functools.partial(function, *args, **kwargs))
        self._put(job)
        deadline = asyncio.timeout(timeout_s)
        try:
            async with deadline:
                return await asyncio.wrap_future(job.future)
        except TimeoutError as error:
            if not deadline.expired() or timeout_s is None:
                raise  # The function's own.

            raise EngineTimeout("the engine did not answer", timeout_s) from error

    def post(
        self,
        function: Callable[..., object],
        *args: object,
        on_error: Callable[[Exception], None],
        **kwargs: object,
    ) -> None:
        """Have `function` called in its turn; what it raises goes to `on_error` on the loop."""
        loop = asyncio.get_running_loop()
        job: _Job[object] = _Job(functools.partial(function, *args, **kwargs))

        def tell(future: Future[object]) -> None:
            error = future.exception()
            if not isinstance(error, Exception):
                return

            # On a closed loop there is nobody to tell.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(on_error, error)

        job.future.add_done_callback(tell)
        self._put(job)

    @property
    def is_idle(self) -> bool:
        """Whether no call is going on or waits; who was told of a call's end finds it ended."""
        with self._lock:
            return self._open == 0

    def close(self) -> None:
        """Refuse new calls; those that wait are still made, and then the thread ends."""
        with self._lock:
            if self._is_closed:
                return

            self._is_closed = True
            if self._thread is None:
                self._ended.set_result(None)
            else:
                self._jobs.put(None)

    def close_then(self, callback: Callable[[], None]) -> None:
        """Close, and call `callback`, on whatever thread, when the last call has ended.

        That is now, unless one is going on.
        """
        is_idle = self.is_idle
        self.close()
        if is_idle:
            callback()
        else:
            self._ended.add_done_callback(lambda _: callback())

    async def aclose(self, timeout_s: float) -> bool:
        """Close, and return whether all calls ended within `timeout_s`."""
        ended, loop = asyncio.Event(), asyncio.get_running_loop()

        def tell() -> None:
            # A thread that ends after the loop has nobody to tell.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(ended.set)

        self.close_then(tell)
        try:
            async with asyncio.timeout(timeout_s):
                await ended.wait()
        except TimeoutError:
            return False

        return True

    def _put(self, job: _Job[T]) -> None:
        with self._lock:
            if self._is_closed:
                raise RuntimeError("the engine's thread is closed")

            if self._thread is None:
                self._thread = _daemon(self._work, self._name)

            self._open += 1
            self._jobs.put(job)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._busy_since = time.monotonic()
            hand_over = job.run()
            self._busy_since = None
            with self._lock:
                self._open -= 1

            hand_over()
            del job, hand_over  # An idle thread holds on to nothing of the last call.

        self._ended.set_result(None)


class Slot:
    """A place in the pool, for calls that are one after the other. Let go of it when done."""

    def __init__(self, on_free: Callable[[], None]) -> None:
        self._on_free = on_free
        self._lock = threading.Lock()
        self._running = 0
        self._is_let_go = False

    def run(self, function: Callable[[], T]) -> Future[T]:
        """Begin `function` in a thread and return its future, which raises as it does.

        Raises:
            RuntimeError: The system gives no thread.
        """
        job = _Job(function)

        def work() -> None:
            hand_over = job.run()
            self._ended()
            hand_over()

        with self._lock:
            self._running += 1

        try:
            _daemon(work, "compaction")
        except RuntimeError:  # The system gives no thread.
            self._ended()
            raise

        return job.future

    def let_go(self) -> None:
        """Give the place back; idempotent. A call that goes on keeps it until it ends."""
        with self._lock:
            is_free = self._running == 0 and not self._is_let_go
            self._is_let_go = True

        if is_free:
            self._on_free()

    def _ended(self) -> None:
        with self._lock:
            self._running -= 1
            is_free = self._running == 0 and self._is_let_go

        if is_free:
            self._on_free()


class CompactionPool:
    """At most `workers` calls at once, each in a daemon thread; a slot is free when its call ends.

    A call that was given up holds its slot until it really ends.
    """

    def __init__(self, workers: int = POOL_WORKERS) -> None:
        self._lock = threading.Lock()
        self._free = workers
        self._waiting: deque[Future[None]] = deque()

    def reserve(self) -> Slot | None:
        """Return a slot, or None while all are taken."""
        with self._lock:
            if self._free == 0:
                return None

            self._free -= 1

        return Slot(self._release)

    async def reserve_when_free(self) -> Slot:
        """Wait for a slot, first come first served, and return it."""
        with self._lock:
            turn: Future[None] = Future()
            if self._free > 0:
                self._free -= 1
                turn.set_result(None)
            else:
                self._waiting.append(turn)

        try:
            # Shielded: cancelling the wrapper would also cancel a turn that was given already.
            await asyncio.shield(asyncio.wrap_future(turn))
        except asyncio.CancelledError:
            self._give_back(turn)
            raise

        return Slot(self._release)

    def try_submit(self, function: Callable[[], T]) -> Future[T] | None:
        """Begin `function` and return its future, or return None while all slots are taken.

        The future raises as `EngineThread.call` does. Await it with `asyncio.wrap_future`, or
        under limits with `Fence.wait`.
        """
        slot = self.reserve()
        if slot is None:
            return None

        try:
            return slot.run(function)
        finally:
            slot.let_go()

    def _release(self) -> None:
        with self._lock:
            if self._waiting:
                # The slot changes hands without being free in between: nobody jumps the queue.
                self._waiting.popleft().set_result(None)
            else:
                self._free += 1

    def _give_back(self, turn: Future[None]) -> None:
        with self._lock:
            if not turn.done():
                self._waiting.remove(turn)
                return

        self._release()


@functools.cache
def compaction_pool() -> CompactionPool:
    """Return the pool of this process."""
    return CompactionPool()


def _daemon(work: Callable[[], None], name: str) -> threading.Thread:
    thread = threading.Thread(target=work, name=f"{name}-{next(_numbers)}", daemon=True)
    thread.start()
    return thread


def _deliverable(caught: BaseException) -> BaseException:
    """Return what may be raised on an event loop in place of `caught`, which is its cause."""
    if isinstance(caught, Exception) and not isinstance(caught, StopIteration):
        return caught

    if isinstance(caught, EngineInterrupted):
        return caught

    wrapped = EngineInterrupted(caught)
    wrapped.__cause__ = caught
    return wrapped
