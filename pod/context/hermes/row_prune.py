"""Old tool results made short, in rows: what a compaction does before it asks a model. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pod.context.engine import Message
from worker.text import first_line

from .rough_tokens import message_tokens

_MARK = "[Old tool output left out"


def prune_boundary(
    rows: Sequence[Mapping[str, Any]], tail_rows: int, tail_tokens: int | None
) -> int:
    """Return the index of the first protected row.

    Protected are the last `tail_rows` rows; with `tail_tokens`, those that fit in it.
    """
    if tail_tokens is None:
        return max(0, len(rows) - max(0, tail_rows))

    index, tokens = len(rows), 0
    while index > 0:
        tokens += message_tokens(rows[index - 1])
        if tokens > tail_tokens:
            break

        index -= 1

    return index


def pruned(rows: Sequence[Message], boundary: int, min_chars: int) -> tuple[list[Message], int]:
    """Return the rows with each tool result before `boundary` in one line, and how many it were.

    A result of at most `min_chars` characters stays. Every row that is not changed is the same one.
    """
    names = _names(rows)
    out = list(rows)
    count = 0
    for index, row in enumerate(rows[:boundary]):
        content = row.get("content")
        if row.get("role") != "tool" or not isinstance(content, str):
            continue

        if len(content) > min_chars and not content.startswith(_MARK):
            name = names.get(str(row.get("tool_call_id")), "tool")
            line = f"{_MARK}: {name}, {len(content):,} characters; {first_line(content, 120)}]"
            out[index] = {**row, "content": line}
            count += 1

    return out, count


def _names(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    calls = (call for row in rows for call in row.get("tool_calls") or () if isinstance(call, dict))
    return {
        str(call.get("id")): str(call["function"].get("name"))
        for call in calls
        if isinstance(call.get("function"), dict)
    }
