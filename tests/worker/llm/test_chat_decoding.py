from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.worker.llm.wire import call_delta, chunk, usage_chunk
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
from worker.llm.failures import ReportedError
from worker.llm.schemes.chat.decoder import ChatDecoder

DONE = "[DONE]"
Chunk = dict[str, Any] | str


def ids() -> Callable[[], str]:
    numbers = itertools.count(1)
    return lambda: f"{next(numbers):032x}"


def feed(decoder: ChatDecoder, *chunks: Chunk) -> list[StreamEvent]:
    texts = [c if isinstance(c, str) else json.dumps(c) for c in chunks]
    return [event for text in texts for event in decoder.feed(text)]


def decoder() -> ChatDecoder:
    return ChatDecoder("openai_compatible", "m", new_id=ids())


def decode(*chunks: Chunk) -> tuple[list[StreamEvent], Answer]:
    fresh = decoder()
    return feed(fresh, *chunks), fresh.finish()


def calls(*deltas: dict[str, Any], finish: str = "tool_calls") -> list[tuple[str, str, str]]:
    _, answer = decode(*map(chunk, deltas), chunk(finish=finish), DONE)
    return [
        (part.call_id, part.name, part.arguments)
        for part in answer.parts
        if isinstance(part, ToolCall)
    ]


# --- text, reasoning, refusal -------------------------------------------------------------------


def test_text_arrives_in_deltas_and_as_one_part() -> None:
    events, answer = decode(
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": "Hel"}),
        chunk({"content": "lo"}),
        chunk(finish="stop"),
        usage_chunk(12, 3),
        DONE,
    )
    assert events == [TextDelta("Hel"), TextDelta("lo")]
    assert answer == Answer((Text("Hello"),), "end", Usage(12, 3), "m")


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
def test_reasoning_is_kept_apart_and_tagged(key: str) -> None:
    events, answer = decode(
        chunk({key: "Let me "}),
        chunk({key: "see."}),
        chunk({"content": "Hi"}),
        chunk(finish="stop"),
    )
    assert events == [ReasoningDelta("Let me "), ReasoningDelta("see."), TextDelta("Hi")]
    assert answer.parts == (
        Reasoning("Let me see.", provider="openai_compatible", model="m"),
        Text("Hi"),
    )


def test_thoughts_inside_the_content_are_reasoning() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    _, answer = decode(
        chunk({"content": [thinking, {"type": "text", "text": "Hi"}]}), chunk(finish="stop")
    )
    assert [type(part) for part in answer.parts] == [Reasoning, Text]
    assert answer.parts[0].text == "Hm."  # type: ignore[union-attr]  # a Reasoning, see above


def test_a_refusal_is_text_and_a_stop_reason() -> None:
    _, answer = decode(chunk({"refusal": "I can't."}), chunk(finish="stop"))
    assert (answer.stop_reason, answer.parts) == ("refusal", (Text("I can't."),))


@pytest.mark.parametrize(
    ("finish", "stop_reason"),
    [
        ("stop", "end"),
        ("length", "max_tokens"),
        ("content_filter", "content_filter"),
        ("model_length", "max_tokens"),
        ("something new", "end"),
        ("tool_calls", "end"),
    ],
)
def test_finish_reasons(finish: str, stop_reason: str) -> None:
    _, answer = decode(chunk({"content": "Hi"}), chunk(finish=finish))
    assert answer.stop_reason == stop_reason


def test_calls_make_the_stop_reason_whatever_the_server_says() -> None:
    _, answer = decode(chunk(call_delta(0, "a", "f", "{}")), chunk(finish="stop"))
    assert answer.stop_reason == "tool_calls"


def test_other_choices_are_left_out() -> None:
    other = {"choices": [{"index": 1, "delta": {"content": "other"}, "finish_reason": None}]}
    _, answer = decode(chunk({"content": "mine"}), other, chunk(finish="stop"))
    assert answer.parts == (Text("mine"),)


# --- hygiene ------------------------------------------------------------------------------------


def test_a_surrogate_pair_split_between_two_deltas_is_joined() -> None:
    first = '{"choices":[{"index":0,"delta":{"content":"a\\ud83c"}}]}'
    second = '{"choices":[{"index":0,"delta":{"content":"\\udf78b"}}]}'
    events, answer = decode(first, second, chunk(finish="stop"))
    assert events == [TextDelta("a"), TextDelta("\U0001f378b")]
    assert answer.parts == (Text("a\U0001f378b"),)


