"""A tool call's arguments for reading: on one line, or whole and exact for a decision. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from attrs import frozen

from .text import CONTROL, cut, one_line

# What takes no room or looks like a space and is none: unseen, it could make one call pass for
# another.
_UNSEEN = re.compile(
    "[\u00a0\u00ad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180e\u2000-\u200d\u2028\u2029\u202f"
    "\u205f-\u2064\u206a-\u206f\u3000\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb"
    "\U000e0000-\U000e0fff\ud800-\udfff\t]"
)


@frozen
class _Verbatim:
    """A number or constant, as it was written."""

    text: str


class _Unreadable(Exception):
    """The arguments are no JSON object whose keys are all different."""


def brief(arguments: str, cells: int) -> str:
    """Return the arguments on one line of at most `cells` columns: `path="a.py" limit=10`."""
    try:
        pairs = _object(arguments)
    except _Unreadable:
        return cut(one_line(arguments), cells)

    told = (f"{one_line(key)}={one_line(_literal(value))}" for key, value in pairs)
    return cut(" ".join(told), cells)


def exact(arguments: str) -> list[str]:
    """Return the arguments in lines that hide nothing.

    Texts are shown in their own lines; every control character, and whatever else would not be
    seen, is written as an escape. What is not a plain JSON object is shown as it came.
    """
    try:
        pairs = _object(arguments)
    except _Unreadable:
        return ["(as received)", *_lines(arguments)]

    lines = []
    for key, value in pairs:
        shown = visible(key)
        if isinstance(value, str) and ("\n" in value):
            lines += [f"{shown}:", *(f"  │ {line}" for line in _lines(value))]
        else:
            lines.append(f"{shown}: {visible(_literal(value))}")

    return lines or ["(no arguments)"]


def visible(text: str) -> str:
    """Return the text with every character that would not be seen written as an escape."""
    return _UNSEEN.sub(_escaped, CONTROL.sub(_escaped, text.replace("\n", "\\n")))


def _lines(text: str) -> list[str]:
    return [visible(line) for line in text.split("\n")]


def _escaped(found: re.Match[str]) -> str:
    return found.group().encode("unicode_escape").decode()


def _literal(value: object) -> str:
    """Return a value as JSON, its characters as they are and its numbers as they were written."""
    match value:
        case _Verbatim():
            return value.text
        case list():
            return "[" + ", ".join(map(_literal, value)) + "]"
        case tuple():
            return "{" + ", ".join(f"{_literal(k)}: {_literal(v)}" for k, v in value) + "}"
        case _:
            return json.dumps(value, ensure_ascii=False)


def _object(arguments: str) -> Sequence[tuple[str, object]]:
    try:
        found = json.loads(
            arguments or "{}",
            object_pairs_hook=_pairs,
            parse_float=_Verbatim,
            parse_int=_Verbatim,
            parse_constant=_Verbatim,
        )
    except (ValueError, RecursionError) as error:
        raise _Unreadable from error

    if not isinstance(found, tuple):
        raise _Unreadable

    return found


def _pairs(pairs: list[tuple[str, object]]) -> tuple[tuple[str, object], ...]:
    if len({key for key, _ in pairs}) < len(pairs):
        raise _Unreadable  # one of them would be hidden by the other

    return tuple(pairs)
