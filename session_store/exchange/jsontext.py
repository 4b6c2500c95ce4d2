"""JSON as other programs write it: strict where it is ambiguous, forgiving where it is only odd.

Python's own parser and not orjson: it takes lone surrogates, which are then replaced, and shows
every key, so that one that is there twice is noticed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeAlias

from worker.text import clean_text

_DEEPEST = 100
_LARGEST_INT = 1 << 53


JsonObject: TypeAlias = "dict[str, object]"
"""What a JSON object says. What is in it is looked at before it is used."""


class Malformed(ValueError):
    """The text is not the JSON that was expected; says why."""


def parse(raw: bytes | str) -> object:
    """Return what the text says, every text in it valid UTF-8.

    Raises:
        Malformed: It is not JSON, or an object has a key twice.
    """
    text = raw if isinstance(raw, str) else raw.decode("utf-8", "replace")
    try:
        value = DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise Malformed(f"not JSON ({error.msg.lower()} at column {error.colno})") from error
    except RecursionError as error:
        raise Malformed("nested too deeply") from error

    return cleaned(value) if may_hold_surrogates(text) else value


def may_hold_surrogates(text: str) -> bool:
    """Tell whether what the text says may hold halves of surrogate pairs."""
    return "\\ud" in text or "\\uD" in text


def cleaned(value: object) -> object:
    """Return `value` with lone surrogates replaced in every text of it, keys included."""
    if isinstance(value, str):
        return clean_text(value)

    if isinstance(value, list):
        return [cleaned(one) for one in value]

    if isinstance(value, dict):
        return {clean_text(key): cleaned(one) for key, one in value.items()}

    return value


def storable(value: object, change: Callable[[str], str] = str, depth: int = 0) -> object:
    """Return `value` as a log can hold it: no number too large, nothing nested too deeply.

    Every text in it is what `change` makes of it.
    """
    if depth == _DEEPEST:
        return change(json.dumps(value, default=str))

    if isinstance(value, str):
        return change(value)

    if isinstance(value, dict):
        return {str(key): storable(one, change, depth + 1) for key, one in value.items()}

    if isinstance(value, (list, tuple)):
        return [storable(one, change, depth + 1) for one in value]

    if isinstance(value, int) and abs(value) > _LARGEST_INT:
        return str(value)

    return value.hex() if isinstance(value, bytes) else value


def compact_json(value: object) -> str:
    """Return `value` as JSON on one line, nothing escaped that need not be."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def _object(pairs: list[tuple[str, object]]) -> JsonObject:
    value = dict(pairs)
    if len(value) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise Malformed(f"the key {twice[:40]!r} is there twice")

    return value


def _no_number(name: str) -> None:
    """Stand in for NaN and the infinities, which a log cannot hold."""


DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_no_number)
"""What `parse` uses, for those who read from the middle of a text."""
