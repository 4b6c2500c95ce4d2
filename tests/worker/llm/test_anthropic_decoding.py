"""Anthropic's streams: what each event means, and what is left of a stream that goes wrong."""

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
from worker.llm.schemes.anthropic.decoder import AnthropicDecoder

Event = dict[str, Any]
STOP: Event = {"type": "message_stop"}


def ids() -> Callable[[], str]:
    numbers = itertools.count(1)
    return lambda: f"{next(numbers):032x}"


def start(message_id: str = "msg_1", **usage: Any) -> Event:
    message: Event = {"id": message_id, "type": "message", "role": "assistant", "content": []}
    return {"type": "message_start", "message": message | ({"usage": usage} if usage else {})}


def block(index: int, kind: str, *deltas: Event, stop: bool = True, **fields: Any) -> list[Event]:
    """One content block: its start, its deltas, its stop."""
    events: list[Event] = [
        {
            "type": "content_block_start",
            "index": index,
            "content_block": {"type": kind, **fields},
        }
    ]
    events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
    return events + ([{"type": "content_block_stop", "index": index}] if stop else [])


def text(index: int, *pieces: str, stop: bool = True) -> list[Event]:
    deltas = [{"type": "text_delta", "text": piece} for piece in pieces]
    return block(index, "text", *deltas, stop=stop, text="")


def thinking(index: int, thought: str, signature: str) -> list[Event]:
    deltas = [
        {"type": "thinking_delta", "thinking": thought},
        {"type": "signature_delta", "signature": signature},
    ]
    return block(index, "thinking", *deltas, thinking="", signature="")


def call(
    index: int,
    call_id: str,
    *pieces: str,
    name: str = "read",
    given: Event | None = None,
    stop: bool = True,
) -> list[Event]:
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    return block(index, "tool_use", *deltas, stop=stop, id=call_id, name=name, input=given or {})


def end(reason: str | None = "end_turn", **usage: Any) -> Event:
    delta = {"stop_reason": reason, "stop_sequence": None}
    return {"type": "message_delta", "delta": delta} | ({"usage": usage} if usage else {})


def decoder() -> AnthropicDecoder:
    return AnthropicDecoder("anthropic", "claude", new_id=ids())


def feed(into: AnthropicDecoder, *events: Event | str) -> list[StreamEvent]:
    texts = [event if isinstance(event, str) else json.dumps(event) for event in events]
    return [told for data in texts for told in into.feed(data)]


def decode(*events: Event | str) -> tuple[list[StreamEvent], Answer]:
    fresh = decoder()
    return feed(fresh, *events), fresh.finish()


def calls(answer: Answer) -> list[tuple[str, str, str]]:
    found = [part for part in answer.parts if isinstance(part, ToolCall)]
    return [(part.call_id, part.name, part.arguments) for part in found]


# --- blocks -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["text", "thinking"])
def test_more_of_the_last_delta_is_part_of_it(kind: str) -> None:
    fresh = decoder()
    opened = block(0, kind, {"type": f"{kind}_delta", kind: "Hel"}, stop=False)
    feed(fresh, start(), *opened)
    fresh.more("lo", "")
    feed(fresh, {"type": "content_block_stop", "index": 0}, *text(1, "!"), end())
    assert [part.text for part in fresh.finish().parts if not isinstance(part, ToolCall)] == [
        "Hello",
        "!",
    ]


def test_text_arrives_in_deltas_and_as_one_part() -> None:
    events, answer = decode(
        start(input_tokens=12, output_tokens=1),
        {"type": "ping"},
        *text(0, "Hel", "lo"),
        end(output_tokens=3),
        STOP,
    )
    assert events == [TextDelta("Hel"), TextDelta("lo")]
    assert answer == Answer((Text("Hello"),), "end", Usage(12, 3), "claude")


def test_thinking_is_kept_with_its_signature_and_tagged() -> None:
    events, answer = decode(start(), *thinking(0, "Hm.", "c2ln"), *text(1, "Hi"), end(), STOP)
    assert events == [ReasoningDelta("Hm."), TextDelta("Hi")]
    assert answer.parts == (
        Reasoning("Hm.", "c2ln", provider="anthropic", model="claude"),
        Text("Hi"),
    )


