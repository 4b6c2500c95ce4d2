"""What may stand for a history, and what may not."""

from __future__ import annotations

import pytest

from pod.compaction.checks import SECTIONS, summary_problem

GOOD = "\n".join(f"{section}\n- something" for section in SECTIONS)


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        GOOD.replace("## ", "# "),
        GOOD.replace("## ", "### ").upper(),
        GOOD.replace("## Original Task", "**## x**\n## **Original Task**:"),
        f"Here are the notes.\n\n{GOOD}",
        GOOD + "\nThe tool said <tool_call>{}</tool_call> and I cannot explain it; error: 5",
        "\r\n".join(GOOD.split("\n")),
    ],
)
def test_a_summary_is_one(text: str) -> None:
    assert summary_problem(text, "end") is None


@pytest.mark.parametrize(
    ("text", "stop_reason", "reason"),
    [
        ("", "end", "empty"),
        ("\u200b \n", "end", "empty"),
        ("", "tool_calls", "tool_markup"),
        ("", "max_tokens", "truncated"),
        (GOOD, "max_tokens", "truncated"),
        (GOOD, "refusal", "refusal"),
        (GOOD, "content_filter", "refusal"),
        ("I'm sorry, but as an AI I cannot do that.", "end", "refusal"),
        ("I won't.", "end", "refusal"),
        ('<tool_call>{"name": "x"}</tool_call>', "end", "tool_markup"),
        ("[TOOL_CALLS] [{}]", "end", "tool_markup"),
        ('{"tool_calls": []}', "end", "tool_markup"),
        ('<invoke name="x">', "end", "tool_markup"),
        ('{"error": "rate limit"}', "end", "error_text"),
        ("Error: upstream timed out", "end", "error_text"),
        ("Traceback (most recent call last):\n  …", "end", "error_text"),
        ("<!DOCTYPE html><html>", "end", "error_text"),
        ("The work went on and all is well.", "end", "missing_section"),
        ("\n".join(SECTIONS), "end", "empty"),
        *((GOOD.replace(section, "## Else"), "end", "missing_section") for section in SECTIONS),
        (GOOD.replace("## Key Discoveries\n", "Key Discoveries: "), "end", "missing_section"),
    ],
)
def test_what_is_none_is_told_why(text: str, stop_reason: str, reason: str) -> None:
    problem = summary_problem(text, stop_reason)
    assert problem is not None
    assert problem.reason == reason
    assert "summar" in problem.message


def test_a_missing_section_is_named() -> None:
    problem = summary_problem(GOOD.replace(SECTIONS[2], "## Else"), "end")
    assert problem is not None
    assert SECTIONS[2] in problem.message
    assert SECTIONS[1] not in problem.message
