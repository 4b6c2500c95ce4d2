from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.worker.llm.gemini_shape import check_contents
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
from worker.llm.schemes.gemini.contents import BEGINNING, GO_ON, UNSIGNED
from worker.llm.schemes.gemini.scheme import GeminiScheme
from worker.projection import repair
from worker.text import IMAGES_LABEL, NO_OUTPUT, SUMMARY_LABEL

NEW = "gemini-3.8-flash"
OLD = "gemini-2.5-flash"
PIXEL = Image("image/png", b"\x89PNG")
PIXEL_PART = {"inlineData": {"mimeType": "image/png", "data": "iVBORw=="}}
GIF = Image("image/gif", b"GIF89a")
HEIC = Image("image/heic", b"\x01")


def answer(*parts: Text | Reasoning | ToolCall) -> AssistantMessage:
    return AssistantMessage(new_uid(), parts, "gemini", NEW, "end")


def own(text: str = "", signature: str | None = None, blob: str | None = None) -> Reasoning:
    return Reasoning(text, signature, blob, provider="gemini", model=NEW)


def tool_call(call_id: str, arguments: str = '{"a":1}', name: str = "read") -> ToolCall:
    return ToolCall(call_id, name, arguments, new_uid())


def result(
    call_id: str, summary: str = "done", content: str | None = None, **more: Any
) -> ToolResult:
    usual: dict[str, Any] = {"is_error": False}
    return ToolResult(new_uid(), call_id, new_uid(), summary, content, **(usual | more))


def body(
    *items: Item,
    model: str = NEW,
    system: str = "",
    tools: tuple[ToolSpec, ...] = (),
    options: RequestOptions | None = None,
) -> dict[str, Any]:
    request = LlmRequest(system, items, tools, options or RequestOptions())
    sent = json.loads(GeminiScheme().encoder("gemini", model).encode(request))
    assert isinstance(sent, dict)
    return sent


def contents(*items: Item, model: str = NEW) -> list[dict[str, Any]]:
    sent = body(*items, model=model)["contents"]
    assert isinstance(sent, list)
    return sent


def parts(*sent: Text | Reasoning | ToolCall, model: str = NEW) -> list[dict[str, Any]]:
    """The parts of one answer, as sent between two user messages."""
    before, answered, _ = contents(
        user_message("before"), answer(*sent), user_message("behind"), model=model
    )
    assert (before["role"], answered["role"]) == ("user", "model")
    said = answered["parts"]
    assert isinstance(said, list)
    return said


# --- the request --------------------------------------------------------------------------------


def test_a_plain_request_is_contents_and_a_system_instruction() -> None:
    assert body(user_message("Hi"), system="You help.") == {
        "contents": [{"role": "user", "parts": [{"text": "Hi"}]}],
        "systemInstruction": {"parts": [{"text": "You help."}]},
    }


@pytest.mark.parametrize(
    ("model", "path"),
    [
        ("gemini-3-pro", "/v1beta/models/gemini-3-pro"),
        ("models/gemini-3-pro", "/v1beta/models/gemini-3-pro"),
        ("tunedModels/mine", "/v1beta/tunedModels/mine"),
        ("a model?key=1", "/v1beta/models/a%20model%3Fkey%3D1"),
    ],
)
def test_the_path_names_the_model_and_nothing_secret(model: str, path: str) -> None:
    assert GeminiScheme().path(model) == f"{path}:streamGenerateContent?alt=sse"


def test_the_key_is_in_a_header_of_its_own() -> None:
    assert GeminiScheme().headers("k-1") == {"x-goog-api-key": "k-1"}
    assert GeminiScheme().headers(None) == {}


def test_options_are_sent_as_they_are_called() -> None:
    options = RequestOptions(
        max_tokens=77,
        temperature=0.25,
        reasoning_effort="low",
        response_schema={"$schema": "x", "type": "object"},
        grammar="root ::= [a-z]",
        cache_key="c",
    )
    assert body(user_message("Hi"), options=options, model=OLD)["generationConfig"] == {
        "maxOutputTokens": 77,
        "temperature": 0.25,
        "thinkingConfig": {"thinkingBudget": 1024, "includeThoughts": True},
        "responseMimeType": "application/json",
        "responseJsonSchema": {"type": "object"},
    }


def test_gemini_3_is_left_at_its_own_temperature() -> None:
    options = RequestOptions(temperature=0.0, reasoning_effort="high")
    assert body(user_message("Hi"), options=options)["generationConfig"] == {
        "thinkingConfig": {"thinkingLevel": "high", "includeThoughts": True}
    }


