"""The line that a compaction rewrites while it goes on, on a terminal."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time

import click
from attrs import define, field

from pod.tui.text import cell_width, showable

_EVERY_S = 0.2
_ERASE = "\r\x1b[K"


@define
class LiveLine:
    """A line on stderr with the seconds that pass, until it is erased. Needs a running loop."""

    _text: str = field(default="", init=False)
    _since_s: float = field(default=0.0, init=False)
    _next: asyncio.TimerHandle | None = field(default=None, init=False)

    def begin(self, text: str) -> None:
        """Show the line, and keep it up to date."""
        self.erase()
        self._text, self._since_s = text, time.monotonic()
        self._draw()

    def erase(self) -> None:
        """Take the line away, if there is one."""
        if self._next is not None:
            self._next.cancel()
            self._next = None
            click.echo(_ERASE, err=True, nl=False)

    def _draw(self) -> None:
        line = f"{self._text} {time.monotonic() - self._since_s:.1f} s"
        columns = shutil.get_terminal_size().columns
        while cell_width(line) >= columns:  # a line that wraps could not be taken back
            line = line[1:] if line.startswith(" ") else line[:-2] + "…"

        click.echo(_ERASE + showable(line, sys.stderr.encoding), err=True, nl=False)
        self._next = asyncio.get_running_loop().call_later(_EVERY_S, self._draw)
