from __future__ import annotations

import json
import re
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire_rules.checker import check
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
from worker.llm import LlmRequest, RequestOptions, ToolSpec
from worker.llm.schemes.responses.scheme import OpenAiResponsesScheme
from worker.projection import repair
from worker.text import NO_OUTPUT, SUMMARY_LABEL

PROVIDER = "openai_responses"
SCHEME = OpenAiResponsesScheme()
PIXEL = Image("image/png", b"\x89PNG")
IMAGE_BLOCK = {
    "type": "input_image",
    "image_url": "data:image/png;base64,iVBORw==",
    "detail": "auto",
}

Part = Text | Reasoning | ToolCall


def answer(*parts: Part, stop_reason: str = "end") -> AssistantMessage:
    return AssistantMessage(new_uid(), parts, PROVIDER, "gpt-5", stop_reason)


def thought(
    text: str, item_id: str | None, blob: str | None, provider: str = PROVIDER
) -> Reasoning:
    return Reasoning(text, item_id, blob, provider, "gpt-5")


def tool_call(call_id: str, arguments: str = '{"a":1}', name: str = "read") -> ToolCall:
    return ToolCall(call_id, name, arguments, new_uid())


def result(
    call_id: str, summary: str = "done", content: str | None = None, **more: Any
) -> ToolResult:
    return ToolResult(new_uid(), call_id, new_uid(), summary, content, is_error=False, **more)


def body(
    *items: Item,
    system: str = "",
    tools: tuple[ToolSpec, ...] = (),
    options: RequestOptions | None = None,
    model: str = "gpt-5",
) -> dict[str, Any]:
    request = LlmRequest(system, items, tools, options or RequestOptions())
    sent = json.loads(SCHEME.encode(request, PROVIDER, model))
    assert isinstance(sent, dict)
    return sent


def sent_items(*items: Item, model: str = "gpt-5") -> list[dict[str, Any]]:
    sent = body(*items, model=model)["input"]
    assert isinstance(sent, list)
    return sent


def options_of(model: str, **options: Any) -> dict[str, Any]:
    return body(user_message("Hi"), model=model, options=RequestOptions(**options))


def user(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": list(blocks)}


def input_text(text: str) -> dict[str, Any]:
    return {"type": "input_text", "text": text}


def said(text: str, **more: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text}]
    return {"type": "message", "role": "assistant", "content": content, **more}


def sent_call(call_id: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": "read", "arguments": '{"a":1}'}


def sent_output(call_id: str, output: object = "done") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def sent_thought(item_id: str, blob: str, *summary: str) -> dict[str, Any]:
    return {
        "type": "reasoning",
        "id": item_id,
        "summary": [{"type": "summary_text", "text": text} for text in summary],
        "encrypted_content": blob,
    }


# --- the request --------------------------------------------------------------------------------


def test_a_plain_request_is_stateless_and_streamed() -> None:
    assert body(user_message("Hi"), system="You help.") == {
        "model": "gpt-5",
        "input": [user(input_text("Hi"))],
        "instructions": "You help.",
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"summary": "auto"},
    }


def test_a_model_that_never_reasons_is_asked_for_no_reasoning() -> None:
    assert options_of("gpt-4.1", reasoning_effort="high", temperature=0.5) == {
        "model": "gpt-4.1",
        "input": [user(input_text("Hi"))],
        "stream": True,
        "store": False,
        "temperature": 0.5,
    }


def test_the_path_and_the_key_header() -> None:
    assert SCHEME.path("m") == "/responses"
    assert SCHEME.headers("sk-1") == {"Authorization": "Bearer sk-1"}
    assert SCHEME.headers(None) == {}


@pytest.mark.parametrize("system", ["", " \n"])
def test_no_instructions_without_a_system_prompt(system: str) -> None:
    assert "instructions" not in body(user_message("Hi"), system=system)


