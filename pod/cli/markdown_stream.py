"""Markdown that is rendered on a terminal while it comes."""

from __future__ import annotations

import re
import sys
import time

from attrs import define, field
from rich.console import Console
from rich.live import Live
from rich.markdown import Markdown

from .listing import showable

_FENCE = re.compile(r" {0,3}(```+|~~~+)")
_LISTED = re.compile(r"([-*+]|\d{1,9}[.)])\s")
_REFRESH_S = 0.08


@define
class MarkdownStream:
    """Renders block by block: a finished block stays as it is, the last one is drawn anew."""

    console: Console = field(factory=lambda: Console(file=sys.stdout, highlight=False))
    _open: str = field(default="", init=False)
    _live: Live | None = field(default=None, init=False)
    _drawn_s: float = field(default=0.0, init=False)
    _is_first: bool = field(default=True, init=False)

    def feed(self, text: str) -> None:
        """Show more of it."""
        if self._live is None:
            self._live = Live(
                console=self.console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()

        done, self._open = finished_blocks(self._open + showable(text, "utf-8"))
        now_s = time.monotonic()
        if done or now_s - self._drawn_s > _REFRESH_S:
            self._drawn_s = now_s
            # Before the blocks are printed above it: printing draws it anew as well.
            self._live.update(Markdown(self._open), refresh=not done)

        for block in done:
            self._print(block)

    def finish(self) -> None:
        """Show the rest for good."""
        live, self._live = self._live, None
        if live is None:
            return

        live.update("", refresh=True)
        live.stop()
        if self._open.strip():
            self._print(self._open)

        self._open, self._is_first = "", True

    def _print(self, block: str) -> None:
        if not self._is_first and not _LISTED.match(block):  # a list brings its own empty line
            self.console.print()

        self._is_first = False
        self.console.print(Markdown(block))


def finished_blocks(text: str) -> tuple[list[str], str]:
    """Split Markdown into the blocks that later text cannot change, and the rest.

    A block ends at a blank line outside a fence, where what follows neither is indented under it
    nor goes on with its list. Pure.
    """
    blocks: list[str] = []
    lines = text.splitlines(keepends=True)
    start, fence, is_blank_before = 0, "", False
    for number, line in enumerate(lines):
        if is_blank_before and not fence and _begins_anew(line, lines[start]):
            blocks.append("".join(lines[start:number]))
            start = number

        found = _FENCE.match(line)
        if found and not fence:
            fence = found[1]
        elif found and found[1].startswith(fence) and not line[found.end() :].strip():
            fence = ""

        is_blank_before = not line.strip()

    return blocks, "".join(lines[start:])


def _begins_anew(line: str, first: str) -> bool:
    """Tell whether a line after a blank one begins another block than the one of `first`."""
    if not line.strip() or line[0].isspace() or not line.endswith("\n"):
        return False  # A line that has not ended may turn out to be anything.

    return not (_LISTED.match(line) and _LISTED.match(first))
