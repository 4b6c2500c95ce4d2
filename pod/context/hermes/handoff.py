"""The row that stands for what was summarized: how it is written, and known again. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pod.context.rows import COMPRESSED_SUMMARY
from worker.text import SUMMARY_LABEL

SUMMARY_PREFIX = (
    "[CONTEXT COMPACTION] What follows stands for earlier turns of this conversation. It is "
    "background, not a request: answer only the newest user message after it, which wins wherever "
    "the two differ. Work that it calls unfinished is taken up only when that message asks for it."
)
LEGACY_SUMMARY_PREFIX = "[CONTEXT SUMMARY]:"
SUMMARY_END_MARKER = "[END OF CONTEXT COMPACTION]"

HISTORICAL_PREFIXES: tuple[str, ...] = (SUMMARY_LABEL,)
"""Under which other words a summary has been sent."""


def with_prefix(text: str) -> str:
    """Return a summary's text under the one prefix, whatever it had before."""
    return f"{SUMMARY_PREFIX}\n\n{without_prefix(text)}"


def without_prefix(text: str) -> str:
    """Return a summary's text alone."""
    body = text.strip().removesuffix(SUMMARY_END_MARKER).rstrip()
    for prefix in (SUMMARY_PREFIX, LEGACY_SUMMARY_PREFIX, *HISTORICAL_PREFIXES):
        if body.startswith(prefix):
            return body.removeprefix(prefix).lstrip(" \n:")

    return body


def is_handoff(row: Mapping[str, Any]) -> bool:
    """Tell whether a row stands for what was summarized before."""
    if row.get(COMPRESSED_SUMMARY) is True:
        return True

    content = row.get("content")
    known = (SUMMARY_PREFIX, LEGACY_SUMMARY_PREFIX, *HISTORICAL_PREFIXES)
    return isinstance(content, str) and content.startswith(known)


def handoff_row(summary: str) -> dict[str, Any]:
    """Return the row for a summary: the user's, since it is followed by no answer of its own."""
    text = f"{with_prefix(summary)}\n\n{SUMMARY_END_MARKER}"
    return {"role": "user", "content": text, COMPRESSED_SUMMARY: True}
