"""Text hygiene at every intake: what leaves here is valid UTF-8; it can be hashed and printed."""

from __future__ import annotations

import re

_SURROGATES = re.compile("[\ud800-\udfff]")
_INVISIBLE = re.compile("[\\s\u200b\u200c\u200d\u2060\ufeff]+")

NO_OUTPUT = "(no output)"
"""What is said in the place of a tool result that says nothing."""
IMAGES_LABEL = "[Images that belong to the tool results above.]"
"""What images are sent under where a tool's result cannot hold any."""
SUMMARY_LABEL = "[Summary of the conversation so far. It is background, not a new request.]"
"""What a summary is sent under, so that nobody takes it for a new request."""


def clean_text(text: str) -> str:
    """Return `text` with every lone surrogate replaced by U+FFFD and halves of a pair joined.

    Process output and split JSON escapes carry lone surrogates; orjson and UTF-8 refuse them.
    """
    if text.isascii() or not _SURROGATES.search(text):
        return text

    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def is_blank(text: str) -> bool:
    """Tell whether `text` shows nothing: empty, white space or zero-width characters only."""
    return _INVISIBLE.fullmatch(text) is not None or not text


def utf8_len(text: str) -> int:
    """Return the size of `text` in UTF-8 bytes."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def cut_middle(text: str, max_bytes: int, *, note: str = "") -> str:
    """Return `text` in at most `max_bytes` UTF-8 bytes: its head, a mark, and its tail.

    The mark says how many bytes are left out, followed by `note`; where there is no room for more,
    it stands alone. Three quarters of the room go to the head. Text that fits is returned as it is.
    """
    if len(text) * 4 <= max_bytes or (len(text) <= max_bytes and text.isascii()):
        return text

    data = text.encode("utf-8", "replace")
    if len(data) <= max_bytes:
        return text

    room = max(0, max_bytes - utf8_len(_mark(len(data), note)))
    head = room * 3 // 4
    start = data[:head].decode("utf-8", "ignore")
    end = data[len(data) - (room - head) :].decode("utf-8", "ignore")
    left_out = len(data) - utf8_len(start) - utf8_len(end)
    return f"{start}{_mark(left_out, note)}{end}"


def _mark(left_out: int, note: str) -> str:
    return f"\n[… {left_out:,} bytes left out{note} …]\n"


def first_line(text: str, max_chars: int = 80) -> str:
    """Return the first line of `text` that shows anything, cut to `max_chars` characters."""
    shown = text.lstrip().partition("\n")[0].rstrip()
    return shown if len(shown) <= max_chars else shown[: max_chars - 1] + "…"
