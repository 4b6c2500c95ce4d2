"""Items as JSON: what is written is read back the same, and nothing wrong is taken for an item."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from tests.worker.histories import histories
from worker import AssistantMessage, Item, Text, ToolCall, ToolResult, UserMessage, new_uid
from worker.items_json import dump_item, dump_items, load_item, load_items


@given(histories)
def test_every_item_survives_json(history: list[Item]) -> None:
    written = json.loads(json.dumps(dump_items(history)))
    assert load_items(written) == history
    assert all(next(iter(value)) == "type" for value in written)


@given(histories)
def test_unknown_fields_of_a_newer_version_are_passed_over(history: list[Item]) -> None:
    for item in history:
        assert load_item({**dump_item(item), "from_the_future": {"x": 1}}) == item


def test_a_line_says_only_what_is_so() -> None:
    plain = UserMessage("a" * 32, (Text("hi"),))
    assert dump_item(plain) == {
        "type": "user_message",
        "uid": "a" * 32,
        "parts": [{"type": "text", "text": "hi"}],
        "origin": "user",
    }


GOOD: dict[str, Any] = {"type": "tool_result", "uid": "u", "call_id": "c", "call_uid": "v"}
GOOD |= {"summary": "s", "content": None, "is_error": False}


def test_fields_left_out_have_their_defaults() -> None:
    assert load_item(GOOD) == ToolResult("u", "c", "v", "s", None, is_error=False)


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"type": "nothing"},
        {"type": ["x"]},
        {"type": "text", "text": "a part is no item"},
        {**GOOD, "uid": 7},
        {**GOOD, "summary": None},
        {**GOOD, "is_error": "no"},
        {**GOOD, "content": 5},
        {**GOOD, "attachments": [{"type": "image", "media_type": "image/png", "data": "!!"}]},
        {key: value for key, value in GOOD.items() if key != "call_id"},
        {"type": "user_message", "uid": "u", "parts": "text"},
        {"type": "user_message", "uid": "u", "parts": None},
        {"type": "user_message", "uid": "u", "parts": [{"type": "tool_call"}]},
        {"type": "user_message", "uid": "u", "parts": [{"type": "nothing"}]},
        {"type": "user_message", "uid": "u", "parts": [], "origin": "robot"},
        {"type": "summary_message", "uid": "u", "text": "t", "covers": None, "generation": "1"},
        {"type": "summary_message", "uid": "u", "text": "t", "covers": 5, "generation": 1},
        "text",
        None,
        [],
        7,
    ],
)
def test_what_is_no_item_is_refused_in_words(wrong: Any) -> None:
    with pytest.raises(ValueError, match="not an item"):
        load_item(wrong)


def test_a_part_of_another_kind_of_message_is_refused() -> None:
    call = ToolCall("c", "touch", "{}", new_uid())
    with pytest.raises(TypeError, match="a ToolCall is no part of such a message"):
        dump_item(UserMessage("u", (call,)))  # type: ignore[arg-type]

    with pytest.raises(TypeError, match="a ToolCall is not an item"):
        dump_item(call)  # type: ignore[arg-type]

    value = dump_item(AssistantMessage("u", (call,), "p", "m", "end"))
    with pytest.raises(ValueError, match="not an item"):
        load_item({**value, "type": "user_message"})
