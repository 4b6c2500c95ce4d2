"""Text that any terminal can show: made safe, counted, measured and cut. Pure."""

from __future__ import annotations

import re

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
        "✓": "ok",
        "✗": "x",
    }
)
# Whatever moves the cursor, rings, colours or turns text around: a title must not do it.
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return the number and its noun: `1 turn`, `3,412 tokens`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def is_utf8(encoding: str | None) -> bool:
    """Tell whether that is a name of UTF-8."""
    return (encoding or "").lower().replace("-", "").replace("_", "") == "utf8"


def showable(text: str, encoding: str = "utf-8") -> str:
    """Return the text as a terminal of that encoding can show it, and is not moved by it."""
    text = CONTROL.sub(lambda found: found.group().encode("unicode_escape").decode(), text)
    if is_utf8(encoding):
        return text.encode("utf-8", "backslashreplace").decode("utf-8")

    drawable = "".join(
        char if _fits(char, encoding) else chr(code).translate(_DRAWN)
        for char, code in ((char, ord(char)) for char in text)
    )
    return drawable.encode(encoding, "backslashreplace").decode(encoding)


def cell_width(text: str) -> int:
    """Return how many columns of a terminal the text takes."""
    from rich.cells import cell_len

    return cell_len(text)


def cut(text: str, cells: int) -> str:
    """Return the text in at most `cells` columns; what is left out is marked by an ellipsis."""
    from rich.cells import set_cell_size

    if cell_width(text) <= cells:
        return text

    return set_cell_size(text, max(0, cells - 1)).rstrip() + "…" if cells > 0 else ""


def folded(text: str, cells: int) -> list[str]:
    """Return the text in pieces of at most `cells` columns, every character of it kept."""
    from rich.cells import chop_cells

    return chop_cells(text, max(2, cells)) or [""]


def one_line(text: str) -> str:
    """Return the text on one line, its white space as single spaces, safe to show."""
    return showable(" ".join(text.split()))


def _fits(char: str, encoding: str) -> bool:
    try:
        char.encode(encoding)
    except UnicodeEncodeError:
        return False

    return True
