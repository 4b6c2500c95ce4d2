"""Lines that a person types: edited, remembered, pasted with line breaks in them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

from attrs import define, field

_MOST_REMEMBERED = 1_000


@define
class LineReader:
    """Asks for lines on the terminal. What was typed before it asks is taken up, not lost."""

    history: Path
    """Where lines are remembered; it is private to the user."""
    _has_editor: bool = field(default=False, init=False)

    def __enter__(self) -> Self:
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            return self  # Editing needs both; without it lines are simply read.

        with suppress(ImportError):  # not every Python is built with it
            import readline

            self._has_editor = True
            # A pasted text comes as one line with its breaks in it.
            readline.parse_and_bind("set enable-bracketed-paste on")
            readline.set_history_length(_MOST_REMEMBERED)
            with suppress(OSError):  # none yet, or not readable: only the past lines are missed
                readline.read_history_file(self.history)

        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._has_editor:
            return

        import readline

        with suppress(OSError):  # a home that takes no file is told of where that matters
            os.close(os.open(self.history, os.O_CREAT | os.O_WRONLY, 0o600))
            readline.write_history_file(self.history)

    def ask(self, prompt: str) -> str:
        """Return the next line without its end.

        Raises:
            EOFError: The input has ended.
            KeyboardInterrupt: The person interrupted; what was typed on the line is dropped.
            SystemExit: The process is to end.
        """
        with _ended_by_signals():
            if self._has_editor:
                return input(prompt)

            print(prompt, end="", file=sys.stderr, flush=True)  # noqa: T201  the prompt itself
            line = sys.stdin.readline()

        if not line:
            raise EOFError

        return line.rstrip("\n")


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let signals that end the process end it in order: the terminal gets its settings back."""

    def leave(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    changed = {
        number: signal.signal(number, leave)
        for number in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) != signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in changed.items():
            signal.signal(number, handler)
