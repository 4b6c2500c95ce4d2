"""What a summary must be before it may stand for a history. Pure."""

from __future__ import annotations

import re

from attrs import frozen

from pod.compaction.plan import FailureReason
from worker.text import is_blank

SECTIONS = (
    "## Original Task",
    "## Completed Work",
    "## Key Discoveries",
    "## Current State",
)
MIN_BODY_CHARS = 8

_REFUSAL = re.compile(
    r"\b(I (can't|cannot|can not|am unable to|'m unable to|won't|will not)|I'm sorry|"
    r"as an AI)\b",
    re.IGNORECASE,
)
_TOOL_MARKUP = re.compile(
    r"<\s*/?\s*(tool_call|function_call|function=|tool_use|invoke|antml:)|<\|tool|\[TOOL_CALLS\]|"
    r"\"tool_calls\"\s*:",
    re.IGNORECASE,
)
_ERROR_TEXT = re.compile(
    r"^\s*(\{\s*\"error\"|error( code)?\s*[:\d]|traceback \(most recent call last\)|"
    r"<!doctype html|<html)",
    re.IGNORECASE,
)


@frozen
class SummaryProblem:
    """Why a text is no summary; `message` is for a person, and for the repair attempt."""

    reason: FailureReason
    message: str


def summary_problem(text: str, stop_reason: str) -> SummaryProblem | None:
    """Return what is wrong with a summarizer's answer, or None where nothing is."""
    if stop_reason in {"refusal", "content_filter"}:
        return SummaryProblem("refusal", "the summarizer refused")

    if stop_reason == "max_tokens":
        return SummaryProblem("truncated", "the summary was cut at the output cap")

    if is_blank(text):
        if stop_reason == "tool_calls":
            return SummaryProblem("tool_markup", "the summarizer answered with a tool call alone")

        return SummaryProblem("empty", "the summarizer answered nothing")

    if _TOOL_MARKUP.search(text) and not _bodies_hold(text):
        return SummaryProblem("tool_markup", "the summarizer answered with a tool call")

    if _ERROR_TEXT.search(text):
        return SummaryProblem("error_text", "the summarizer answered with an error message")

    missing = [section for section in SECTIONS if not _heading(section).search(text)]
    if len(missing) == len(SECTIONS) and _REFUSAL.search(text[:400]):
        return SummaryProblem("refusal", "the summarizer refused")

    if missing:
        named = ", ".join(f'"{section}"' for section in missing)
        word = "section" if len(missing) == 1 else "sections"
        return SummaryProblem(
            "missing_section", f"the summarizer answered without the {word} {named}"
        )

    if not _bodies_hold(text):
        return SummaryProblem("empty", "the summarizer left every section empty")

    return None


def _bodies_hold(text: str) -> bool:
    """Tell whether all headings are there and something besides them."""
    body = text
    for section in SECTIONS:
        found = _heading(section).search(body)
        if not found:
            return False

        body = body[: found.start()] + body[found.end() :]

    return len(body.strip()) >= MIN_BODY_CHARS


def _heading(section: str) -> re.Pattern[str]:
    title = re.escape(section.removeprefix("## "))
    return re.compile(rf"^\s*#{{1,4}}\s*\**{title}\**\s*:?\s*$", re.IGNORECASE | re.MULTILINE)
