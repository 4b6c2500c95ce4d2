"""Blocking code in daemon threads: it can be abandoned, and process exit never waits for it."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_numbers = itertools.count(1)


async def call_in_daemon_thread(function: Callable[[], T], *, name: str = "podworker") -> T:
    """Run `function` in a new daemon thread and return what it returns, or raise what it raises.

    When the awaiting task is cancelled the thread is abandoned: it may finish, and its late result
    is discarded. Context variables are those of the caller.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def deliver(result: T | None, error: Exception | None) -> None:
        if future.done():
            return

        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]  # T itself may be None

    def work() -> None:
        result: T | None = None
        error: Exception | None = None
        try:
            result = context.run(function)
        except BaseException as caught:  # supervision point: handed to the awaiting task
            if isinstance(caught, Exception) and not isinstance(caught, StopIteration):
                error = caught
            else:
                # An exit raised over there must not end the event loop over here.
                error = RuntimeError(f"raised {type(caught).__name__}: {caught}")

        try:
            loop.call_soon_threadsafe(deliver, result, error)
        except RuntimeError:
            return  # The loop closed while the abandoned thread still ran: nobody waits for this.

    threading.Thread(target=work, name=f"{name}-{next(_numbers)}", daemon=True).start()
    return await future