def test_thinking_without_text_is_kept_for_its_signature() -> None:
    # What `display: omitted` comes to.
    signed = {"type": "signature_delta", "signature": "c2ln"}
    _, answer = decode(start(), *block(0, "thinking", signed, thinking=""), *text(1, "Hi"), end())
    assert answer.parts[0] == Reasoning("", "c2ln", provider="anthropic", model="claude")


@pytest.mark.parametrize(
    "deltas",
    [
        [],
        [{"type": "signature_delta", "signature": "c2ln"}],
    ],
)
def test_a_signature_that_the_block_begins_with_is_taken_once(deltas: list[Event]) -> None:
    events = block(0, "thinking", *deltas, thinking="Hm.", signature="c2ln")
    _, answer = decode(start(), *events, *text(1, "Hi"), end())
    assert answer.parts[0] == Reasoning("Hm.", "c2ln", provider="anthropic", model="claude")


def test_a_signature_in_pieces_is_put_together() -> None:
    pieces = [{"type": "signature_delta", "signature": piece} for piece in ("c2", "ln")]
    _, answer = decode(
        start(), *block(0, "thinking", *pieces, thinking="Hm."), *text(1, "."), end()
    )
    assert answer.parts[0] == Reasoning("Hm.", "c2ln", provider="anthropic", model="claude")


def test_redacted_thinking_is_kept_as_it_is() -> None:
    events = block(0, "redacted_thinking", data="ZW5jcnlwdGVk")
    _, answer = decode(start(), *events, *text(1, "Hi"), end())
    assert answer.parts[0] == Reasoning(
        "", None, "ZW5jcnlwdGVk", provider="anthropic", model="claude"
    )


def test_interleaved_blocks_keep_their_order() -> None:
    _, answer = decode(
        start(),
        *thinking(0, "one", "S1"),
        *text(1, "Let me look."),
        *thinking(2, "two", "S2"),
        *call(3, "toolu_1", '{"path":"a"}'),
        *thinking(4, "three", "S3"),
        end("tool_use"),
        STOP,
    )
    kinds = [type(part).__name__ for part in answer.parts]
    assert kinds == ["Reasoning", "Text", "Reasoning", "ToolCall", "Reasoning"]
    signatures = [part.signature for part in answer.parts if isinstance(part, Reasoning)]
    assert signatures == ["S1", "S2", "S3"]


def test_a_call_is_told_of_as_it_arrives() -> None:
    events, answer = decode(
        start(), *call(0, "toolu_1", "", '{"pa', 'th":"a"}'), end("tool_use"), STOP
    )
    assert events == [
        ToolCallStart("toolu_1", "read"),
        ToolCallArgsDelta("toolu_1", '{"pa'),
        ToolCallArgsDelta("toolu_1", 'th":"a"}'),
        ToolCallDone("toolu_1", "read", '{"path":"a"}'),
    ]
    assert answer.stop_reason == "tool_calls"
    assert answer.parts == (ToolCall("toolu_1", "read", '{"path":"a"}', "0" * 31 + "1"),)


def test_parallel_calls_keep_their_own_arguments() -> None:
    # I01: also where the blocks are interleaved.
    first, second = call(0, "a", '{"p":', "1}"), call(1, "b", '{"p":', "2}")
    mixed = [event for pair in zip(first, second, strict=True) for event in pair]
    _, answer = decode(start(), *mixed, end("tool_use"))
    assert calls(answer) == [("a", "read", '{"p":1}'), ("b", "read", '{"p":2}')]


def test_calls_that_all_have_one_index_are_calls_of_their_own() -> None:
    # I01, of proxies that number everything 0.
    _, answer = decode(start(), *call(0, "a", '{"p":1}'), *call(0, "b", '{"p":2}'), end("tool_use"))
    assert calls(answer) == [("a", "read", '{"p":1}'), ("b", "read", '{"p":2}')]


@pytest.mark.parametrize("pieces", [(), ("",)])
def test_a_call_without_arguments_has_an_empty_object(pieces: tuple[str, ...]) -> None:
    # I10
    events, answer = decode(start(), *call(0, "a", *pieces), end("tool_use"))
    assert calls(answer) == [("a", "read", "{}")]
    assert events[-1] == ToolCallDone("a", "read", "{}")


