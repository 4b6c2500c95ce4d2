"""Reasoning in Chat Completions: what is kept of it, and to whom it goes back, and how."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.worker.llm.chat_requests import (
    MODEL,
    PROVIDER,
    answer,
    messages,
    result,
    thought,
    tool_call,
)
from tests.worker.llm.wire import call_delta, chunk
from worker.items import AssistantMessage, Reasoning, Text, new_uid, user_message
from worker.items_json import dump_item, load_item
from worker.llm import (
    Answer,
    ChatQuirks,
    LlmRequest,
    OpenAiChatScheme,
    ReasoningDelta,
    StreamEvent,
)
from worker.llm.schemes.chat.servers import (
    CEREBRAS,
    COMPATIBLE,
    DEEPSEEK,
    GROQ,
    LLAMA_SERVER,
    MISTRAL,
    MOONSHOT,
    OPENAI,
    OPENROUTER,
    VLLM,
    XAI,
    ZAI,
)

THINKER = MOONSHOT.for_model("kimi-k2.6")


def sent_back(quirks: ChatQuirks, *parts: Any) -> dict[str, Any]:
    """The message that an answer of `parts` comes to, without its role and calls."""
    sent = messages(answer(*parts, tool_call("c1")), result("c1"), quirks=quirks)[0]
    return {k: v for k, v in sent.items() if k not in ("role", "tool_calls")}


# --- to whom it goes back ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("quirks", "sent"),
    [
        (COMPATIBLE, {"content": "Reading."}),
        (OPENAI, {"content": "Reading."}),
        (XAI, {"content": "Reading."}),
        (DEEPSEEK, {"content": "Reading.", "reasoning_content": "Hm. Or so."}),
        (THINKER, {"content": "Reading.", "reasoning_content": "Hm. Or so."}),
        (ZAI, {"content": "Reading.", "reasoning_content": "Hm. Or so."}),
        (LLAMA_SERVER, {"content": "Reading.", "reasoning_content": "Hm. Or so."}),
        (GROQ, {"content": "Reading.", "reasoning": "Hm. Or so."}),
        (VLLM, {"content": "Reading.", "reasoning": "Hm. Or so."}),
        (OPENROUTER, {"content": "Reading.", "reasoning": "Hm. Or so."}),
        (CEREBRAS, {"content": "Reading.", "reasoning": "Hm. Or so."}),
        (
            CEREBRAS.for_model("zai-glm-4.7"),
            {"content": "<think>\nHm. Or so.\n</think>\n\nReading."},
        ),
        (
            MISTRAL,
            {
                "content": [
                    {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]},
                    {"type": "text", "text": "Reading."},
                    {"type": "thinking", "thinking": [{"type": "text", "text": " Or so."}]},
                ]
            },
        ),
    ],
)
def test_each_server_gets_its_reasoning_back_as_it_demands(
    quirks: ChatQuirks, sent: dict[str, Any]
) -> None:
    assert sent_back(quirks, thought("Hm."), Text("Reading."), thought(" Or so.")) == sent


@pytest.mark.parametrize(
    "quirks", [COMPATIBLE, ZAI, GROQ, OPENROUTER, MISTRAL, CEREBRAS.for_model("zai-1"), OPENAI]
)
@pytest.mark.parametrize(
    "other",
    [{"provider": "anthropic"}, {"model": "another"}, {"provider": "", "model": ""}],
)
def test_c10_reasoning_of_another_provider_or_model_stays_here(
    quirks: ChatQuirks, other: dict[str, str]
) -> None:
    foreign = thought("secret", signature="SIGNED", blob='{"type":"reasoning.encrypted"}', **other)
    assert sent_back(quirks, foreign, Text("Hi")) == {"content": "Hi"}


def test_c10_of_mixed_reasoning_only_the_own_goes_back() -> None:
    sent = sent_back(MISTRAL, thought("theirs", provider="x"), thought("mine"), Text("Hi"))
    assert sent["content"] == [
        {"type": "thinking", "thinking": [{"type": "text", "text": "mine"}]},
        {"type": "text", "text": "Hi"},
    ]


def test_a_request_on_its_own_has_no_reasoning_at_all() -> None:
    told = answer(thought("secret", provider=""), Text("Hi"))
    sent = OpenAiChatScheme(ZAI).encode(LlmRequest("", [told]), MODEL)
    assert b"secret" not in sent


def test_c10_own_reasoning_goes_back_after_another_model_has_answered() -> None:
    own = answer(thought("mine"), Text("one"))
    foreign = attrs.evolve(own, parts=(thought("theirs", model="x"), Text("two")))
    sent = messages(own, user_message("And?"), foreign, user_message("And?"), quirks=ZAI)
    assert [each.get("reasoning_content") for each in sent] == ["mine", None, None, None]


@pytest.mark.parametrize(("quirks", "missing"), [(DEEPSEEK, ""), (THINKER, " ")])
def test_a_field_that_must_be_there_is_there_without_reasoning(
    quirks: ChatQuirks, missing: str
) -> None:
    sent = messages(
        user_message("Hi"),
        answer(thought("theirs", model="another"), tool_call("c1")),
        result("c1"),
        answer(Text("Done")),
        quirks=quirks,
    )
    assert [each.get("reasoning_content") for each in sent] == [None, missing, None, missing]


def test_reasoning_that_led_to_nothing_is_not_sent() -> None:
    for quirks in (ZAI, OPENROUTER, MISTRAL, CEREBRAS.for_model("zai-1"), DEEPSEEK):
        assert messages(user_message("Hi"), answer(thought("Hm.")), quirks=quirks)[1:] == []


def test_joined_answers_keep_the_reasoning_of_both() -> None:
    strict = ChatQuirks(strict_alternation=True, reasoning="reasoning_content")
    sent = messages(
        user_message("Hi"),
        answer(thought("one"), Text("1")),
        answer(thought("two"), Text("2"), tool_call("c1")),
        result("c1"),
        quirks=strict,
    )
    assert (sent[1]["content"], sent[1]["reasoning_content"]) == ("1\n\n2", "one\n\ntwo")
    assert sent[1]["tool_calls"][0]["id"] == "c1"

    blocks = attrs.evolve(strict, reasoning="thinking_blocks")
    sent = messages(
        user_message("Hi"),
        answer(Text("1")),
        answer(thought("two"), tool_call("c1")),
        result("c1"),
        quirks=blocks,
    )
    assert [block["type"] for block in sent[1]["content"]] == ["text", "thinking"]
    assert sent[1]["tool_calls"][0]["id"] == "c1"


# --- reasoning details ------------------------------------------------------------------------


def detail(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"reasoning.{kind}", **fields}


def decode(quirks: ChatQuirks, *deltas: dict[str, Any]) -> tuple[list[StreamEvent], Answer]:
    decoder = OpenAiChatScheme(quirks).decoder(PROVIDER, MODEL)
    texts = [json.dumps(chunk(delta)) for delta in deltas]
    texts.append(json.dumps(chunk(finish="stop")))
    events = [event for text in texts for event in decoder.feed(text)]
    return events, decoder.finish()


def replayed(received: Answer) -> list[dict[str, Any]]:
    """The details that an answer sends back, after it was stored and read again."""
    item = AssistantMessage(new_uid(), received.parts, PROVIDER, MODEL, "end")
    stored = load_item(json.loads(json.dumps(dump_item(item))))
    (sent,) = messages(stored, quirks=OPENROUTER)
    details = sent.get("reasoning_details", [])
    assert isinstance(details, list)
    return details


def test_details_are_put_together_and_go_back_unmodified_and_in_order() -> None:
    fields = {"format": "anthropic-claude-v1", "index": 0}
    events, received = decode(
        OPENROUTER,
        {"reasoning": "Let me", "reasoning_details": [detail("text", text="Let me", **fields)]},
        {"reasoning": " see.", "reasoning_details": [detail("text", text=" see.", **fields)]},
        {"reasoning_details": [detail("text", signature="Sig+/==", **fields)]},
        {"content": "Now"},
        {
            "reasoning_details": [
                detail("text", text="Again", format="anthropic-claude-v1", index=1)
            ]
        },
        {"reasoning_details": [detail("text", text="", signature="S2", index=1)]},
        call_delta(0, "c1", "read", "{}"),
        {"reasoning_details": [detail("encrypted", data="gAAA", id="c1", format=None, index=0)]},
        {"reasoning_details": [detail("encrypted", data="gBBB", id="c2", format=None, index=0)]},
    )
    # What is read is said once, though it comes twice.
    assert [event.text for event in events if isinstance(event, ReasoningDelta)] == [
        *("Let me", " see.", "Again"),
    ]
    assert [type(part).__name__ for part in received.parts] == [
        *("Reasoning", "Text", "Reasoning", "ToolCall", "Reasoning", "Reasoning"),
    ]
    assert received.parts[0] == Reasoning(
        "Let me see.", "Sig+/==", received.parts[0].blob, PROVIDER, MODEL
    )
    assert replayed(received) == [
        detail("text", text="Let me see.", signature="Sig+/==", **fields),
        detail("text", text="Again", signature="S2", format="anthropic-claude-v1", index=1),
        detail("encrypted", data="gAAA", id="c1", format=None, index=0),
        detail("encrypted", data="gBBB", id="c2", format=None, index=0),
    ]


def test_a_signature_ends_a_detail_also_where_nothing_is_numbered() -> None:
    _, received = decode(
        OPENROUTER,
        {"reasoning_details": [detail("text", text="one", signature=None)]},
        {"reasoning_details": [detail("text", text=None, signature="S1")]},
        {"reasoning_details": [detail("text", text="two")]},
        {"reasoning_details": [detail("text", text="!", signature="S2")]},
        {"reasoning_details": [detail("text", text="!", signature="S2")]},
        {"content": "Hi"},
    )
    assert [(each["text"], each["signature"]) for each in replayed(received)] == [
        ("one", "S1"),
        ("two!!", "S2"),
    ]


def test_details_are_told_apart_by_their_number_and_id_and_null_says_nothing() -> None:
    _, received = decode(
        OPENROUTER,
        {"reasoning_details": [detail("text", text="a", index=0, format="f")]},
        {"reasoning_details": [detail("text", text="b", index=1, format="f")]},
        {"reasoning_details": [detail("text", text="A", index=0, format=None)]},
        {"reasoning_details": [detail("text", text="B", index=1, format="f", id="x")]},
        {"content": "Hi"},
    )
    assert replayed(received) == [
        detail("text", text="aA", index=0, format="f"),
        detail("text", text="b", index=1, format="f"),
        detail("text", text="B", index=1, format="f", id="x"),
    ]


def test_summaries_and_kinds_that_nobody_knows_go_back_as_well() -> None:
    _, received = decode(
        OPENROUTER,
        {"reasoning_details": [detail("summary", summary="**Plan", index=0, id="rs_1")]},
        {"reasoning_details": [detail("summary", summary="ning**", index=0, id="rs_1")]},
        {"reasoning_details": [detail("encrypted", data="gAAA", index=0, id="rs_1")]},
        {"reasoning_details": [{"type": "reasoning.new", "deep": {"x": [1, None]}}, "no object"]},
        {"content": "Hi"},
    )
    assert replayed(received) == [
        detail("summary", summary="**Planning**", index=0, id="rs_1"),
        detail("encrypted", data="gAAA", index=0, id="rs_1"),
        {"type": "reasoning.new", "deep": {"x": [1, None]}},
    ]


def test_what_can_be_read_is_shown_also_beside_what_is_encrypted() -> None:
    events, received = decode(
        OPENROUTER,
        {"reasoning": "Hm.", "reasoning_details": [detail("encrypted", data="gAAA")]},
        {"content": "Hi"},
    )
    assert events[0] == ReasoningDelta("Hm.")
    assert replayed(received) == [detail("encrypted", data="gAAA")]


def test_details_are_read_where_they_are_not_kept() -> None:
    events, received = decode(
        COMPATIBLE,
        {"reasoning_details": [detail("text", text="Hm.", signature="S")]},
        {"reasoning_details": [detail("summary", summary=" So.")]},
        {"reasoning": "Said once.", "reasoning_details": [detail("text", text="Said once.")]},
        {"content": "Hi"},
    )
    assert received.parts == (
        Reasoning("Hm. So.Said once.", None, None, PROVIDER, MODEL),
        Text("Hi"),
    )
    assert sum(isinstance(event, ReasoningDelta) for event in events) == 3


def test_a_blob_that_is_no_detail_is_not_sent() -> None:
    for blob in ("no json", "[1]"):
        assert sent_back(OPENROUTER, thought("Hm.", blob=blob), Text("Hi")) == {
            "content": "Hi",
            "reasoning": "Hm.",
        }


_scalars = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=8)
_entries = st.dictionaries(
    st.sampled_from(["type", "text", "summary", "data", "signature", "index", "id", "format", "x"]),
    _scalars | st.sampled_from(["reasoning.text", "reasoning.summary"]) | st.lists(_scalars),
    max_size=5,
)


@given(st.lists(st.lists(_entries, max_size=3), max_size=5))
def test_no_details_break_the_decoder_or_the_encoder(lists: list[list[dict[str, Any]]]) -> None:
    deltas = [{"reasoning_details": entries} for entries in lists]
    _, received = decode(OPENROUTER, *deltas, {"content": "Hi"})
    replayed(received)


def test_half_a_surrogate_pair_in_a_detail_is_replaced() -> None:
    _, received = decode(
        OPENROUTER,
        {"reasoning_details": [detail("text", text="a\ud83c", index=0)]},
        {"reasoning_details": [detail("text", text="\udf78", index=0, id=None)]},
        {"reasoning_details": [detail("encrypted", data="\ud83c")]},
        {"content": "Hi"},
    )
    assert [each.get("text", each.get("data")) for each in replayed(received)] == [
        "a\U0001f378",
        "\ufffd",
    ]
