"""What a tool returned, as a result holds it: a short summary that stays, and the detail."""

from __future__ import annotations

from attrs import frozen

from worker.items import Image
from worker.text import NO_OUTPUT, first_line, is_blank, utf8_len

_SHORT_BYTES = 200


@frozen
class Output:
    """The parts of a `ToolResult` that come from the tool."""

    summary: str
    content: str | None = None
    images: tuple[Image, ...] = ()


def output_of(text: str, images: tuple[Image, ...] = ()) -> Output:
    """Return `text` as the output of a tool: short text as it is, longer text under its size."""
    if is_blank(text):
        return Output(NO_OUTPUT, None, images)

    stripped = text.strip()
    if utf8_len(stripped) <= _SHORT_BYTES and stripped.count("\n") <= 1:
        return Output(stripped, None, images)

    lines = text.count("\n") + (not text.endswith("\n"))
    size = f"{lines:,} line{'s' if lines != 1 else ''}, {utf8_len(text):,} bytes"
    return Output(f"{first_line(text)} ({size})", text, images)