def test_arguments_may_come_with_the_start_of_the_block() -> None:
    events, answer = decode(start(), *call(0, "a", given={"path": "ä"}), end("tool_use"))
    assert calls(answer) == [("a", "read", '{"path":"ä"}')]
    assert ToolCallArgsDelta("a", '{"path":"ä"}') in events


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (None, "{}"),
        ([], "{}"),
        ("", "{}"),
        ([1], "[1]"),
        (5, "5"),
        ('{"p":1}', '{"p":1}'),
        ('{"p":1,}', '{"p":1,}'),
    ],
)
def test_i07_what_a_block_begins_with_is_kept_as_it_came(given: Any, kept: str) -> None:
    """I07, I10: a tool must not run with nothing where something was sent."""
    began = block(0, "tool_use", id="a", name="read", input=given)
    _, answer = decode(start(), *began, end("tool_use"), STOP)
    assert calls(answer) == [("a", "read", kept)]
    _, answer = decode(
        {"type": "message", "content": [began[0]["content_block"]], "stop_reason": "tool_use"}
    )
    assert calls(answer) == [("a", "read", kept)]


def test_a_call_without_an_id_gets_one() -> None:
    _, answer = decode(start(), *call(0, "", '{"p":1}'), end("tool_use"))
    ((call_id, _, _),) = calls(answer)
    assert call_id.startswith("toolu_")


def test_an_empty_text_block_is_no_part() -> None:
    # B02
    _, answer = decode(start(), *text(0), *call(1, "a", "{}"), end("tool_use"))
    assert [type(part) for part in answer.parts] == [ToolCall]


def test_a_block_may_begin_with_its_first_delta() -> None:
    """Siblings of I24: nothing that was said is lost where a proxy leaves the beginning out."""
    events, answer = decode(
        start(),
        *block(0, "thinking", {"type": "thinking_delta", "thinking": "Hm"})[1:],
        *text(1, "Hel", "lo")[1:],
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "!"}},
        end(),
        STOP,
    )
    assert events == [ReasoningDelta("Hm"), TextDelta("Hel"), TextDelta("lo")]
    assert [part.text for part in answer.parts if not isinstance(part, ToolCall)] == ["Hm", "Hello"]


@pytest.mark.parametrize(
    "more", [{"type": "message"}, {}], ids=["as documented", "without its type"]
)
@pytest.mark.parametrize("content", ["Hi", [{"type": "text", "text": "Hi"}]])
def test_an_answer_that_was_not_streamed_is_read(more: Event, content: object) -> None:
    whole = {"id": "m", "role": "assistant", "content": content, "stop_reason": "max_tokens"}
    events, answer = decode({**whole, **more, "usage": {"input_tokens": 3, "output_tokens": 2}})
    assert events == [TextDelta("Hi")]
    assert answer == Answer((Text("Hi"),), "max_tokens", Usage(3, 2), "claude")


def test_blocks_and_events_that_are_none_of_ours_are_skipped() -> None:
    searched = {"type": "input_json_delta", "partial_json": '{"query":"x"}'}
    events, answer = decode(
        start(),
        {"type": "something_new", "index": 0},
        *block(0, "server_tool_use", searched, id="srvtoolu_1", name="web_search", input={}),
        *block(1, "web_search_tool_result", tool_use_id="srvtoolu_1", content=[]),
        *block(2, "text", {"type": "citations_delta", "citation": {}}, text="Found"),
        *block(3, "fallback", to={"model": "b"}),
        end("end_turn"),
        STOP,
    )
    assert events == [TextDelta("Found")]
    assert (answer.parts, answer.stop_reason) == ((Text("Found"),), "end")


def test_a_delta_of_no_block_is_skipped() -> None:
    stray = {"type": "content_block_delta", "index": 7, "delta": {"type": "text_delta"}}
    _, answer = decode(start(), stray, *text(0, "Hi"), end())
    assert answer.parts == (Text("Hi"),)


def test_arguments_over_a_mebibyte_are_refused() -> None:
    with pytest.raises(BadAnswer, match="over 1 MiB"):
        decode(start(), *call(0, "a", '{"x":"', "y" * (1 << 20)))


# --- hygiene ------------------------------------------------------------------------------------


def test_a_surrogate_pair_split_between_two_deltas_is_joined() -> None:
    # G10
    first = '{"type":"content_block_delta","index":0,"delta":{"text":"a\\ud83c"}}'
    second = '{"type":"content_block_delta","index":0,"delta":{"text":"\\udf78b"}}'
    _, answer = decode(start(), *text(0, stop=False), first, second, end())
    assert answer.parts == (Text("a\U0001f378b"),)


