from __future__ import annotations

import json
import re
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.worker.llm.chat_requests import (
    MODEL,
    PIXEL,
    TOOL,
    answer,
    body,
    messages,
    result,
    tool_call,
)
from worker.items import (
    Image,
    Item,
    Reasoning,
    SummaryMessage,
    SystemNote,
    Text,
    ToolResult,
    UserMessage,
    new_uid,
    user_message,
)
from worker.llm import ChatQuirks, LlmRequest, OpenAiChatScheme, RequestOptions, ToolSpec
from worker.llm.schemes.chat.joiner import BRIDGE, GO_ON
from worker.llm.schemes.chat.scheme import COMPATIBLE, LLAMA_SERVER, OPENAI
from worker.text import IMAGES_LABEL, NO_OUTPUT, SUMMARY_LABEL

PIXEL_URL = "data:image/png;base64,iVBORw=="


# --- the request --------------------------------------------------------------------------------


def test_a_plain_request_is_model_messages_and_streaming() -> None:
    assert body(user_message("Hi"), system="You help.") == {
        "model": "the-model",
        "messages": [
            {"role": "system", "content": "You help."},
            {"role": "user", "content": "Hi"},
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_the_path_and_the_key_header() -> None:
    scheme = OpenAiChatScheme()
    assert scheme.path("m") == "/chat/completions"
    assert scheme.headers("sk-1") == {"Authorization": "Bearer sk-1"}
    assert scheme.headers(None) == {}


def test_options_are_sent_as_they_are_called() -> None:
    options = RequestOptions(
        max_tokens=77,
        temperature=0.25,
        reasoning_effort="low",
        response_schema={"type": "object"},
        grammar="root ::= [a-z]",
    )
    sent = body(user_message("Hi"), options=options)
    assert (sent["max_tokens"], sent["temperature"], sent["reasoning_effort"]) == (77, 0.25, "low")
    assert sent["response_format"]["type"] == "json_schema"
    assert sent["response_format"]["json_schema"]["schema"] == {"type": "object"}
    assert "grammar" not in sent

    sent = body(user_message("Hi"), options=options, quirks=OPENAI)
    assert sent["max_completion_tokens"] == 77
    assert "max_tokens" not in sent

    sent = body(user_message("Hi"), options=options, quirks=LLAMA_SERVER)
    assert sent["grammar"]
    assert sent["response_format"]


def test_a_server_that_holds_every_answer_to_a_form_gets_none_beside_tools() -> None:
    options = RequestOptions(response_schema={"type": "object"}, grammar="root ::= [a-z]")
    sent = body(user_message("Hi"), options=options, quirks=LLAMA_SERVER, tools=(TOOL,))
    assert not {"grammar", "response_format", "repeat_penalty"} & sent.keys()
    sent = body(user_message("Hi"), options=options, quirks=COMPATIBLE, tools=(TOOL,))
    assert sent["response_format"]


def test_what_a_server_does_not_understand_is_not_sent() -> None:
    quirks = ChatQuirks(
        include_usage=False,
        send_temperature=False,
        effort_form="none",
        send_response_format=False,
    )
    options = RequestOptions(temperature=0.0, reasoning_effort="low", response_schema={})
    assert set(body(user_message("Hi"), options=options, quirks=quirks)) == {
        "model",
        "messages",
        "stream",
    }


@pytest.mark.parametrize(
    ("refused", "sent"),
    [
        ({"max_tokens"}, {"max_completion_tokens": 7}),
        ({"max_completion_tokens"}, {"max_tokens": 7}),
        ({"max_tokens", "max_completion_tokens"}, {}),
    ],
)
@pytest.mark.parametrize("quirks", [ChatQuirks(), OPENAI])
def test_what_a_server_refused_has_another_name_or_is_left_out(
    quirks: ChatQuirks, refused: set[str], sent: dict[str, int]
) -> None:
    options = RequestOptions(max_tokens=7, refused_names=frozenset(refused | {"stream_options"}))
    told = body(user_message("Hi"), options=options, quirks=quirks)
    assert told == {"model": MODEL, "messages": told["messages"], "stream": True, **sent}


def test_tools_are_sorted_by_name_and_left_out_where_there_are_none() -> None:
    tools = (ToolSpec("b", "second", {"type": "object"}), ToolSpec("a", "first", {}))
    sent = body(user_message("Hi"), tools=tools)["tools"]
    assert [tool["function"]["name"] for tool in sent] == ["a", "b"]
    assert sent[1] == {
        "type": "function",
        "function": {"name": "b", "description": "second", "parameters": {"type": "object"}},
    }
    assert "tools" not in body(user_message("Hi"))


# --- items --------------------------------------------------------------------------------------


def test_an_image_makes_the_content_a_list_of_blocks() -> None:
    (sent,) = messages(UserMessage(new_uid(), (Text("Look"), PIXEL)))
    assert sent["content"] == [
        {"type": "text", "text": "Look"},
        {"type": "image_url", "image_url": {"url": PIXEL_URL}},
    ]


@pytest.mark.parametrize("image", [Image("image/bmp", b"BM"), Image("image/png", b"")])
def test_an_image_that_no_model_reads_is_told_of(image: Image) -> None:
    (sent,) = messages(UserMessage(new_uid(), (Text("Look"), image)))
    assert sent["content"][1]["type"] == "text"
    assert "left out" in sent["content"][1]["text"]


def test_an_image_is_sent_as_what_it_is() -> None:
    (sent,) = messages(UserMessage(new_uid(), (Image("image/png", b"\xff\xd8\xff\xe0"),)))
    assert sent["content"][0]["image_url"]["url"].startswith("data:image/jpeg;base64,")


def test_calls_and_results_are_paired_by_id() -> None:
    sent = messages(answer(Text("Reading."), tool_call("c1")), result("c1", "read a", "line 1"))
    assert sent == [
        {
            "role": "assistant",
            "content": "Reading.",
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "read", "arguments": '{"a":1}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "read a\nline 1"},
    ]


def test_b08_an_assistant_that_only_calls_has_no_empty_text() -> None:
    (sent,) = messages(answer(tool_call("c1")))
    assert sent["content"] is None


@pytest.mark.parametrize("arguments", ["", "{", "[1]", "null", "not json", '{"a":1}{"b":2}'])
def test_i10_arguments_that_are_no_object_are_replayed_as_an_empty_one(arguments: str) -> None:
    (sent,) = messages(answer(tool_call("c1", arguments)))
    assert sent["tool_calls"][0]["function"]["arguments"] == "{}"


def test_arguments_that_are_an_object_are_replayed_as_received() -> None:
    (sent,) = messages(answer(tool_call("c1", '{ "a" : 1.0 }')))
    assert sent["tool_calls"][0]["function"]["arguments"] == '{ "a" : 1.0 }'


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        ('{"a":1,"a":2.50}', '{"a":2.5}'),
        ('{"b":{"a":1,"a":"ü"}}', '{"b":{"a":"ü"}}'),
        ('{"a":' * 900 + "1" + "}" * 900, None),
    ],
)
def test_arguments_with_a_key_twice_are_sent_with_the_last(arguments: str, sent: str) -> None:
    (message,) = messages(answer(tool_call("c1", arguments)))
    told = message["tool_calls"][0]["function"]["arguments"]
    assert told == sent if sent else told in ("{}", arguments)


def test_reasoning_is_not_sent_back() -> None:
    sent = messages(answer(Reasoning("secret thoughts", signature="S1"), Text("Hi")))
    assert sent == [{"role": "assistant", "content": "Hi"}]


@pytest.mark.parametrize("parts", [(), (Text(""),), (Text(" \n"),), (Reasoning("only thoughts"),)])
def test_b09_an_answer_that_says_nothing_is_not_sent(parts: tuple[Text | Reasoning, ...]) -> None:
    assert messages(user_message("Hi"), answer(*parts)) == [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize(
    ("summary", "content", "sent"),
    [
        ("read a", None, "read a"),
        ("read a", "", "read a"),
        ("read a", "line 1", "read a\nline 1"),
        ("", "line 1", "line 1"),
        ("", None, NO_OUTPUT),
        (" \n", "\u200b", NO_OUTPUT),
    ],
)
def test_a_result_is_its_summary_and_under_it_its_content(
    summary: str, content: str | None, sent: str
) -> None:
    assert messages(result("c1", summary, content))[0]["content"] == sent


def test_images_of_results_follow_the_whole_group() -> None:
    sent = messages(
        answer(tool_call("c1"), tool_call("c2")),
        result("c1", attachments=(PIXEL,)),
        result("c2"),
        user_message("And?"),
    )
    assert [message["role"] for message in sent] == ["assistant", "tool", "tool", "user", "user"]
    assert sent[3]["content"] == [
        {"type": "text", "text": IMAGES_LABEL},
        {"type": "image_url", "image_url": {"url": PIXEL_URL}},
    ]


def test_images_of_results_at_the_end_follow_too() -> None:
    sent = messages(answer(tool_call("c1")), result("c1", attachments=(PIXEL,)))
    assert [message["role"] for message in sent] == ["assistant", "tool", "user"]


def test_summaries_and_notes_are_labelled_user_messages() -> None:
    summary = SummaryMessage(new_uid(), "## Original Task\nBuild.", None, 1)
    assert messages(summary, SystemNote(new_uid(), "Disk is low.", "alert")) == [
        {"role": "user", "content": f"{SUMMARY_LABEL}\n\n## Original Task\nBuild."},
        {"role": "user", "content": "[note: alert]\nDisk is low."},
    ]


def test_e04_a_summary_is_sent_once() -> None:
    summary = SummaryMessage(new_uid(), "Built half.", None, 1)
    sent = json.dumps(messages(summary, user_message("Go on."), answer(Text("Done."))))
    assert sent.count("Built half.") == 1


@pytest.mark.parametrize(
    ("name", "sent"), [("a.b c", "a_b_c"), ("x" * 70, "x" * 64), ("", "unnamed"), ("ok-1", "ok-1")]
)
def test_a_tool_is_called_by_a_name_that_servers_take(name: str, sent: str) -> None:
    (message,) = messages(answer(tool_call("c1", name=name)))
    assert message["tool_calls"][0]["function"]["name"] == sent


def test_user_messages_in_a_row_stay_apart() -> None:
    assert len(messages(user_message("one"), user_message("two"))) == 2


def test_b04_strict_alternation_joins_them_with_a_blank_line() -> None:
    quirks = ChatQuirks(strict_alternation=True)
    sent = messages(
        user_message("one"),
        user_message("two"),
        answer(Text("three")),
        answer(Text("four"), tool_call("c1")),
        result("c1"),
        answer(Text("five")),
        user_message("six"),
        UserMessage(new_uid(), (PIXEL,)),
        quirks=quirks,
    )
    assert [message["role"] for message in sent] == [
        *("user", "assistant", "tool", "assistant", "user"),
    ]
    assert sent[0]["content"] == "one\n\ntwo"
    assert sent[1]["content"] == "three\n\nfour"
    assert sent[1]["tool_calls"][0]["id"] == "c1"
    assert [block["type"] for block in sent[4]["content"]] == ["text", "image_url"]


def test_b04_answers_in_a_row_are_one_also_where_both_call() -> None:
    strict = ChatQuirks(strict_alternation=True)
    told = (answer(tool_call("c1")), answer(Text("Hm"), tool_call("c2")), result("c2"))
    sent = messages(user_message("Hi"), *told, quirks=strict)
    assert [message["role"] for message in sent] == ["user", "assistant", "tool"]
    assert [call["id"] for call in sent[1]["tool_calls"]] == ["c1", "c2"]


def test_b04_a_summary_and_the_task_after_it_are_one_message_where_roles_alternate() -> None:
    summary = SummaryMessage(new_uid(), "Built half.", None, 1)
    strict = ChatQuirks(strict_alternation=True)
    sent = body(summary, user_message("Go on."), system="You help.", quirks=strict)["messages"]
    assert [message["role"] for message in sent] == ["system", "user"]
    assert sent[1]["content"] == f"{SUMMARY_LABEL}\n\nBuilt half.\n\nGo on."


def test_b04_where_roles_alternate_the_user_begins_and_ends() -> None:
    sent = messages(answer(Text("Hi")), quirks=ChatQuirks(strict_alternation=True))
    assert sent == [
        {"role": "user", "content": GO_ON},
        {"role": "assistant", "content": "Hi"},
        {"role": "user", "content": GO_ON},
    ]


@pytest.mark.parametrize(
    "quirks", [ChatQuirks(bridge_after_tools=True), ChatQuirks(strict_alternation=True)]
)
def test_b07_where_a_user_may_not_follow_a_tool_the_assistant_stands_between(
    quirks: ChatQuirks,
) -> None:
    sent = messages(
        user_message("Look"),
        answer(tool_call("c1"), tool_call("c2")),
        result("c1", attachments=(PIXEL,)),
        result("c2"),
        user_message("And?"),
        quirks=quirks,
    )
    roles = [message["role"] for message in sent]
    assert roles[:6] == ["user", "assistant", "tool", "tool", "assistant", "user"]
    assert sent[4]["content"] == BRIDGE

    # The images alone stand behind the bridge as well, and another server needs none.
    told = (answer(tool_call("c1")), result("c1", attachments=(PIXEL,)))
    assert [each["role"] for each in messages(*told, quirks=quirks)][-3:] == [
        *("tool", "assistant", "user"),
    ]
    assert [each["role"] for each in messages(*told)] == ["assistant", "tool", "user"]


def test_nothing_of_ours_reaches_the_wire() -> None:
    item = attrs.evolve(user_message("Hi"), absorbed_uids=(new_uid(),))
    request = LlmRequest("S", [item, answer(tool_call("c1")), result("c1")])
    sent = OpenAiChatScheme().encode(request, "m").decode()
    assert not re.search(r'uids?"\s*:', sent)
    assert item.uid not in sent


def test_a_lone_surrogate_is_replaced() -> None:
    assert messages(user_message("a\ud800b"))[0]["content"] == "a\ufffdb"


# --- continuing the request before --------------------------------------------------------------


def history(size: int) -> list[Item]:
    items: list[Item] = []
    for number in range(size // 4):
        call_id = f"call_{number}"
        items += [
            user_message(f"question {number} 你好"),
            answer(tool_call(call_id)),
            result(call_id, "read", "text " * 20),
            answer(Text(f"answer {number}")),
        ]
    return items


def test_a_long_history_and_one_new_item_encodes_one_item() -> None:
    items = history(10_000)
    encoder = OpenAiChatScheme().encoder("p", "m")
    encoder.encode(LlmRequest("S", items))
    assert encoder.encoded_items == 10_000

    encoder.encode(LlmRequest("S", [*items, user_message("one more")]))
    assert encoder.encoded_items == 10_001


def test_equal_copies_and_items_behind_a_change_are_not_encoded_again() -> None:
    items = history(40)
    encoder = OpenAiChatScheme().encoder("p", "m")
    encoder.encode(LlmRequest("S", items))

    pruned = [attrs.evolve(i, content=None) if isinstance(i, ToolResult) else i for i in items]
    encoder.encode(LlmRequest("S", pruned))
    assert encoder.encoded_items == 40 + 10

    copies = [attrs.evolve(item) for item in pruned]
    encoder.encode(LlmRequest("S", copies))
    assert encoder.encoded_items == 40 + 10


def test_only_the_last_request_is_held() -> None:
    items = history(40)
    encoder = OpenAiChatScheme().encoder("p", "m")
    encoder.encode(LlmRequest("S", items))
    encoder.encode(LlmRequest("S", items[-4:]))
    encoder.encode(LlmRequest("S", items))
    assert encoder.encoded_items == 40 + 36


def test_another_system_prompt_keeps_the_items() -> None:
    items = history(8)
    encoder = OpenAiChatScheme().encoder("p", "m")
    encoder.encode(LlmRequest("one", items))
    sent = json.loads(encoder.encode(LlmRequest("two", items)))
    assert sent["messages"][0]["content"] == "two"
    assert encoder.encoded_items == 8


_groups = st.sampled_from(
    [
        lambda n: [user_message(f"u{n}")],
        lambda n: [answer(Text(f"a{n}"))],
        lambda n: [answer(tool_call(f"c{n}")), result(f"c{n}", attachments=(PIXEL,))],
        lambda n: [
            answer(tool_call(f"c{n}"), tool_call(f"d{n}")),
            result(f"c{n}"),
            result(f"d{n}"),
        ],
        lambda _: [answer()],
        lambda n: [SystemNote(new_uid(), f"n{n}", "note")],
    ]
)


@given(st.lists(_groups, max_size=12), st.integers(0, 12), st.booleans())
def test_messages_of_a_request_begin_with_those_of_the_one_before(
    makers: list[Any], cut: int, strict: bool
) -> None:
    groups = [make(number) for number, make in enumerate(makers)]
    before = [item for group in groups[:cut] for item in group]
    after = [item for group in groups for item in group]
    scheme = OpenAiChatScheme(ChatQuirks(strict_alternation=strict))
    encoder = scheme.encoder("p", "m")
    first = encoder.encode(LlmRequest("S", before))
    second = encoder.encode(LlmRequest("S", after))

    # Reused bytes or not, the body is the same.
    assert second == scheme.encode(LlmRequest("S", after), "m")
    if not strict:
        start = first[: first.rindex(b'],"stream"')]
        assert second.startswith(start)