def test_g10_a_surrogate_pair_split_in_arguments_is_joined() -> None:
    def delta(arguments: str) -> dict[str, Any]:
        return call_delta(0, None, None, arguments)

    # Escaped inside the arguments' own JSON, and raw in the text that carries it.
    ((_, _, escaped),) = calls(
        call_delta(0, "a", "f", '{"x":"\\ud83c'), delta('\\udf78"}'), finish="tool_calls"
    )
    assert json.loads(escaped) == {"x": "\U0001f378"}
    ((_, _, raw),) = calls(call_delta(0, "a", "f", '{"x":"\ud83c'), delta('\udf78"}'))
    assert json.loads(raw) == {"x": "\U0001f378"}


def test_a_half_that_stays_alone_is_replaced() -> None:
    events, answer = decode(chunk({"content": "a\ud83c"}), chunk(finish="stop"))
    assert events == [TextDelta("a"), TextDelta("\ufffd")]
    assert answer.parts == (Text("a\ufffd"),)


def test_a_half_before_a_call_belongs_to_the_text() -> None:
    events, answer = decode(
        chunk({"content": "a\ud83c"}), chunk(call_delta(0, "c", "f", "{}")), chunk(finish="stop")
    )
    assert events[:3] == [TextDelta("a"), TextDelta("\ufffd"), ToolCallStart("c", "f")]
    assert answer.parts[0] == Text("a\ufffd")


@given(st.lists(st.text(st.characters(codec=None), max_size=4), max_size=8))
def test_any_text_comes_out_valid_and_the_deltas_make_up_the_part(pieces: list[str]) -> None:
    events, answer = decode(*(chunk({"content": piece}) for piece in pieces), chunk(finish="stop"))
    said = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert said == "".join(part.text for part in answer.parts if isinstance(part, Text))
    said.encode()


# --- tool calls ---------------------------------------------------------------------------------


def test_a_call_is_told_of_as_it_arrives() -> None:
    events, answer = decode(
        chunk(call_delta(0, "c1", "read", "")),
        chunk(call_delta(0, None, None, '{"pa')),
        chunk(call_delta(0, None, None, 'th":"a"}')),
        chunk(finish="tool_calls"),
        DONE,
    )
    assert events == [
        ToolCallStart("c1", "read"),
        ToolCallArgsDelta("c1", '{"pa'),
        ToolCallArgsDelta("c1", 'th":"a"}'),
        ToolCallDone("c1", "read", '{"path":"a"}'),
    ]
    assert answer.parts == (ToolCall("c1", "read", '{"path":"a"}', "0" * 31 + "1"),)


def test_text_before_and_between_calls_keeps_its_place() -> None:
    _, answer = decode(
        chunk({"content": "First"}),
        chunk(call_delta(0, "a", "f", "{}")),
        chunk({"content": "then"}),
        chunk(call_delta(1, "b", "g", "{}")),
        chunk(finish="tool_calls"),
    )
    assert [type(part) for part in answer.parts] == [Text, ToolCall, Text, ToolCall]


