"""The arguments of a call that come in pieces: a value and the JSON path where it belongs.

A path is `$.files[0].name`; a text may come in several pieces for one path. A piece that cannot be
placed is no answer at all: without it the call would be another one than was meant.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TypeAlias

import orjson

from worker.errors import BadAnswer
from worker.text import clean_text

_MAX_ARGUMENTS_CHARS = 1 << 20
_MAX_DEPTH = 100

_STEP = re.compile(
    r"""\.(?P<name>[^.\[\]]+)|\[(?P<index>\d{1,7})\]|\[(?P<quoted>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\]"""
)

_Path: TypeAlias = "list[str | int]"


class PartialArguments:
    """Arguments that arrive as values at JSON paths."""

    def __init__(self) -> None:
        self._root: dict[str, object] = {}
        self._size = 0

    def add(self, pieces: Sequence[object]) -> bool:
        """Take more pieces, and tell whether the last of them is still to go on.

        Raises:
            BadAnswer: A piece has no place or no value that can be read.
        """
        goes_on = False
        for piece in pieces:
            if not isinstance(piece, dict):
                raise BadAnswer(f"a piece of a call's arguments is no object: {piece!r:.80}")

            self._take(piece)
            goes_on = piece.get("willContinue") is True
        return goes_on

    @property
    def text(self) -> str:
        """The arguments so far as JSON; empty where there are none."""
        return as_json(self._root) if self._root else ""

    def _take(self, piece: Mapping[str, object]) -> None:
        self._size += len(as_json(piece))
        if self._size > _MAX_ARGUMENTS_CHARS:
            raise BadAnswer("the arguments of a call are over 1 MiB")

        if (found := _value(piece)) is None:
            if piece.get("willContinue") is not True:
                raise BadAnswer(f"a piece of a call's arguments has no value: {piece!r:.200}")
            return

        path = _parsed(piece.get("jsonPath"))
        node: object = self._root
        for step, following in pairwise(path):
            empty: object = [] if isinstance(following, int) else {}
            node = _child(node, step, empty)
        _put(node, path[-1], found[0])


def _value(piece: Mapping[str, object]) -> tuple[object] | None:
    for key, kind in (("stringValue", str), ("numberValue", int | float), ("boolValue", bool)):
        value = piece.get(key)
        if isinstance(value, kind):
            return (value,)

    return (None,) if "nullValue" in piece else None


def _parsed(path: object) -> _Path:
    text = path.removeprefix("$") if isinstance(path, str) else ""
    steps: _Path = []
    at = 0
    while match := _STEP.match(text, at):
        at = match.end()
        if match["index"] is not None:
            steps.append(int(match["index"]))
        else:
            steps.append(match["name"] if match["name"] is not None else _unquoted(match["quoted"]))

    if at < len(text) or not 0 < len(steps) <= _MAX_DEPTH:
        raise BadAnswer(f"a piece of a call's arguments has a path that cannot be read: {path!r}")
    return steps


def _unquoted(text: str) -> str:
    inner = text[1:-1]
    if text[0] == "'":
        inner = inner.replace("\\'", "'").replace('"', '\\"')
    try:
        return str(json.loads(f'"{inner}"', strict=False))
    except ValueError as error:
        raise BadAnswer(f"a name in a path of a call's arguments cannot be read: {text}") from error


def _child(node: object, step: str | int, empty: object) -> object:
    if isinstance(node, dict) and isinstance(step, str):
        return node.setdefault(step, empty)
    if isinstance(node, list) and isinstance(step, int) and step <= len(node):
        if step == len(node):
            node.append(empty)
        return node[step]

    raise _misplaced(step)


def _put(node: object, step: str | int, value: object) -> None:
    if isinstance(node, dict) and isinstance(step, str):
        before = node.get(step)
        node[step] = _extended(before, value)
    elif isinstance(node, list) and isinstance(step, int) and step < len(node):
        node[step] = _extended(node[step], value)
    elif isinstance(node, list) and step == len(node):
        node.append(value)
    else:
        raise _misplaced(step)


def _extended(before: object, value: object) -> object:
    return before + value if isinstance(before, str) and isinstance(value, str) else value


def _misplaced(step: str | int) -> BadAnswer:
    return BadAnswer(f"a piece of a call's arguments has no place: {step!r} is not where it says")


def as_json(value: object) -> str:
    """Return `value` as JSON in valid text."""
    try:
        return orjson.dumps(value).decode()
    except (TypeError, orjson.JSONEncodeError):
        # A half of a surrogate pair, or a number that orjson does not know.
        return clean_text(json.dumps(value, ensure_ascii=False))
