from __future__ import annotations

import json

import pytest

from pod.context.bridge import (
    BridgeError,
    from_messages,
    from_selection,
    to_messages,
    to_request_messages,
)
from worker.items import (
    AssistantMessage,
    Covers,
    Image,
    Item,
    Reasoning,
    SummaryMessage,
    SystemNote,
    Text,
    ToolCall,
    ToolResult,
    UserMessage,
)
from worker.llm.schemes.chat.scheme import OpenAiChatScheme
from worker.llm.types import LlmRequest

PNG = Image("image/png", b"\x89PNG")
USER = UserMessage("u1", (Text("find the bug"),), absorbed_uids=("u0",))
ANSWER = AssistantMessage(
    "a1",
    (
        Reasoning("hm", signature="sig", provider="anthropic"),
        Text("looking"),
        ToolCall("call_1", "grep", '{"q": 1', "t1"),
    ),
    "anthropic",
    "opus",
    "tool_calls",
)
RESULT = ToolResult("r1", "call_1", "t1", "2 hits", "a.py:1\nb.py:2", False, (PNG,))
SUMMARY = SummaryMessage("s1", "We fixed it.", Covers("s", "x", "y", "h"), 2)
NOTE = SystemNote("n1", "Keep tests green.", "hook")
HISTORY: list[Item] = [SUMMARY, USER, ANSWER, RESULT, NOTE]


def numbered() -> str:
    return f"fresh-{next(numbers)}"


numbers = iter(range(1_000_000))


def test_messages_carry_the_identity_fields_of_the_contract() -> None:
    summary, user, answer, result, note = to_messages(HISTORY)

    assert user == {
        "role": "user",
        "content": "find the bug",
        "message_uid": "u1",
        "_absorbed_message_uids": ["u0"],
    }
    assert answer == {
        "role": "assistant",
        "content": "looking",
        "tool_calls": [
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": "grep", "arguments": '{"q": 1'},
            }
        ],
        "message_uid": "a1",
        "_tool_call_uids": {"call_1": "t1"},
    }
    assert result == {
        "role": "tool",
        "tool_call_id": "call_1",
        "content": "2 hits\na.py:1\nb.py:2",
        "message_uid": "r1",
        "_tool_call_uid": "t1",
    }
    assert summary["role"] == "user"
    assert summary["_compressed_summary"] is True
    assert note["role"] == "user"


def test_texts_are_those_of_the_wire() -> None:
    body = OpenAiChatScheme().encode(LlmRequest("be brief", HISTORY), "m")
    sent = {
        json.dumps(message["content"])
        for message in json.loads(body)["messages"]
        if isinstance(message["content"], str)
    }
    given = to_request_messages("be brief", HISTORY)
    assert {json.dumps(message["content"]) for message in given} == sent


def test_an_image_is_a_data_url_and_comes_back_as_bytes() -> None:
    item = UserMessage("u", (Text("see"), PNG))
    (message,) = to_messages([item])
    assert message["content"] == [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}},
    ]

    (new,) = from_messages([{"role": "user", "content": message["content"]}], [])

    assert isinstance(new, UserMessage)
    assert new.parts == item.parts


def test_request_messages_hold_no_identity_and_begin_with_the_system_prompt() -> None:
    messages = to_request_messages("be brief", HISTORY)

    assert messages[0] == {"role": "system", "content": "be brief"}
    keys = {key for message in messages for key in message}
    assert keys == {"role", "content", "tool_calls", "tool_call_id"}
    assert to_request_messages(" ", []) == []


def test_calls_that_share_an_id_after_a_fold_have_a_uid_each() -> None:
    folded = AssistantMessage(
        "a",
        (
            ToolCall("c", "x", "{}", "t1"),
            ToolCall("c", "x", "{}", "t2"),
            ToolCall("d", "x", "", ""),
        ),
        "",
        "",
        "tool_calls",
    )
    (message,) = to_messages([folded])
    assert message["_tool_call_uids"] == ["t1", "t2", None]

    message["content"] = "changed"
    (back,) = from_messages([message], [folded])

    assert isinstance(back, AssistantMessage)
    assert back.tool_calls == folded.tool_calls


