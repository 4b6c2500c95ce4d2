"""Keys and values as text a person can read, on one line, with nothing secret in it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from ._patterns import SECRET_SHAPE, names_a_secret
from ._positions import KeyPath

WIDEST_VALUE = 40
MASK = '"…"'

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def dotted(path: KeyPath) -> str:
    """Return a key path as it would be written: `hooks[0].point`, `a."b c"`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            name = part if _BARE_KEY.fullmatch(part) else _quoted(part)
            text += f".{name}" if text else name

    return text


def shown(path: KeyPath, value: object) -> str:
    """Return the value found at `path` as TOML: shortened, and masked where it could be secret."""
    if _is_secret(path, value):
        return MASK

    match value:
        case bool():
            return "true" if value else "false"
        case int() if abs(value) > 10**WIDEST_VALUE:
            # Printing it whole could be refused by the interpreter, and would help nobody.
            return f"a number of {value.bit_length()} bits"
        case int() | float():
            return str(value)
        case str():
            return _quoted(value)
        case list() | tuple():
            return "[…]" if value else "[]"
        case dict():
            return "{…}" if value else "{}"
        case _:
            # What is left of TOML's types are dates and times.
            return str(value)


def one_of(words: Iterable[str]) -> str:
    """Return `"a", "b" or "c"`."""
    *first, last = (f'"{word}"' for word in words)
    return f"{', '.join(first)} or {last}" if first else last


def _is_secret(path: KeyPath, value: object) -> bool:
    names = [part for part in path if isinstance(part, str)]
    in_env = "env" in names[:-1]
    return in_env or names_a_secret(names[-1] if names else "") or _looks_secret(value)


def _looks_secret(value: object) -> bool:
    return isinstance(value, str) and SECRET_SHAPE.search(value) is not None


def _quoted(text: str) -> str:
    cut = text if len(text) <= WIDEST_VALUE else text[: WIDEST_VALUE - 1] + "…"
    escaped = json.dumps(cut, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in escaped)
