"""Signals: the first one cancels what is going on, a second one ends the process at once."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from attrs import define, field

_AGAIN_S = 0.1
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@define
class Interrupts:
    """While it is entered, inside a running loop, signals call `cancel` instead of raising.

    `cancel` is called again every moment until this is left: what it is to stop may only be about
    to begin when the signal comes.
    """

    cancel: Callable[[], None]
    before_leaving: Callable[[], None] = lambda: None
    """Puts the terminal right, when a second signal ends the process."""
    received: int | None = field(default=None, init=False)
    """The signal that came, if one did."""
    _caught: list[signal.Signals] = field(factory=list, init=False)
    _again: asyncio.TimerHandle | None = field(default=None, init=False)

    @property
    def exit_code(self) -> int | None:
        """What a shell says of a process that the signal ended; None where none came."""
        return None if self.received is None else 128 + self.received

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            # What the parent had ignored, such as `nohup` a hangup, stays ignored.
            if signal.getsignal(number) != signal.SIG_IGN:
                loop.add_signal_handler(number, self._on_signal, number)
                self._caught.append(number)

        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        loop = asyncio.get_running_loop()
        for number in self._caught:
            loop.remove_signal_handler(number)

        self._caught.clear()
        if self._again is not None:
            self._again.cancel()

    def _on_signal(self, number: int) -> None:
        if self.received is not None:
            self.before_leaving()
            leave_now(number)

        self.received = number
        self._keep_cancelling()

    def _keep_cancelling(self) -> None:
        self.cancel()
        self._again = asyncio.get_running_loop().call_later(_AGAIN_S, self._keep_cancelling)


def leave_now(number: int) -> None:
    """End the process without waiting for anything. Sessions are safe whenever that happens."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # nobody is left to tell
            stream.flush()

    os._exit(128 + number)
