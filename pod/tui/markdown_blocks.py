"""Markdown that is still coming, told apart from what is finished. Pure."""

from __future__ import annotations

import re

_FENCE = re.compile(r" {0,3}(```+|~~~+)")
_LISTED = re.compile(r"([-*+]|\d{1,9}[.)])\s")


def finished_blocks(text: str) -> tuple[list[str], str]:
    """Split Markdown into the blocks that later text cannot change, and the rest.

    A block ends at a blank line outside a fence, where what follows neither is indented under it
    nor goes on with its list.
    """
    blocks: list[str] = []
    lines = text.splitlines(keepends=True)
    start, fence, is_blank_before = 0, "", False
    for number, line in enumerate(lines):
        if is_blank_before and not fence and _begins_anew(line, lines[start]):
            blocks.append("".join(lines[start:number]))
            start = number

        found = _FENCE.match(line)
        if found and not fence:
            fence = found[1]
        elif found and found[1].startswith(fence) and not line[found.end() :].strip():
            fence = ""

        is_blank_before = not line.strip()

    return blocks, "".join(lines[start:])


def begins_list(block: str) -> bool:
    """Tell whether a block is a list."""
    return _LISTED.match(block) is not None


def _begins_anew(line: str, first: str) -> bool:
    """Tell whether a line after a blank one begins another block than the one of `first`."""
    if not line.strip() or line[0].isspace() or not line.endswith("\n"):
        return False  # A line that has not ended may turn out to be anything.

    return not (_LISTED.match(line) and _LISTED.match(first))
