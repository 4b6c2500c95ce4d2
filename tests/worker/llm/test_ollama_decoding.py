"""Answers of Ollama's native chat."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.errors import BadAnswer, StreamBroken
from worker.items import Reasoning, Text, ToolCall
from worker.llm import (
    Answer,
    ReasoningDelta,
    StreamEvent,
    TextDelta,
    ToolCallArgsDelta,
    ToolCallDone,
    ToolCallStart,
    Usage,
)
from worker.llm.reports import ReportedError
from worker.llm.schemes.ollama.decoder import OllamaDecoder

Line = dict[str, Any] | str


def line(content: str = "", **message: Any) -> dict[str, Any]:
    told = {"role": "assistant", "content": content, **message}
    return {"model": "qwen3", "created_at": "2026-11-30T12:00:00Z", "message": told, "done": False}


def end(reason: str | None = "stop", content: str = "", **fields: Any) -> dict[str, Any]:
    ended = {**line(content), "done": True, **fields}
    return ended if reason is None else ended | {"done_reason": reason}


def call(name: str = "read", arguments: object = None, **more: Any) -> dict[str, Any]:
    return {"function": {"name": name, "arguments": arguments or {}}, **more}


def ids() -> Callable[[], str]:
    numbers = itertools.count(1)
    return lambda: f"{next(numbers):032x}"


def decoder() -> OllamaDecoder:
    return OllamaDecoder("ollama", "qwen3", new_id=ids())


def feed(fresh: OllamaDecoder, *lines: Line) -> list[StreamEvent]:
    texts = [each if isinstance(each, str) else json.dumps(each) for each in lines]
    return [event for text in texts for event in fresh.feed(text)]


def decode(*lines: Line) -> tuple[list[StreamEvent], Answer]:
    fresh = decoder()
    return feed(fresh, *lines), fresh.finish()


def calls(*lines: Line) -> list[tuple[str, str, str]]:
    _, answer = decode(*lines)
    return [
        (part.call_id, part.name, part.arguments)
        for part in answer.parts
        if isinstance(part, ToolCall)
    ]


# --- text, thinking, calls --------------------------------------------------------------------


def test_thinking_and_text_arrive_in_deltas_and_as_parts() -> None:
    events, answer = decode(
        line(thinking="Let me "),
        line(thinking="see."),
        line("Hel"),
        line("lo"),
        end(prompt_eval_count=26, eval_count=5),
    )
    assert events == [
        *(ReasoningDelta("Let me "), ReasoningDelta("see."), TextDelta("Hel"), TextDelta("lo")),
    ]
    thought = Reasoning("Let me see.", provider="ollama", model="qwen3")
    assert answer == Answer((thought, Text("Hello")), "end", Usage(26, 5), "qwen3")


def test_a_call_comes_whole() -> None:
    events, answer = decode(line(tool_calls=[call("read", {"path": "a"}, id="call_x")]), end())
    assert events == [
        ToolCallStart("call_x", "read"),
        ToolCallArgsDelta("call_x", '{"path":"a"}'),
        ToolCallDone("call_x", "read", '{"path":"a"}'),
    ]
    assert answer.stop_reason == "tool_calls"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param(
            [line(tool_calls=[call("f", {"p": 1}, id="a"), call("f", {"p": 2}, id="b")])],
            [("a", "f", '{"p":1}'), ("b", "f", '{"p":2}')],
            id="I01: several in one line",
        ),
        pytest.param(
            [line(tool_calls=[call("f", {"p": 1})]), line(tool_calls=[call("f", {"p": 1})])],
            [("call_000000000000", "f", '{"p":1}'), ("call_000000000000", "f", '{"p":1}')],
            id="I01: several lines, equal and without ids",
        ),
        pytest.param(
            [line(tool_calls=[call("f", {"p": 1}, id="a"), call("f", {"p": 2}, id="a")])],
            [("a", "f", '{"p":1}'), ("a", "f", '{"p":2}')],
            id="one id for two",
        ),
        pytest.param(
            [line(tool_calls=[call("f")])], [("call_000000000000", "f", "{}")], id="I10: none"
        ),
        pytest.param(
            [line(tool_calls=[{"id": "a", "function": {"name": "f", "arguments": '{"p": 1}'}}])],
            [("a", "f", '{"p": 1}')],
            id="arguments as text, from a proxy",
        ),
        pytest.param(
            [line(tool_calls=[{"id": "a", "function": {"name": "f", "arguments": None}}])],
            [("a", "f", "")],
            id="I10: null",
        ),
        pytest.param(
            [line(tool_calls=[call("f", {"n": 123456789012345678901234567890}, id="a")])],
            [("a", "f", '{"n":123456789012345678901234567890}')],
            id="a number that no float holds",
        ),
        pytest.param(
            [line(tool_calls=[{"function": "f"}, "f", None])],
            [("call_000000000000", "", "")] * 3,
            id="no functions at all: the model hears of it",
        ),
        pytest.param([end(tool_calls=None)], [], id="null"),
    ],
)
def test_which_calls_there_are(lines: list[Line], expected: list[tuple[str, str, str]]) -> None:
    assert calls(*lines, end()) == expected


def test_text_keeps_its_place_among_calls() -> None:
    _, answer = decode(
        line("First", thinking="Hm"), line(tool_calls=[call()]), line("then"), end(content="!")
    )
    assert [type(part) for part in answer.parts] == [Reasoning, Text, ToolCall, Text]
    assert answer.parts[-1] == Text("then!")


# --- the end ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "stop_reason"),
    [("stop", "end"), (None, "end"), ("", "end"), ("length", "max_tokens"), ("new one", "end")],
)
def test_why_an_answer_ends(reason: str | None, stop_reason: str) -> None:
    _, answer = decode(line("Hi"), end(reason))
    assert answer.stop_reason == stop_reason


def test_i23_a_call_cut_by_the_output_cap_is_dropped() -> None:
    cut = {"id": "b", "function": {"name": "write", "arguments": '{"text":"abc'}}
    events, answer = decode(line("Hi", tool_calls=[call(id="a"), cut]), end("length"))
    assert [part.call_id for part in answer.parts if isinstance(part, ToolCall)] == ["a"]
    assert [event.call_id for event in events if isinstance(event, ToolCallDone)] == ["a"]
    assert answer.stop_reason == "max_tokens"


def test_i06_a_stream_that_ends_before_its_last_line_is_broken() -> None:
    fresh = decoder()
    events = feed(fresh, line("Now", thinking="Hm"), line(tool_calls=[call()]))
    with pytest.raises(StreamBroken) as broken:
        fresh.finish()
    assert broken.value.partial is not None
    assert [type(part) for part in broken.value.partial.parts] == [Reasoning, Text]
    assert not [event for event in events if isinstance(event, ToolCallDone)]
    assert not fresh.is_complete


def test_nothing_after_the_end_is_part_of_the_answer() -> None:
    fresh = decoder()
    feed(fresh, line("Hi"), end())
    assert fresh.is_complete
    assert fresh.is_done
    assert feed(fresh, line("more"), {"error": "late"}, "no json") == []
    assert fresh.finish().parts == (Text("Hi"),)


def test_a_whole_answer_is_read_like_a_stream() -> None:
    whole = end(content="Hi", prompt_eval_count=5, eval_count=2)
    whole["message"] |= {"thinking": "Hm", "tool_calls": [call(id="a")]}
    _, answer = decode(whole)
    assert [type(part) for part in answer.parts] == [Reasoning, Text, ToolCall]
    assert answer.usage == Usage(5, 2)


@pytest.mark.parametrize("reason", ["load", "unload"])
def test_a_model_that_was_only_loaded_has_not_answered(reason: str) -> None:
    with pytest.raises(ReportedError, match=f"only {reason}ed"):
        feed(decoder(), end(reason))


def test_a_loading_that_did_answer_is_an_answer() -> None:
    _, answer = decode(line("Hi"), end("load"))
    assert answer.parts == (Text("Hi"),)


# --- usage ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "usage"),
    [
        ({"prompt_eval_count": 26, "eval_count": 298}, Usage(26, 298)),
        ({"eval_count": 298}, Usage(None, 298)),
        ({"prompt_eval_count": 26}, Usage(26, None)),
        ({"prompt_eval_count": 0, "eval_count": 3}, Usage(None, 3)),
        ({"prompt_eval_count": -1, "eval_count": "3"}, None),
        ({"prompt_eval_count": True, "eval_count": 1.5}, None),
        ({}, None),
    ],
)
def test_usage_is_what_was_told_and_never_a_sentinel(
    fields: dict[str, Any], usage: Usage | None
) -> None:
    _, answer = decode(line("Hi"), end(**fields))
    assert answer.usage == usage


# --- errors, and what is no answer ------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"error": "model 'x' not found"}, "model 'x' not found"),
        ({"error": {"message": "overloaded", "code": 529}}, "overloaded"),
    ],
)
def test_i21_an_error_is_one_also_inside_the_stream(told: dict[str, Any], message: str) -> None:
    fresh = decoder()
    feed(fresh, line("Hi"))
    with pytest.raises(ReportedError) as reported:
        feed(fresh, told)
    assert reported.value.report.message == message
    assert fresh.partial() == Answer((Text("Hi"),), "partial", None, "qwen3")


@pytest.mark.parametrize("data", ["<html>", "[1]", "null", '"text"', "[" * 100_000, "", "{"])
def test_data_that_is_no_object_is_not_the_protocol(data: str) -> None:
    with pytest.raises(BadAnswer):
        decoder().feed(data)


@pytest.mark.parametrize(
    "odd", [{}, {"message": None}, {"message": []}, {"message": {"content": 3}}, {"done": "yes"}]
)
def test_a_line_that_says_nothing_is_skipped(odd: dict[str, Any]) -> None:
    events, answer = decode(odd, line("Hi"), odd, end())
    assert events == [TextDelta("Hi")]
    assert answer.parts == (Text("Hi"),)


def test_endless_arguments_are_refused() -> None:
    with pytest.raises(BadAnswer, match="1 MiB"):
        feed(decoder(), line(tool_calls=[call("f", {"x": "y" * (1 << 20)})]))


@given(st.lists(st.text(st.characters(codec=None), max_size=4), max_size=8))
def test_any_text_comes_out_valid_and_the_deltas_make_up_the_part(pieces: list[str]) -> None:
    events, answer = decode(*map(line, pieces), end())
    said = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert said == "".join(part.text for part in answer.parts if isinstance(part, Text))
    said.encode()


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
_keys = st.sampled_from(
    ["message", "content", "thinking", "tool_calls", "function", "arguments", "name", "id",
     "done", "done_reason", "prompt_eval_count", "eval_count", "error"]
)  # fmt: skip
_shapes = st.recursive(
    _json,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=4),
    max_leaves=20,
)


@given(st.lists(st.dictionaries(_keys, _shapes, max_size=5), max_size=4))
def test_no_shape_of_json_breaks_the_decoder(lines: list[dict[str, Any]]) -> None:
    fresh = decoder()
    try:
        feed(fresh, *lines)
        answer = fresh.finish()
    except (ReportedError, BadAnswer, StreamBroken):
        return

    assert isinstance(answer, Answer)