@pytest.mark.parametrize(("model", "is_asked"), [(NEW, True), (OLD, False)])
def test_json_is_not_asked_for_beside_tools_where_both_are_refused(
    model: str, is_asked: bool
) -> None:
    options = RequestOptions(response_schema={"type": "object"}, max_tokens=5)
    tools = (ToolSpec("a", "", {}),)
    sent = body(user_message("Hi"), model=model, tools=tools, options=options)
    assert ("responseJsonSchema" in sent["generationConfig"]) is is_asked
    assert ("responseMimeType" in sent["generationConfig"]) is is_asked
    assert "tools" in sent


def test_tools_are_one_list_of_declarations_and_left_out_where_there_are_none() -> None:
    tools = (ToolSpec("b", "second", {"type": "object"}), ToolSpec("a", "first", {}))
    (group,) = body(user_message("Hi"), tools=tools)["tools"]
    assert [one["name"] for one in group["functionDeclarations"]] == ["a", "b"]
    assert "tools" not in body(user_message("Hi"))


@pytest.mark.parametrize("model", [NEW, "gemma-3-27b-it"])
def test_a_system_prompt_that_shows_nothing_is_not_sent(model: str) -> None:
    assert body(user_message("Hi"), model=model, system=" \n") == {
        "contents": [{"role": "user", "parts": [{"text": "Hi"}]}]
    }


def test_where_no_system_instruction_is_taken_the_user_says_it_first() -> None:
    sent = body(user_message("Hi"), model="gemma-3-27b-it", system="You help.")
    assert sent == {
        "contents": [
            {"role": "user", "parts": [{"text": "You help."}]},
            {"role": "user", "parts": [{"text": "Hi"}]},
        ]
    }


# --- items --------------------------------------------------------------------------------------


def test_text_and_images_are_parts_of_one_content() -> None:
    (sent,) = contents(UserMessage(new_uid(), (Text("Look"), PIXEL, Text(" \n"))))
    assert sent == {"role": "user", "parts": [{"text": "Look"}, PIXEL_PART]}


def test_an_image_is_sent_as_what_it_is_whatever_it_is_called() -> None:
    png = b"\x89PNG\r\n\x1a\n" + b"\0" * 8
    (sent,) = contents(UserMessage(new_uid(), (Image("image/jpeg", png),)))
    assert sent["parts"][0]["inlineData"]["mimeType"] == "image/png"


def test_an_image_that_cannot_be_read_is_told_of_instead_of_refused_for_ever() -> None:
    said = UserMessage(new_uid(), (GIF, Image("image/png", b""), PIXEL))
    (sent,) = contents(said)
    assert [part.get("text") for part in sent["parts"]] == [
        "[An image of 6 bytes and type image/gif is left out: not readable.]",
        "[An image of 0 bytes and type image/png is left out: not readable.]",
        None,
    ]
    called = (user_message("Go."), answer(tool_call("c1")))
    assert contents(*called, result("c1", attachments=(GIF,)))[3]["parts"] == [
        {"text": IMAGES_LABEL},
        {"text": "[An image of 6 bytes and type image/gif is left out: not readable.]"},
    ]


def test_summaries_and_notes_are_labelled_user_contents() -> None:
    summary = SummaryMessage(new_uid(), "## Original Task\nBuild.", None, 1)
    sent = contents(summary, SystemNote(new_uid(), "Disk is low.", "alert"))
    assert sent == [
        {"role": "user", "parts": [{"text": f"{SUMMARY_LABEL}\n\n## Original Task\nBuild."}]},
        {"role": "user", "parts": [{"text": "[note: alert]\nDisk is low."}]},
    ]