def test_options_are_sent_as_they_are_called() -> None:
    sent = options_of(
        "gpt-5.6",
        max_tokens=77,
        reasoning_effort="low",
        response_schema={"type": "object"},
        cache_key="session-1",
        grammar="root ::= [a-z]",
    )
    assert sent["max_output_tokens"] == 77
    assert sent["reasoning"] == {"effort": "low", "summary": "auto"}
    assert sent["prompt_cache_key"] == "session-1"
    assert sent["text"] == {
        "format": {
            "type": "json_schema",
            "name": "answer",
            "schema": {"type": "object"},
            "strict": False,
        }
    }
    assert "grammar" not in sent


def test_an_output_cap_is_never_below_the_least_that_is_taken() -> None:
    assert options_of("gpt-5", max_tokens=1)["max_output_tokens"] == 16


def test_a_temperature_is_left_out_while_the_model_reasons() -> None:
    assert "temperature" not in options_of("gpt-5", temperature=0.2)
    assert "temperature" not in options_of("gpt-5.1", temperature=0.2, reasoning_effort="low")
    for model, effort in (("gpt-5.1", None), ("gpt-6-luna", "none")):
        sent = options_of(model, temperature=0.0, reasoning_effort=effort)
        assert (sent["temperature"], sent["reasoning"]) == (0.0, {"effort": "none"})


def test_a_model_that_reasons_on_request_is_not_asked_for_a_summary_unasked() -> None:
    assert "reasoning" not in options_of("gpt-5.4")
    assert options_of("gpt-5.4")["include"] == ["reasoning.encrypted_content"]


def test_what_the_server_refused_by_name_is_left_out() -> None:
    def without(*names: str) -> dict[str, Any]:
        return options_of(
            "gpt-5", max_tokens=99, reasoning_effort="low", refused_names=frozenset(names)
        )

    assert without("reasoning.summary")["reasoning"] == {"effort": "low"}
    assert without("temperature") == without()
    everything = without("reasoning", "include", "max_output_tokens", "store")
    assert set(everything) == {"model", "input", "stream"}


def test_a_model_that_nobody_knows_gets_what_was_asked_for() -> None:
    sent = options_of("my-deployment", reasoning_effort="ultra", temperature=0.2)
    assert sent["reasoning"] == {"effort": "ultra", "summary": "auto"}
    assert sent["temperature"] == 0.2
    assert "reasoning" not in options_of("my-deployment")


def test_a_long_cache_key_is_cut_to_what_is_taken_and_stays_apart() -> None:
    keys = [options_of("gpt-5", cache_key="k" * 80 + end)["prompt_cache_key"] for end in "ab"]
    assert [len(key) for key in keys] == [64, 64]
    assert keys[0] != keys[1]
    assert "prompt_cache_key" not in options_of("gpt-5", cache_key="")


def test_tools_are_flat_sorted_by_name_and_not_strict() -> None:
    tools = (
        ToolSpec("b", "second", {"type": "object", "properties": {"x": {"type": "string"}}}),
        ToolSpec("a", "first", {"type": "object"}),
    )
    sent = body(user_message("Hi"), tools=tools)
    assert sent["tools"] == [
        {
            "type": "function",
            "name": "a",
            "description": "first",
            "parameters": {"type": "object", "properties": {}},
            "strict": False,
        },
        {
            "type": "function",
            "name": "b",
            "description": "second",
            "parameters": {"type": "object", "properties": {"x": {"type": "string"}}},
            "strict": False,
        },
    ]
    assert sent["parallel_tool_calls"] is True
    plain = body(user_message("Hi"))
    assert "tools" not in plain
    assert "parallel_tool_calls" not in plain


def test_tools_that_change_between_two_requests_are_those_of_the_request() -> None:
    encoder = SCHEME.encoder(PROVIDER, "gpt-5")
    tools = (ToolSpec("a", "first", {}),)
    bodies = [
        json.loads(encoder.encode(LlmRequest("S", [user_message("Hi")], given)))
        for given in (tools, (), tools)
    ]
    assert ["tools" in body for body in bodies] == [True, False, True]