@pytest.mark.parametrize(
    ("deltas", "expected"),
    [
        pytest.param(
            [call_delta(0, "a", "f", '{"p":1}'), call_delta(0, "b", "f", '{"p":2}')],
            [("a", "f", '{"p":1}'), ("b", "f", '{"p":2}')],
            id="I01: parallel calls that all carry index 0",
        ),
        pytest.param(
            [
                call_delta(0, "a", "f", '{"p":'),
                call_delta(0, "b", "f", '{"q":'),
                call_delta(0, None, None, "2}"),
            ],
            [("a", "f", '{"p":'), ("b", "f", '{"q":2}')],
            id="I02: a fragment without id joins the newest call of its index",
        ),
        pytest.param(
            [
                call_delta(0, "a", "f", '{"p":'),
                call_delta(0, "b", "f", '{"q":'),
                call_delta(0, "a", None, "1}"),
                call_delta(0, None, None, "2}"),
            ],
            [("a", "f", '{"p":1}'), ("b", "f", '{"q":2}')],
            id="I02: a fragment with an id joins that call, and opens none",
        ),
        pytest.param(
            [
                call_delta(0, "a", "f", '{"p":'),
                call_delta(1, "b", "g", '{"q":'),
                call_delta(0, None, None, "1}"),
                call_delta(1, None, None, "2}"),
            ],
            [("a", "f", '{"p":1}'), ("b", "g", '{"q":2}')],
            id="interleaved by index",
        ),
        pytest.param(
            [call_delta(0, "a", "f", piece) for piece in ('{"', "p", '":', "1", "}")],
            [("a", "f", '{"p":1}')],
            id="I04: the id and name in every fragment",
        ),
        pytest.param(
            [call_delta(0, "a", "f", '{"x'), call_delta(0, None, None, '":1}')],
            [("a", "f", '{"x":1}')],
            id="I28: fragments without an id",
        ),
        pytest.param(
            [call_delta(None, "a", "f", '{"x'), call_delta(None, None, None, '":1}')],
            [("a", "f", '{"x":1}')],
            id="fragments without an index",
        ),
        pytest.param(
            [
                call_delta(0, "a", "f", "{}"),
                call_delta(1, "b", "g", '{"x'),
                call_delta(None, None, None, '":1}'),
            ],
            [("a", "f", "{}"), ("b", "g", '{"x":1}')],
            id="neither index nor id: on with the newest",
        ),
        pytest.param(
            [call_delta(0, "", "f", '{"p":1}'), call_delta(0, "", "g", '{"p":1}')],
            [
                ("call_000000000000", "f", '{"p":1}'),
                ("call_000000000000", "g", '{"p":1}'),
            ],
            id="no ids at all: minted, told apart by name",
        ),
        pytest.param(
            [call_delta(0, None, "f", ""), call_delta(0, "late", None, '{"p":1}')],
            [("call_000000000000", "f", '{"p":1}')],
            id="an id that comes late",
        ),
        pytest.param(
            [call_delta(0, "a", None, '{"p"'), call_delta(0, None, "f", ":1}")],
            [("a", "f", '{"p":1}')],
            id="a name that comes late",
        ),
        pytest.param(
            [call_delta(0, "a", "f", '{"p":1}'), call_delta(0, "a", "f", '{"p":1}')],
            [("a", "f", '{"p":1}'), ("a", "f", '{"p":1}')],
            id="a call said twice is kept twice",
        ),
        pytest.param(
            [call_delta(0, "a", "f", "")],
            [("a", "f", "")],
            id="I10: no arguments are kept as received",
        ),
        pytest.param(
            [call_delta(0, "a", "f", '{"content":"abc')],
            [("a", "f", '{"content":"abc')],
            id="I07: cut arguments with finish tool_calls are handed on as they are",
        ),
        pytest.param(
            [
                call_delta(0, "a", "f", ""),
                call_delta(0, "b", None, '{"x'),
                call_delta(0, "c", None, '":1}'),
            ],
            [("a", "f", '{"x":1}')],
            id="I28: another id with each fragment",
        ),
        pytest.param(
            [
                call_delta(0, "a", "f", "{}"),
                call_delta(0, "b", None, '{"q":1}'),
                call_delta(0, "b", "g"),
            ],
            [("a", "f", "{}"), ("b", "g", '{"q":1}')],
            id="I01: a second call of its index whose name comes late",
        ),
        pytest.param(
            [call_delta(0, None, "f", '{"p":1}'), call_delta(0, None, "f", '{"p":2}')],
            [("call_000000000000", "f", '{"p":1}'), ("call_000000000000", "f", '{"p":2}')],
            id="I01: index 0 and one name, without ids",
        ),
        *(
            pytest.param(
                [{"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": given}}]}],
                [("a", "f", kept)],
                id=f"I10: arguments that are {given!r}",
            )
            for given, kept in [
                ({"p": 1}, '{"p":1}'),
                ({"p": "\ud800"}, '{"p":"\ufffd"}'),
                ({}, "{}"),
                ([], ""),
                (None, ""),
                ([1], "[1]"),
                (3, "3"),
            ]
        ),
    ],
)
def test_which_call_a_fragment_belongs_to(
    deltas: list[dict[str, Any]], expected: list[tuple[str, str, str]]
) -> None:
    assert calls(*deltas) == expected


def test_minted_ids_differ() -> None:
    fresh = ChatDecoder("p", "m")
    feed(fresh, chunk(call_delta(0, "", "f", "{}")), chunk(call_delta(0, "", "g", "{}")))
    feed(fresh, chunk(finish="tool_calls"))
    first, second = (part for part in fresh.finish().parts if isinstance(part, ToolCall))
    assert first.call_id != second.call_id
    assert first.call_uid != second.call_uid


def test_calls_with_one_id_share_their_uid() -> None:
    _, answer = decode(
        chunk(call_delta(0, "a", "f", "{}")),
        chunk(call_delta(1, "a", "f", "{}")),
        chunk(call_delta(2, "b", "f", "{}")),
        chunk(finish="tool_calls"),
    )
    first, second, third = (part.call_uid for part in answer.parts if isinstance(part, ToolCall))
    assert first == second != third


