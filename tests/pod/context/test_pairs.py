"""What an engine parted is left out; what was whole, or broken before, stays."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pod.compaction.result import pairing_problem
from pod.context.bridge import from_messages, to_messages
from pod.context.pairs import mended
from worker.items import AssistantMessage, Item, Text, ToolCall, ToolResult, UserMessage


def user(name: str) -> UserMessage:
    return UserMessage(name, (Text(name),))


def calls(name: str, *ids: str, text: str = "") -> AssistantMessage:
    parts = [ToolCall(one, "look", "{}", f"{name}-{one}") for one in ids]
    texts = (Text(text),) if text else ()
    return AssistantMessage(name, (*texts, *parts), "p", "m", "tool_calls")


def result(call: str, name: str = "") -> ToolResult:
    return ToolResult(name or f"r-{call}", call, f"u-{call}", f"seen {call}", None, is_error=False)


TALK: list[Item] = [
    user("go"),
    calls("both", "a", "b", text="looking"),
    result("a"),
    result("b"),
    calls("one", "c"),
    result("c"),
    user("on"),
]


def test_what_is_whole_stays_as_it_is() -> None:
    rows: list[object] = [*to_messages(TALK)]
    same = mended(rows, TALK)
    assert same.messages == rows
    assert all(one is other for one, other in zip(same.messages, rows, strict=True))
    assert same.told == ""


def test_a_result_without_its_call_goes() -> None:
    rows = to_messages(TALK)
    cut = mended([rows[0], *rows[3:]], TALK)
    assert [row.get("message_uid") for row in cut.messages] == ["go", "one", "r-c", "on"]  # type: ignore[attr-defined]
    assert (cut.results, cut.calls) == (1, 0)
    assert "results: 1, calls: 0" in cut.told


def test_a_call_without_its_result_goes_and_what_was_said_beside_it_stays() -> None:
    rows = to_messages(TALK)
    cut = mended([*rows[:3], *rows[4:]], TALK)
    both: Any = cut.messages[1]
    assert [call["id"] for call in both["tool_calls"]] == ["a"]
    assert both["content"] == "looking"

    none: Any = mended([*rows[:2], *rows[4:]], TALK).messages[1]
    assert ("tool_calls" in none, none["content"]) == (False, "looking")

    bare = mended([*rows[:5], rows[6]], TALK)
    assert [row.get("message_uid") for row in bare.messages] == ["go", "both", "r-a", "r-b", "on"]  # type: ignore[attr-defined]


def test_what_had_no_other_half_before_is_for_others_to_judge() -> None:
    broken: list[Item] = [user("go"), result("z"), calls("late", "y")]
    rows = to_messages(broken)
    assert mended(rows, broken).messages == rows


@pytest.mark.parametrize("row", [3, "x", None, [], {"role": "tool"}, {"tool_calls": 3}])
def test_what_is_no_message_is_for_others_to_refuse(row: object) -> None:
    assert mended([row], TALK).messages == [row]


@given(st.sets(st.integers(0, len(TALK) - 1), min_size=1))
def test_whatever_rows_an_engine_keeps_its_history_can_be_sent(kept: set[int]) -> None:
    rows = to_messages(TALK)
    cut = mended([rows[place] for place in sorted(kept)], TALK)
    assert not pairing_problem(from_messages(cut.messages, TALK))