# --- items --------------------------------------------------------------------------------------


def test_text_and_images_of_a_user_message() -> None:
    item = UserMessage(new_uid(), (Text("Look"), PIXEL, Text(" ")))
    assert sent_items(item) == [user(input_text("Look"), IMAGE_BLOCK)]


def test_what_says_nothing_is_not_sent() -> None:
    # B02, B03, B09.
    blank = UserMessage(new_uid(), (Text("\n"), Text("\u200b")))
    assert sent_items(blank, answer(), answer(Text(" ")), user_message("Hi")) == [
        user(input_text("Hi"))
    ]


def test_calls_and_outputs_are_paired_by_id_and_carry_no_item_id() -> None:
    sent = sent_items(
        answer(Text("Reading."), tool_call("c1"), tool_call("c2")),
        result("c1", "read a", "line 1"),
        result("c2", ""),
    )
    assert sent == [
        said("Reading."),
        sent_call("c1"),
        sent_call("c2"),
        sent_output("c1", "read a\nline 1"),
        sent_output("c2", NO_OUTPUT),
    ]


def test_images_of_an_output_stay_with_it() -> None:
    sent = sent_items(
        answer(tool_call("c1"), tool_call("c2")),
        result("c1", "a shot", attachments=(PIXEL,)),
        result("c2", " ", attachments=(PIXEL,)),
    )
    assert sent[2] == sent_output("c1", [input_text("a shot"), IMAGE_BLOCK])
    assert sent[3] == sent_output("c2", [IMAGE_BLOCK])


def test_an_image_that_no_model_reads_is_told_of() -> None:
    (sent,) = sent_items(UserMessage(new_uid(), (Image("image/tiff", b"II"),)))
    (block,) = sent["content"]
    assert block["type"] == "input_text"
    assert "image/tiff" in block["text"]


@pytest.mark.parametrize("arguments", ["", "{", "[1]", "null", "not json", '{"a":1}{"b":2}'])
def test_arguments_that_are_no_object_are_replayed_as_an_empty_one(arguments: str) -> None:
    (sent,) = sent_items(answer(tool_call("c1", arguments)))
    assert sent["arguments"] == "{}"


def test_arguments_that_are_an_object_are_replayed_as_received() -> None:
    (sent,) = sent_items(answer(tool_call("c1", '{ "a" : 1.0 }')))
    assert sent["arguments"] == '{ "a" : 1.0 }'


@pytest.mark.parametrize(
    ("name", "sent"), [("a.b:c", "a_b_c"), ("", "unnamed"), ("x" * 200, "x" * 64), ("ü", "_")]
)
def test_a_name_from_elsewhere_is_sent_with_the_characters_that_are_taken(
    name: str, sent: str
) -> None:
    assert sent_items(answer(tool_call("c1", name=name)))[0]["name"] == sent


def test_summaries_and_notes_are_labelled_user_messages() -> None:
    # E04: the summary is there, once.
    summary = SummaryMessage(new_uid(), "## Original Task\nBuild.", None, 1)
    assert sent_items(summary, SystemNote(new_uid(), "Disk is low.", "alert")) == [
        user(input_text(f"{SUMMARY_LABEL}\n\n## Original Task\nBuild.")),
        user(input_text("[note: alert]\nDisk is low.")),
    ]


def test_a_lone_surrogate_is_replaced() -> None:
    sent = sent_items(
        user_message("a\ud800b"),
        answer(thought("t\ud800", "rs_1", "B"), Text("x\ud800"), tool_call("c\ud800")),
        result("c\ud800", "r\ud800"),
    )
    assert sent[0] == user(input_text("a\ufffdb"))
    assert sent[1] == sent_thought("rs_1", "B", "t\ufffd")
    assert sent[3]["call_id"] == sent[4]["call_id"]
    assert sent[4]["output"] == "r\ufffd"


