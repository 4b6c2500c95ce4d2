from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from session_store.exchange import NotImportable
from tests.session_store.exchange.sources import (
    PIXEL,
    got,
    imported,
    kinds,
    lines,
    one_session,
    result_texts,
    text,
    use,
)
from worker.items import AssistantMessage, Image, Reasoning, Text, ToolResult, UserMessage

CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Look"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{ }"}}
        ],
    },
    {"role": "tool", "tool_call_id": "c", "content": "seen"},
    {"role": "assistant", "content": "Seen."},
]


@pytest.mark.parametrize(
    "data",
    [
        json.dumps(CHAT).encode(),
        json.dumps(CHAT, indent=2).encode(),
        lines(*CHAT),
        b"\xef\xbb\xbf" + lines(*CHAT).replace(b"\n", b"\r\n\r\n"),
        json.dumps({"model": "m", "messages": CHAT}, indent=1).encode(),
        lines({"messages": CHAT}),
        json.dumps([{"messages": CHAT}], indent=1).encode(),
    ],
)
def test_messages_are_read_however_they_are_written(home: Path, data: bytes) -> None:
    state = one_session(home, data)

    assert state.system_prompt == "Be brief."
    assert kinds(state.history) == [
        "UserMessage",
        "AssistantMessage",
        "ToolResult",
        "AssistantMessage",
    ]
    assert state.history[1].tool_calls[0].arguments == "{ }", "the text as received"  # type: ignore[union-attr]


def test_a_conversation_a_line_is_a_session_each(home: Path) -> None:
    _, found = imported(home, lines({"messages": CHAT}, {"messages": CHAT[:2]}))

    assert [len(one.items) for one in found] == [4, 1]


def test_an_id_used_again_in_a_later_turn_names_the_call_of_that_turn(home: Path) -> None:
    again = [{**CHAT[3], "content": "seen again"} if m["role"] == "tool" else m for m in CHAT[1:]]
    state = one_session(home, lines(*CHAT, *again))

    first, second = (item for item in state.history if isinstance(item, ToolResult))
    assert (first.summary, second.summary) == ("seen", "seen again")
    assert first.call_uid != second.call_uid


def test_a_late_result_of_a_reused_id_does_not_answer_an_earlier_turn(home: Path) -> None:
    unanswered = [CHAT[1], CHAT[2], CHAT[4]]
    _, (one,) = imported(home, lines(*unanswered, *CHAT[1:], CHAT[1], CHAT[3]))

    assert result_texts(list(one.items))[1:] == ["seen"]
    assert one.unanswered == 1
    assert one.tally.kept == {"orphan result": 1}


def test_results_and_calls_without_ids_are_paired_in_order(home: Path) -> None:
    def call(name: str) -> dict[str, Any]:
        return {"function": {"name": name, "arguments": "{}"}}

    state = one_session(
        home,
        lines(
            {"role": "user", "content": "Both"},
            {"role": "assistant", "content": "", "tool_calls": [call("a"), call("b"), call("c")]},
            {"role": "tool", "name": "b", "content": "from b"},
            {"role": "tool", "content": "from a"},
            {"role": "function", "content": "from c"},
            {"role": "assistant", "content": "Done."},
        ),
    )

    assert result_texts(state.history) == ["from a", "from b", "from c"]


def test_calls_that_share_an_id_in_one_answer_are_told_apart(home: Path) -> None:
    def call(arguments: str) -> dict[str, Any]:
        return {"id": "c", "function": {"name": "a", "arguments": arguments}}

    _, (one,) = imported(
        home,
        lines(
            {"role": "user", "content": "Both"},
            {"role": "assistant", "tool_calls": [call("1"), call("2"), call("1")]},
            {"role": "tool", "tool_call_id": "c", "content": "first"},
            {"role": "tool", "tool_call_id": "c", "content": "second"},
        ),
    )

    answer = one.items[1]
    assert isinstance(answer, AssistantMessage)
    assert [call.arguments for call in answer.tool_calls] == ["1", "2"]
    assert result_texts(list(one.items)) == ["first", "second"]
    assert one.tally.left_out == {"repeated call": 1}