def test_changing_the_messages_changes_no_item_and_no_other_messages() -> None:
    first = to_messages(HISTORY)
    for message in first:
        message.clear()

    assert to_messages(HISTORY)[1]["content"] == "find the bug"


def test_a_changed_answer_keeps_its_reasoning_only_with_its_calls() -> None:
    _, _, answer, *_ = to_messages(HISTORY)
    answer["content"] = "shorter"
    (changed,) = from_messages([answer], HISTORY)
    assert isinstance(changed, AssistantMessage)
    assert changed.parts == (ANSWER.parts[0], Text("shorter"), ANSWER.parts[2])
    assert (changed.provider, changed.model) == ("anthropic", "opus")

    del answer["tool_calls"]
    (stripped,) = from_messages([answer], HISTORY)
    assert isinstance(stripped, AssistantMessage)
    assert stripped.parts == (Text("shorter"),)


@pytest.mark.parametrize(
    ("text", "summary", "content", "images"),
    [
        ("2 hits", "2 hits", None, ()),
        ("2 hits\na.py:1", "2 hits", "a.py:1", (PNG,)),
        ("[pruned]", "[pruned]", None, ()),
        ("one\ntwo\nthree\n", "one (3 lines, 14 bytes)", "one\ntwo\nthree\n", ()),
    ],
)
def test_a_changed_result_keeps_its_summary_where_the_text_still_begins_with_it(
    text: str, summary: str, content: str | None, images: tuple[Image, ...]
) -> None:
    messages = to_messages([ANSWER, RESULT])
    messages[1]["content"] = text

    _, result = from_messages(messages, HISTORY)

    assert result == ToolResult("r1", "call_1", "t1", summary, content, False, images)


def test_a_changed_summary_or_note_does_not_collect_labels() -> None:
    messages = to_messages([SUMMARY, NOTE])
    for message in messages:
        message["content"] += " More."

    summary, note = from_messages(messages, HISTORY)

    assert summary == SummaryMessage("s1", "We fixed it. More.", SUMMARY.covers, 2)
    assert note == SystemNote("n1", "Keep tests green. More.", "hook")


def test_new_rows_become_items_that_no_person_sent() -> None:
    labelled = to_messages([SummaryMessage("", "Done so far.", None, 0)])[0]["content"]
    rows = [
        {"role": "user", "content": labelled, "_compressed_summary": True, "message_uid": "f" * 32},
        {"role": "system", "content": "Mind the budget."},
        {"role": "user", "content": "go on", "message_uid": "  "},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "function": {"name": "ls", "arguments": {"p": "."}}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "a\nb\nc"},
        {"role": "assistant", "content": [{"type": "text", "text": "fine"}]},
    ]

    items = from_messages(rows, [], mint=numbered)

    summary, note, user, call, result, answer = items
    assert summary == SummaryMessage("f" * 32, "Done so far.", None, 0)
    assert isinstance(note, SystemNote)
    assert note.text == "Mind the budget."
    assert isinstance(user, UserMessage)
    assert (user.text, user.origin) == ("go on", "injected")
    assert isinstance(call, AssistantMessage)
    assert call.tool_calls[0].arguments == '{"p":"."}'
    assert isinstance(result, ToolResult)
    assert result.call_uid == call.tool_calls[0].call_uid
    assert result.content == "a\nb\nc"
    assert isinstance(answer, AssistantMessage)
    assert answer.text == "fine"
    assert all(item.uid.startswith("fresh-") for item in items[1:])