def test_nothing_of_ours_reaches_the_wire() -> None:
    item = attrs.evolve(user_message("Hi"), absorbed_uids=(new_uid(),))
    request = LlmRequest("S", [item, answer(tool_call("c1")), result("c1")])
    sent = SCHEME.encode(request, PROVIDER, "gpt-5").decode()
    assert not re.search(r'uids?"\s*:', sent)
    assert item.uid not in sent


# --- reasoning ----------------------------------------------------------------------------------


def test_reasoning_goes_back_in_its_place_with_its_id_and_its_encrypted_content() -> None:
    # C02: in order, each block as it came.
    sent = sent_items(
        answer(
            thought("First.", "rs_1", "BLOB1"),
            thought("Second.", "rs_1", None),
            Text("Let me see."),
            thought("", "rs_2", "BLOB2"),
            tool_call("c1"),
        ),
        result("c1"),
    )
    assert sent == [
        sent_thought("rs_1", "BLOB1", "First.", "Second."),
        said("Let me see."),
        sent_thought("rs_2", "BLOB2"),
        sent_call("c1"),
        sent_output("c1"),
    ]


def test_two_reasoning_items_in_a_row_stay_two() -> None:
    sent = sent_items(answer(thought("a", "rs_1", "B1"), thought("b", "rs_2", "B2"), Text("Hi")))
    assert [item.get("id") for item in sent] == ["rs_1", "rs_2", None]


def test_an_id_is_not_used_twice() -> None:
    twice = answer(thought("a", "rs_1", "B1"), Text("x"), thought("b", "rs_1", "B2"), Text("y"))
    assert [item.get("id") for item in sent_items(twice)] == ["rs_1", None, None, None]


def test_reasoning_that_nothing_follows_is_left_out_and_other_reasoning_stays() -> None:
    # C06: what the call's reasoning led to is gone; an item without its follower is refused.
    sent = sent_items(
        answer(thought("a", "rs_1", "B1"), Text("Hi"), thought("b", "rs_2", "B2"), Text(" ")),
        answer(thought("c", "rs_3", "B3")),
    )
    assert sent == [sent_thought("rs_1", "B1", "a"), said("Hi")]


def test_a_message_whose_reasoning_is_gone_is_sent_as_a_fresh_one() -> None:
    # C07: without an item id nothing ties the message to the reasoning that it came with.
    assert sent_items(answer(Text("Hi"), tool_call("c1")), result("c1")) == [
        said("Hi"),
        sent_call("c1"),
        sent_output("c1"),
    ]


@pytest.mark.parametrize(
    "foreign",
    [
        thought("t", "sig", "B", provider="anthropic"),
        thought("t", "rs_1", "B", provider="openai"),
        thought("t", "rs_1", None),  # not encrypted: it would be looked up, and is not stored
        thought("t", None, None),
    ],
)
def test_reasoning_that_proves_nothing_here_is_not_sent(foreign: Reasoning) -> None:
    # C10: a signature goes back to its own provider only.
    assert sent_items(answer(foreign, Text("Hi"))) == [said("Hi")]


def test_a_model_that_never_reasons_is_sent_no_reasoning() -> None:
    item = answer(thought("t", "rs_1", "B"), Text("Hi"))
    assert sent_items(item, model="gpt-4.1") == [said("Hi")]
    assert len(sent_items(item, model="my-deployment")) == 2


def test_where_a_server_cannot_read_our_reasoning_none_is_sent_any_more() -> None:
    items: list[Item] = [user_message("Hi"), answer(thought("t", "rs_1", "B"), Text("Hi"))]
    encoder = SCHEME.encoder(PROVIDER, "gpt-5")
    refused = RequestOptions(refused_names=frozenset({"encrypted_content"}))
    before = json.loads(encoder.encode(LlmRequest("S", items)))
    after = json.loads(encoder.encode(LlmRequest("S", items, options=refused)))
    assert [item["type"] for item in before["input"]] == ["message", "reasoning", "message"]
    assert [item["type"] for item in after["input"]] == ["message", "message"]
    assert after["include"] == before["include"]


