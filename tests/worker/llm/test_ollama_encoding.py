"""Requests to Ollama's native chat."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire_rules.checker import check
from tests.worker.histories import histories
from tests.worker.llm.chat_requests import PIXEL, TOOL, answer, result, tool_call
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
from worker.llm import LlmRequest, RequestOptions, ToolSpec
from worker.llm.schemes.ollama.scheme import OllamaEncoder, OllamaScheme
from worker.projection import repair
from worker.text import IMAGES_LABEL, NO_OUTPUT, SUMMARY_LABEL

PIXEL_DATA = "iVBORw=="


def encoder(context_window: int | None = None) -> OllamaEncoder:
    return OllamaScheme(context_window).encoder("ollama", "qwen3")


def body(
    *items: Item,
    system: str = "",
    tools: tuple[ToolSpec, ...] = (),
    options: RequestOptions | None = None,
    context_window: int | None = None,
) -> dict[str, Any]:
    request = LlmRequest(system, items, tools, options or RequestOptions())
    sent = json.loads(encoder(context_window).encode(request))
    assert isinstance(sent, dict)
    return sent


def messages(*items: Item) -> list[dict[str, Any]]:
    sent = body(*items)["messages"]
    assert isinstance(sent, list)
    return sent


def thought(text: str, provider: str = "ollama", model: str = "qwen3") -> Reasoning:
    return Reasoning(text, provider=provider, model=model)


# --- the request ------------------------------------------------------------------------------


def test_a_plain_request_forbids_the_server_to_leave_anything_out() -> None:
    assert body(user_message("Hi"), system="You help.") == {
        "model": "qwen3",
        "messages": [
            {"role": "system", "content": "You help."},
            {"role": "user", "content": "Hi"},
        ],
        "stream": True,
        "truncate": False,
        "shift": False,
    }


def test_the_window_is_asked_for() -> None:
    assert body(user_message("Hi"), context_window=65_536)["options"] == {"num_ctx": 65_536}


def test_the_path_the_framing_and_the_key() -> None:
    scheme = OllamaScheme()
    assert (scheme.path("m"), scheme.framing, scheme.is_unversioned) == (
        "/api/chat",
        "ndjson",
        True,
    )
    assert scheme.headers(None) == {}
    assert scheme.headers("sk-1") == {"Authorization": "Bearer sk-1"}


def test_options_are_sent_as_they_are_called() -> None:
    options = RequestOptions(
        max_tokens=77,
        temperature=0.25,
        response_schema={"type": "object"},
        grammar="root ::= [a-z]",
        cache_key="conversation",
    )
    sent = body(user_message("Hi"), options=options)
    assert sent["options"] == {"num_predict": 77, "temperature": 0.25}
    assert sent["format"] == {"type": "object"}
    assert set(sent) == {
        *("model", "messages", "stream", "truncate", "shift", "options", "format"),
    }


@pytest.mark.parametrize(
    ("effort", "think"),
    [
        ("none", False),
        ("minimal", "low"),
        ("low", "low"),
        ("medium", "medium"),
        ("high", "high"),
        ("xhigh", "high"),
        ("max", "max"),
    ],
)
def test_a_reasoning_effort_is_thinking(effort: str, think: object) -> None:
    sent = body(user_message("Hi"), options=RequestOptions(reasoning_effort=effort))
    assert sent["think"] is think or sent["think"] == think
    assert "think" not in body(user_message("Hi"))


def test_tools_are_sorted_by_name_and_left_out_where_there_are_none() -> None:
    sent = body(user_message("Hi"), tools=(TOOL, attrs.evolve(TOOL, name="a")))["tools"]
    assert [tool["function"]["name"] for tool in sent] == ["a", "read"]
    assert "tools" not in body(user_message("Hi"))


# --- items ------------------------------------------------------------------------------------


def test_images_stand_beside_the_text_as_bare_base64() -> None:
    seen = UserMessage(new_uid(), (Text("Look"), PIXEL, Text("here")))
    assert messages(seen, UserMessage(new_uid(), (PIXEL,))) == [
        {"role": "user", "content": "Look\nhere", "images": [PIXEL_DATA]},
        {"role": "user", "content": "", "images": [PIXEL_DATA]},
    ]


def test_an_image_that_no_model_reads_is_told_of() -> None:
    (sent,) = messages(UserMessage(new_uid(), (Text("Look"), Image("image/bmp", b"BM"))))
    assert "images" not in sent
    assert sent["content"].startswith("Look\n[An image of 2 bytes and type image/bmp is left out")


def test_arguments_are_an_object_and_a_result_names_its_tool() -> None:
    sent = messages(
        answer(Text("Both."), tool_call("c1"), tool_call("c2", name="write")),
        result("c1", "read a", "line 1"),
        result("c2"),
    )
    assert sent == [
        {
            "role": "assistant",
            "content": "Both.",
            "tool_calls": [
                {"id": "c1", "function": {"name": "read", "arguments": {"a": 1}}},
                {"id": "c2", "function": {"name": "write", "arguments": {"a": 1}}},
            ],
        },
        {"role": "tool", "tool_name": "read", "tool_call_id": "c1", "content": "read a\nline 1"},
        {"role": "tool", "tool_name": "write", "tool_call_id": "c2", "content": "done"},
    ]


def test_a_result_is_named_by_the_call_right_before_it() -> None:
    """A07: an id that comes again, in another turn and for another tool."""
    sent = messages(
        answer(tool_call("c1")),
        result("c1", "first"),
        user_message("Again"),
        answer(tool_call("c1", name="write")),
        result("c1", "second"),
    )
    told = [(each["tool_name"], each["content"]) for each in sent if each["role"] == "tool"]
    assert told == [("read", "first"), ("write", "second")]


@pytest.mark.parametrize("arguments", ["", "{", "[1]", "null", "not json", '{"a":1}{"b":2}'])
def test_i10_arguments_that_are_no_object_are_replayed_as_an_empty_one(arguments: str) -> None:
    (sent,) = messages(answer(tool_call("c1", arguments)))
    assert sent["tool_calls"][0]["function"]["arguments"] == {}


def test_no_number_in_arguments_is_rounded() -> None:
    received = '{ "id": 123456789012345678901234567890, "x": 1.10 }'
    request = LlmRequest("", [answer(tool_call("c1", received))])
    assert received.encode() in encoder().encode(request)


def test_a_call_without_text_has_an_empty_content() -> None:
    (sent,) = messages(answer(tool_call("c1")))
    assert sent["content"] == ""


def test_own_thinking_goes_back_and_no_other() -> None:
    told = answer(thought("Hm."), thought("S", provider="anthropic"), thought("T", model="other"))
    own = attrs.evolve(told, parts=(*told.parts, Text("Hi"), thought(" So.")))
    assert messages(own) == [{"role": "assistant", "content": "Hi", "thinking": "Hm. So."}]


@pytest.mark.parametrize("parts", [(), (Text(""),), (Text(" \n"),), (thought("only thoughts"),)])
def test_b09_an_answer_that_says_nothing_is_not_sent(parts: tuple[Text | Reasoning, ...]) -> None:
    assert messages(user_message("Hi"), answer(*parts)) == [{"role": "user", "content": "Hi"}]


def test_results_summaries_and_notes_say_what_they_say_everywhere() -> None:
    summary = SummaryMessage(new_uid(), "Built half.", None, 1)
    note = SystemNote(new_uid(), "Disk is low.", "alert")
    sent = messages(summary, note, answer(tool_call("c1")), result("c1", "", None))
    assert [each["content"] for each in sent] == [
        f"{SUMMARY_LABEL}\n\nBuilt half.",
        "[note: alert]\nDisk is low.",
        "",
        NO_OUTPUT,
    ]


def test_images_of_results_follow_the_whole_group() -> None:
    told = (
        answer(tool_call("c1"), tool_call("c2")),
        result("c1", attachments=(PIXEL,)),
        result("c2"),
    )
    for sent in (messages(*told), messages(*told, user_message("And?"))):
        assert [each["role"] for each in sent[:4]] == ["assistant", "tool", "tool", "user"]
        assert sent[3] == {"role": "user", "content": IMAGES_LABEL, "images": [PIXEL_DATA]}


def test_a_lone_surrogate_is_replaced() -> None:
    assert messages(user_message("a\ud800b"))[0]["content"] == "a\ufffdb"


# --- any history ------------------------------------------------------------------------------

_HEADERS = {"content-type": "application/json"}


@given(histories)
def test_any_repaired_history_is_a_request_that_ollama_takes(history: list[Item]) -> None:
    options = RequestOptions(7, 0.5, "xhigh", {"type": "object"})
    for model in ("qwen3", "m"):
        request = LlmRequest("S", repair(history) or [user_message("Hi")], (TOOL,), options)
        sent = OllamaScheme(4096).encoder("p", model).encode(request)
        check("/api/chat", sent, _HEADERS)


@given(histories, st.integers(0, 14))
def test_a_request_begins_with_the_one_before(history: list[Item], cut: int) -> None:
    before, after = repair(history[:cut]), repair(history)
    if after[: len(before)] != before:
        return  # A group of results that is still open is not yet sent.

    mine = OllamaScheme().encoder("p", "m")
    first = mine.encode(LlmRequest("S", before))
    second = mine.encode(LlmRequest("S", after))
    assert second == OllamaScheme().encoder("p", "m").encode(LlmRequest("S", after))
    assert second.startswith(first[: first.rindex(b'],"stream"')])


def test_a_long_history_and_one_new_item_encodes_one_item() -> None:
    items: list[Item] = []
    for number in range(500):
        call_id = f"call_{number}"
        items += [user_message(f"{number}"), answer(tool_call(call_id)), result(call_id)]
    mine = encoder()
    mine.encode(LlmRequest("S", items))
    pruned = [attrs.evolve(i, content=None) if isinstance(i, ToolResult) else i for i in items]
    mine.encode(LlmRequest("S", [*pruned, user_message("more")]))
    assert mine.encoded_items == 1501
