"""A digest: the same for the same items, in the four sections, within its size."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pod.compaction.checks import SECTIONS, summary_problem
from pod.compaction.digest import MARK, digest
from tests.pod.compaction.stories import a_call, a_result, an_answer, stories
from worker import Item, SummaryMessage, ToolResult, new_uid
from worker.items import user_message
from worker.text import utf8_len


@given(stories(may_stay_open=True), st.integers(1_600, 8_000))
def test_it_is_deterministic_whole_and_bounded(items: list[Item], size: int) -> None:
    text = digest(items, size)
    assert text == digest(items, size)
    assert summary_problem(text, "end") is None
    assert MARK in text
    assert utf8_len(text) <= size + 400


def test_it_names_task_messages_files_and_errors() -> None:
    read = a_call("c1", '{"path": "src/a.py"}')
    edit = a_call("c2", '{"file_path": "src/b.py", "files": ["c.py", 3]}')
    broken = a_call("c3", "not json")
    failed = ToolResult(new_uid(), "c2", edit.call_uid, "no such file", None, is_error=True)
    items: list[Item] = [
        user_message("Port the parser.\nKeep the tests."),
        an_answer("on it", read, edit, broken),
        a_result(read),
        failed,
        user_message("And the docs"),
        an_answer("half way there"),
    ]
    parts = digest(items, 8_000).split("## ")
    task, done, found, now = parts[1:]
    assert "Port the parser.\nKeep the tests." in task
    assert "asked: And the docs" in done
    assert "called look" in done
    assert all(name in found for name in ("src/a.py", "src/b.py", "c.py"))
    assert "error: no such file" in found
    assert "half way there" in now


def test_an_earlier_summary_is_the_task_so_far() -> None:
    earlier = SummaryMessage(new_uid(), "FORMER-SUMMARY", None, 1)
    text = digest([earlier, user_message("go on"), an_answer("yes")], 4_000)
    assert "FORMER-SUMMARY" in text.split(SECTIONS[1])[0]


@pytest.mark.parametrize("items", [[], [an_answer("alone")]])
def test_little_makes_a_digest_too(items: list[Item]) -> None:
    assert summary_problem(digest(items, 1_600), "end") is None