def test_the_caller_says_who_sent_new_rows() -> None:
    (item,) = from_messages([{"role": "user", "content": "hi"}], [], origin="user")
    assert isinstance(item, UserMessage)
    assert item.origin == "user"


def test_a_person_s_words_stay_a_person_s_when_merged_into_a_new_row() -> None:
    row = {"role": "user", "content": "task: find the bug", "_absorbed_message_uids": ["u1", 3, ""]}
    (item,) = from_messages([row], HISTORY)
    assert isinstance(item, UserMessage)
    assert item.origin == "user"
    assert item.absorbed_uids == ("u1", "u0")


def test_a_carrier_keeps_its_uid_and_names_the_task_it_absorbed() -> None:
    summary = to_messages([SUMMARY])[0]
    summary["content"] += "\n\nTask: find the bug"
    summary["_absorbed_message_uids"] = ["u1"]
    (item,) = from_messages([summary], HISTORY)
    assert isinstance(item, SummaryMessage)
    assert (item.uid, item.absorbed_uids, item.generation) == ("s1", ("u1", "u0"), 2)


def test_what_an_absorbed_message_had_absorbed_follows_it() -> None:
    """U14: a constituent's own list comes after its uid, also where an engine left it out."""
    other = UserMessage("u2", (Text("and fix it"),), absorbed_uids=("x", "y"))
    last = UserMessage("u3", (Text("soon"),))
    row = to_messages([USER])[0]
    row["content"] += "\n\nand fix it\n\nsoon"
    row["_absorbed_message_uids"] = ["u2", "u3"]
    (merged,) = from_messages([row], [USER, other, last])
    assert isinstance(merged, UserMessage)
    assert merged.absorbed_uids == ("u2", "x", "y", "u3", "u0")


def test_a_composite_under_its_anchor_s_uid_names_the_former_survivor() -> None:
    """U15: the anchor's own, then the survivor, then what that had absorbed."""
    scaffold = UserMessage("s", (Text("[context]"),), origin="injected", absorbed_uids=("b",))
    anchor = UserMessage("a", (Text("the task"),), absorbed_uids=("c",))
    row = to_messages([anchor])[0]
    row["content"] = "the task\n\n[context]"
    row["_absorbed_message_uids"] = ["c", "s", "b"]
    (merged,) = from_messages([row], [scaffold, anchor])
    assert isinstance(merged, UserMessage)
    assert (merged.uid, merged.origin) == ("a", "user")
    assert merged.absorbed_uids == ("c", "s", "b")


@pytest.mark.parametrize("keeps_uid", [True, False])
def test_a_message_never_names_itself_among_what_it_absorbed(keeps_uid: bool) -> None:
    row = to_messages([ANSWER])[0]
    row["_absorbed_message_uids"] = ["a1", "r9", "r9", "a1"]
    if not keeps_uid:
        del row["message_uid"]

    (item,) = from_messages([row], [ANSWER])
    assert isinstance(item, AssistantMessage)
    assert (item.uid, item.absorbed_uids) == ("a1", ("r9",))
    assert item.parts == ANSWER.parts


def test_answers_that_were_folded_into_one_name_what_they_were() -> None:
    """U14 and U26, for answers: a uid a call, in call order, shared ids included."""
    second = AssistantMessage(
        "a2", (Text("again"), ToolCall("call_1", "grep", "{}", "t2")), "", "", "tool_calls"
    )
    first = to_messages([ANSWER])[0]
    row = first | {
        "content": "looking again",
        "tool_calls": first["tool_calls"] + to_messages([second])[0]["tool_calls"],
        "_tool_call_uids": ["t1", "t2"],
        "_absorbed_message_uids": ["a2"],
    }
    (folded,) = from_messages([row], [ANSWER, second])
    assert isinstance(folded, AssistantMessage)
    assert [call.call_uid for call in folded.tool_calls] == ["t1", "t2"]
    assert folded.absorbed_uids == ("a2",)
    assert to_messages([folded])[0]["_tool_call_uids"] == ["t1", "t2"]


