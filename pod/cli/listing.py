"""What listings share: how numbers and ages are written, and text that any terminal can show."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Sequence

import click

_DRAWN = str.maketrans(
    {
        "├": "|",
        "└": "`",
        "─": "-",
        "│": "|",
        "▸": ">",
        "←": "<-",
        "→": "->",
        "·": "-",
        "—": "-",
        "–": "-",
        "…": "...",
    }
)
# Whatever moves the cursor, rings, colours or turns text around: a title must not do it.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")

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


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return the number and its noun: `1 turn`, `3,412 tokens`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


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
    from rich.cells import cell_len, set_cell_size

    title = _CONTROL.sub("", title)
    room = cells - 2
    if cell_len(title) > room:
        title = set_cell_size(title, max(0, room - 1)).rstrip() + "…"

    return f'"{title}"' if title else ""


def cell_width(text: str) -> int:
    """Return how many columns of a terminal the text takes."""
    from rich.cells import cell_len

    return cell_len(text)


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


def showable(text: str, encoding: str) -> str:
    """Return the text as a terminal of that encoding can show it, and is not moved by it."""
    text = _CONTROL.sub(lambda found: found.group().encode("unicode_escape").decode(), text)
    if is_utf8(encoding):
        return text.encode("utf-8", "backslashreplace").decode("utf-8")

    drawable = "".join(
        char if _fits(char, encoding) else chr(code).translate(_DRAWN)
        for char, code in ((char, ord(char)) for char in text)
    )
    return drawable.encode(encoding, "backslashreplace").decode(encoding)


def is_utf8(encoding: str | None) -> bool:
    """Tell whether that is a name of UTF-8."""
    return (encoding or "").lower().replace("-", "").replace("_", "") == "utf8"


def _fits(char: str, encoding: str) -> bool:
    try:
        char.encode(encoding)
    except UnicodeEncodeError:
        return False

    return True
