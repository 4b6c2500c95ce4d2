"""Text hygiene at every intake: what leaves here is valid UTF-8 and can be hashed, logged and printed."""

from __future__ import annotations

import re

_SURROGATES = re.compile("[\ud800-\udfff]")
_INVISIBLE = re.compile("[\\s\u200b\u200c\u200d\u2060\ufeff]+")


def clean_text(text: str) -> str:
    """Return `text` with every lone surrogate replaced by U+FFFD and halves of a pair joined.

    Process output and split JSON escapes carry lone surrogates; orjson and UTF-8 refuse them.
    """
    if text.isascii() or not _SURROGATES.search(text):
        return text

    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return _SURROGATES.sub("\ufffd", joined)


def is_blank(text: str) -> bool:
    """Tell whether `text` shows nothing: empty, white space or zero-width characters only."""
    return not _INVISIBLE.sub("", text)


def utf8_len(text: str) -> int:
    """Return the size of `text` in UTF-8 bytes."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def cut_middle(text: str, max_bytes: int, *, note: str = "") -> str:
    """Return `text` in at most about `max_bytes` UTF-8 bytes, its head and tail kept whole.

    Three quarters of the room go to the head. The cut is marked with the number of bytes left
    out, followed by `note`. Text that fits is returned as it is.
    """
    data = text.encode("utf-8", "replace")
    if len(data) <= max_bytes:
        return text

    head = max_bytes * 3 // 4
    tail = max_bytes - head
    start = data[:head].decode("utf-8", "ignore")
    end = data[len(data) - tail :].decode("utf-8", "ignore") if tail else ""
    left_out = len(data) - utf8_len(start) - utf8_len(end)
    return f"{start}\n[… {left_out:,} bytes left out{note} …]\n{end}"


def first_line(text: str, max_chars: int = 80) -> str:
    """Return the first line of `text` that shows anything, cut to `max_chars` characters."""
    for line in text.split("\n"):
        shown = line.strip()
        if shown:
            return shown if len(shown) <= max_chars else shown[: max_chars - 1] + "…"

    return ""
