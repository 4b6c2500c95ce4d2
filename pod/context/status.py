"""An engine's numbers for a status display, as plain data."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

from attrs import define

from worker.text import clean_text

from .engine import ContextEngine
from .words import one_line

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
"""In one table or list."""
MOST_VALUES = 400
"""Altogether."""
LONGEST_TEXT = 300
LARGEST_NUMBER = 2**63 - 1
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


def plain_entries(given: Mapping[Any, object]) -> dict[str, object]:
    """Return the entries that JSON can hold."""
    return _Plain().entries(given, 0)


@define
class _Plain:
    """Makes plain data, as long as there is not too much of it."""

    left: int = MOST_VALUES

    def entries(self, given: Mapping[Any, object], depth: int) -> dict[str, object]:
        entries: dict[str, object] = {}
        for key, value in islice(given.items(), MOST_ENTRIES):
            plain = self.value(value, depth)
            if isinstance(key, str) and (plain is not None or value is None):
                entries[one_line(key, LONGEST_TEXT)] = plain

        return entries

    def value(self, value: object, depth: int) -> object:
        if self.left == 0:
            return None

        self.left -= 1
        match value:
            case bool():
                return value
            case int():
                return value if abs(value) <= LARGEST_NUMBER else None
            case float():
                return value if math.isfinite(value) else None
            case str():
                return clean_text(value[:LONGEST_TEXT])
            case Mapping() if depth < _DEEPEST:
                return self.entries(value, depth + 1)
            case list() | tuple() if depth < _DEEPEST:
                return [self.value(part, depth + 1) for part in value[:MOST_ENTRIES]]
            case _:
                return None
