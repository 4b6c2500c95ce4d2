"""The command on a real terminal, seen as a person sees it: through a terminal emulator."""

from __future__ import annotations

import os
import pty
import select
import signal
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

import pyte
from attrs import define, field


@define
class Glass:
    """A terminal of so many columns and rows, with what scrolled out of it above."""

    command: Sequence[str]
    cwd: Path
    env: dict[str, str]
    columns: int = 80
    rows: int = 24
    code: int | None = None
    raw: bytearray = field(factory=bytearray)
    """All that was written to it."""
    _pid: int = field(default=0, init=False)
    _fd: int = field(default=-1, init=False)
    _screen: pyte.HistoryScreen = field(init=False)
    _stream: pyte.ByteStream = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._screen = pyte.HistoryScreen(self.columns, self.rows, history=2_000, ratio=0.5)
        self._stream = pyte.ByteStream(self._screen)

    def __enter__(self) -> Self:
        self._pid, self._fd = pty.fork()
        if self._pid == 0:
            termios.tcsetwinsize(0, (self.rows, self.columns))
            os.chdir(self.cwd)
            env = {name: text for name, text in self.env.items() if name not in _SIZES}
            os.execvpe(self.command[0], list(self.command), env)  # noqa: S606  the forked child

        return self

    def __exit__(self, *_: object) -> None:
        if self.code is None:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)

        if self._fd >= 0:
            os.close(self._fd)

    # ------------------------------------------------------------------ what a person does

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def enter(self, line: str) -> None:
        self.type(f"{line}\r")

    def paste(self, text: str) -> None:
        self.type(f"\x1b[200~{text}\x1b[201~")

    def resize(self, columns: int, rows: int) -> None:
        self._screen.resize(rows, columns)
        termios.tcsetwinsize(self._fd, (rows, columns))

    def hang_up(self, seconds: float = 10.0) -> int:
        """Let the terminal go away, as a lost ssh connection does; return the exit code."""
        os.close(self._fd)
        self._fd = -1
        deadline = time.monotonic() + seconds
        while not self._has_ended():
            assert time.monotonic() < deadline, "it did not end"
            time.sleep(0.02)

        assert self.code is not None
        return self.code

    def signal(self, number: int) -> None:
        os.kill(self._pid, number)

    # ------------------------------------------------------------------ what a person sees

    @property
    def display(self) -> list[str]:
        """The lines on the screen."""
        return [line.rstrip() for line in self._screen.display]

    @property
    def everything(self) -> str:
        """What scrolled by and what is on the screen."""
        above = [
            "".join(line[x].data for x in range(self._screen.columns)).rstrip()
            for line in self._screen.history.top
        ]
        return "\n".join([*above, *self.display])

    def see(self, text: str, seconds: float = 10.0, *, times: int = 1) -> None:
        """Wait until the text is there, so many times."""
        self.until(lambda: self.everything.count(text) >= times, seconds, f"{text!r} is not shown")

    def lose(self, text: str, seconds: float = 10.0) -> None:
        """Wait until the text is on the screen no more."""
        self.until(lambda: text not in "\n".join(self.display), seconds, f"{text!r} stays")

    def prompt(self) -> None:
        """Wait for an empty input line."""
        self.until(lambda: self._input() == ">", 10.0, "no empty prompt")

    def end(self, seconds: float = 10.0) -> int:
        """Wait for the end; return the exit code."""
        self.until(self._has_ended, seconds, "it did not end")
        assert self.code is not None
        return self.code

    def settle(self, seconds: float = 0.3) -> None:
        """Read on until nothing more comes for a moment; for a while at most, as seconds pass."""
        deadline = time.monotonic() + 4 * seconds
        while time.monotonic() <= deadline:
            if not select.select([self._fd], [], [], seconds)[0] or not self._read():
                break

    def until(self, is_so: Callable[[], bool], seconds: float = 10.0, complaint: str = "") -> None:
        deadline = time.monotonic() + seconds
        while not is_so():
            assert time.monotonic() < deadline, f"{complaint}:\n{self.everything.rstrip()}"
            if select.select([self._fd], [], [], 0.05)[0]:
                self._read()

    def _input(self) -> str:
        shown = [line for line in self.display if line]
        return shown[-1] if shown else ""

    def _has_ended(self) -> bool:
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        if pid:
            self.code = os.waitstatus_to_exitcode(status)
            while self._fd >= 0 and select.select([self._fd], [], [], 0)[0] and self._read():
                pass  # what it said last

        return bool(pid)

    def _read(self) -> bool:
        try:
            data = os.read(self._fd, 65_536)
        except OSError:  # the other side is gone
            time.sleep(0.02)
            return False

        self.raw += data
        self._stream.feed(data)
        return True


_SIZES = ("COLUMNS", "LINES")
