"""`--set KEY=VALUE`: single keys of a manifest, changed for one launch."""

from __future__ import annotations

from datetime import date, time

import tomli

from ._positions import KeyPath
from ._render import dotted
from .errors import Mistake

ORIGIN = "--set"


class OverrideRefused(Exception):
    """An override that cannot be applied; carries what to say about it."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(key, message)
        self.mistake = Mistake(key=key, message=message, origin=ORIGIN)


def apply_override(document: dict[str, object], override: str) -> KeyPath:
    """Write `override` ("KEY=VALUE") into `document` and return the path it changed.

    The key is dotted as in TOML, with a number for an element of a list. The value is read as TOML,
    and taken as it stands where it is not. Raises OverrideRefused.
    """
    key, equals, text = override.partition("=")
    if not equals:
        raise OverrideRefused(_printable(key), "must be KEY=VALUE, such as worker.max_tokens=200")

    *parents, name = _names(key.strip())
    path: KeyPath = ()
    table: object = document
    for parent in parents:
        path, table = _enter(table, parent, path)

    return _write(table, name, _value(text.strip()), path)


def _names(key: str) -> list[str]:
    """Split a dotted key; TOML's own reader decides what is quoted and what is not."""
    if not key.isprintable():
        raise OverrideRefused(_printable(key), "is not a key")

    try:
        level: object = tomli.loads(f"{key} = 0")
    except ValueError:
        raise OverrideRefused(_printable(key), "is not a dotted key") from None

    names: list[str] = []
    while isinstance(level, dict) and len(level) == 1:
        ((name, level),) = level.items()
        names.append(name)

    if level != 0:
        raise OverrideRefused(_printable(key), "is not a dotted key")

    return names


def _value(text: str) -> object:
    if "\n" in text or "\r" in text:
        return text

    try:
        value = tomli.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text

    # No key of a manifest takes a date; a model may well be named like one.
    return text if isinstance(value, date | time) else value


def _enter(table: object, name: str, path: KeyPath) -> tuple[KeyPath, object]:
    if isinstance(table, dict):
        return (*path, name), table.setdefault(name, {})

    elements, index = _element(table, name, path)
    return (*path, index), elements[index]


def _write(table: object, name: str, value: object, path: KeyPath) -> KeyPath:
    if isinstance(table, dict):
        table[name] = value
        return (*path, name)

    elements, index = _element(table, name, path)
    elements[index] = value
    return (*path, index)


def _element(table: object, name: str, path: KeyPath) -> tuple[list[object], int]:
    """Return the list at `path` and the index that `name` stands for."""
    key = dotted(path)
    if not isinstance(table, list):
        raise OverrideRefused(f"{key}.{name}", f"{key} is a single value, not a table")

    if not (name.isascii() and name.isdigit() and int(name) < len(table)):
        known = f"0 to {len(table) - 1}" if table else "but it is empty"
        raise OverrideRefused(f"{key}.{name}", f"{key} is a list; name an element, {known}")

    return table, int(name)


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text[:60])