def test_what_an_engine_does_to_a_message_with_images_is_done_to_that_alone() -> None:
    """Text edited, an image taken out, another put in: the rest is byte for byte as it was."""
    gif = Image("image/gif", bytes(range(256)))
    item = UserMessage("u", (Text("before"), PNG, Text("between"), gif))
    (row,) = to_messages([item])
    row["content"][0]["text"] = "edited"
    (edited,) = from_messages([row], [item])
    assert edited == UserMessage("u", (Text("edited"), PNG, Text("between"), gif))

    del row["content"][1]
    (thinner,) = from_messages([row], [item])
    assert thinner == UserMessage("u", (Text("edited"), Text("between"), gif))

    row["content"] = [{"type": "text", "text": "[image]"}, row["content"][1]]
    (plain,) = from_messages([row], [item])
    assert isinstance(plain, UserMessage)
    assert plain.text == "[image]\nbetween"
    assert not any(isinstance(part, Image) for part in plain.parts)


def test_a_system_row_that_repeats_the_system_prompt_is_left_out() -> None:
    rows = [{"role": "system", "content": "be brief"}, *to_messages([USER])]
    assert from_messages(rows, HISTORY, system_prompt="be brief") == [USER]
    kept = from_messages(rows, HISTORY)
    assert [type(item) for item in kept] == [SystemNote, UserMessage]


def test_of_equal_rows_without_uids_the_newest_items_are_meant() -> None:
    history: list[Item] = [UserMessage(f"u{n}", (Text("ok"),)) for n in range(3)]
    rows = [{"role": "user", "content": "ok"}] * 2
    assert from_messages(rows, history) == history[1:]


def test_an_image_where_none_can_be_leaves_a_mark() -> None:
    messages = to_messages([ANSWER, RESULT])
    url = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}}
    messages[1]["content"] = [{"type": "text", "text": "a picture:"}, url]
    web = {"type": "image_url", "image_url": "https://example.com/a.png"}

    _, result, user = from_messages([*messages, {"role": "user", "content": [web, "x"]}], HISTORY)

    assert isinstance(result, ToolResult)
    assert result.summary + (result.content or "") == "a picture:\n[image]"
    assert isinstance(user, UserMessage)
    assert user.text == "[image: https://example.com/a.png]\nx"


BAD_CALL = {"role": "assistant", "tool_calls": [{"id": "c"}]}
BAD_PART = {"role": "user", "content": [{"type": "audio"}]}
ODD_URL = {"url": "data:\ud800;base64,QUJD"}
ODD_IMAGE = {"role": "user", "content": [{"type": "image_url", "image_url": ODD_URL}]}
BAD_IMAGE = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,x"}}]}


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ("no list", "a str was returned"),
        ([1], "row 0 is of the type int"),
        ([{"role": "wizard"}], "row 0 has the role 'wizard'"),
        ([{"role": ["user"]}], "row 0 has the role"),
        ([{"role": "user", "content": 7}], "content that is a int"),
        ([BAD_PART], "'audio'"),
        ([BAD_IMAGE], "data URL"),
        ([ODD_IMAGE], "data URL"),
        ([BAD_CALL], "without an id or a name"),
        ([{"role": "assistant", "tool_calls": {"id": 1}}], "tool_calls that are a dict"),
        ([{"role": "tool", "content": "x"}], "without a tool_call_id"),
        ([{"role": "tool", "tool_call_id": "c", "content": "x"}], "no call before it"),
        (to_messages([USER, USER]), "2 rows have the same message_uid u1"),
        (to_messages([USER, RESULT]), "message_uid r1"),
        (to_messages([ANSWER, USER, RESULT]), "message_uid r1"),
    ],
)
def test_what_cannot_be_a_history_is_refused_with_the_reason(rows: object, reason: str) -> None:
    with pytest.raises(BridgeError, match=reason):
        from_messages(rows, HISTORY)  # type: ignore[arg-type]  # engines return anything


