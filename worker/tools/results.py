"""What a tool call gives back, and how anything that a function returns becomes that."""

from __future__ import annotations

import json
from collections.abc import Mapping

import attrs
from attrs import evolve, frozen

from ..items import Image
from ..text import NO_OUTPUT, clean_text, first_line, is_blank, utf8_len

SHORT_BYTES = 200
SUMMARY_MAX_BYTES = 1_000


@frozen
class ToolOutput:
    """What a tool gives back: a line or two that stay, and detail that may be pruned later."""

    summary: str
    content: str | None = None
    is_error: bool = False
    attachments: tuple[Image, ...] = ()


def render_output(value: object) -> ToolOutput:
    """Return what a tool returned as a `ToolOutput`, whatever it was; never a Python repr.

    Text of up to 200 bytes and two lines becomes the summary; longer text becomes the content,
    under a summary of its first line and size. Bytes are decoded, with replacement characters.
    Everything else is rendered as JSON; generators are run to their end.
    """
    if isinstance(value, ToolOutput):
        return _tidy(value)

    return _from_text(_as_text(value))


def _tidy(output: ToolOutput) -> ToolOutput:
    """Clean both texts and keep the summary short: what is too long for one joins the content."""
    summary = clean_text(_as_text(output.summary)).strip()
    content = clean_text(_as_text(output.content))
    if is_blank(content):
        content = ""

    if utf8_len(summary) > SUMMARY_MAX_BYTES:
        content = f"{summary}\n{content}" if content else summary
        summary = ""

    if not summary:
        plain = _from_text(content)
        summary, content = plain.summary, plain.content or ""

    return evolve(output, summary=summary, content=content or None)


def _from_text(text: str) -> ToolOutput:
    text = clean_text(text)
    if is_blank(text):
        return ToolOutput(NO_OUTPUT)

    stripped = text.strip()
    if utf8_len(stripped) <= SHORT_BYTES and stripped.count("\n") <= 1:
        return ToolOutput(stripped)

    lines = text.count("\n") + (not text.endswith("\n"))
    size = f"{lines:,} line{'s' if lines != 1 else ''}, {utf8_len(text):,} bytes"
    return ToolOutput(f"{first_line(text)} ({size})", text)


def _as_text(value: object) -> str:
    if value is None:
        return ""

    if isinstance(value, str):
        return value

    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "replace")

    return _as_json(value)


def _as_json(value: object) -> str:
    from pydantic_core import to_jsonable_python

    # In two steps: pydantic knows the types, and json, unlike it, lets lone surrogates pass.
    plain = to_jsonable_python(
        value, bytes_mode="base64", inf_nan_mode="null", fallback=_plain, serialize_unknown=False
    )
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":"))


def _plain(unknown: object) -> object:
    """Return what JSON can hold of an object that pydantic does not know."""
    if attrs.has(type(unknown)):
        return attrs.asdict(unknown, recurse=False)  # type: ignore[arg-type]  # `has` says it is one

    return dict(unknown) if isinstance(unknown, Mapping) else f"<{type(unknown).__name__}>"
