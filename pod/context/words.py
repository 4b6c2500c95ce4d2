"""What a plugin says, on its way to people, events and the log: on one line, and not too much.

A line is only ever cut between words: half a secret has no shape that it could be masked by.
"""

from __future__ import annotations

from worker.text import clean_text

from .attempt import tried

LONGEST = 500
"""Of one thing that a plugin says, in characters."""
LONGEST_LINE = 1_500
"""Of a line that is told of a plugin, with all that it says."""
_LEFT_OUT = "[…]"


def one_line(value: object, longest: int = LONGEST) -> str:
    """Return a plain value as one line that JSON can hold; anything else as none."""
    # Lists are not made text of: a few bytes of YAML can stand for gigabytes of that.
    return _cut(str(value), longest) if isinstance(value, str | int | float) else ""


def error_line(error: BaseException) -> str:
    """Return an error's kind and its words, whatever they are."""
    words, _ = tried(lambda: str(error))
    line = _cut(words or "", LONGEST)
    return f"{type(error).__name__}: {line}" if line else type(error).__name__


def _cut(text: str, longest: int) -> str:
    line = " ".join(clean_text(text).split())
    if len(line) <= longest:
        return line

    return f"{line[: longest + 1].rpartition(' ')[0]} {_LEFT_OUT}".lstrip()