def test_a_foreign_thought_does_not_join_ours() -> None:
    parts = (
        thought("ours", "rs_1", "B"),
        thought("theirs", "rs_1", None, provider="gemini"),
        thought("raw", None, None),
        Text("Hi"),
    )
    assert sent_items(answer(*parts)) == [sent_thought("rs_1", "B", "ours"), said("Hi")]


@pytest.mark.parametrize("item_id", [None, "", "item_1", "x" * 400])
def test_an_id_that_would_be_refused_is_left_out_never_made_up(item_id: str | None) -> None:
    sent, _ = sent_items(answer(thought("t", item_id, "B"), Text("Hi")))
    assert "id" not in sent
    assert sent["encrypted_content"] == "B"


def test_answers_are_labelled_where_the_model_does_so() -> None:
    items = (
        answer(Text("Reading."), tool_call("c1"), Text("Hm.")),
        result("c1"),
        answer(Text("Half an ans"), stop_reason="partial"),
        answer(Text("One more thing."), thought("t", "rs_1", "B"), Text("Done.")),
    )
    labels = [item.get("phase") for item in sent_items(*items, model="gpt-5.4") if "role" in item]
    assert labels == ["commentary", "commentary", None, "commentary", "final_answer"]
    assert all("phase" not in item for item in sent_items(*items, model="gpt-5"))


# --- call ids -----------------------------------------------------------------------------------


@pytest.mark.parametrize("call_id", ["", " ", "ü", "x" * 65, "call_" + "y" * 400])
def test_a_call_id_that_is_not_taken_is_named_by_its_hash(call_id: str) -> None:
    call, output = sent_items(answer(tool_call(call_id)), result(call_id))
    assert call["call_id"] == output["call_id"]
    assert re.fullmatch(r"call_[0-9a-f]{59}", call["call_id"])


def test_a_call_id_that_fits_is_sent_as_it_is() -> None:
    call_id = "functions.read:0" + "x" * 48
    assert sent_items(answer(tool_call(call_id)))[0]["call_id"] == call_id


def test_an_id_that_another_turn_used_gets_another_name_with_its_output() -> None:
    # A07, as it looks here: a repeated id is refused as a duplicate output.
    sent = sent_items(
        answer(tool_call("call_0")),
        result("call_0", "first"),
        answer(tool_call("call_0_2")),
        result("call_0_2", "second"),
        answer(tool_call("call_0")),
        result("call_0", "third"),
        answer(tool_call("call_0")),
        result("call_0", "fourth"),
    )
    ids = [item["call_id"] for item in sent]
    assert ids[::2] == ids[1::2] == ["call_0", "call_0_2", "call_0_3", "call_0_4"]
    outputs = [item["output"] for item in sent if "output" in item]
    assert outputs == ["first", "second", "third", "fourth"]


def test_an_output_without_its_call_is_left_out() -> None:
    # A08: wherever a window was cut.
    sent = sent_items(
        result("c0"), user_message("Hi"), answer(tool_call("c1")), result("c1"), result("c1")
    )
    assert [item["type"] for item in sent] == ["message", "function_call", "function_call_output"]


# --- continuing the request before --------------------------------------------------------------


def test_a_long_history_and_one_new_item_encodes_one_item() -> None:
    items: list[Item] = []
    for number in range(250):
        items += [
            user_message(f"question {number} 你好"),
            answer(thought("t", f"rs_{number}", "B"), tool_call(f"c{number}")),
            result(f"c{number}", "read", "text " * 20),
            answer(Text(f"answer {number}")),
        ]
    encoder = SCHEME.encoder(PROVIDER, "gpt-5")
    encoder.encode(LlmRequest("S", items))
    assert encoder.encoded_items == 1_000

    encoder.encode(LlmRequest("S", [*items, user_message("one more")]))
    assert encoder.encoded_items == 1_001