def test_responses_are_one_content_right_behind_the_calls_in_their_order() -> None:
    sent = contents(
        user_message("Go."),
        answer(Text("Reading."), tool_call("c1"), tool_call("c2", "{}", "look")),
        result("c1", "read a", "line 1"),
        result("c2", "no such thing", is_error=True),
        user_message("And?"),
    )
    assert sent[1:] == [
        {
            "role": "model",
            "parts": [
                {"text": "Reading."},
                {
                    "functionCall": {"id": "c1", "name": "read", "args": {"a": 1}},
                    "thoughtSignature": UNSIGNED,
                },
                {"functionCall": {"id": "c2", "name": "look", "args": {}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {
                    "functionResponse": {
                        "name": "read",
                        "id": "c1",
                        "response": {"output": "read a\nline 1"},
                    }
                },
                {
                    "functionResponse": {
                        "name": "look",
                        "id": "c2",
                        "response": {"error": "no such thing"},
                    }
                },
            ],
        },
        {"role": "user", "parts": [{"text": "And?"}]},
    ]


def test_before_gemini_3_calls_have_neither_ids_nor_a_made_up_signature() -> None:
    sent = contents(user_message("Go."), answer(tool_call("c1")), result("c1"), model=OLD)
    assert sent[1]["parts"] == [{"functionCall": {"name": "read", "args": {"a": 1}}}]
    assert sent[2]["parts"] == [
        {"functionResponse": {"name": "read", "response": {"output": "done"}}}
    ]


def test_two_answers_that_used_one_id_have_each_its_own_response() -> None:
    sent = contents(
        user_message("Go."),
        answer(tool_call("call_0", name="read")),
        result("call_0", "first"),
        answer(tool_call("call_0", name="look")),
        result("call_0", "second"),
    )
    responses = [content["parts"][0]["functionResponse"] for content in (sent[2], sent[4])]
    assert [(one["name"], one["response"]) for one in responses] == [
        ("read", {"output": "first"}),
        ("look", {"output": "second"}),
    ]


def test_a_name_that_would_be_refused_is_written_out_in_call_and_response() -> None:
    sent = contents(
        user_message("Go."), answer(tool_call("c1", name="mcp.files/read")), result("c1")
    )
    name = "mcp_0x2E_files_0x2F_read"
    assert sent[1]["parts"][0]["functionCall"]["name"] == name
    assert sent[2]["parts"][0]["functionResponse"]["name"] == name


@pytest.mark.parametrize("arguments", ["", "null", "{", "[1]", "not json", '{"a":1}{"b":2}'])
def test_arguments_that_are_no_object_are_replayed_as_an_empty_one(arguments: str) -> None:
    assert parts(tool_call("c1", arguments))[0]["functionCall"]["args"] == {}


def test_arguments_that_are_an_object_are_replayed_as_received() -> None:
    items: list[Item] = [
        user_message("Go."),
        answer(tool_call("c1", '{ "a" : 1.0, "b": 12345678901234567890 }')),
    ]
    sent = GeminiScheme().encoder("gemini", NEW).encode(LlmRequest("", items))
    assert b'"args":{ "a" : 1.0, "b": 12345678901234567890 }' in sent


def test_images_of_results_are_inside_their_responses() -> None:
    sent = contents(
        user_message("Go."),
        answer(tool_call("c1"), tool_call("c2")),
        result("c1", attachments=(PIXEL,)),
        result("c2", "", attachments=(HEIC,)),
        user_message("And?"),
    )
    first, second = (part["functionResponse"] for part in sent[2]["parts"])
    assert first["parts"] == [PIXEL_PART]
    assert "parts" not in second
    assert second["response"] == {"output": NO_OUTPUT}
    # Not every type can be inside: the rest follows the whole group.
    heic = {"inlineData": {"mimeType": "image/heic", "data": "AQ=="}}
    assert sent[3] == {"role": "user", "parts": [{"text": IMAGES_LABEL}, heic]}
    assert sent[4] == {"role": "user", "parts": [{"text": "And?"}]}


def test_before_gemini_3_images_of_results_follow_the_whole_group() -> None:
    sent = contents(
        user_message("Go."),
        answer(tool_call("c1"), tool_call("c2")),
        result("c1", attachments=(PIXEL,)),
        result("c2"),
        model=OLD,
    )
    assert [content["role"] for content in sent] == ["user", "model", "user", "user"]
    assert all("functionResponse" in part for part in sent[2]["parts"])
    assert sent[3]["parts"] == [{"text": IMAGES_LABEL}, PIXEL_PART]


def test_user_contents_in_a_row_stay_apart_and_answers_are_joined() -> None:
    sent = contents(
        user_message("one"),
        user_message("two"),
        answer(Text("a")),
        answer(tool_call("c1")),
        result("c1"),
    )
    assert [content["role"] for content in sent] == ["user", "user", "model", "user"]
    assert [set(part) for part in sent[2]["parts"]] == [
        {"text"},
        {"functionCall", "thoughtSignature"},
    ]


def test_the_user_has_the_first_and_the_last_word() -> None:
    sent = contents(answer(Text("Well")))
    assert sent == [
        {"role": "user", "parts": [{"text": BEGINNING}]},
        {"role": "model", "parts": [{"text": "Well"}]},
        {"role": "user", "parts": [{"text": GO_ON}]},
    ]


def test_a_result_of_no_call_is_left_out() -> None:
    assert contents(user_message("Hi"), result("c9")) == [
        {"role": "user", "parts": [{"text": "Hi"}]}
    ]


def test_nothing_of_ours_reaches_the_wire() -> None:
    item = attrs.evolve(user_message("Hi"), absorbed_uids=(new_uid(),))
    request = LlmRequest("S", [item, answer(tool_call("c1")), result("c1")])
    sent = GeminiScheme().encoder("gemini", NEW).encode(request).decode()
    assert not re.search(r'uids?"\s*:', sent)
    assert item.uid not in sent


def test_a_lone_surrogate_is_replaced() -> None:
    (sent,) = contents(user_message("a\ud800b"))
    assert sent["parts"] == [{"text": "a\ufffdb"}]


# --- reasoning ----------------------------------------------------------------------------------


def test_thoughts_and_signatures_go_back_on_the_parts_that_they_came_with() -> None:
    sent = parts(
        own("Hm.", signature="S0=="),
        own("More."),
        own(blob="S1-_"),
        Text("Signed."),
        Text("Unsigned."),
        own(signature="S2+/"),
        own(blob="S3"),
        tool_call("c1"),
        tool_call("c2"),
    )
    assert sent == [
        {"text": "Hm.", "thought": True, "thoughtSignature": "S0=="},
        {"text": "More.", "thought": True},
        {"text": "Signed.", "thoughtSignature": "S1-_"},
        {"text": "Unsigned."},
        {"text": "", "thoughtSignature": "S2+/"},
        {
            "functionCall": {"id": "c1", "name": "read", "args": {"a": 1}},
            "thoughtSignature": "S3",
        },
        {"functionCall": {"id": "c2", "name": "read", "args": {"a": 1}}},
    ]


@pytest.mark.parametrize(
    ("provider", "model"), [("anthropic", NEW), ("openai_responses", NEW), ("gemini", OLD)]
)
def test_c10_reasoning_of_another_provider_or_model_is_not_sent(provider: str, model: str) -> None:
    """C10: a call that another model made carries Google's word for that, and no signature."""
    foreign = [
        Reasoning("secret", "FOREIGN", provider=provider, model=model),
        Reasoning("", blob="FOREIGN", provider=provider, model=model),
    ]
    sent = parts(*foreign, Text("Hi"), *foreign, tool_call("c1"), *foreign)
    assert sent == [
        {"text": "Hi"},
        {
            "functionCall": {"id": "c1", "name": "read", "args": {"a": 1}},
            "thoughtSignature": UNSIGNED,
        },
    ]


def test_a_model_is_the_same_with_its_collection_and_without() -> None:
    sent = parts(own(blob="S1"), tool_call("c1"), model=f"models/{NEW}")
    assert sent[0]["thoughtSignature"] == "S1"


def test_a_signature_whose_part_is_gone_goes_with_it() -> None:
    assert parts(own(blob="S1"), Text(" \n"), tool_call("c1"))[0]["thoughtSignature"] == UNSIGNED
    assert parts(Text("Hi"), own(blob="S1")) == [{"text": "Hi"}]
    assert parts(Text("Hi"), own(" ")) == [{"text": "Hi"}]
    assert parts(own(blob="S1"), own("Hm."), Text("Hi")) == [
        {"text": "Hm.", "thought": True},
        {"text": "Hi"},
    ]


@pytest.mark.parametrize(
    "sent",
    [(), (Text(""),), (Text(" \n"),), (own("only thoughts", "S"),), (own(signature="S"),)],
)
def test_an_answer_that_says_nothing_is_not_sent(sent: tuple[Text | Reasoning, ...]) -> None:
    assert contents(user_message("Hi"), answer(*sent)) == [
        {"role": "user", "parts": [{"text": "Hi"}]}
    ]


# --- continuing the request before --------------------------------------------------------------


def history(size: int) -> list[Item]:
    items: list[Item] = []
    for number in range(size // 4):
        call_id = f"call_{number}"
        items += [
            user_message(f"question {number} 你好"),
            answer(own(blob="S"), tool_call(call_id)),
            result(call_id, "read", "text " * 20),
            answer(Text(f"answer {number}")),
        ]
    return items


def test_a_long_history_and_one_new_item_encodes_one_item() -> None:
    items = history(4_000)
    encoder = GeminiScheme().encoder("gemini", NEW)
    encoder.encode(LlmRequest("S", items))
    assert encoder.encoded_items == 4_000

    encoder.encode(LlmRequest("S", [*items, user_message("one more")]))
    assert encoder.encoded_items == 4_001


def test_another_system_prompt_keeps_the_items() -> None:
    items = history(8)
    encoder = GeminiScheme().encoder("gemini", NEW)
    encoder.encode(LlmRequest("one", items))
    sent = json.loads(encoder.encode(LlmRequest("two", items)))
    assert sent["systemInstruction"] == {"parts": [{"text": "two"}]}
    assert encoder.encoded_items == 8


Group = Callable[[int], list[Item]]
_groups: st.SearchStrategy[Group] = st.sampled_from(
    [
        lambda n: [user_message(f"u{n}")],
        lambda n: [answer(own("t"), own(blob="S"), Text(f"a{n}"))],
        lambda n: [answer(tool_call(f"c{n}")), result(f"c{n}", attachments=(PIXEL, GIF))],
        lambda n: [
            answer(own(blob="S"), tool_call(f"c{n}"), tool_call(f"d{n}")),
            result(f"c{n}"),
            result(f"d{n}"),
        ],
        lambda _: [answer()],
        lambda n: [SystemNote(new_uid(), f"n{n}", "note")],
    ]
)
_TAIL = b',{"role":"user","parts":[' + json.dumps({"text": GO_ON}, separators=(",", ":")).encode()


@given(st.lists(_groups, max_size=12), st.integers(0, 12), st.sampled_from([NEW, OLD]))
def test_contents_of_a_request_begin_with_those_of_the_one_before(
    makers: list[Group], cut: int, model: str
) -> None:
    groups: list[list[Item]] = [
        [user_message("u")],
        *(make(number) for number, make in enumerate(makers)),
    ]
    before = [item for group in groups[: cut + 1] for item in group]
    after = [item for group in groups for item in group]
    scheme = GeminiScheme()
    encoder = scheme.encoder("gemini", model)
    first = encoder.encode(LlmRequest("S", before))
    second = encoder.encode(LlmRequest("S", after))

    # Reused bytes or not, the body is the same.
    assert second == scheme.encoder("gemini", model).encode(LlmRequest("S", after))
    start = first[: first.rindex(b'],"systemInstruction"')]
    # Where an answer came last, only the word that stands behind it makes room, and nothing else.
    start = start.removesuffix(_TAIL + b"]}").removesuffix(b"]}")
    assert second.startswith(start)


# --- whatever `repair` yields -------------------------------------------------------------------

_texts = st.sampled_from(["", " ", "\n", "\u200b", "said", "你好", "a\ud800"])
_ids = st.sampled_from(["c1", "c2", "c3", "call_0", "weird id\n"])
_images = st.sampled_from([PIXEL, GIF, HEIC, Image("image/png", b"")])
_origins = st.sampled_from([("gemini", NEW), ("gemini", OLD), ("anthropic", "claude")])
_reasoning = st.builds(
    lambda text, signature, blob, origin: Reasoning(text, signature, blob, *origin),
    _texts,
    st.sampled_from([None, "S1"]),
    st.sampled_from([None, "S2"]),
    _origins,
)
_calls = st.builds(
    ToolCall,
    _ids,
    st.sampled_from(["read", "mcp.x/y", "", "9"]),
    st.sampled_from(["{}", "", "nope", '{"a":[1]}']),
    st.builds(new_uid),
)
_answers = st.builds(
    lambda parts: AssistantMessage(new_uid(), tuple(parts), "gemini", NEW, "end"),
    st.lists(st.builds(Text, _texts) | _reasoning | _calls, max_size=6),
)
_results = st.builds(
    lambda call_id, summary, content, is_error, images: ToolResult(
        new_uid(), call_id, "", summary, content, is_error, tuple(images)
    ),
    _ids,
    _texts,
    st.none() | _texts,
    st.booleans(),
    st.lists(_images, max_size=2),
)
_users = st.builds(
    lambda parts: UserMessage(new_uid(), tuple(parts)),
    st.lists(st.builds(Text, _texts) | _images, max_size=3),
)
_notes = st.builds(lambda text: SystemNote(new_uid(), text, "note"), _texts)
_summaries = st.builds(lambda text: SummaryMessage(new_uid(), text, None, 1), _texts)
_histories: st.SearchStrategy[list[Item]] = st.lists(
    _users | _answers | _results | _notes | _summaries, max_size=20
)


@given(_histories, st.sampled_from([(NEW, True), (OLD, False)]))
def test_every_repaired_history_can_be_sent(items: list[Item], spoken: tuple[str, bool]) -> None:
    model, is_gemini_3 = spoken
    check_contents(contents(*repair(items), model=model), is_gemini_3=is_gemini_3)
