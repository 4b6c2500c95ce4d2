"""Histories as Anthropic's Messages: what is sent of each item, and what every request keeps to."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire_rules import checker
from worker.items import (
    AssistantMessage,
    Image,
    Item,
    Reasoning,
    SummaryMessage,
    SystemNote,
    Text,
    ToolCall,
    ToolResult,
    UserMessage,
    new_uid,
    user_message,
)
from worker.items_json import dump_items, load_items
from worker.llm import LlmRequest, RequestOptions, ToolSpec
from worker.llm.schemes.anthropic.messages import GO_ON
from worker.llm.schemes.anthropic.scheme import AnthropicScheme
from worker.projection import repair
from worker.text import IMAGES_LABEL, NO_OUTPUT, SUMMARY_LABEL

PNG = b"\x89PNG\r\n\x1a\n" + b"pixels"
PIXEL = Image("image/png", PNG)
PIXEL_BLOCK = {
    "type": "image",
    "source": {
        "type": "base64",
        "media_type": "image/png",
        "data": base64.b64encode(PNG).decode(),
    },
}
MARK = {"type": "ephemeral"}
THINKS = RequestOptions(reasoning_effort="medium")
NEW, OLD = "claude-opus-5-5", "claude-sonnet-4-5"


def answer(*parts: Text | Reasoning | ToolCall, provider: str = "anthropic") -> AssistantMessage:
    return AssistantMessage(new_uid(), parts, provider, "m", "end")


def tool_call(call_id: str, arguments: str = '{"a":1}', name: str = "read") -> ToolCall:
    return ToolCall(call_id, name, arguments, new_uid())


def thought(signature: str | None, text: str = "Hm.", provider: str = "anthropic") -> Reasoning:
    return Reasoning(text, signature, provider=provider, model="m")


def result(
    call_id: str,
    summary: str = "done",
    content: str | None = None,
    *,
    is_error: bool = False,
    **more: Any,
) -> ToolResult:
    return ToolResult(new_uid(), call_id, new_uid(), summary, content, is_error, **more)


def body(
    *items: Item,
    system: str = "",
    tools: tuple[ToolSpec, ...] = (),
    options: RequestOptions | None = None,
    model: str = OLD,
) -> dict[str, Any]:
    request = LlmRequest(system, items, tools, options or RequestOptions())
    sent = json.loads(AnthropicScheme().encoder("anthropic", model).encode(request))
    assert isinstance(sent, dict)
    return sent


def without_marks(value: Any) -> Any:
    if isinstance(value, list):
        return [without_marks(one) for one in value]
    if isinstance(value, dict):
        return {key: without_marks(one) for key, one in value.items() if key != "cache_control"}
    return value


def messages(*items: Item, **more: Any) -> list[dict[str, Any]]:
    sent = without_marks(body(*items, **more)["messages"])
    assert isinstance(sent, list)
    return sent


def blocks(sent: dict[str, Any]) -> list[dict[str, Any]]:
    return [block for message in sent["messages"] for block in message["content"]]


def marked(sent: dict[str, Any]) -> list[dict[str, Any]]:
    found = [*sent.get("tools", []), *sent.get("system", []), *blocks(sent)]
    return [block for block in found if "cache_control" in block]


# --- the request --------------------------------------------------------------------------------


def test_a_plain_request_is_model_system_messages_and_options() -> None:
    assert body(user_message("Hi"), system="You help.") == {
        "model": OLD,
        "system": [{"type": "text", "text": "You help.", "cache_control": MARK}],
        "messages": [
            {
                "role": "user",
                "content": [{"type": "text", "text": "Hi", "cache_control": MARK}],
            }
        ],
        "max_tokens": 4096,
        "stream": True,
    }


def test_the_path_and_the_headers() -> None:
    scheme = AnthropicScheme()
    assert scheme.path("m") == "/v1/messages"
    assert scheme.headers("sk-1") == {
        "anthropic-version": "2023-06-01",
        "x-api-key": "sk-1",
        "anthropic-beta": "thinking-binding-controls-2026-08-01",
    }
    assert AnthropicScheme(binding_beta=False).headers(None) == {"anthropic-version": "2023-06-01"}


@pytest.mark.parametrize("system", ["", " \n", "\u200b"])
def test_a_blank_system_prompt_is_left_out(system: str) -> None:
    assert "system" not in body(user_message("Hi"), system=system)


def test_tools_are_sorted_by_name_and_the_last_one_is_marked() -> None:
    tools = (ToolSpec("b", "second", {"type": "object", "properties": {}}), ToolSpec("a", "", {}))
    assert body(user_message("Hi"), tools=tools)["tools"] == [
        {"name": "a", "input_schema": {"type": "object"}},
        {
            "name": "b",
            "description": "second",
            "input_schema": {"type": "object", "properties": {}},
            "cache_control": MARK,
        },
    ]
    assert "tools" not in body(user_message("Hi"))


def test_a_union_at_the_top_of_a_tools_schema_is_left_out() -> None:
    schema = {"type": "object", "properties": {"a": {"anyOf": []}}, "oneOf": [{"required": ["a"]}]}
    (sent,) = body(user_message("Hi"), tools=(ToolSpec("a", "", schema),))["tools"]
    assert sent["input_schema"] == {"type": "object", "properties": {"a": {"anyOf": []}}}


# --- items --------------------------------------------------------------------------------------


def test_calls_and_results_are_paired_by_id() -> None:
    sent = messages(
        user_message("Go"),
        answer(Text("Reading."), tool_call("c1", '{ "a" : 1.0 }')),
        result("c1", "read a", "line 1"),
    )
    assert sent == [
        {"role": "user", "content": [{"type": "text", "text": "Go"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Reading."},
                {"type": "tool_use", "id": "c1", "name": "read", "input": {"a": 1.0}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "read a\nline 1"},
            ],
        },
    ]


@pytest.mark.parametrize("arguments", ["", "{", "[1]", "null", "not json", '{"a":1}{"b":2}'])
def test_arguments_that_are_no_object_are_replayed_as_an_empty_one(arguments: str) -> None:
    # I10
    sent = messages(user_message("Go"), answer(tool_call("c1", arguments)), result("c1"))
    assert sent[1]["content"][0]["input"] == {}


def test_arguments_are_replayed_as_the_bytes_received() -> None:
    request = LlmRequest("", [user_message("Go"), answer(tool_call("c", '{"z":1,\n"a":1e2}'))])
    sent = AnthropicScheme().encoder("anthropic", OLD).encode(request)
    assert b'"input":{"z":1,\n"a":1e2}}' in sent


def test_a_key_that_stands_twice_in_arguments_is_sent_once() -> None:
    request = LlmRequest("", [answer(tool_call("c", '{"a":1, "in":{"b":"ä","b":2e3}}'))])
    sent = AnthropicScheme().encoder("anthropic", OLD).encode(request)
    assert b'"input":{"a":1,"in":{"b":2000.0}}}' in sent


def test_arguments_that_are_nested_too_deeply_are_replayed_as_an_empty_object() -> None:
    deep = '{"a":' * 5_000 + "1" + "}" * 5_000
    sent = messages(user_message("Go"), answer(tool_call("c1", deep)), result("c1"))
    assert sent[1]["content"][0]["input"] == {}


@pytest.mark.parametrize(
    ("summary", "content", "sent"),
    [
        ("read a", None, "read a"),
        ("read a", "line 1", "read a\nline 1"),
        ("", None, NO_OUTPUT),
        (" \n", "\u200b", NO_OUTPUT),
    ],
)
def test_a_result_is_its_summary_and_under_it_its_content(
    summary: str, content: str | None, sent: str
) -> None:
    given_result = result("c1", summary, content)
    (last,) = messages(user_message("Go"), answer(tool_call("c1")), given_result)[-1]["content"]
    assert last["content"] == sent


def test_an_error_says_so() -> None:
    sent = messages(user_message("Go"), answer(tool_call("c1")), result("c1", is_error=True))
    assert sent[-1]["content"] == [
        {"type": "tool_result", "tool_use_id": "c1", "content": "done", "is_error": True}
    ]


def test_images_of_a_result_are_inside_of_it() -> None:
    sent = messages(user_message("Go"), answer(tool_call("c1")), result("c1", attachments=(PIXEL,)))
    (block,) = sent[-1]["content"]
    assert block["content"] == [{"type": "text", "text": "done"}, PIXEL_BLOCK]


def test_images_of_an_error_follow_the_whole_group() -> None:
    # An error's content must be text alone.
    sent = messages(
        user_message("Go"),
        answer(tool_call("c1"), tool_call("c2")),
        result("c1", is_error=True, attachments=(PIXEL,)),
        result("c2"),
        user_message("And?"),
    )
    assert [block["type"] for block in sent[-1]["content"]] == [
        "tool_result",
        "tool_result",
        "text",
        "image",
        "text",
    ]
    assert sent[-1]["content"][0]["content"] == "done"
    assert sent[-1]["content"][2]["text"] == IMAGES_LABEL


def test_an_image_of_the_user_stands_where_it_was_put() -> None:
    (sent,) = messages(UserMessage(new_uid(), (PIXEL, Text("Look"))))
    assert sent["content"] == [PIXEL_BLOCK, {"type": "text", "text": "Look"}]


@pytest.mark.parametrize(
    ("said", "data", "sent"),
    [
        ("image/png", b"\xff\xd8\xff\xe0JFIF", "image/jpeg"),
        ("application/octet-stream", b"GIF89a..", "image/gif"),
        ("image/jpeg", b"RIFF\x10\x00\x00\x00WEBPVP8 ", "image/webp"),
        ("image/jpg", b"unknown", "image/jpeg"),
        ("IMAGE/PNG", b"unknown", "image/png"),
    ],
)
def test_an_image_is_of_the_type_that_its_bytes_are_of(said: str, data: bytes, sent: str) -> None:
    (message,) = messages(UserMessage(new_uid(), (Image(said, data),)))
    assert message["content"][0]["source"]["media_type"] == sent


@pytest.mark.parametrize(
    ("image", "why"),
    [
        (Image("image/svg+xml", b"<svg/>"), "image/svg+xml"),
        (Image("image/png", b""), "image/png"),
        (Image("image/png", PNG + b"\0" * (8 << 20)), "8,388,622 bytes"),
    ],
)
def test_words_stand_for_an_image_that_would_be_refused(image: Image, why: str) -> None:
    (message,) = messages(UserMessage(new_uid(), (Text("Look"), image)))
    left_out = message["content"][1]
    assert left_out["type"] == "text"
    assert why in left_out["text"]


def test_summaries_and_notes_are_labelled_blocks_of_the_user() -> None:
    # E04
    summary = SummaryMessage(new_uid(), "## Original Task\nBuild.", None, 1)
    (sent,) = messages(summary, SystemNote(new_uid(), "Disk is low.", "alert"))
    assert [block["text"] for block in sent["content"]] == [
        f"{SUMMARY_LABEL}\n\n## Original Task\nBuild.",
        "[note: alert]\nDisk is low.",
    ]


def test_a_lone_surrogate_is_replaced() -> None:
    # G09
    (sent,) = messages(user_message("a\ud800b"))
    assert sent["content"][0]["text"] == "a\ufffdb"


def test_nothing_of_ours_reaches_the_wire() -> None:
    item = attrs.evolve(user_message("Hi"), absorbed_uids=(new_uid(),))
    request = LlmRequest("S", [item, answer(tool_call("c1")), result("c1")])
    sent = AnthropicScheme().encoder("anthropic", OLD).encode(request).decode()
    assert not re.search(r'uids?"\s*:', sent)
    assert item.uid not in sent


# --- thinking -----------------------------------------------------------------------------------


def test_interleaved_thinking_comes_back_byte_for_byte_also_after_a_restart() -> None:
    # C02
    turn = answer(
        thought("S1+/=", "one\n"),
        Text("Let me look."),
        thought("S2", ""),
        tool_call("toolu_1"),
        thought("S3", "три \u2028"),
    )
    items: list[Item] = [user_message("Go"), turn, result("toolu_1")]
    restored = load_items(json.loads(json.dumps(dump_items(items))))
    for sent in (messages(*items, model=NEW), messages(*restored, model=NEW)):
        assert sent[1]["content"] == [
            {"type": "thinking", "thinking": "one\n", "signature": "S1+/="},
            {"type": "text", "text": "Let me look."},
            {"type": "thinking", "thinking": "", "signature": "S2"},
            {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"a": 1}},
            {"type": "thinking", "thinking": "три \u2028", "signature": "S3"},
        ]


def test_redacted_thinking_comes_back_as_it_was() -> None:
    redacted = Reasoning("", None, "ZW5j", "anthropic", "m")
    sent = messages(user_message("Go"), answer(redacted, Text("Hi")), model=NEW)
    assert sent[1]["content"][0] == {"type": "redacted_thinking", "data": "ZW5j"}


@pytest.mark.parametrize(
    "reasoning",
    [
        thought(None),
        thought(""),
        thought("S", provider="gemini"),
        Reasoning("", None, "blob", "openai_responses", "gpt"),
        thought("S", provider=""),
    ],
)
def test_reasoning_without_proof_or_of_another_provider_is_left_out(reasoning: Reasoning) -> None:
    # C10
    sent = messages(user_message("Go"), answer(reasoning, Text("Hi")), model=NEW)
    assert sent[1]["content"] == [{"type": "text", "text": "Hi"}]


def test_thinking_goes_to_no_request_that_turns_it_off() -> None:
    # Refused: "When thinking is disabled, an `assistant` message … cannot contain `thinking`".
    items = (user_message("Go"), answer(thought("S"), tool_call("c1")), result("c1"))
    for options, model in (
        (RequestOptions(), OLD),
        (RequestOptions(reasoning_effort="none"), "claude-haiku-5-5"),
        (RequestOptions(reasoning_effort="none"), "claude-sonnet-5-5"),
        (RequestOptions(reasoning_effort="none"), "glm-5"),
        (RequestOptions(refused_names=frozenset({"unasked thought"})), "glm-5"),
    ):
        assert "thinking" not in {
            block["type"] for block in blocks(body(*items, options=options, model=model))
        }
    assert blocks(body(*items, options=THINKS))[1]["type"] == "thinking"


def test_thinking_that_led_to_nothing_is_left_out() -> None:
    # Refused: "The final block in an assistant message cannot be `thinking`".
    sent = messages(
        user_message("Go"),
        answer(thought("S1"), Text("Hi"), thought("S2")),
        user_message("And?"),
        answer(thought("S3"), Text(" ")),
        model=NEW,
    )
    assert [block["type"] for block in sent[1]["content"]] == ["thinking", "text"]
    assert len(sent) == 3


def test_text_behind_a_call_moves_before_it_where_nothing_was_thought() -> None:
    sent = messages(
        user_message("Go"),
        answer(tool_call("c1"), Text("So."), tool_call("c2"), provider="openai"),
        result("c1"),
        result("c2"),
    )
    assert [block.get("id", "text") for block in sent[1]["content"]] == ["text", "c1", "c2"]


@pytest.mark.parametrize(
    ("items", "is_asked"),
    [
        ([user_message("Go")], True),
        ([user_message("Go"), answer(Text("Hi")), user_message("On")], True),
        ([user_message("Go"), answer(tool_call("c")), result("c"), answer(Text("Hi"))], True),
        ([user_message("Go"), answer(thought("S"), tool_call("c")), result("c")], True),
        ([user_message("Go"), answer(tool_call("c")), result("c")], False),
        ([user_message("Go"), answer(Text("Hm"), tool_call("c")), result("c")], False),
        (
            [user_message("Go"), answer(thought("S", provider="x"), tool_call("c")), result("c")],
            False,
        ),
        (
            # Without interleaving, only the first answer of a turn begins with thought.
            [
                *(user_message("Go"), answer(thought("S"), tool_call("c")), result("c")),
                *(answer(tool_call("d")), result("d")),
            ],
            True,
        ),
        (
            [
                *(user_message("Go"), answer(thought("S"), tool_call("c")), result("c")),
                *(user_message("Wait"), answer(tool_call("d")), result("d")),
            ],
            False,
        ),
        ([user_message("Go"), answer(tool_call("c")), result("c"), user_message("Wait")], False),
    ],
)
def test_a_budget_is_given_only_where_the_turn_begins_with_thinking(
    items: list[Item], is_asked: bool
) -> None:
    # Refused: "a final `assistant` message must start with a thinking block".
    sent = body(*items, options=THINKS)
    assert ("thinking" in sent) is is_asked
    if not is_asked:
        assert "thinking" not in {block["type"] for block in blocks(sent)}


def test_adaptive_thinking_does_not_mind_what_a_turn_begins_with() -> None:
    items = (user_message("Go"), answer(tool_call("c"), provider="openai"), result("c"))
    assert body(*items, options=THINKS, model=NEW)["thinking"]["type"] == "adaptive"


# --- roles --------------------------------------------------------------------------------------


def roles(sent: Sequence[dict[str, Any]]) -> list[str]:
    return [message["role"] for message in sent]


def test_what_the_user_says_in_a_row_is_one_message() -> None:
    # B04
    (sent,) = messages(user_message("one"), user_message("two"))
    assert [block["text"] for block in sent["content"]] == ["one", "two"]


def test_results_come_first_in_their_message() -> None:
    sent = messages(
        user_message("Go"),
        answer(tool_call("c1"), tool_call("c2")),
        result("c1"),
        result("c2"),
        user_message("Wait"),
    )
    kinds = [block["type"] for block in sent[-1]["content"]]
    assert kinds == ["tool_result", "tool_result", "text"]


def test_the_user_speaks_first_last_and_between_answers() -> None:
    sent = messages(answer(Text("one")), answer(Text("two ")))
    assert roles(sent) == ["user", "assistant", "user", "assistant", "user"]
    assert {message["content"][0]["text"] for message in sent[::2]} == {GO_ON}
    assert roles(messages()) == ["user"]


@pytest.mark.parametrize("parts", [(), (Text(""),), (Text(" \n"),), (Reasoning("only thoughts"),)])
def test_an_answer_that_says_nothing_is_not_sent(parts: tuple[Text | Reasoning, ...]) -> None:
    # B02, B09
    assert roles(messages(user_message("Hi"), answer(*parts), user_message("Ho"))) == ["user"]


def test_a_call_beside_an_empty_text_is_the_only_block() -> None:
    # B02
    sent = messages(user_message("Go"), answer(Text(""), tool_call("c1")), result("c1"))
    assert [block["type"] for block in sent[1]["content"]] == ["tool_use"]


# --- ids ----------------------------------------------------------------------------------------


def ids_of(sent: Sequence[dict[str, Any]]) -> tuple[list[str], list[str]]:
    found = [block for message in sent for block in message["content"]]
    return (
        [block["id"] for block in found if block["type"] == "tool_use"],
        [block["tool_use_id"] for block in found if block["type"] == "tool_result"],
    )


def test_foreign_ids_are_made_allowed_and_stay_apart() -> None:
    names = ["call|fc:1", "call.fc.1", "call_fc_1", "", "ä" * 100, "x" * 100, "toolu_1", "a\ud800"]
    sent = messages(
        user_message("Go"), answer(*map(tool_call, names)), *(result(name) for name in names)
    )
    of_calls, of_results = ids_of(sent)
    assert of_calls == of_results
    assert len(set(of_calls)) == len(names)
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", one) for one in of_calls)
    assert "toolu_1" in of_calls


def test_an_id_that_two_answers_use_is_two_ids() -> None:
    # A07; refused: "`tool_use` ids must be unique".
    turns = [
        item
        for number in range(3)
        for item in (
            user_message("Go"),
            answer(tool_call("call_0"), tool_call("call_0_2")),
            result("call_0", f"first {number}"),
            result("call_0_2", f"second {number}"),
        )
    ]
    sent = messages(*turns)
    of_calls, of_results = ids_of(sent)
    assert of_calls == of_results
    assert len(set(of_calls)) == 6
    assert of_calls[:2] == ["call_0", "call_0_2"]


def test_many_calls_of_one_id_take_no_longer_than_others() -> None:
    count = 3_000
    turns = [item for _ in range(count) for item in (answer(tool_call("call_0")), result("call_0"))]
    of_calls, of_results = ids_of(messages(*turns))
    assert of_calls == of_results
    assert len(set(of_calls)) == count


def test_names_that_were_never_tools_are_made_allowed() -> None:
    names = ["server.tool", "", "ä b", "x" * 100]
    calls = [tool_call(f"c{number}", name=name) for number, name in enumerate(names)]
    results = [result(call.call_id) for call in calls]
    sent = messages(user_message("Go"), answer(*calls), *results)
    assert [block["name"] for block in sent[1]["content"]] == [
        "server_tool",
        "unnamed",
        "__b",
        "x" * 64,
    ]


# --- cache marks --------------------------------------------------------------------------------


def test_marks_are_behind_tools_system_the_last_request_and_this_one() -> None:
    sent = body(
        user_message("one"),
        answer(*(tool_call(f"c{number}") for number in range(30))),
        *(result(f"c{number}") for number in range(30)),
        system="S",
        tools=(ToolSpec("read", "", {}),),
    )
    tool, system, asked, last = marked(sent)
    assert (tool["name"], system["text"]) == ("read", "S")
    assert asked["text"] == "one"
    assert last["tool_use_id"] == "c29"


def test_a_first_request_has_one_mark_in_its_messages() -> None:
    assert len(marked(body(user_message("one"), user_message("two")))) == 1


def test_the_mark_of_a_request_stands_where_the_one_before_had_its_last() -> None:
    items: list[Item] = [user_message("Go")]
    before: dict[str, Any] = {}
    for number in range(4):
        sent = body(*items)
        if before:
            assert without_marks(marked(sent)[-2]) == before
        before = without_marks(marked(sent)[-1])
        items += [
            answer(tool_call(f"c{number}")),
            result(f"c{number}", f"result {number}", is_error=True, attachments=(PIXEL,)),
        ]


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
    encoder = AnthropicScheme().encoder("anthropic", OLD)
    encoder.encode(LlmRequest("S", items))
    assert encoder.encoded_items == 10_000

    encoder.encode(LlmRequest("T", [*items, user_message("one more")]))
    assert encoder.encoded_items == 10_001


# --- what every request keeps to ----------------------------------------------------------------


def check(sent: dict[str, Any]) -> None:
    """The rules of the API, as far as a body alone shows them."""
    assert roles(sent["messages"]) == ["user", "assistant"] * (len(sent["messages"]) // 2) + [
        "user"
    ]
    assert len(marked(sent)) <= 4
    all_ids: list[str] = []
    open_ids: list[str] = []
    for message in sent["messages"]:
        content = message["content"]
        assert content
        given_ids = [b["tool_use_id"] for b in content if b["type"] == "tool_result"]
        assert given_ids == open_ids
        assert all(block["type"] == "tool_result" for block in content[: len(given_ids)])
        open_ids = [block["id"] for block in content if block["type"] == "tool_use"]
        all_ids += open_ids
        for block in content:
            check_block(block)
        if message["role"] == "assistant" and not open_ids:
            assert content[-1]["type"] == "text"
    assert len(set(all_ids)) == len(all_ids)


def check_block(block: dict[str, Any]) -> None:
    match block["type"]:
        case "text":
            assert block["text"].strip()
        case "thinking":
            assert block["signature"]
            assert "cache_control" not in block
        case "redacted_thinking":
            assert block["data"]
            assert "cache_control" not in block
        case "tool_use":
            assert re.fullmatch(r"[a-zA-Z0-9_-]+", block["id"])
            assert isinstance(block["input"], dict)
        case "tool_result":
            assert block["content"]
            assert isinstance(block["content"], str) or not block.get("is_error")
        case _:
            assert block["type"] == "image"


_words = st.sampled_from(["", " ", "\n", "\u200b", "hello", "a\ud800", "ü "])
_call_ids = st.sampled_from(["a", "b", "call.1", "call_1", "", "c|d"])
_reasoning = st.builds(
    Reasoning,
    _words,
    st.sampled_from([None, "", "S"]),
    st.sampled_from([None, "B"]),
    st.sampled_from(["anthropic", "openai"]),
    st.just("m"),
)
_images = st.sampled_from([PIXEL, Image("image/bmp", b"BM"), Image("image/png", b"")])
_texts = st.builds(Text, _words)
_calls = st.builds(
    ToolCall,
    _call_ids,
    st.sampled_from(["read", "", "a.b"]),
    st.sampled_from(["", "{}", '{"x":1}', "[", "null"]),
    st.builds(new_uid),
)
_items: st.SearchStrategy[Item] = st.one_of(
    st.builds(
        UserMessage,
        st.builds(new_uid),
        st.lists(_texts | _images, max_size=3).map(tuple),
    ),
    st.builds(
        AssistantMessage,
        st.builds(new_uid),
        st.lists(_texts | _reasoning | _calls, max_size=4).map(tuple),
        st.just("anthropic"),
        st.just("m"),
        st.just("end"),
    ),
    st.builds(
        ToolResult,
        st.builds(new_uid),
        _call_ids,
        st.builds(new_uid),
        _words,
        st.none() | _words,
        st.booleans(),
        st.lists(_images, max_size=1).map(tuple),
    ),
    st.builds(SummaryMessage, st.builds(new_uid), _words, st.none(), st.just(1)),
    st.builds(SystemNote, st.builds(new_uid), _words, st.just("note")),
)
_options = st.sampled_from([RequestOptions(), THINKS, RequestOptions(reasoning_effort="none")])
_models = st.sampled_from([OLD, NEW, "claude-haiku-5-5", "claude-opus-4-6", "glm-5"])


@given(st.lists(_items, max_size=14), _options, _models)
def test_any_history_is_a_valid_request(
    items: list[Item], options: RequestOptions, model: str
) -> None:
    scheme = AnthropicScheme()
    request = LlmRequest("S", repair(items), (), options)
    data = scheme.encoder("anthropic", model).encode(request)
    headers = {**scheme.headers("key"), "content-type": "application/json"}
    checker.check(scheme.path(model), data, headers)
    sent = json.loads(data)
    check(sent)
    if "thinking" not in sent:
        assert "thinking" not in {block["type"] for block in blocks(sent)}


@given(st.lists(_items, max_size=14), st.integers(0, 14), _options, st.sampled_from([OLD, NEW]))
def test_a_request_begins_with_the_one_before(
    items: list[Item], cut: int, options: RequestOptions, model: str
) -> None:
    # What is repaired once stays: a group of results that is still open is not yet sent.
    before, after = repair(items[:cut]), repair(items)
    if after[: len(before)] != before:
        return

    encoder = AnthropicScheme().encoder("anthropic", model)
    first = encoder.encode(LlmRequest("S", before, (), options))
    second = encoder.encode(LlmRequest("S", after, (), options))

    # Reused bytes or not, the body is the same.
    fresh = AnthropicScheme().encoder("anthropic", model)
    assert second == fresh.encode(LlmRequest("S", after, (), options))
    one, two = json.loads(first), json.loads(second)
    if one.get("thinking") == two.get("thinking"):
        begin = [(m["role"], b) for m in without_marks(one["messages"]) for b in m["content"]]
        whole = [(m["role"], b) for m in without_marks(two["messages"]) for b in m["content"]]
        if before and not isinstance(before[-1], AssistantMessage):
            assert whole[: len(begin)] == begin
