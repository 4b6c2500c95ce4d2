"""An event that repeats the last one with another text means what it would mean decoded."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.worker.llm import wire
from tests.worker.llm.client import ask
from tests.worker.llm.dialects import CHAT, DIALECTS, GEMINI, Dialect
from worker.errors import StreamBroken
from worker.llm import Answer, Answered, ReasoningDelta, StreamEvent, TextDelta, Usage
from worker.llm.endpoint import StreamLimits
from worker.llm.framing import framer_for
from worker.llm.repeats import Repeats

# What else stands in events, what has to be escaped, and what is no plain text.
TEXTS = st.one_of(
    st.sampled_from(
        ["m", "assistant", "text", "a", "", "null", '"', "\\", "\n", "}", '","', "\u2028"]
    ),
    st.sampled_from(["\ue000", "\ue001", "\x00", "\U0001f378", "choices", "0", "delta"]),
    st.text(max_size=12),
)


def with_halves(body: bytes) -> bytes:
    """`body` with halves of a surrogate pair, escaped, for two private characters."""
    body = body.replace("\ue000".encode(), rb"\ud83c").replace("\ue001".encode(), rb"\udf78")
    return body.replace(rb"\ue000", rb"\ud83c").replace(rb"\ue001", rb"\udf78")


def decoded(dialect: Dialect, body: bytes) -> tuple[list[StreamEvent], Answer]:
    """What `body` means, every event of it decoded."""
    scheme = dialect.scheme
    framer = framer_for(scheme.framing, b"", StreamLimits(), "p")
    decoder = scheme.decoder(dialect.provider, "m")
    events: list[StreamEvent] = []
    for text in (*framer.feed(body), *framer.close()):
        events += decoder.feed(text)
    return events, decoder.finish()


def through_client(dialect: Dialect, body: bytes) -> tuple[list[StreamEvent], Answer]:
    asked = dialect.client(handler=lambda _: httpx.Response(200, content=body))
    *events, last = asyncio.run(ask(asked))
    assert isinstance(last, Answered)
    return events, last.answer


@pytest.mark.parametrize("dialect", DIALECTS, ids=str)
@given(texts=st.lists(TEXTS, max_size=12))
def test_a_stream_means_the_same(dialect: Dialect, texts: list[str]) -> None:
    pieces = [dialect.text(text) for text in texts if dialect is CHAT or text]
    body = with_halves(b"".join((dialect.begin(), *pieces, dialect.end())))
    expected = decoded(dialect, body)
    assert through_client(dialect, body) == expected


@given(st.lists(st.tuples(st.sampled_from(["content", "reasoning_content"]), TEXTS), max_size=12))
def test_text_and_reasoning_in_turns_mean_the_same(said: list[tuple[str, str]]) -> None:
    chunks = [json.dumps(wire.chunk({key: text})) for key, text in said]
    body = with_halves(wire.sse(*chunks, wire.chunk(finish="stop")))
    assert through_client(CHAT, body) == decoded(CHAT, body)


def chunk(text: str, **more: Any) -> str:
    delta = {"choices": [{"index": 0, "delta": {"content": text}}], **more}
    return json.dumps(delta, separators=(",", ":"), ensure_ascii=False)


def test_a_repetition_is_recognised() -> None:
    repeats = Repeats()
    assert repeats.delta_of(chunk("a")) is None
    repeats.learn(chunk("one"), [TextDelta("one")])
    assert repeats.delta_of(chunk("two")) == TextDelta("two")
    assert repeats.delta_of(chunk('a "b"\n\\')) == TextDelta('a "b"\n\\')
    repeats.learn(chunk("one"), [ReasoningDelta("one")])
    assert repeats.delta_of(chunk("two")) == ReasoningDelta("two")


def test_what_means_nothing_may_differ() -> None:
    def data(text: str, number: int, padding: str, at: str) -> str:
        return (
            f'{{"sequence_number":{number},"created_at":"{at}","delta":"{text}",'
            f'"obfuscation":"{padding}"}}'
        )

    repeats = Repeats()
    repeats.learn(data("one", 9, "aB", "12:00"), [TextDelta("one")])
    assert repeats.delta_of(data("two", 10, "", "12:01")) == TextDelta("two")
    assert repeats.delta_of(data('a "b"', 11, "x", "12:02").replace('"b"', r"\"b\"")) == (
        TextDelta('a "b"')
    )
    assert repeats.delta_of(data("two", 10, "x", "12:01").replace("10", "true")) is None
    assert repeats.delta_of(data("two", 11, 'x","more":"y', "12:02")) is None
    assert repeats.delta_of(data("two", 11, "x", '12:02","error":"y')) is None
    assert repeats.delta_of(data("two", 11, "x", "12:02")[:-1] + ',"more":1}') is None


@pytest.mark.parametrize("dialect", [CHAT, GEMINI], ids=str)
@pytest.mark.parametrize("is_cut", [False, True])
def test_counts_that_differ_are_the_last_ones(dialect: Dialect, *, is_cut: bool) -> None:
    def counted(text: str, count: int) -> bytes:
        usage = {"prompt_tokens": 9, "completion_tokens": count, "details": {"audio": 0}}
        if dialect is GEMINI:
            usage = {"promptTokenCount": 9, "candidatesTokenCount": count, "details": {"audio": 0}}
        event = json.loads(dialect.text(text).removeprefix(b"data: "))
        event["usageMetadata" if dialect is GEMINI else "usage"] = usage
        return f"data: {json.dumps(event)}\n\n".encode()

    body = b"".join(counted(f"{number} ", number) for number in range(1, 30))
    if not is_cut:
        body += wire.sse({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        body = body if dialect is CHAT else body.replace(b"choices", b"candidates")
        body = body.replace(b"finish_reason", b"finishReason") if dialect is GEMINI else body
    asked = dialect.client(handler=lambda _: httpx.Response(200, content=body))
    if not is_cut:
        last = asyncio.run(ask(asked))[-1]
        assert isinstance(last, Answered)
        answer: Answer | None = last.answer
    else:
        with pytest.raises(StreamBroken) as broken:
            asyncio.run(ask(asked))
        answer = broken.value.partial
    assert answer is not None
    assert answer.usage == Usage(9, 29)


@pytest.mark.parametrize(
    "data",
    [
        chunk("two", usage={"prompt_tokens": 3}),
        chunk("two").replace('"index":0', '"index":1'),
        chunk("two").replace('"content"', '"reasoning"'),
        chunk("two").replace('"two"', '"two","tool_calls":[]'),
        chunk("two").replace('"two"', "2"),
        chunk("two").replace('"two"', '"t\two"'),
        chunk("two").replace('"two"', r'"t\xwo"'),
        chunk("two").replace('"two"', r'"\ud800"'),
        chunk(""),
        "[DONE]",
        "",
    ],
)
def test_what_differs_otherwise_is_decoded(data: str) -> None:
    repeats = Repeats()
    repeats.learn(chunk("one"), [TextDelta("one")])
    assert repeats.delta_of(data) is None


@pytest.mark.parametrize(
    ("data", "events"),
    [
        # The text stands in it twice, escaped, or not at all; or the event means more than text.
        (chunk("m", model="m"), [TextDelta("m")]),
        (chunk("a\nb"), [TextDelta("a\nb")]),
        (chunk("ab"), [TextDelta("a")]),
        (chunk("ab"), [TextDelta("a"), TextDelta("b")]),
        (chunk("ab"), []),
    ],
)
def test_what_is_not_plainly_one_text_is_not_learned(data: str, events: list[StreamEvent]) -> None:
    repeats = Repeats()
    repeats.learn(chunk("one"), [TextDelta("one")])
    repeats.learn(data, events)
    assert repeats.delta_of(chunk("two")) is None
    assert repeats.delta_of(data) is None


def test_a_stream_that_never_repeats_is_not_looked_at_for_ever() -> None:
    repeats = Repeats()
    for number in range(100):
        repeats.learn(chunk("one", usage=number), [TextDelta("one")])
    assert repeats.delta_of(chunk("two", usage=99)) is None