def test_blocks_of_another_provider_are_understood(home: Path) -> None:
    state = one_session(
        home,
        lines(
            {"role": "user", "content": "Go"},
            {
                "role": "assistant",
                "content": [{"type": "thinking", "thinking": "hm", "signature": "S="}, use("c")],
            },
            {"role": "user", "content": [got("c", "seen"), text("and now?")]},
        ),
    )

    assert kinds(state.history) == ["UserMessage", "AssistantMessage", "ToolResult", "UserMessage"]
    assert state.history[1].parts[0] == Reasoning("hm", "S=", None, "anthropic", "")  # type: ignore[union-attr]


def test_images_and_reasoning_fields(home: Path) -> None:
    url = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
    far = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    details = [
        {"type": "reasoning.text", "text": "t", "signature": "S=", "format": "anthropic-claude-v1"}
    ]
    _, (one,) = imported(
        home,
        lines(
            {"role": "user", "content": [url, far]},
            {
                "role": "assistant",
                "content": "Hm.",
                "reasoning_content": "x",
                "reasoning_details": details,
            },
            {"role": "user", "content": "And?"},
            {"role": "assistant", "content": "Hm.", "reasoning_content": "x"},
        ),
    )

    question, first, _, second = one.items
    assert isinstance(question, UserMessage)
    assert isinstance(question.parts[0], Image)
    assert question.parts[1] == Text("[image, not carried over: https://example.com/a.png]")
    assert first.parts[0] == Reasoning("t", "S=", None, "anthropic", "")  # type: ignore[union-attr]
    assert second.parts[0] == Reasoning("x")  # type: ignore[union-attr]


def test_identities_are_kept_where_there_are_any_and_made_where_not(home: Path) -> None:
    calls = [{"id": "c", "function": {"name": "a", "arguments": "{}"}}]
    state = one_session(
        home,
        lines(
            {
                "role": "user",
                "content": "a",
                "message_uid": "f" * 32,
                "_absorbed_message_uids": ["e" * 32],
            },
            {
                "role": "assistant",
                "tool_calls": calls,
                "_tool_call_uids": {"c": "d" * 32},
                "message_uid": " ",
            },
            {"role": "tool", "tool_call_id": "c", "content": "x", "message_uid": "f" * 32},
        ),
    )

    user, answer, result = state.history
    assert isinstance(user, UserMessage)
    assert (user.uid, user.absorbed_uids) == ("f" * 32, ("e" * 32,))
    assert len(answer.uid.strip()) == 32
    assert isinstance(result, ToolResult)
    assert result.call_uid == "d" * 32
    assert result.uid not in {user.uid, answer.uid}, "a uid names one item of a history"


def test_equal_messages_stay_as_many_as_there_were(home: Path) -> None:
    turn = [CHAT[1], CHAT[2], {**CHAT[3], "content": '{"status":"ok"}'}]
    state = one_session(home, lines(*turn * 50))

    assert result_texts(state.history) == ['{"status":"ok"}'] * 50
    assert len({item.uid for item in state.history}) == 150


def test_bad_lines_are_named_and_the_others_taken(home: Path) -> None:
    bad = b'{"role":"user","role":"system"}\n[1]\n\n'
    odd = b'{"role":"user","content":"x\xff\\ud800"}\n'
    data = lines(*CHAT) + bad + odd + b'{"role"'
    _, (one,) = imported(home, data)

    assert [line for line, _ in one.tally.bad_lines] == [6, 7, 10]
    assert "'role' is there twice" in one.tally.bad_lines[0][1]
    assert one.items[-1].text == "x\ufffd\ufffd"  # type: ignore[union-attr]


def test_nothing_left_is_an_error_that_says_why(home: Path) -> None:
    with pytest.raises(NotImportable, match="no conversation") as raised:
        imported(home, b'{"role":"user"}\n{"role":\n')

    assert "line 2" in raised.value.hint


@pytest.mark.parametrize(
    "data", [b"", b"hello\nthere\n", b"{}", b"[]", b'{"a":1}\n{"b":2}\n', b"\xff\xfe\x00"]
)
def test_what_is_in_no_format_is_refused(home: Path, data: bytes) -> None:
    with pytest.raises(NotImportable, match="no format"):
        imported(home, data)


def test_what_looks_like_a_credential_in_a_result_is_masked_before_it_is_kept(home: Path) -> None:
    token = "ghp_" + "a1B2" * 9
    store, (one,) = imported(
        home, lines(*CHAT[1:3], {**CHAT[3], "content": f"token {token}"}, CHAT[4])
    )

    assert token.encode() not in store.layout.log(one.session_id).read_bytes()
    assert token not in repr(one.items)