_texts = st.sampled_from(["", " ", "\u200b", "Hi", "a\ud800"])
_call_ids = st.sampled_from(["", "c1", "c2", "call_0", "x" * 80, "x" * 81])
_thoughts = st.builds(
    thought,
    _texts,
    st.sampled_from([None, "rs_1", "rs_2", "item_1"]),
    st.sampled_from([None, "BLOB1", "BLOB2"]),
    st.sampled_from([PROVIDER, "anthropic"]),
)
_calls = st.builds(tool_call, _call_ids, st.sampled_from(["", "{}", "{", "null"]))
_parts = st.lists(st.builds(Text, _texts) | _thoughts | _calls, max_size=5)
_images = st.lists(st.just(PIXEL), max_size=1)
_items = st.one_of(
    st.builds(lambda texts: UserMessage(new_uid(), tuple(map(Text, texts))), st.lists(_texts)),
    st.builds(lambda text: SystemNote(new_uid(), text, "note"), _texts),
    st.builds(lambda text: SummaryMessage(new_uid(), text, None, 1), _texts),
    st.builds(lambda parts: answer(*parts), _parts),
    st.builds(
        lambda call_id, text, images: result(call_id, text, attachments=tuple(images)),
        _call_ids,
        _texts,
        _images,
    ),
)


@given(st.lists(_items, min_size=1, max_size=12))
def test_whatever_repair_yields_is_sent_as_the_api_takes_it(items: list[Item]) -> None:
    sent = sent_items(*repair(items))
    calls: list[str] = []
    answered: list[str] = []
    for at, item in enumerate(sent):
        match item["type"]:
            case "message":
                assert item["content"]
                assert all(b.get("text", "image").strip("\u200b ") for b in item["content"])
            case "function_call":
                assert isinstance(json.loads(item["arguments"]), dict)
                assert 0 < len(item["call_id"]) <= 64
                calls.append(item["call_id"])
            case "function_call_output":
                assert item["call_id"] in calls
                assert item["output"]
                answered.append(item["call_id"])
            case "reasoning":
                assert item["encrypted_content"]
                assert item.get("id", "rs_").startswith("rs_")
                assert at + 1 < len(sent)
                follower = sent[at + 1]
                assert follower["type"] in {"reasoning", "function_call"} or (
                    follower["role"] == "assistant"
                )
            case other:
                raise AssertionError(other)
    assert len(set(calls)) == len(calls)
    assert sorted(answered) == sorted(calls)
    ids = [item["id"] for item in sent if "id" in item]
    assert len(set(ids)) == len(ids)


@given(st.lists(_items, max_size=12))
def test_whatever_repair_yields_keeps_the_rules(items: list[Item]) -> None:
    request = LlmRequest("S", [user_message("Hi"), *repair(items)])
    headers = {"Content-Type": "application/json", **SCHEME.headers("sk-1")}
    check("/v1/responses", SCHEME.encode(request, PROVIDER, "gpt-5"), headers)


def _group(parts: list[Part]) -> list[Item]:
    call_ids = dict.fromkeys(part.call_id for part in parts if isinstance(part, ToolCall))
    return [answer(*parts), *(result(call_id, attachments=(PIXEL,)) for call_id in call_ids)]


_groups = st.builds(_group, _parts) | st.builds(lambda text: [user_message(text)], _texts)


@given(st.lists(_groups, max_size=8), st.integers(0, 8))
def test_the_input_of_a_request_begins_with_that_of_the_one_before(
    groups: list[list[Item]], cut: int
) -> None:
    before = repair([item for group in groups[:cut] for item in group])
    after = repair([item for group in groups for item in group])
    encoder = SCHEME.encoder(PROVIDER, "gpt-5.4")
    first = encoder.encode(LlmRequest("S", before))
    second = encoder.encode(LlmRequest("S", after))

    # Reused bytes or not, the body is the same.
    assert second == SCHEME.encode(LlmRequest("S", after), PROVIDER, "gpt-5.4")
    assert second.startswith(first[: first.rindex(b'],"instructions"')])
