"""Places to cut rows at, so that no call is parted from its results. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from .row_prune import prune_boundary

Rows: TypeAlias = Sequence[Mapping[str, Any]]

LEAST_TAIL_ROWS = 3
"""How many rows stay at the end, however long they are."""


def after_results(rows: Rows, index: int) -> int:
    """Return the first place from `index` on that is not before a tool result."""
    while index < len(rows) and rows[index].get("role") == "tool":
        index += 1

    return index


def before_call(rows: Rows, index: int) -> int:
    """Return the last place up to `index` that is not before a tool result."""
    while 0 < index < len(rows) and rows[index].get("role") == "tool":
        index -= 1

    return index


def before_newest_user(rows: Rows, index: int) -> int:
    """Return the last place up to `index` that has the newest row of the user's behind it."""
    said = (n for n in range(len(rows) - 1, -1, -1) if rows[n].get("role") == "user")
    return min(index, next(said, index))


def tail_start(rows: Rows, head_end: int, tokens: int) -> int:
    """Return where the rows begin that fit in `tokens`, at least the last few.

    The newest row of the user's is among them, and `head_end` is the lowest place there is.
    """
    start = min(prune_boundary(rows, 0, tokens), max(0, len(rows) - LEAST_TAIL_ROWS))
    return max(head_end, before_call(rows, before_newest_user(rows, start)))