def test_a_result_that_was_an_orphan_before_is_not_the_engine_s_doing() -> None:
    assert from_messages(to_messages([RESULT]), [RESULT]) == [RESULT]


@pytest.mark.parametrize("malformed", [7, "x", ["t", 3], {"call_1": None, 4: "t"}, {"call_1": ""}])
def test_malformed_identity_fields_count_as_absent(malformed: object) -> None:
    message = to_messages([ANSWER])[0] | {
        "content": "changed",
        "_tool_call_uids": malformed,
        "_absorbed_message_uids": malformed,
    }
    (item,) = from_messages([message], HISTORY)
    assert isinstance(item, AssistantMessage)
    assert item.tool_calls[0].call_uid in ("t1", "t")
    assert item.tool_calls[0].arguments == '{"q": 1'


@pytest.mark.parametrize("uid", ["\ud800", "u\udc00", "u" * 1_000, " ", 7, None])
def test_what_no_log_can_keep_as_it_is_is_no_identity(uid: object) -> None:
    """Two that differ in memory would be one after a restart."""
    named = {"message_uid": uid, "_absorbed_message_uids": [uid, "u1", uid]}
    calls = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    answer = {"role": "assistant", "tool_calls": calls, "_tool_call_uids": {"c": uid}}
    result = {"role": "tool", "tool_call_id": "c", "content": "r", "_tool_call_uid": uid}
    user, asked, told = from_messages(
        [{"role": "user", "content": "x"} | named, answer, result], [], mint=lambda: "minted"
    )
    assert isinstance(user, UserMessage)
    assert (user.uid, user.absorbed_uids) == ("minted", ("u1",))
    assert isinstance(asked, AssistantMessage)
    assert isinstance(told, ToolResult)
    assert asked.tool_calls[0].call_uid == told.call_uid == "minted"


def test_the_id_of_a_call_is_one_that_a_log_can_keep() -> None:
    calls = [{"id": "c\ud800", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    rows = [
        {"role": "assistant", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c\ud800", "content": "r"},
    ]
    asked, told = from_messages(rows, [])
    assert isinstance(asked, AssistantMessage)
    assert isinstance(told, ToolResult)
    assert asked.tool_calls[0].call_id == told.call_id == "c\ufffd"


# ------------------------------------------------------------------ selections


def test_a_selection_maps_to_the_items_given_and_to_transient_ones() -> None:
    rows = to_request_messages("be brief", HISTORY)
    chosen = [rows[0] | {"content": "be long"}, rows[2], {"role": "user", "content": "SELECTED"}]

    selection = from_selection(chosen, "be brief", HISTORY)

    assert selection.system == "be long"
    assert selection.items[0] is USER
    assert isinstance(selection.items[1], UserMessage)
    assert selection.items[1].text == "SELECTED"
    assert from_selection(chosen, "be brief", HISTORY) == selection


def test_a_selection_without_a_system_row_keeps_the_system_prompt() -> None:
    selection = from_selection([{"role": "user", "content": "x"}] * 2, "be brief", HISTORY)
    assert selection.system is None
    assert len({item.uid for item in selection.items}) == 2


def test_a_selection_may_use_rows_of_the_conversation_and_repeat_them() -> None:
    rows = to_messages([USER, USER])
    first, second = from_selection(rows, "", HISTORY).items
    assert first is USER
    assert isinstance(second, UserMessage)
    assert second.text == USER.text
    assert second.uid != USER.uid


@pytest.mark.parametrize("rows", [[], [{"role": "system", "content": "x"}], [3], None])
def test_a_selection_of_nothing_is_refused(rows: object) -> None:
    with pytest.raises(BridgeError):
        from_selection(rows, "x", HISTORY)  # type: ignore[arg-type]  # engines return anything
