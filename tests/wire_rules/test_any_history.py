"""Whatever happened, and wherever it is cut: what leaves a scheme is what its provider accepts."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from attrs import evolve
from hypothesis import assume, example, given, note, settings
from hypothesis import strategies as st

from tests.wire_rules.checker import api_of
from tests.wire_rules.histories import HISTORIES, PROVIDERS, conversations
from tests.wire_rules.prefix import Prefixes
from tests.wire_rules.targets import TARGETS, Target
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
from worker.projection import repair

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
    thinking: object = None
    for added in growth:
        items += added
        sent = repair(items)
        if not sent:
            continue
        if isinstance(sent[-1], AssistantMessage):
            return  # nothing was said to it that can be sent, so no model would have gone on

        request = evolve(request_, items=tuple(sent))
        body = encoder.encode(request)
        note(body.decode())
        value = target.check(body)
        if value.get("thinking") != thinking:
            # Where another model answered without thought, a budget has to go, and what was
            # thought with it. The provider's cache of messages does not outlive that either.
            prefixes, thinking = Prefixes(), value.get("thinking")
        assert prefixes.check(api, value, "one client") is None
        assert body == target.encoder().encode(request)


@EACH_TARGET
def test_no_thought_and_no_proof_of_it_reaches_another_provider(target: Target) -> None:
    """C10: a history of every provider; each is sent what it thought itself, or nothing."""
    items: list[Item] = [HELLO]
    for name in PROVIDERS:
        words = f"thought-of-{name or 'nobody'}."
        for signature, blob in ((f"sig-{words}", None), (None, f"blob-{words}")):
            thought = Reasoning(words, signature, blob, name, "some-model")
            items += [answer(thought, Text("Yes."), provider=name), user_message("And?")]

    body = target.encoder().encode(evolve(PLAIN, items=tuple(repair(items)))).decode()

    foreign = [n for n in PROVIDERS if n != target.provider]
    assert [n for n in foreign if f"thought-of-{n or 'nobody'}." in body] == []
