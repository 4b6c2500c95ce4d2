"""Blocking code in daemon threads: it can be abandoned, and process exit never waits for it."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import itertools
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from attrs import define

from .foreign import Failure

T = TypeVar("T")

_numbers = itertools.count(1)


async def call_in_daemon_thread(function: Callable[[], T], *, name: str = "podworker") -> T:
    """Run `function` in a new daemon thread and return what it returns, or raise what it raises.

    When the awaiting task is cancelled the thread is abandoned: it may finish, and its late result
    is discarded. Context variables are those of the caller.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    errand = _Errand(function, contextvars.copy_context(), loop, future)
    threading.Thread(target=errand.run, name=f"{name}-{next(_numbers)}", daemon=True).start()
    return await future


@define
class _Errand(Generic[T]):
    """One call on its way through a thread and back to the loop that waits for it."""

    function: Callable[[], T]
    context: contextvars.Context
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[T]

    def run(self) -> None:
        """Call the function in this thread and hand what comes of it to the loop."""
        try:
            result = self.context.run(self.function)
        # The supervision point of the thread: whatever was raised goes to the awaiting task.
        except BaseException as error:  # noqa: BLE001  # as said above, nothing may escape the thread
            self._hand_over(self._fail, error)
        else:
            self._hand_over(self._finish, result)

    def _hand_over(self, deliver: Callable[..., None], what: object) -> None:
        # The loop may have closed while an abandoned thread still ran: then nobody waits.
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(deliver, what)

    def _finish(self, result: T) -> None:
        if not self.future.done():
            self.future.set_result(result)

    def _fail(self, error: BaseException) -> None:
        if self.future.done():
            return

        # An exit raised over there must not end the event loop over here.
        is_plain = isinstance(error, Exception) and not isinstance(error, StopIteration)
        told = error if is_plain else RuntimeError(f"raised {Failure(error)}")
        self.future.set_exception(told)
        # A task cancelled at this moment never looks; that is no forgotten error.
        self.future.exception()
