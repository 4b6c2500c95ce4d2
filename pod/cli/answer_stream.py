"""An answer as it comes: plain text anywhere, rendered Markdown on a terminal that can."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Protocol

from attrs import define

from .listing import is_utf8
from .outlet import Outlet


class AnswerStream(Protocol):
    """Shows an answer piece by piece."""

    def feed(self, text: str) -> None:
        """Show more of it."""

    def finish(self) -> None:
        """Show the rest and end the line; what is fed next is another answer."""


def answer_stream(outlet: Outlet, env: Mapping[str, str]) -> AnswerStream:
    """Return what suits stdout: Markdown needs a terminal with a cursor and UTF-8."""
    can_render = outlet.is_terminal and is_utf8(outlet.encoding)
    if not can_render or env.get("TERM", "dumb") == "dumb":
        return PlainStream(outlet)

    from .markdown_stream import MarkdownStream

    return MarkdownStream()


@define
class PlainStream:
    """Shows the text as it is."""

    outlet: Outlet

    def feed(self, text: str) -> None:
        """Show more of it."""
        self.outlet.write(text)

    def finish(self) -> None:
        """End the line."""
        self.outlet.end_line()


def show_cursor() -> None:
    """Give back the cursor that rendering hides, when the process ends in the middle of it."""
    if sys.stdout.isatty():
        os.write(sys.stdout.fileno(), b"\x1b[?25h\n")
