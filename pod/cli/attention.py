"""Signals while a view is shown: they reach it as calls, and end the process where it is stuck."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, Self

from attrs import define, field

from .interrupts import Handlers, catch, leave_now, put_back

_PLAIN_PASTE_AND_CURSOR = b"\x1b[?2004l\x1b[?25h\r\n"


@define(eq=False)
class Attention:
    """While it is entered, inside a running loop, Ctrl-C calls `interrupted`, others `ended`.

    A second signal that comes while the first was not heard, because something blocks the loop,
    ends the process, the terminal as it was before.
    """

    interrupted: Callable[[], None]
    ended: Callable[[int], None]
    """Called with the exit code that a shell expects, on SIGTERM and SIGHUP."""
    _unheard: bool = field(default=False, init=False)
    _before: Handlers = field(factory=dict, init=False)
    _loop: asyncio.AbstractEventLoop | None = field(default=None, init=False)
    _terminal: list[Any] | None = field(default=None, init=False)

    def __enter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        with suppress(termios.error, OSError, ValueError):  # no terminal, so nothing to put back
            self._terminal = termios.tcgetattr(sys.stdin.fileno())

        self._before = catch(self._on_signal)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        put_back(self._before)

    def _leave_now(self, number: int) -> None:
        """End the process without waiting for anything, the terminal as it was."""
        if self._terminal is not None:
            with suppress(termios.error, OSError, ValueError):  # it is gone already
                termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, self._terminal)
                os.write(sys.stdin.fileno(), _PLAIN_PASTE_AND_CURSOR)

        leave_now(number)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._unheard:
            self._leave_now(number)

        self._unheard = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._hear, number)

    def _hear(self, number: int) -> None:
        self._unheard = False
        if number == signal.SIGINT:
            self.interrupted()
        else:
            self.ended(128 + number)