def test_a_half_that_stays_alone_is_replaced() -> None:
    # G09
    events, answer = decode(start(), *text(0, "a\ud83c"), end())
    assert events == [TextDelta("a"), TextDelta("\ufffd")]
    assert answer.parts == (Text("a\ufffd"),)


@given(st.lists(st.text(st.characters(codec=None), max_size=4), max_size=8))
def test_any_text_comes_out_valid_and_the_deltas_make_up_the_part(pieces: list[str]) -> None:
    events, answer = decode(start(), *text(0, *pieces), end())
    said = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert said == "".join(part.text for part in answer.parts if isinstance(part, Text))
    said.encode()


# --- the end ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "stop_reason"),
    [
        ("end_turn", "end"),
        ("tool_use", "end"),
        ("max_tokens", "max_tokens"),
        ("model_context_window_exceeded", "max_tokens"),
        ("stop_sequence", "stop_sequence"),
        ("refusal", "refusal"),
        ("sensitive", "content_filter"),
        ("pause_turn", "end"),
        ("something new", "end"),
    ],
)
def test_stop_reasons(reason: str, stop_reason: str) -> None:
    _, answer = decode(start(), *text(0, "Hi"), end(reason), STOP)
    assert answer.stop_reason == stop_reason


def test_calls_make_the_stop_reason_whatever_the_server_says() -> None:
    _, answer = decode(start(), *call(0, "a", "{}"), end("end_turn"))
    assert answer.stop_reason == "tool_calls"


def test_a_refusal_with_empty_content_is_an_answer_without_parts() -> None:
    # F04
    details = {"type": "refusal", "category": "cyber", "explanation": "No."}
    refused = end("refusal", output_tokens=5)
    refused["delta"]["stop_details"] = details
    _, answer = decode(start(input_tokens=18, output_tokens=1), refused, STOP)
    assert answer == Answer((), "refusal", Usage(18, 5), "claude")


def test_the_calls_of_a_refused_answer_never_run() -> None:
    events, answer = decode(start(), *text(0, "So"), *call(1, "a", '{"p":1}'), end("refusal"))
    assert answer.parts == (Text("So"),)
    assert not any(isinstance(event, ToolCallDone) for event in events)


def test_a_call_that_the_output_cap_cut_is_dropped() -> None:
    # I08, I23
    events, answer = decode(
        start(),
        *call(0, "a", '{"p":1}'),
        *call(1, "b"),
        *call(2, "c", '{"content":"abc'),
        end("max_tokens"),
        STOP,
    )
    assert answer.stop_reason == "max_tokens"
    assert calls(answer) == [("a", "read", '{"p":1}'), ("b", "read", "{}")]
    done = [event.call_id for event in events if isinstance(event, ToolCallDone)]
    assert done == ["a", "b"]


def test_a_call_that_was_cut_before_its_arguments_is_dropped() -> None:
    _, answer = decode(start(), *text(0, "So"), *call(1, "a"), end("max_tokens"))
    assert answer.parts == (Text("So"),)


def test_arguments_that_are_cut_although_the_answer_ended_are_kept_as_received() -> None:
    # I07: the worker answers such a call with an error, and never runs it.
    _, answer = decode(start(), *call(0, "a", '{"content":"abc'), end("tool_use"))
    assert calls(answer) == [("a", "read", '{"content":"abc')]


def test_an_end_without_a_stop_reason_holds_where_every_block_has_ended() -> None:
    _, answer = decode(start(), *text(0, "Hi"), STOP)
    assert (answer.parts, answer.stop_reason) == ((Text("Hi"),), "end")


@pytest.mark.parametrize(
    "events",
    [
        [],
        [start()],
        [start(), *text(0, "Hi")],
        [start(), *text(0, "Hi", stop=False), STOP],
        [start(), *call(0, "a", '{"p":', stop=False)],
        [start(), *call(0, "a", '{"p":1}'), end(None)],
    ],
)
def test_a_stream_that_ends_early_is_broken(events: list[Event]) -> None:
    # I06
    fresh = decoder()
    feed(fresh, *events)
    assert not fresh.is_complete
    with pytest.raises(StreamBroken) as caught:
        fresh.finish()
    kept = caught.value.partial.parts if caught.value.partial else ()
    assert not any(isinstance(part, ToolCall) for part in kept)


