"""An engine's numbers for a status display, as plain data."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from .engine import ContextEngine

ATTRIBUTES = (
    "last_prompt_tokens",
    "last_completion_tokens",
    "last_total_tokens",
    "threshold_tokens",
    "threshold_percent",
    "context_length",
    "compression_count",
)
MOST_ENTRIES = 40
LONGEST_TEXT = 300
_DEEPEST = 3


def status_of(engine: ContextEngine) -> dict[str, object]:
    """Return the engine's attributes and, over them, what its `get_status` says.

    Only what JSON can hold is kept, within bounds. Raises what the engine raises.
    """
    numbers = {name: getattr(engine, name, 0) for name in ATTRIBUTES}
    numbers["last_prompt_tokens"] = max(0, numbers["last_prompt_tokens"] or 0)
    ask = getattr(engine, "get_status", None)
    said = ask() if callable(ask) else {}
    return plain_entries(numbers) | plain_entries(said if isinstance(said, Mapping) else {})


def masked(value: object, mask: Callable[[str], str]) -> object:
    """Return plain data with every text in it put through `mask`."""
    match value:
        case str():
            return mask(value)
        case dict():
            return {key: masked(part, mask) for key, part in value.items()}
        case list():
            return [masked(part, mask) for part in value]
        case _:
            return value


def plain_entries(given: Mapping[Any, object], depth: int = 0) -> dict[str, object]:
    """Return the entries that JSON can hold."""
    entries: dict[str, object] = {}
    for key, value in list(given.items())[:MOST_ENTRIES]:
        plain = _plain(value, depth)
        if isinstance(key, str) and (plain is not None or value is None):
            entries[key] = plain

    return entries


def _plain(value: object, depth: int) -> object:
    match value:
        case bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else None
        case str():
            return value[:LONGEST_TEXT]
        case Mapping() if depth < _DEEPEST:
            return plain_entries(value, depth + 1)
        case list() | tuple() if depth < _DEEPEST:
            return [_plain(part, depth + 1) for part in value[:MOST_ENTRIES]]
        case _:
            return None
