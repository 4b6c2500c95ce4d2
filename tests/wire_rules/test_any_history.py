"""Whatever happened, and wherever it is cut: what leaves a scheme is what its provider accepts."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from attrs import evolve, frozen
from hypothesis import assume, example, given, note, settings
from hypothesis import strategies as st

from tests.wire_rules.checker import api_of, check
from tests.wire_rules.histories import HISTORIES, conversations
from tests.wire_rules.openai_chat_rules import Variant
from tests.wire_rules.prefix import Prefixes
from worker.items import (
    AssistantMessage,
    Item,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    new_uid,
    user_message,
)
from worker.llm import LlmRequest, RequestOptions, ToolSpec
from worker.llm.scheme import Encoder, Scheme
from worker.llm.schemes.anthropic import AnthropicScheme
from worker.llm.schemes.chat_quirks import ChatQuirks
from worker.llm.schemes.chat_servers import MISTRAL, MOONSHOT, NAMED, OPENAI, SERVERS
from worker.llm.schemes.gemini import GeminiScheme
from worker.llm.schemes.ollama import OllamaScheme
from worker.llm.schemes.openai_chat import OpenAiChatScheme
from worker.llm.schemes.openai_responses import OpenAiResponsesScheme
from worker.projection import repair


@frozen
class Target:
    """A scheme, and who it speaks to."""

    scheme: Scheme
    provider: str
    model: str
    variant: Variant | None = None

    def encoder(self) -> Encoder:
        return self.scheme.encoder(self.provider, self.model)

    def check(self, body: bytes) -> dict[str, object]:
        headers = {"content-type": "application/json", **self.scheme.headers("test-key")}
        path = self.scheme.path(self.model)
        return check(path, body, headers, variant=self.variant)


def _chat(quirks: ChatQuirks, model: str, variant: Variant = "compatible") -> Target:
    provider = "openai" if variant == "official" else "openai_compatible"
    return Target(OpenAiChatScheme(quirks), provider, model, variant)


CLAUDES = ("3-7-sonnet-20250219", "sonnet-4-5", "opus-4-6", "opus-4-8", "sonnet-5", "sonnet-5-5")
TARGETS = {
    **{f"claude-{m}": Target(AnthropicScheme(), "anthropic", f"claude-{m}") for m in CLAUDES},
    "OpenAI, gpt-4.1": _chat(OPENAI, "gpt-4.1", "official"),
    "OpenAI, gpt-5.4": _chat(OPENAI, "gpt-5.4", "official"),
    "strict alternation": _chat(ChatQuirks(strict_alternation=True), "gemma-3", "strict"),
    "Mistral": _chat(MISTRAL, "magistral-medium", "mistral"),
    **{
        f"{hosts[0]}": _chat(quirks, "deepseek-reasoner")
        for hosts, quirks in SERVERS
        if quirks not in (OPENAI, MISTRAL)
    },
    "kimi-k2.5": _chat(MOONSHOT, "kimi-k2.5"),
    **{name: _chat(quirks, "deepseek-reasoner") for name, quirks in NAMED.items()},
    "Responses, gpt-4.1": Target(OpenAiResponsesScheme(), "openai_responses", "gpt-4.1"),
    "Responses, gpt-5.4": Target(OpenAiResponsesScheme(), "openai_responses", "gpt-5.4"),
    "gemini-2.5-flash": Target(GeminiScheme(), "gemini", "gemini-2.5-flash"),
    "gemini-3-pro": Target(GeminiScheme(), "gemini", "gemini-3-pro-preview"),
    "ollama": Target(OllamaScheme(), "ollama", "qwen3"),
    "ollama, gpt-oss": Target(OllamaScheme(context_window=8192), "ollama", "gpt-oss:20b"),
}
EACH_TARGET = pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
TOOLS = (
    ToolSpec("write", "Writes.", SCHEMA),
    ToolSpec("read", "Reads.", {"type": "object"}),
    ToolSpec("ask", "Asks.", {"type": "object", "additionalProperties": False, "$defs": {}}),
)
REQUESTS = st.builds(
    LlmRequest,
    st.sampled_from(["", " ", "You help.", "你\ud800"]),
    st.just(()),
    st.sampled_from([(), TOOLS, TOOLS[:1]]),
    st.builds(
        RequestOptions,
        st.sampled_from([None, 1, 16, 1024, 1025, 8000]),
        st.sampled_from([None, 0.0, 0.2, 1.0]),
        st.sampled_from([None, "none", "minimal", "low", "medium", "high"]),
        st.sampled_from([None, SCHEMA]),
        st.none(),
        st.sampled_from([None, "0199f3a1-0000-7000-8000-000000000000"]),
    ),
)


def answer(*parts: Text | Reasoning | ToolCall, provider: str = "p") -> AssistantMessage:
    return AssistantMessage(new_uid(), parts, provider, "m", "end")


def call(call_id: str, arguments: str = "{}") -> ToolCall:
    return ToolCall(call_id, "read", arguments, new_uid())


def result(call_id: str, words: str = "done") -> ToolResult:
    return ToolResult(new_uid(), call_id, new_uid(), words, None, is_error=False)


PLAIN = LlmRequest("You help.", (), TOOLS)
HELLO = user_message("Hello")
ODD: dict[str, list[Item]] = {
    "the model begins": [answer(Text("Hello")), HELLO],
    "the model has the last word": [HELLO, answer(Text("Yes? "))],
    "a call id again in a later turn": [
        *(HELLO, answer(call("call_0")), result("call_0", "one")),
        *(HELLO, answer(call("call_0")), result("call_0", "two")),
    ],
    "text behind a call": [HELLO, answer(call("a"), Text("so"), call("b"))],
    "a result of nothing": [HELLO, result("z"), HELLO],
    "thinking of Claude's": [
        *(HELLO, answer(Reasoning("Hm.", "c2ln", None, "anthropic", "m"), call("a"))),
        result("a"),
    ],
}


@EACH_TARGET
@given(HISTORIES, st.integers(0, 12), REQUESTS)
@example(ODD["the model begins"], 0, PLAIN)
@example(ODD["the model has the last word"], 0, PLAIN)
@example(ODD["a call id again in a later turn"], 0, PLAIN)
@example(ODD["text behind a call"], 0, PLAIN)
@example(ODD["a result of nothing"], 0, PLAIN)
@example(ODD["thinking of Claude's"], 0, PLAIN)
@settings(max_examples=40)
def test_any_history_cut_anywhere_is_accepted(
    target: Target, items: Sequence[Item], cut: int, request_: LlmRequest
) -> None:
    sent = repair(items[cut:])
    assume(sent)
    body = target.encoder().encode(evolve(request_, items=tuple(sent)))
    note(body.decode())
    target.check(body)


@EACH_TARGET
@given(conversations(), REQUESTS)
@settings(max_examples=25)
def test_any_conversation_keeps_its_prefix(
    target: Target, growth: Sequence[Sequence[Item]], request_: LlmRequest
) -> None:
    """Each request is accepted, begins with the one before, and is what a new client would send."""
    api = api_of(target.scheme.path(target.model))
    assert api is not None
    encoder, prefixes, items = target.encoder(), Prefixes(), list[Item]()
    for added in growth:
        items += added
        sent = repair(items)
        if not sent or isinstance(sent[-1], AssistantMessage):
            continue

        request = evolve(request_, items=tuple(sent))
        body = encoder.encode(request)
        note(body.decode())
        assert prefixes.check(api, target.check(body), "one client") is None
        assert body == target.encoder().encode(request)
