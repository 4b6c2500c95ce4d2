"""What each server is sent: the table of quirks, row by row, and what must hold for all of them."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wire_rules.checker import check
from tests.wire_rules.openai_chat_rules import Variant
from tests.worker.histories import histories
from tests.worker.llm.chat_requests import (
    MODEL,
    PROVIDER,
    TOOL,
    answer,
    body,
    messages,
    result,
    tool_call,
)
from worker.items import AssistantMessage, Item, Text, user_message
from worker.llm import ChatQuirks, LlmRequest, OpenAiChatScheme, RequestOptions
from worker.llm.schemes.chat.quirks import CallIds
from worker.llm.schemes.chat.servers import (
    CEREBRAS,
    COMPATIBLE,
    DASHSCOPE,
    DEEPSEEK,
    FIREWORKS,
    GROQ,
    LLAMA_SERVER,
    LM_STUDIO,
    MISTRAL,
    MOONSHOT,
    NAMED,
    OLLAMA_CHAT,
    OPENAI,
    OPENROUTER,
    TOGETHER,
    VLLM,
    XAI,
    ZAI,
    quirks_for,
)
from worker.projection import repair

STRICT = ChatQuirks(strict_alternation=True)
ALL: dict[str, tuple[ChatQuirks, Variant]] = {
    "openai": (OPENAI, "official"),
    "mistral": (MISTRAL, "mistral"),
    "strict": (STRICT, "strict"),
    **{
        name: (quirks, "compatible")
        for name, quirks in {
            "cerebras": CEREBRAS,
            "cerebras zai": CEREBRAS.for_model("zai-glm-4.7"),
            "compatible": COMPATIBLE,
            "dashscope": DASHSCOPE,
            "deepseek": DEEPSEEK,
            "fireworks": FIREWORKS,
            "groq": GROQ,
            "llama.cpp": LLAMA_SERVER,
            "lm studio": LM_STUDIO,
            "moonshot": MOONSHOT,
            "kimi": MOONSHOT.for_model("kimi-k2.6"),
            "ollama": OLLAMA_CHAT,
            "openrouter": OPENROUTER,
            "together": TOGETHER,
            "vllm": VLLM,
            "xai": XAI,
            "zai": ZAI,
        }.items()
    },
}
every_server = pytest.mark.parametrize(("quirks", "variant"), ALL.values(), ids=ALL.keys())
EVERYTHING = RequestOptions(
    max_tokens=100,
    temperature=0.5,
    reasoning_effort="xhigh",
    response_schema={"type": "object"},
    cache_key="conversation",
)


# --- which server ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base_url", "kind", "quirks"),
    [
        ("https://api.openai.com/v1", "openai", OPENAI),
        ("https://eu.api.openai.com/v1", "openai", OPENAI),
        ("https://mine.openai.azure.com/openai/v1", "openai_compatible", OPENAI),
        ("https://proxy.example/v1", "openai", OPENAI),
        ("https://openrouter.ai/api/v1", "openai_compatible", OPENROUTER),
        ("https://api.deepseek.com", "openai_compatible", DEEPSEEK),
        ("https://API.DeepSeek.com/v1", "openai_compatible", DEEPSEEK),
        ("https://user:key@api.groq.com/openai/v1", "openai_compatible", GROQ),
        ("https://api.mistral.ai:443/v1", "openai_compatible", MISTRAL),
        ("https://api.moonshot.cn/v1", "openai_compatible", MOONSHOT),
        ("https://api.kimi.com/coding/v1", "openai_compatible", MOONSHOT),
        ("https://api.x.ai/v1", "openai_compatible", XAI),
        ("https://api.together.xyz/v1", "openai_compatible", TOGETHER),
        ("https://api.fireworks.ai/inference/v1", "openai_compatible", FIREWORKS),
        ("https://api.cerebras.ai/v1", "openai_compatible", CEREBRAS),
        ("https://dashscope-intl.aliyuncs.com/compatible-mode/v1", "openai_compatible", DASHSCOPE),
        ("https://api.z.ai/api/paas/v4", "openai_compatible", ZAI),
        ("http://localhost:1234/v1", "openai_compatible", LM_STUDIO),
        ("http://[::1]:1234/v1", "openai_compatible", LM_STUDIO),
        ("http://localhost:11434/v1", "openai_compatible", OLLAMA_CHAT),
        ("http://localhost:8080/v1", "openai_compatible", COMPATIBLE),
        ("http://localhost:8080/v1", "local", LLAMA_SERVER),
        # A host that only looks like one of theirs is none of theirs.
        ("https://api.deepseek.com.example/v1", "openai_compatible", COMPATIBLE),
        ("https://notopenrouter.ai/v1", "openai_compatible", COMPATIBLE),
        ("https://example/api.deepseek.com", "openai_compatible", COMPATIBLE),
        ("http://[broken/v1", "openai_compatible", COMPATIBLE),
        ("", "openai_compatible", COMPATIBLE),
    ],
)
def test_the_host_tells_the_server(base_url: str, kind: str, quirks: ChatQuirks) -> None:
    assert quirks_for(base_url, kind) is quirks


def test_servers_without_a_host_of_their_own_have_names() -> None:
    assert NAMED == {"llama.cpp": LLAMA_SERVER, "lm_studio": LM_STUDIO, "vllm": VLLM}


def test_what_is_said_of_a_server_holds_for_each_of_its_models() -> None:
    strict = attrs.evolve(MOONSHOT, strict_alternation=True)
    assert strict.for_model("Kimi-K2.6").strict_alternation
    assert not strict.for_model("Kimi-K2.6").send_temperature
    assert strict.for_model("moonshot-v1-8k") is strict


# --- options --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("quirks", "model", "effort", "sent"),
    [
        (COMPATIBLE, MODEL, "high", {"reasoning_effort": "high"}),
        (OPENROUTER, MODEL, "xhigh", {"reasoning": {"effort": "xhigh"}}),
        (OPENROUTER, MODEL, "none", {"reasoning": {"effort": "none"}}),
        (DEEPSEEK, "deepseek-v4-pro", "max", {"reasoning_effort": "max"}),
        (DEEPSEEK, "deepseek-v4-pro", "none", {"thinking": {"type": "disabled"}}),
        (GROQ, "openai/gpt-oss-120b", "xhigh", {"reasoning_effort": "high"}),
        (GROQ, "qwen/qwen3-32b", "low", {"reasoning_effort": "default"}),
        (GROQ, "qwen/qwen3-32b", "none", {"reasoning_effort": "none"}),
        (MISTRAL, "mistral-medium-3.5", "low", {"reasoning_effort": "high"}),
        (MISTRAL, "mistral-medium-3.5", "none", {"reasoning_effort": "none"}),
        (MOONSHOT, "kimi-k3", "medium", {"reasoning_effort": "high"}),
        (MOONSHOT, "kimi-k2.6", "none", {"thinking": {"type": "disabled"}}),
        (XAI, "grok-4.3", "minimal", {"reasoning_effort": "low"}),
        (XAI, "grok-4.6", "xhigh", {"reasoning_effort": "xhigh"}),
        (XAI, "grok-4.20-0309-reasoning", "low", {}),
        (FIREWORKS, MODEL, "minimal", {"reasoning_effort": "low"}),
        (CEREBRAS, "gpt-oss-120b", "xhigh", {"reasoning_effort": "high"}),
        (CEREBRAS, "zai-glm-4.7", "high", {}),
        (DASHSCOPE, "qwen3.7-max", "low", {"enable_thinking": True}),
        (DASHSCOPE, "qwen3.7-max", "none", {"enable_thinking": False}),
        (ZAI, "glm-4.7", "low", {"thinking": {"type": "enabled"}}),
        (ZAI, "glm-4.7", "none", {"thinking": {"type": "disabled"}}),
        (ZAI, "glm-5.3", "medium", {"reasoning_effort": "high"}),
        (ChatQuirks(effort_form="none"), MODEL, "high", {}),
    ],
)
def test_a_reasoning_effort_is_said_as_the_server_says_it(
    quirks: ChatQuirks, model: str, effort: str, sent: dict[str, Any]
) -> None:
    plain = body(user_message("Hi"), quirks=quirks, model=model)
    asked = RequestOptions(reasoning_effort=effort)
    asked_body = body(user_message("Hi"), quirks=quirks, model=model, options=asked)
    assert {k: v for k, v in asked_body.items() if plain.get(k) != v} == sent


@pytest.mark.parametrize(
    ("quirks", "model", "has_temperature"),
    [
        (COMPATIBLE, MODEL, True),
        (OPENAI, "gpt-4.1", True),
        (OPENAI, "o3", False),
        (OPENAI, "an-unknown-one", True),
        (MOONSHOT, "moonshot-v1-32k", True),
        (MOONSHOT, "kimi-k2-0905-preview", True),
        (MOONSHOT, "kimi-k2.5", False),
        (MOONSHOT, "kimi-k2-thinking-turbo", False),
        (MOONSHOT, "kimi-k3", False),
        (MOONSHOT, "kimi-for-coding", False),
        (MOONSHOT, "k3-256k", False),
    ],
)
def test_a_temperature_is_left_out_where_the_model_refuses_it(
    quirks: ChatQuirks, model: str, has_temperature: bool
) -> None:
    asked = RequestOptions(temperature=0.5)
    sent = body(user_message("Hi"), quirks=quirks, model=model, options=asked)
    assert ("temperature" in sent) == has_temperature


def test_openai_models_are_asked_for_what_they_accept() -> None:
    asked = RequestOptions(reasoning_effort="max", temperature=0.5)
    sent = body(user_message("Hi"), quirks=OPENAI, model="o3", options=asked)
    assert sent["reasoning_effort"] == "high"

    # Some take tools in Chat Completions only while they do not reason.
    for effort in (None, "high"):
        asked = RequestOptions(reasoning_effort=effort, temperature=0.5)
        sent = body(
            user_message("Hi"), quirks=OPENAI, model="gpt-5.5", options=asked, tools=(TOOL,)
        )
        assert (sent["reasoning_effort"], sent["temperature"]) == ("none", 0.5)
    sent = body(user_message("Hi"), quirks=OPENAI, model="gpt-5.5", options=asked)
    assert sent["reasoning_effort"] == "high"
    assert "temperature" not in sent


@pytest.mark.parametrize(
    ("quirks", "cap", "usage", "schema", "cache_key", "parallel"),
    [
        (OPENAI, "max_completion_tokens", True, True, True, None),
        (COMPATIBLE, "max_tokens", True, True, False, None),
        (OPENROUTER, "max_tokens", True, True, False, None),
        (DEEPSEEK, "max_tokens", True, False, False, None),
        (GROQ, "max_completion_tokens", True, True, False, None),
        (MISTRAL, "max_tokens", False, True, False, None),
        (MOONSHOT, "max_tokens", True, True, True, None),
        (XAI, "max_completion_tokens", True, True, False, None),
        (FIREWORKS, "max_tokens", True, True, True, None),
        (CEREBRAS, "max_completion_tokens", True, True, True, None),
        (DASHSCOPE, "max_tokens", True, True, False, True),
        (ZAI, "max_tokens", True, False, False, None),
    ],
)
def test_the_other_options_are_those_that_the_server_knows(
    quirks: ChatQuirks, cap: str, usage: bool, schema: bool, cache_key: bool, parallel: bool | None
) -> None:
    sent = body(user_message("Hi"), quirks=quirks, options=EVERYTHING, tools=(TOOL,))
    assert sent[cap] == 100
    assert len({"max_tokens", "max_completion_tokens"} & sent.keys()) == 1
    assert ("stream_options" in sent) == usage
    assert ("response_format" in sent) == schema
    assert ("prompt_cache_key" in sent) == cache_key
    assert sent.get("parallel_tool_calls") is parallel
    assert "parallel_tool_calls" not in body(user_message("Hi"), quirks=quirks)


# --- ids of calls -----------------------------------------------------------------------------


def test_mistral_takes_nine_letters_and_digits() -> None:
    ids = ["c1", "abcDEF123", "call_0123456789abcdef", "toolu_01+/=", "functions.read:0"]
    told = [answer(*map(tool_call, ids)), *map(result, ids)]
    sent = messages(*told, user_message("And?"), quirks=MISTRAL)
    called = [call["id"] for call in sent[0]["tool_calls"]]
    assert all(len(call_id) == 9 and call_id.isalnum() for call_id in called)
    assert called[1] == "abcDEF123"
    assert len(set(called)) == len(ids)
    assert [each["tool_call_id"] for each in sent[1:6]] == called

    # Also in another process, and in another request.
    assert called == [call["id"] for call in messages(*told, quirks=MISTRAL)[0]["tool_calls"]]
    assert called[0] == MISTRAL.call_ids.sent("c1") == "EX25PQaAJ"


def test_no_two_ids_of_a_long_history_become_one() -> None:
    ids = [f"call_{number:x}" for number in range(20_000)]
    assert len({MISTRAL.call_ids.sent(call_id) for call_id in ids}) == len(ids)


@pytest.mark.parametrize("call_id", ["call_" + "x" * 60, "has space", "ünï", ""])
def test_openai_takes_up_to_forty_characters(call_id: str) -> None:
    sent = messages(answer(tool_call(call_id)), result(call_id), quirks=OPENAI)
    made = sent[0]["tool_calls"][0]["id"]
    assert made == sent[1]["tool_call_id"]
    assert len(made) <= 40
    assert made.isalnum()
    assert made != call_id


def test_other_servers_get_the_ids_that_they_gave() -> None:
    (sent,) = messages(answer(tool_call("functions.read:0")), quirks=MOONSHOT)
    assert sent["tool_calls"][0]["id"] == "functions.read:0"


@given(st.text(max_size=60))
def test_an_id_that_was_made_is_taken_as_it_is(call_id: str) -> None:
    ids = CallIds(r"[a-zA-Z0-9]{9}", 9)
    assert ids.sent(ids.sent(call_id)) == ids.sent(call_id)


# --- for every server -------------------------------------------------------------------------

HEADERS = {"content-type": "application/json", "authorization": "Bearer key"}


@every_server
@settings(max_examples=20)
@given(history=histories)
def test_any_repaired_history_is_a_request_that_the_server_takes(
    quirks: ChatQuirks, variant: Variant, history: list[Item]
) -> None:
    repaired = repair(history)
    scheme = OpenAiChatScheme(quirks)
    for provider, model in ((PROVIDER, MODEL), ("p", "m")):
        request = LlmRequest("S", repaired or [user_message("Hi")], (TOOL,), EVERYTHING)
        sent = scheme.encoder(provider, model).encode(request)
        check("/v1/chat/completions", sent, HEADERS, variant=variant)


@every_server
@settings(max_examples=20)
@given(history=histories, cut=st.integers(0, 14))
def test_a_request_begins_with_the_one_before(
    quirks: ChatQuirks, variant: Variant, history: list[Item], cut: int
) -> None:
    # What is repaired once stays: a group of results that is still open is not yet sent.
    before, after = repair(history[:cut]), repair(history)
    if after[: len(before)] != before:
        return

    encoder = OpenAiChatScheme(quirks).encoder("p", "m")
    first = encoder.encode(LlmRequest("S", before))
    second = encoder.encode(LlmRequest("S", after))
    # Reused bytes or not, the body is the same.
    assert second == OpenAiChatScheme(quirks).encoder("p", "m").encode(LlmRequest("S", after))

    # Where roles must fit, what ends a request may be joined to, or give way to, what comes next.
    ends_open = quirks.strict_alternation or (
        quirks.bridge_after_tools and before and isinstance(before[-1], AssistantMessage)
    )
    told, now = json.loads(first)["messages"], json.loads(second)["messages"]
    settled = told[:-1] if ends_open else told
    assert now[: len(settled)] == settled
    if not ends_open:
        assert second.startswith(first[: first.rindex(b'],"stream"')])


@every_server
def test_b02_b08_no_server_is_sent_an_empty_text(quirks: ChatQuirks, variant: Variant) -> None:
    sent = messages(answer(Text(" "), tool_call("c1")), result("c1"), quirks=quirks)
    assert next(each for each in sent if each["role"] == "assistant")["content"] is None


@every_server
def test_a07_an_id_that_comes_again_is_paired_within_its_turn(
    quirks: ChatQuirks, variant: Variant
) -> None:
    turns = [answer(tool_call("call_0")), result("call_0", "one"), answer(Text("Well."))]
    again = [user_message("Again"), answer(tool_call("call_0")), result("call_0", "two")]
    sent = messages(user_message("Hi"), *turns, *again, quirks=quirks)
    roles = ["user", "assistant", "tool", "assistant", "user", "assistant", "tool"]
    assert [each["role"] for each in sent] == roles
    assert (sent[2]["content"], sent[6]["content"]) == ("one", "two")
    assert sent[1]["tool_calls"][0]["id"] == sent[2]["tool_call_id"] == sent[6]["tool_call_id"]
