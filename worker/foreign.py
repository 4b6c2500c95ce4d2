"""Where foreign code meets ours: its failures become values; cancellation waits for its turn."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeVar, overload

import anyio
from attrs import frozen

T = TypeVar("T")

STOP_GRACE_S = 2.0
"""How long foreign code has, once it is told to stop, before it is left behind."""

_OURS = Path(__file__).parent

_left_behind: set[asyncio.Task[Any]] = set()
"""The loop itself holds its tasks weakly."""


@frozen
class Failure:
    """Foreign code raised `error`. As text: the error's type and what it says."""

    error: BaseException

    def __str__(self) -> str:
        return "; ".join(_told(leaf) for leaf in _leaves(self.error))

    @property
    def place(self) -> str:
        """Where it was raised, as file and line; empty where that is not in foreign code."""
        frames = traceback.extract_tb(_leaves(self.error)[0].__traceback__)
        foreign = [frame for frame in frames if Path(frame.filename).parent != _OURS]
        return f"{Path(foreign[-1].filename).name}, line {foreign[-1].lineno}" if foreign else ""


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for member in error.exceptions for leaf in _leaves(member)]

    return [error]


def _told(error: BaseException) -> str:
    # The standard library's way to str() an error survives an error whose own __str__ raises.
    said = str(traceback.TracebackException(type(error), error, None))
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


async def attempt(call: Callable[[], Awaitable[T]]) -> T | Failure:
    """Return what `call` returns, or a `Failure` of whatever it raises.

    Only real cancellation of the calling task, and Ctrl-C, go through. A `CancelledError` that the
    code raised by itself is a failure like any other, and so is an attempt to exit the process.
    """
    try:
        return await call()
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise

        return Failure(error)
    # The supervision point of tools, hooks and callbacks: what they raise is told, never let loose.
    except (Exception, SystemExit) as error:  # noqa: BLE001  # foreign code may raise anything
        return Failure(error)


@frozen
class Abandoned:
    """Foreign code was told to stop and did not: it may go on, and what becomes of it is lost."""


@overload
async def bounded(call: Callable[[], Coroutine[Any, Any, T]], limit_s: None) -> T | None: ...
@overload
async def bounded(
    call: Callable[[], Coroutine[Any, Any, T]], limit_s: float
) -> T | Abandoned | None: ...
async def bounded(
    call: Callable[[], Coroutine[Any, Any, T]], limit_s: float | None
) -> T | Abandoned | None:
    """Return what `call` returns; None where it had to be stopped at `limit_s`.

    It runs in a task of its own, which is cancelled at the limit, or with the calling task, and
    then has `STOP_GRACE_S` to end; then it is closed where it stands. Only what resists that too is
    left behind: nobody waits for it.
    """
    task = asyncio.ensure_future(call())
    try:
        await asyncio.wait({task}, timeout=limit_s)
    finally:
        how = await _stopped(task)

    if how == "resisted":
        return Abandoned()

    return None if how == "closed" or task.cancelled() else task.result()


async def _stopped(task: asyncio.Task[Any]) -> Literal["ended", "closed", "resisted"]:
    """Have a task end, if it has not, and return how it did."""
    if task.done():
        return "ended"

    task.cancel()
    try:
        with anyio.CancelScope(shield=True):
            await asyncio.wait({task}, timeout=STOP_GRACE_S)
            if task.done():
                return "ended"

            _close(task)
            await asyncio.wait({task}, timeout=0.1)
    finally:
        if not task.done():
            _close(task)
            _left_behind.add(task)

        task.add_done_callback(_forget)

    return "closed" if task.done() else "resisted"


def _close(task: asyncio.Task[Any]) -> None:
    """End a coroutine that will not be cancelled at the place where it waits."""
    coroutine = task.get_coro()
    # One that does not even take this goes on: it is told by how the task fares.
    with suppress(RuntimeError):
        coroutine.close()

    task.cancel()


def _forget(task: asyncio.Task[Any]) -> None:
    _left_behind.discard(task)
    if not task.cancelled():
        task.exception()  # Looked at, so that nobody is told of an error that was never fetched.


async def uninterrupted(work: Coroutine[Any, Any, T]) -> T:
    """Finish `work` and return what it returns; a cancellation meanwhile comes at the next await.

    For the few steps that must not be torn apart, such as "journal, then remember". A caller that
    makes several of them in a row needs a checkpoint in between, or cancelling never gets its turn.
    """
    task = asyncio.ensure_future(work)
    interrupted: asyncio.CancelledError | None = None
    with anyio.CancelScope(shield=True):
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError as error:
                interrupted = error

    current = asyncio.current_task()
    if interrupted is not None and current is not None:
        # Asked again with the same words and the same count, so that whoever asked knows it.
        current.uncancel()
        current.cancel(*interrupted.args)

    return task.result()