@pytest.mark.parametrize("arguments", ['{"content":"abc', "", '{"a":1'])
def test_i23_i08_a_call_cut_by_the_output_cap_is_dropped(arguments: str) -> None:
    events, answer = decode(
        chunk(call_delta(0, "a", "f", '{"whole":true}')),
        chunk(call_delta(1, "b", "write", arguments)),
        chunk(finish="length"),
    )
    assert answer.stop_reason == "max_tokens"
    assert [part.call_id for part in answer.parts if isinstance(part, ToolCall)] == ["a"]
    assert [event.call_id for event in events if isinstance(event, ToolCallDone)] == ["a"]


def test_endless_arguments_are_refused() -> None:
    fresh = decoder()
    feed(fresh, chunk(call_delta(0, "a", "f", "{")))
    more = [chunk(call_delta(0, None, None, " " * 100_000))] * 11
    with pytest.raises(BadAnswer, match="1 MiB"):
        feed(fresh, *more)


# --- the end ------------------------------------------------------------------------------------


def test_i06_a_stream_that_closes_in_the_middle_of_a_call_is_broken() -> None:
    fresh = decoder()
    events = feed(fresh, chunk({"content": "Now"}), chunk(call_delta(0, "a", "f", '{"p":')))
    with pytest.raises(StreamBroken) as broken:
        fresh.finish()
    assert broken.value.partial == Answer((Text("Now"),), "partial", None, "m")
    assert not [event for event in events if isinstance(event, ToolCallDone)]


def test_the_end_marker_alone_ends_an_answer_but_not_a_cut_call() -> None:
    _, answer = decode(chunk({"content": "Hi"}), DONE)
    assert answer.stop_reason == "end"

    events, answer = decode(chunk(call_delta(0, "a", "f", '{"p":1}')), DONE)
    assert answer.stop_reason == "tool_calls"
    assert isinstance(events[-1], ToolCallDone)

    fresh = decoder()
    feed(fresh, chunk(call_delta(0, "a", "f", '{"p":')), DONE)
    with pytest.raises(StreamBroken):
        fresh.finish()


def test_the_end_marker_and_nothing_else_is_no_answer() -> None:
    fresh = decoder()
    feed(fresh, DONE)
    with pytest.raises(StreamBroken):
        fresh.finish()


def test_a_whole_completion_is_read_like_a_stream() -> None:
    fragments = [
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}},
        {"id": "b", "type": "function", "function": {"name": "f", "arguments": "{}"}},
    ]
    completion = {
        "object": "chat.completion",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hi", "tool_calls": fragments},
                "finish_reason": None,
            }
        ],
        "usage": {"prompt_tokens": 5, "completion_tokens": 2},
    }
    events, answer = decode(completion)
    assert [part.call_id for part in answer.parts if isinstance(part, ToolCall)] == ["a", "b"]
    assert isinstance(events[-1], ToolCallDone)
    assert answer.usage == Usage(5, 2)


