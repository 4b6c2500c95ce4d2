"""Stdout of one run: what goes there is the answer or the events, and nothing else."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from typing import BinaryIO

from attrs import define, field

from pod.tui.text import showable


@define
class Outlet:
    """Writes to stdout at once. When that cannot be done any more, `on_closed` is called, once."""

    stream: BinaryIO
    encoding: str
    is_terminal: bool
    on_closed: Callable[[], None] = lambda: None
    error: OSError | None = field(default=None, init=False)
    """Why nothing more is written: mostly that nobody reads."""
    at_line_start: bool = field(default=True, init=False)

    def write(self, text: str) -> None:
        """Write text as it is; on a terminal without what would move its cursor."""
        if not text:
            return

        shown = showable(text, self.encoding) if self.is_terminal else text
        self.write_bytes(shown.encode(self.encoding, "backslashreplace"))
        self.at_line_start = text.endswith("\n")

    def end_line(self) -> None:
        """Begin a new line, if the last one has not ended."""
        if not self.at_line_start:
            self.write("\n")

    def write_bytes(self, data: bytes) -> None:
        """Write bytes and flush."""
        if self.error is not None:
            return

        try:
            self.stream.write(data)
            self.stream.flush()
        except OSError as error:
            self.error = error
            self.on_closed()


@contextmanager
def claimed_stdout() -> Iterator[Outlet]:
    """Give stdout to the caller alone; what anything else prints meanwhile goes to stderr.

    That holds for tools and plugins that print, and for the processes that they start.
    """
    stdout = sys.stdout
    stdout.flush()
    encoding, is_terminal = stdout.encoding or "utf-8", stdout.isatty()
    with redirect_stdout(sys.stderr):
        try:
            number = stdout.fileno()
        except (io.UnsupportedOperation, AttributeError):  # not a file: a test's, or a program's
            yield Outlet(stdout.buffer, encoding, is_terminal)
            return

        kept = os.dup(number)
        try:
            os.dup2(sys.stderr.fileno(), number)
            # Closing flushes, and what a broken pipe did not take is not to be tried again.
            stream = open(kept, "wb", buffering=0, closefd=False)  # noqa: SIM115  it stays open
            yield Outlet(stream, encoding, is_terminal)
        finally:
            with suppress(OSError):  # stderr may be closed, and stdout stays what it is then
                os.dup2(kept, number)

            os.close(kept)