def test_what_had_arrived_is_in_the_partial_answer() -> None:
    fresh = decoder()
    feed(fresh, start(input_tokens=9), *thinking(0, "Hm.", "S"), *text(1, "He", stop=False))
    partial = fresh.partial()
    assert partial is not None
    assert partial.stop_reason == "partial"
    assert [type(part) for part in partial.parts] == [Reasoning, Text]
    assert partial.usage == Usage(9)


def test_an_end_mark_of_other_dialects_ends_the_answer() -> None:
    fresh = decoder()
    feed(fresh, start(), *text(0, "Hi"), end(), "[DONE]")
    assert fresh.is_done
    assert fresh.finish().parts == (Text("Hi"),)


# --- a message begun twice ----------------------------------------------------------------------


def test_a_beginning_that_comes_twice_is_one_message() -> None:
    # I24
    _, answer = decode(
        start(input_tokens=17, output_tokens=1),
        start(input_tokens=17, output_tokens=1),
        *text(0, "Hello, World!"),
        end(output_tokens=227),
        STOP,
    )
    assert answer == Answer((Text("Hello, World!"),), "end", Usage(17, 227), "claude")


def test_a_beginning_that_comes_again_in_the_middle_takes_nothing_away() -> None:
    # I24
    events = [start(), *text(0, "Hello, ", "World!")]
    _, answer = decode(*events[:3], start(), *events[3:], end())
    assert answer.parts == (Text("Hello, World!"),)


@pytest.mark.parametrize("second", ["msg_2", "", "msg_1"])
def test_of_two_messages_in_one_stream_the_second_is_the_answer(second: str) -> None:
    # I24: a proxy asked again in the middle of a call.
    events, answer = decode(
        start(input_tokens=17),
        *thinking(0, "I will call.", "sig-first"),
        *call(1, "toolu_first", '{"value":"Spark', stop=False),
        start(second, input_tokens=18),
        *thinking(0, "Let me call.", "sig-second"),
        *call(1, "toolu_second", '{"value":"Sparkle Day"}'),
        end("tool_use", output_tokens=65),
        STOP,
    )
    reasoning = [part for part in answer.parts if isinstance(part, Reasoning)]
    assert [(part.text, part.signature) for part in reasoning] == [("Let me call.", "sig-second")]
    assert calls(answer) == [("toolu_second", "read", '{"value":"Sparkle Day"}')]
    assert answer.usage == Usage(18, 65)
    done = [event.call_id for event in events if isinstance(event, ToolCallDone)]
    assert done == ["toolu_second"]


# --- usage --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "last", "usage"),
    [
        # I25: none at the start; nothing in the delta but what grew; nowhere at all.
        (
            {},
            {
                "input_tokens": 11,
                "cache_read_input_tokens": 5,
                "cache_creation_input_tokens": 3,
                "output_tokens": 1,
            },
            Usage(19, 1, 5, 3),
        ),
        ({"input_tokens": 12, "output_tokens": 6}, {}, Usage(12, 6)),
        ({}, {}, None),
        # D05: the cached parts are not in `input_tokens`, and the prompt is all of it.
        (
            {
                "input_tokens": 200,
                "cache_read_input_tokens": 150_000,
                "cache_creation_input_tokens": 2_000,
                "output_tokens": 1,
            },
            {"output_tokens": 500},
            Usage(152_200, 500, 150_000, 2_000),
        ),
        # The numbers of the delta are the whole, not more of it.
        ({"input_tokens": 43, "output_tokens": 1}, {"input_tokens": 61}, Usage(61, 1)),
        # I12: nulls and zeros never win over a number.
        ({"input_tokens": 0, "output_tokens": 0}, {"input_tokens": 7}, Usage(7, 0)),
        ({"input_tokens": 7}, {"input_tokens": 0, "output_tokens": 2}, Usage(7, 2)),
        ({"input_tokens": 7}, {"input_tokens": None, "output_tokens": 2}, Usage(7, 2)),
        ({"input_tokens": 0}, {"output_tokens": 0}, None),
        ({"input_tokens": -1}, {"output_tokens": True}, None),
        ({"input_tokens": 0}, {"input_tokens": 0, "output_tokens": 2}, Usage(None, 2)),
        ({"input_tokens": 7.0}, {"output_tokens": 2.0}, Usage(7, 2)),
        # What was written is told by age as well.
        (
            {
                "input_tokens": 3,
                "cache_creation": {
                    "ephemeral_5m_input_tokens": 40,
                    "ephemeral_1h_input_tokens": 2,
                },
            },
            {"output_tokens": 1},
            Usage(45, 1, None, 42),
        ),
    ],
)
def test_usage(first: Event, last: Event, usage: Usage | None) -> None:
    _, answer = decode(start(**first), *text(0, "Hi"), end(**last), STOP)
    assert answer.usage == usage


