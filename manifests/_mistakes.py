"""pydantic's findings in the words of a manifest: key, line, what was found, what is allowed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from attrs import frozen
from pydantic_core import ErrorDetails

from ._patterns import POD_NAME, WORDS, suggested_pod_name
from ._positions import KeyPath
from ._render import dotted, one_of, shown
from ._shape import unknown_key
from .errors import Mistake

_TYPES = {
    "string_type": "must be a string, in quotes",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "tuple_type": "must be a list",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "finite_number": "must be a finite number",
    "string_unicode": "must be Unicode text",
}
_NOUNS = {"kind": "a provider", "point": "a hook point", "builtin": "a built-in tool"}

Context = Mapping[str, Any]


def _string_length(context: Context) -> str:
    return f"must have at most {context['max_length']} characters"


_BOUNDS: dict[str, Callable[[Context], str]] = {
    "greater_than_equal": lambda c: f"must be {_number(c['ge'])} or more",
    "greater_than": lambda c: f"must be more than {_number(c['gt'])}",
    "less_than_equal": lambda c: f"must be {_number(c['le'])} or less",
    "string_too_long": _string_length,
    "string_too_short": lambda _: "must not be empty",
    "mistake": lambda c: str(c["words"]),
}


@frozen
class Source:
    """Where keys come from: the lines of the file, and the paths that `--set` has written."""

    lines: Mapping[KeyPath, int]
    overridden: tuple[KeyPath, ...] = ()

    def line(self, path: KeyPath) -> int | None:
        """Return the line of `path`, or of the nearest table around it that is in the file."""
        around = (path[:n] for n in range(len(path), 0, -1))
        return next((self.lines[p] for p in around if p in self.lines), None)

    def is_overridden(self, path: KeyPath) -> bool:
        """Tell whether the value at `path` was given with `--set`."""
        return any(path[: len(written)] == written for written in self.overridden)


def mistakes_of(errors: Iterable[ErrorDetails], source: Source) -> tuple[Mistake, ...]:
    """Return one mistake a key, in the order of the file, those of `--set` last."""
    found: dict[str, Mistake] = {}
    for error in errors:
        mistake = _mistake(error, source)
        found.setdefault(mistake.key, mistake)

    last = len(source.lines) and max(source.lines.values()) + 1
    return tuple(sorted(found.values(), key=lambda m: last if m.line is None else m.line))


def _mistake(error: ErrorDetails, source: Source) -> Mistake:
    path = _key_path(error["loc"])
    words = _describe(error, path)
    overridden = source.is_overridden(path)
    return Mistake(
        key=dotted(path),
        message=words.message,
        line=None if overridden else source.line(path),
        found=shown(path, error["input"]) if words.shows_value else None,
        allowed=words.allowed,
        suggestion=words.suggestion,
        origin="--set" if overridden else "",
    )


@frozen
class _Words:
    message: str
    allowed: tuple[str, ...] = ()
    suggestion: str | None = None
    shows_value: bool = True


def _describe(error: ErrorDetails, path: KeyPath) -> _Words:
    """Choose the words for one of pydantic's findings."""
    kind, context = error["type"], error.get("ctx", {})
    if kind == "missing":
        return _Words(_missing(path), shows_value=False)

    if kind == "extra_forbidden":
        return _unknown(path, error["input"])

    if kind == "literal_error":
        return _choice(path, error["input"], context)

    if kind == "string_pattern_mismatch":
        return _pattern(context["pattern"], error["input"])

    if kind in _BOUNDS:
        message = _BOUNDS[kind](context)
        return _Words(message, shows_value=not message.startswith("missing"))

    # Any type of error not named above still gives pydantic's own words, never a traceback.
    return _Words(_TYPES.get(kind, error["msg"]))


def _missing(path: KeyPath) -> str:
    if len(path) == 1:
        return f"missing; a manifest needs a [{path[0]}] section"

    return "missing; it has no default"


def _unknown(path: KeyPath, value: object) -> _Words:
    table = tuple(part for part in path[:-1] if isinstance(part, str))
    elements = value if isinstance(value, list) and value else [value]
    is_table = all(isinstance(element, dict) for element in elements)
    unknown = unknown_key(table, str(path[-1]), is_table=is_table)
    return _Words(unknown.message, unknown.allowed, unknown.suggestion, shows_value=False)


def _choice(path: KeyPath, value: object, context: Context) -> _Words:
    allowed = tuple(re.findall(r"'([^']*)'", context["expected"]))
    near = difflib.get_close_matches(value.lower(), allowed, n=1) if isinstance(value, str) else []
    suggestion = near[0] if near else None
    noun = _NOUNS.get(next((p for p in reversed(path) if isinstance(p, str)), ""))
    hint = f'; did you mean "{suggestion}"?' if suggestion else ""
    if noun is None:
        return _Words(f"must be {one_of(allowed)}{hint}", suggestion=suggestion)

    return _Words(f"not {noun}{hint}", allowed, suggestion)


def _pattern(pattern: str, value: object) -> _Words:
    message = WORDS.get(pattern, f"must match {pattern}")
    suggestion = suggested_pod_name(str(value)) if pattern == POD_NAME else ""
    if not suggestion:
        return _Words(message)

    return _Words(f'{message}; did you mean "{suggestion}"?', suggestion=suggestion)


def _key_path(location: tuple[int | str, ...]) -> KeyPath:
    # pydantic marks a mistake in a table's key, rather than its value, by one more element.
    return location[:-1] if location[-1:] == ("[key]",) else location


def _number(bound: float) -> str:
    return f"{int(bound):,}" if bound == int(bound) else str(bound)
