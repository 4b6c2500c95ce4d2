"""Signals: the first one cancels what is going on, a second one ends the process at once."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Self, TypeAlias

from attrs import define, field

_AGAIN_S = 0.1
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
Handlers: TypeAlias = "dict[int, Callable[[int, FrameType | None], object] | int | None]"


@define
class Interrupts:
    """While it is entered, inside a running loop, signals call `cancel` instead of raising.

    `cancel` is called again every moment until this is left: what it is to stop may only be about
    to begin when the signal comes.
    """

    cancel: Callable[[], None]
    received: int | None = field(default=None, init=False)
    """The signal that came, if one did."""
    _before: Handlers = field(factory=dict, init=False)
    _loop: asyncio.AbstractEventLoop | None = field(default=None, init=False)
    _again: asyncio.TimerHandle | None = field(default=None, init=False)

    @property
    def exit_code(self) -> int | None:
        """What a shell says of a process that the signal ended; None where none came."""
        return None if self.received is None else 128 + self.received

    def __enter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._before = catch(self._on_signal)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        put_back(self._before)
        if self._again is not None:
            self._again.cancel()

        self._loop = None

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self.received is not None:
            leave_now(number)

        self.received = number
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._keep_cancelling)

    def _keep_cancelling(self) -> None:
        if self._loop is None:
            return  # it was left in the meantime

        self.cancel()
        self._again = self._loop.call_later(_AGAIN_S, self._keep_cancelling)


def catch(handler: Callable[[int, FrameType | None], None]) -> Handlers:
    """Have the signals that end a process handled; return what handled them before.

    What the parent had ignored, such as `nohup` a hangup, stays ignored. The loop's own way to be
    told of signals will not do: it may tell of one only after the block was left.
    """
    heeded = [number for number in _SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    return {number: signal.signal(number, handler) for number in heeded}


def put_back(before: Handlers) -> None:
    """Have signals handled as they were before `catch`; idempotent."""
    while before:
        signal.signal(*before.popitem())


def leave_now(number: int) -> None:
    """End the process without waiting for anything. Sessions are safe whenever that happens."""
    for stream in (sys.stdout, sys.stderr):
        # Nobody is left to tell, or a signal came in the middle of telling.
        with suppress(OSError, ValueError, RuntimeError):
            stream.flush()

    os._exit(128 + number)
