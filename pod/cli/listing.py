"""What listings share: how numbers and ages are written, and text that any terminal can show."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Sequence

import click

from pod.tui.text import CONTROL, cell_width, cut, is_utf8, showable

_MINUTE_MS = 60_000
_HOUR_MS = 60 * _MINUTE_MS
_DAY_MS = 24 * _HOUR_MS
_NOW_MS = _MINUTE_MS // 2
_RECENT_DAYS = 30


def say(text: str, *, err: bool = False) -> None:
    """Print `text` and a newline, whatever it holds and whatever the terminal's encoding.

    Control characters are shown and not sent. What the encoding lacks is drawn in ASCII or
    escaped.
    """
    stream = sys.stderr if err else sys.stdout
    click.echo(showable(text, stream.encoding or "ascii"), err=err)


def say_json(value: object) -> None:
    """Print `value` as one JSON document; in ASCII where the encoding is not UTF-8."""
    click.echo(json.dumps(value, ensure_ascii=not is_utf8(sys.stdout.encoding)))


def age(then_ms: int, now_ms: int) -> str:
    """Return how long ago that was, for reading: `now`, `2 min ago`, `3 h ago`, a date."""
    passed = now_ms - then_ms
    if passed < _NOW_MS:
        return "now"

    if passed < _HOUR_MS:
        return f"{max(1, passed // _MINUTE_MS)} min ago"

    if passed < _DAY_MS:
        return f"{passed // _HOUR_MS} h ago"

    if passed < _RECENT_DAYS * _DAY_MS:
        return f"{passed // _DAY_MS} d ago"

    from datetime import datetime

    return f"{datetime.fromtimestamp(then_ms / 1000).astimezone():%Y-%m-%d}"


def quoted(title: str, cells: int) -> str:
    """Return the title in quotes, cut to `cells` columns of a terminal, quotes included."""
    title = CONTROL.sub("", title)
    return f'"{cut(title, cells - 2)}"' if title else ""


def padded(text: str, cells: int) -> str:
    """Return the text, filled up with spaces to `cells` columns."""
    return text + " " * max(0, cells - cell_width(text))


def right(texts: Sequence[str]) -> list[str]:
    """Return the texts as a column: all of one width, flush right."""
    widest = max(map(cell_width, texts), default=0)
    return [" " * (widest - cell_width(text)) + text for text in texts]


def width() -> int | None:
    """Return how many columns a line may take, or None where lines do not end: in a pipe."""
    if sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit():
        return shutil.get_terminal_size().columns

    return None