@pytest.mark.parametrize(
    "first",
    [
        {"tool_calls": {"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"p":'}}},
        {"function_call": {"name": "f", "arguments": '{"p":'}},
        {"tool_calls": None, "function_call": {"name": "f", "arguments": '{"p":'}},
    ],
    ids=["no list", "of the time before lists", "null beside it"],
)
def test_calls_in_other_clothes_are_calls(first: dict[str, Any]) -> None:
    """Siblings of I28: nothing that is a call is lost without a word."""
    key = "function_call" if first.get("function_call") else "tool_calls"
    rest: dict[str, Any] = {"arguments": "1}"} if key == "function_call" else {}
    more = {key: rest or {"index": 0, "function": {"arguments": "1}"}}}
    assert [found[1:] for found in calls(first, more, finish="function_call")] == [("f", '{"p":1}')]


def test_i06_a_call_behind_the_finish_reason_is_a_call() -> None:
    """I06, the other way round: the finish reason came too early."""
    events, answer = decode(
        chunk({"content": "Hi"}),
        chunk(finish="tool_calls"),
        chunk(call_delta(0, "a", "f", "{}")),
        DONE,
    )
    assert [type(part) for part in answer.parts] == [Text, ToolCall]
    assert answer.stop_reason == "tool_calls"
    assert [event for event in events if isinstance(event, ToolCallDone)] == [
        ToolCallDone("a", "f", "{}")
    ]


@pytest.mark.parametrize(
    "arguments", [5, 1.5, True, [1], ["a"], '"text"', "[]", "{}{}", '{"a":1,}']
)
def test_i07_arguments_of_another_kind_are_kept_and_not_taken_for_none(arguments: Any) -> None:
    """I07, I10: what was received is kept; the worker answers it with an error."""
    delta = call_delta(0, "a", "f")
    delta["tool_calls"][0]["function"]["arguments"] = arguments
    ((_, _, kept),) = calls(delta)
    assert kept == (arguments if isinstance(arguments, str) else json.dumps(arguments))


@pytest.mark.parametrize("indexes", [(1,), (0, 1), (1, 0), ("0",), (None,)])
def test_one_answer_is_read_of_several(indexes: tuple[Any, ...]) -> None:
    """Siblings of I13: choices that are numbered from 1, or that nobody asked for."""
    texts = {index: f"of {index}" for index in indexes}
    choices = [{"index": at, "delta": {"content": said}} for at, said in texts.items()]
    ends = [{"index": at, "delta": {}, "finish_reason": "stop"} for at in indexes]
    _, answer = decode({"choices": choices}, {"choices": None}, {"choices": ends}, DONE)
    first = min(indexes) if len(indexes) > 1 else indexes[0]
    assert answer.parts == (Text(texts[first]),)


@pytest.mark.parametrize(
    ("reason", "stop_reason"),
    [
        ("MAX_TOKENS", "max_tokens"),
        ("STOP", "end"),
        ("end_turn", "end"),
        ("eos", "end"),
        ("something new", "end"),
        ("SAFETY", "content_filter"),
        ("recitation", "content_filter"),
        (None, "end"),
        ("", "end"),
        (7, "end"),
    ],
)
def test_finish_reasons_of_other_worlds(reason: Any, stop_reason: str) -> None:
    assert decode(chunk({"content": "Hi"}, finish=reason), DONE)[1].stop_reason == stop_reason


@pytest.mark.parametrize("reason", ["content_filter", "refusal", "sensitive"])
def test_what_was_filtered_or_refused_runs_nothing(reason: str) -> None:
    """Siblings of F04: as in the other dialects."""
    assert calls(call_delta(0, "a", "f", "{}"), finish=reason) == []
    assert calls({"refusal": "No."}, call_delta(0, "a", "f", "{}"), finish="stop") == []


# --- errors -------------------------------------------------------------------------------------


def test_an_error_is_an_error_also_beside_choices() -> None:
    fresh = decoder()
    feed(fresh, chunk({"reasoning": "We need"}), chunk(finish="length"))
    with pytest.raises(ReportedError) as reported:
        feed(fresh, chunk({"content": ""}, error={"code": 400, "message": "Token limit reached"}))
    assert reported.value.report.message == "Token limit reached"
    assert reported.value.report.status == 400


@pytest.mark.parametrize(
    "reason", ["error", "insufficient_system_resource", "network_error", "abort"]
)
def test_a_finish_reason_of_failure_is_an_error(reason: str) -> None:
    with pytest.raises(ReportedError):
        decode(chunk({"content": "Hi"}), chunk(finish=reason))


def test_c08_an_answer_that_spent_its_cap_on_reasoning_says_nothing_else() -> None:
    _, answer = decode(chunk({"reasoning": "Hm"}), chunk(finish="length"), DONE)
    assert answer.stop_reason == "max_tokens"
    assert answer.parts == (Reasoning("Hm", None, None, "openai_compatible", "m"),)


def test_tags_of_a_server_without_a_reasoning_parser_stay_text() -> None:
    _, answer = decode(chunk({"content": "<think>Hm</think>Hi"}), chunk(finish="stop"))
    assert answer.parts == (Text("<think>Hm</think>Hi"),)


@pytest.mark.parametrize("data", ["<html>", "[1]", "null", '"text"', "[" * 100_000])
def test_data_that_is_no_object_is_not_the_protocol(data: str) -> None:
    with pytest.raises(BadAnswer):
        decoder().feed(data)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
_keys = st.sampled_from(
    ["choices", "delta", "message", "content", "tool_calls", "function", "arguments", "name", "id",
     "index", "usage", "finish_reason", "reasoning", "error", "timings", "prompt_tokens_details"]
)  # fmt: skip
_shapes = st.recursive(
    _json,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=4),
    max_leaves=20,
)


@given(st.lists(st.dictionaries(_keys, _shapes, max_size=4), max_size=4))
def test_no_shape_of_json_breaks_the_decoder(chunks: list[dict[str, Any]]) -> None:
    fresh = decoder()
    try:
        feed(fresh, *chunks)
        answer = fresh.finish()
    except (ReportedError, BadAnswer, StreamBroken):
        return

    assert isinstance(answer, Answer)