def test_usage_is_read_where_proxies_put_it() -> None:
    """Siblings of I25."""
    counts = {"input_tokens": 3, "output_tokens": 2}
    inside = end()
    inside["delta"]["usage"] = counts
    for last in ((inside, STOP), (end(), STOP | {"usage": counts})):
        assert decode(start(), *text(0, "Hi"), *last)[1].usage == Usage(3, 2)


def test_a_usage_that_is_null_is_no_number() -> None:
    # I12
    early = start()
    early["message"]["usage"] = None
    _, answer = decode(early, *text(0, "Hi"), end(output_tokens=4, input_tokens=2))
    assert answer.usage == Usage(2, 4)


# --- whole bodies, errors and strangers ---------------------------------------------------------


def test_a_message_that_was_not_streamed_is_read_whole() -> None:
    fresh = decoder()
    events = feed(
        fresh,
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "claude",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
                {"type": "text", "text": "Looking."},
                {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a"}},
            ],
            "stop_reason": "tool_use",
            "usage": {"input_tokens": 5, "output_tokens": 9},
        },
    )
    assert fresh.is_complete
    assert fresh.is_done
    assert events == [
        ReasoningDelta("Hm."),
        TextDelta("Looking."),
        ToolCallStart("toolu_1", "read"),
        ToolCallArgsDelta("toolu_1", '{"path":"a"}'),
        ToolCallDone("toolu_1", "read", '{"path":"a"}'),
    ]
    answer = fresh.finish()
    assert answer.usage == Usage(5, 9)
    assert [type(part) for part in answer.parts] == [Reasoning, Text, ToolCall]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        # J16, J17, I21
        (
            '{"type":"error","error":{"type":"overloaded_error","message":"No."}}',
            "overloaded_error",
        ),
        (
            '{"type":"error","error":{"type":"invalid_request_error","message":"No."}}',
            "invalid_request_error",
        ),
        ('{"error":{"type":"api_error","message":"No."}}', "api_error"),
    ],
)
def test_an_error_inside_a_stream_is_reported(data: str, code: str) -> None:
    with pytest.raises(ReportedError) as caught:
        decode(start(), *text(0, "Hi"), data)
    assert caught.value.report.codes == (code,)
    assert caught.value.report.message == "No."


def test_an_error_that_says_nothing_is_an_error() -> None:
    with pytest.raises(ReportedError):
        decode(start(), '{"type":"error"}')


@pytest.mark.parametrize(
    "data", ["not json", "[1]", "null", "7", '{"choices":[]}', '{"type":3}', "[" * 100_000]
)
def test_what_is_not_the_protocol_is_refused(data: str) -> None:
    with pytest.raises(BadAnswer, match="not its protocol"):
        decode(start(), data)


# --- any cut ------------------------------------------------------------------------------------

LONG: list[Event] = [
    start(input_tokens=5, output_tokens=1),
    *thinking(0, "Hm. 世界", "c2ln"),
    *text(1, "Grüße ", "\U0001f378"),
    *call(2, "toolu_1", '{"path":', '"ä"}'),
    *call(3, "toolu_2"),
    end("tool_use", output_tokens=40),
    STOP,
]
WHOLE = decode(*LONG)[1]


@given(st.integers(0, len(LONG)))
def test_a_stream_cut_anywhere_is_the_whole_answer_or_broken(cut: int) -> None:
    fresh = decoder()
    feed(fresh, *LONG[:cut])
    if fresh.is_complete:
        assert fresh.finish() == WHOLE
        return

    with pytest.raises(StreamBroken):
        fresh.finish()


@given(st.lists(st.sampled_from([*LONG, start("msg_2"), end("max_tokens"), {"type": "ping"}])))
def test_events_in_any_order_never_fail(events: list[Event]) -> None:
    fresh = decoder()
    feed(fresh, *events)
    fresh.partial()
    if fresh.is_complete:
        assert fresh.finish() == fresh.finish()
