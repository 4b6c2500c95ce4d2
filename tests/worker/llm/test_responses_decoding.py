from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.worker.llm.responses_wire import (
    Event,
    added,
    argument_deltas,
    call,
    cut,
    done,
    ended,
    message,
    part_event,
    reasoning,
    refused,
    response,
    streamed_call,
    streamed_reasoning,
    streamed_text,
    text_deltas,
    usage,
)
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
from worker.llm.schemes.responses.decoder import ResponsesDecoder

PROVIDER = "openai_responses"
RECORDED = Path(__file__).parents[4] / "shared/realdata/sse_openai_responses_stream.yaml"

Sent = Event | str


def decoder() -> ResponsesDecoder:
    numbers = itertools.count(1)
    return ResponsesDecoder(PROVIDER, "m", new_id=lambda: f"{next(numbers):032x}")


def feed(into: ResponsesDecoder, *events: Sent) -> list[StreamEvent]:
    texts = [event if isinstance(event, str) else json.dumps(event) for event in events]
    return [told for text in texts for told in into.feed(text)]


def decode(*events: Sent) -> tuple[list[StreamEvent], Answer]:
    fresh = decoder()
    return feed(fresh, *events), fresh.finish()


def thought(text: str, signature: str | None, blob: str | None) -> Reasoning:
    return Reasoning(text, signature, blob, PROVIDER, "m")


def calls_of(answer: Answer) -> list[tuple[str, str, str]]:
    calls = [part for part in answer.parts if isinstance(part, ToolCall)]
    return [(part.call_id, part.name, part.arguments) for part in calls]


# --- an answer as it is streamed ----------------------------------------------------------------


def test_text_is_told_once_although_it_is_sent_four_times() -> None:
    events, answer = decode(
        {"type": "response.created", "response": response("in_progress")},
        {"type": "response.in_progress", "response": response("in_progress")},
        *streamed_text(0, "Hel", "lo"),
        ended(output=[message("Hello")], usage=usage(12, 3)),
    )
    assert events == [TextDelta("Hel"), TextDelta("lo")]
    assert answer == Answer((Text("Hello"),), "end", Usage(12, 3), "m")


def test_reasoning_carries_its_id_and_the_encrypted_content_of_its_end() -> None:
    events, answer = decode(*streamed_reasoning(0, "Let me see."), *streamed_text(1, "Hi"), ended())
    assert events == [ReasoningDelta("Let"), ReasoningDelta(" me see."), TextDelta("Hi")]
    assert answer.parts == (thought("Let me see.", "rs_1", "BLOB"), Text("Hi"))


def test_each_part_of_a_summary_is_a_part_and_the_first_carries_the_blob() -> None:
    _, answer = decode(*streamed_reasoning(0, "One.", "Two."), *streamed_text(1, "Hi"), ended())
    assert answer.parts[:2] == (thought("One.", "rs_1", "BLOB"), thought("Two.", "rs_1", None))


def test_reasoning_without_a_summary_is_kept_for_its_blob() -> None:
    events, answer = decode(*streamed_reasoning(0), *streamed_call(1, "c1", "{}"), ended())
    assert answer.parts[0] == thought("", "rs_1", "BLOB")
    assert not any(isinstance(event, ReasoningDelta) for event in events)


def test_reasoning_that_a_server_shows_itself_is_kept_and_carries_nothing() -> None:
    shown = [{"type": "reasoning_text", "text": "Hm, so."}]
    events, answer = decode(
        added(0, reasoning()),
        part_event("reasoning_text.delta", 0, content_index=0, delta="Hm, "),
        part_event("reasoning_text.done", 0, content_index=0, text="Hm, so."),
        done(0, reasoning(content=shown)),
        *streamed_text(1, "Hi"),
        ended(),
    )
    assert events[:2] == [ReasoningDelta("Hm, "), ReasoningDelta("so.")]
    assert answer.parts == (thought("Hm, so.", None, None), Text("Hi"))


def test_a_call_is_told_as_it_comes_and_is_done_at_the_end() -> None:
    events, answer = decode(*streamed_call(0, "c1", '{"a"', ":1}"), ended())
    assert events == [
        ToolCallStart("c1", "read"),
        ToolCallArgsDelta("c1", '{"a"'),
        ToolCallArgsDelta("c1", ":1}"),
        ToolCallDone("c1", "read", '{"a":1}'),
    ]
    assert calls_of(answer) == [("c1", "read", '{"a":1}')]
    assert answer.stop_reason == "tool_calls"


def test_parallel_calls_whose_events_are_mixed_stay_apart() -> None:
    _, answer = decode(
        added(0, call("a")),
        added(1, call("b")),
        *argument_deltas(1, '{"q":'),
        *argument_deltas(0, '{"p":1}'),
        *argument_deltas(1, "2}"),
        done(1, call("b", arguments='{"q":2}')),
        done(0, call("a", arguments='{"p":1}')),
        ended(),
    )
    assert calls_of(answer) == [("a", "read", '{"p":1}'), ("b", "read", '{"q":2}')]
    uids = {part.call_uid for part in answer.parts if isinstance(part, ToolCall)}
    assert len(uids) == 2


@pytest.mark.parametrize("received", ["", "{", '{"content":"abc', "null"])
def test_arguments_stay_as_they_were_received(received: str) -> None:
    # I07, I10: what they mean is decided where the tool is called.
    _, answer = decode(done(0, call(arguments=received)), ended())
    assert calls_of(answer) == [("c1", "read", received)]


def test_arguments_that_are_sent_as_json_become_text() -> None:
    item = call() | {"arguments": {"a": 1, "b": [None]}}
    _, answer = decode(done(0, item), ended())
    assert json.loads(calls_of(answer)[0][2]) == {"a": 1, "b": [None]}


def test_the_items_of_the_servers_own_tools_are_skipped() -> None:
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    events, answer = decode(
        added(0, search),
        {"type": "response.web_search_call.in_progress", "output_index": 0},
        {"type": "response.web_search_call.completed", "output_index": 0},
        {"type": "response.mcp_call.failed", "output_index": 0},
        done(0, search),
        {"type": "response.output_text.annotation.added", "output_index": 1},
        *streamed_text(1, "Found."),
        {"type": "keepalive"},
        {"type": "response.something.new", "output_index": 7, "delta": "x"},
        ended(),
    )
    assert events == [TextDelta("Found.")]
    assert answer.parts == (Text("Found."),)


def test_more_of_the_last_delta_is_part_of_its_text() -> None:
    fresh = decoder()
    feed(fresh, *streamed_reasoning(0, "Hm."), added(1, message()), *text_deltas(1, "Hel"))
    fresh.more("l", "")
    fresh.more("o", "")
    end = part_event("output_text.done", 1, content_index=0, text="Hello, all")
    assert feed(fresh, end, ended()) == [TextDelta(", all")]
    assert fresh.finish().parts == (thought("Hm.", "rs_1", "BLOB"), Text("Hello, all"))


# --- what servers leave out, repeat and change --------------------------------------------------


def test_ids_that_change_with_every_event_do_not_matter() -> None:
    # I26: what belongs together is told by output_index.
    numbers = itertools.count()
    events: list[Event] = []
    for event in [*streamed_reasoning(0, "Hm."), *streamed_text(1, "Hi", " there"), ended()]:
        changed = json.loads(json.dumps(event))
        for holder in (changed, changed.get("item", {})):
            for key in {"id", "item_id"} & holder.keys():
                holder[key] = f"opaque-{next(numbers)}"
        events.append(changed)

    told, answer = decode(*events)
    assert [type(part) for part in answer.parts] == [Reasoning, Text]
    assert "".join(event.text for event in told if isinstance(event, TextDelta)) == "Hi there"


def test_only_the_ends_of_items() -> None:
    events, answer = decode(
        done(0, reasoning("Hm.", blob="BLOB")),
        done(1, message("Hi")),
        done(2, call(arguments="{}")),
        ended(),
    )
    assert events == [
        ReasoningDelta("Hm."),
        TextDelta("Hi"),
        ToolCallStart("c1", "read"),
        ToolCallArgsDelta("c1", "{}"),
        ToolCallDone("c1", "read", "{}"),
    ]
    assert [type(part) for part in answer.parts] == [Reasoning, Text, ToolCall]


def test_only_the_last_event() -> None:
    output = [reasoning("Hm.", blob="BLOB"), message("Hi"), call(arguments="{}")]
    streamed = decode(*itertools.starmap(done, enumerate(output)), ended())
    events, answer = decode(ended(output=output))
    assert (events, answer.parts) == (streamed[0], streamed[1].parts)


def test_deltas_without_any_end() -> None:
    events, answer = decode(
        added(0, message()),
        *text_deltas(0, "Hel", "lo"),
        added(1, call()),
        *argument_deltas(1, "{}"),
        ended(),
    )
    assert events[:2] == [TextDelta("Hel"), TextDelta("lo")]
    assert answer.parts[0] == Text("Hello")
    assert calls_of(answer) == [("c1", "read", "{}")]


def test_deltas_without_any_beginning() -> None:
    _, answer = decode(
        *text_deltas(0, "Hi"),
        *argument_deltas(1, "{}"),
        part_event("function_call_arguments.done", 1, arguments="{}", name="read", call_id="c1"),
        ended(),
    )
    assert answer.parts[0] == Text("Hi")
    assert calls_of(answer) == [("c1", "read", "{}")]


def test_events_without_indexes_belong_to_the_last_item_of_their_kind() -> None:
    def without_index(event: Event) -> Event:
        return {key: value for key, value in event.items() if key != "output_index"}

    events = [
        *streamed_reasoning(0, "Hm."),
        *streamed_text(1, "Hi"),
        *streamed_call(2, "a", '{"p":1}'),
        *streamed_call(3, "b", '{"q":2}'),
        ended(),
    ]
    told, answer = decode(*map(without_index, events))
    assert (told, answer.parts[:2]) == (decode(*events)[0], decode(*events)[1].parts[:2])
    assert calls_of(answer) == [("a", "read", '{"p":1}'), ("b", "read", '{"q":2}')]


def test_what_the_stream_left_out_is_taken_from_the_response_whatever_its_place() -> None:
    output = [message("Hello"), call("a", arguments="{}"), call("b", arguments="{}")]
    events, answer = decode(
        *streamed_reasoning(0, "Hm."),
        *streamed_text(1, "Hello"),
        *streamed_call(2, "a", "{}"),
        ended(output=output),
    )
    assert [event for event in events if isinstance(event, TextDelta)] == [TextDelta("Hello")]
    assert answer.parts[:2] == (thought("Hm.", "rs_1", "BLOB"), Text("Hello"))
    assert [call_id for call_id, _, _ in calls_of(answer)] == ["a", "b"]


def test_the_encrypted_content_of_the_items_own_end_is_the_one_that_holds() -> None:
    # The response repeats the item with another one; each is whole, but one is enough.
    output = [reasoning("Hm.", blob="OTHER"), message("Hi")]
    _, answer = decode(*streamed_reasoning(0, "Hm."), *streamed_text(1, "Hi"), ended(output=output))
    assert answer.parts[0] == thought("Hm.", "rs_1", "BLOB")


def test_an_item_that_never_ended_is_completed_from_the_response() -> None:
    output = [reasoning("Hm.", blob="BLOB"), message("Hello")]
    events, answer = decode(
        added(0, reasoning(blob="BL")), *text_deltas(1, "Hel"), ended(output=output)
    )
    assert events == [TextDelta("Hel"), ReasoningDelta("Hm."), TextDelta("lo")]
    assert answer.parts == (thought("Hm.", "rs_1", "BLOB"), Text("Hello"))


def test_the_end_of_a_text_brings_what_the_deltas_left_out() -> None:
    events, answer = decode(
        *text_deltas(0, "Hel"),
        part_event("output_text.done", 0, content_index=0, text="Hello"),
        done(0, message("Hello")),
        ended(),
    )
    assert events == [TextDelta("Hel"), TextDelta("lo")]
    assert answer.parts == (Text("Hello"),)


def test_what_comes_after_the_end_of_a_part_is_late() -> None:
    end = part_event("output_text.done", 0, content_index=0, text="Hello")
    events, answer = decode(end, *text_deltas(0, "Hello"), end, ended())
    assert events == [TextDelta("Hello")]
    assert answer.parts == (Text("Hello"),)


def test_a_part_that_is_only_called_text_is_what_its_item_is() -> None:
    part = {"type": "text", "text": "Hm."}
    _, answer = decode(
        done(0, reasoning(content=[part])), done(1, message() | {"content": [part]}), ended()
    )
    assert answer.parts == (thought("Hm.", None, None), Text("Hm."))


def test_what_comes_after_the_end_of_a_text_is_late() -> None:
    events, answer = decode(
        *streamed_text(0, "Hello"),
        *text_deltas(0, "Hello"),
        done(0, message("Hello")),
        *streamed_call(1, "c1", "{}"),
        *argument_deltas(1, "{}"),
        ended(),
        *text_deltas(2, "more"),
        ended("failed"),
        "not json",
    )
    assert [event for event in events if isinstance(event, TextDelta)] == [TextDelta("Hello")]
    assert answer.parts[0] == Text("Hello")
    assert calls_of(answer) == [("c1", "read", "{}")]


@pytest.mark.parametrize(
    ("told", "at_the_end", "kept"),
    [("Hxllo", "Hello, all", "Hello, all"), ("Hello, all", "Hxllo", "Hello, all")],
)
def test_of_two_texts_that_contradict_each_other_the_longer_is_kept(
    told: str, at_the_end: str, kept: str
) -> None:
    events, answer = decode(*text_deltas(0, told), done(0, message(at_the_end)), ended())
    assert events == [TextDelta(told)]
    assert answer.parts == (Text(kept),)


@pytest.mark.parametrize(
    ("told", "at_the_end", "kept"),
    [('{"a":', '{"b":1}', '{"b":1}'), ('{"a":1}', '{"b":', '{"a":1}')],
)
def test_of_arguments_that_contradict_each_other_the_valid_ones_are_kept(
    told: str, at_the_end: str, kept: str
) -> None:
    _, answer = decode(*argument_deltas(0, told), done(0, call(arguments=at_the_end)), ended())
    assert calls_of(answer) == [("c1", "read", kept)]


def test_a_call_without_an_id_gets_one() -> None:
    item = {"type": "function_call", "name": "read", "arguments": "{}"}
    events, answer = decode(added(0, item), done(0, item), ended())
    ((call_id, _, _),) = calls_of(answer)
    assert call_id.startswith("call_")
    assert events[0] == ToolCallStart(call_id, "read")


def test_a_response_that_is_not_streamed() -> None:
    whole = response(output=[reasoning(blob="B"), message("Hi")], usage=usage(9, 2))
    fresh = decoder()
    assert feed(fresh, whole) == [TextDelta("Hi")]
    assert fresh.is_done
    assert fresh.finish().parts == (thought("", "rs_1", "B"), Text("Hi"))
    assert fresh.finish().usage == Usage(9, 2)


def test_a_response_that_is_not_streamed_need_not_say_that_it_has_ended() -> None:
    assert decode({"output": [message("Hi")]})[1].parts == (Text("Hi"),)


@pytest.mark.parametrize("status", ["queued", "in_progress", "", None, ["completed"]])
def test_a_response_that_has_not_ended_is_no_answer(status: object) -> None:
    fresh = decoder()
    feed(fresh, response() | {"status": status}, {"type": "response.queued", "response": {}})
    assert not fresh.is_complete


def test_the_last_event_says_how_it_ended_where_the_response_does_not() -> None:
    for last in ({"type": "response.completed"}, {"type": "response.completed", "response": {}}):
        assert decode(*streamed_text(0, "Hi"), last)[1].stop_reason == "end"
    _, answer = decode(*streamed_text(0, "Hi"), {"type": "response.done", "response": response()})
    assert answer.stop_reason == "end"


def test_the_end_marker_of_other_dialects_means_nothing() -> None:
    assert decode(*streamed_text(0, "Hi"), ended(), "[DONE]")[1].parts == (Text("Hi"),)
    fresh = decoder()
    feed(fresh, *streamed_text(0, "Hi"), "[DONE]")
    assert not fresh.is_complete


# --- how it ended -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "stop_reason"),
    [
        ("max_output_tokens", "max_tokens"),
        ("content_filter", "content_filter"),
        (None, "max_tokens"),
        ("something new", "max_tokens"),
    ],
)
def test_reasons_of_an_incomplete_answer(reason: str | None, stop_reason: str) -> None:
    assert decode(*streamed_text(0, "Hi"), cut(reason))[1].stop_reason == stop_reason


def test_what_was_filtered_or_refused_runs_nothing() -> None:
    # Siblings of F04: as in the other dialects.
    assert calls_of(decode(*streamed_call(0, "a", "{}"), cut("content_filter"))[1]) == []
    _, answer = decode(done(0, refused("No.")), *streamed_call(1, "a", "{}"), ended())
    assert (answer.parts, answer.stop_reason) == ((Text("No."),), "refusal")


def test_a_call_that_the_cap_cut_is_dropped_and_whole_ones_stay() -> None:
    # I08, I23: half a call never runs, and is not repaired into a whole one.
    events, answer = decode(
        *streamed_call(0, "whole", "{}"),
        added(1, call("never_ended")),
        *argument_deltas(1, "{}"),
        added(2, call("half")),
        *argument_deltas(2, '{"content":"abc'),
        done(2, call("half", arguments='{"content":"abc', status="incomplete")),
        done(3, call("marked", arguments="{}", status="incomplete")),
        cut("max_output_tokens"),
    )
    assert calls_of(answer) == [("whole", "read", "{}")]
    assert answer.stop_reason == "max_tokens"
    assert [event for event in events if isinstance(event, ToolCallDone)] == [
        ToolCallDone("whole", "read", "{}")
    ]


def test_a_cap_that_was_spent_on_reasoning_leaves_no_text() -> None:
    _, answer = decode(*streamed_reasoning(0, "Hm."), cut("max_output_tokens"))
    assert (answer.stop_reason, answer.parts) == ("max_tokens", (thought("Hm.", "rs_1", "BLOB"),))


def test_a_refusal_is_text_and_a_stop_reason() -> None:
    streamed = [
        added(0, message()),
        part_event("refusal.delta", 0, content_index=0, delta="I "),
        part_event("refusal.delta", 0, content_index=0, delta="can't."),
        part_event("refusal.done", 0, content_index=0, refusal="I can't."),
        part_event("content_part.done", 0, content_index=0, part=refused("I can't.")["content"][0]),
        done(0, refused("I can't.")),
    ]
    events, answer = decode(*streamed, ended())
    assert events == [TextDelta("I "), TextDelta("can't.")]
    assert (answer.stop_reason, answer.parts) == ("refusal", (Text("I can't."),))
    assert decode(done(0, refused("No.")), ended())[1].stop_reason == "refusal"
    assert decode(done(0, refused("")), ended())[1].stop_reason == "end"


def test_a_stream_that_stops_has_no_answer_but_its_text() -> None:
    # I06: no half-made call is part of it.
    fresh = decoder()
    feed(fresh, *streamed_text(0, "Hi"), *streamed_call(1, "c1", "{}"))
    with pytest.raises(StreamBroken) as caught:
        fresh.finish()
    assert caught.value.partial == Answer((Text("Hi"),), "partial", None, "m")
    assert not fresh.is_complete
    assert decoder().partial() is None


# --- usage --------------------------------------------------------------------------------------


def test_the_cached_part_is_inside_the_input() -> None:
    # D03, D05: it is never added on top.
    counted = usage(38_196, 20, cached_tokens=38_153, cache_write_tokens=7)
    _, answer = decode(*streamed_text(0, "Hi"), ended(usage=counted))
    assert answer.usage == Usage(38_196, 20, 38_153, 7)


@pytest.mark.parametrize("counted", [None, {}, usage(0, 0), {"input_tokens": "12"}, [1]])
def test_usage_that_says_nothing_is_none(counted: object) -> None:
    assert decode(*streamed_text(0, "Hi"), ended(usage=counted))[1].usage is None


def test_the_last_real_numbers_hold() -> None:
    # I12: nulls and zeros of early events do not win.
    created = {"type": "response.created", "response": response("in_progress", usage=usage(0, 0))}
    _, answer = decode(created, *streamed_text(0, "Hi"), ended("incomplete", usage=usage(5, 2)))
    assert answer.usage == Usage(5, 2)


def test_details_that_are_missing_are_unknown_not_zero() -> None:
    counted = {"input_tokens": 5, "output_tokens": 2}
    _, answer = decode(*streamed_text(0, "Hi"), ended(usage=counted))
    assert answer.usage == Usage(5, 2, None, None)


# --- reports and rubbish ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "code"),
    [
        ({"type": "error", "code": "rate_limit_exceeded", "message": "Slow down"}, None),
        ({"type": "error", "error": {"code": "server_error", "message": "Slow down"}}, None),
        ({"type": "response.error", "error": {"code": "x", "message": "Slow down"}}, "x"),
        ({"error": {"code": "insufficient_quota", "message": "Slow down"}}, "insufficient_quota"),
        (
            ended("failed", error={"code": "context_length_exceeded", "message": "Slow down"}),
            "context_length_exceeded",
        ),
        (ended("cancelled", error={"code": "x", "message": "Slow down"}), "x"),
        (response("failed", error={"code": "x", "message": "Slow down"}), "x"),
        ({"output": [], "error": {"code": "x", "message": "Slow down"}}, "x"),
    ],
)
def test_errors_in_every_shape_are_reports(event: Event, code: str | None) -> None:
    # J16, J17: what the code means is decided by the transport, as for a status.
    with pytest.raises(ReportedError) as caught:
        feed(decoder(), *streamed_text(0, "Hi"), event)
    assert caught.value.report.message == "Slow down"
    assert caught.value.report.codes
    if code:
        assert caught.value.report.codes[0] == code


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ({"type": "response.failed"}, "the answer failed"),
        (ended("failed"), "the answer failed"),
        (ended("failed", incomplete_details={"reason": "overloaded"}), "overloaded"),
    ],
)
def test_a_failure_without_a_reason_is_one_all_the_same(event: Event, said: str) -> None:
    with pytest.raises(ReportedError) as caught:
        feed(decoder(), event)
    assert caught.value.report.message == said


@pytest.mark.parametrize("data", ["<html>", "[1]", "null", '"text"', "[" * 100_000])
def test_data_that_is_no_object_is_not_the_protocol(data: str) -> None:
    with pytest.raises(BadAnswer):
        decoder().feed(data)


def test_arguments_without_end_are_refused() -> None:
    deltas = argument_deltas(0, *["x" * 100_000] * 20)
    with pytest.raises(BadAnswer, match="1 MiB"):
        feed(decoder(), *deltas)
    with pytest.raises(BadAnswer, match="1 MiB"):
        feed(decoder(), done(0, call(arguments="x" * (1 << 20) + "x")))


_keys = st.sampled_from(
    ["type", "item", "output_index", "content_index", "summary_index", "delta", "text", "part",
     "arguments", "name", "call_id", "id", "summary", "content", "encrypted_content", "response",
     "status", "output", "usage", "input_tokens_details", "incomplete_details", "error", "refusal"]
)  # fmt: skip
_words = st.sampled_from(
    ["message", "reasoning", "function_call", "web_search_call", "output_text", "refusal",
     "summary_text", "completed", "incomplete", "in_progress", "a\ud800", "{}", ""]
)  # fmt: skip
_types = st.sampled_from(
    ["response.output_item.added", "response.output_item.done", "response.output_text.delta",
     "response.content_part.done", "response.reasoning_summary_text.done",
     "response.function_call_arguments.delta", "response.function_call_arguments.done",
     "response.completed", "response.incomplete", "response.created", "response.x.completed"]
)  # fmt: skip
_shapes = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 3) | st.just(1 << 80) | _words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=4),
    max_leaves=12,
)
_events = st.builds(
    lambda kind, fields: {**fields, "type": kind},
    _types,
    st.dictionaries(_keys, _shapes, max_size=5),
)


@given(st.lists(_events | st.dictionaries(_keys, _shapes, max_size=4), max_size=6))
def test_no_shape_of_json_breaks_the_decoder(events: list[dict[str, Any]]) -> None:
    fresh = decoder()
    try:
        told = feed(fresh, *events)
        answer = fresh.finish()
    except (ReportedError, BadAnswer, StreamBroken):
        return

    assert isinstance(answer, Answer)
    repr((told, answer)).encode()


# --- text hygiene, and any way of cutting -------------------------------------------------------


@given(st.lists(st.text(st.characters(codec=None), max_size=4), max_size=8))
def test_any_text_comes_out_valid_and_the_deltas_make_up_the_part(pieces: list[str]) -> None:
    whole = "".join(pieces)
    for events in (
        streamed_text(0, *pieces),
        [*text_deltas(0, *pieces)],
        [done(0, message(whole))],
    ):
        told, answer = decode(*events, ended())
        said = "".join(event.text for event in told if isinstance(event, TextDelta))
        parts = [part.text for part in answer.parts if isinstance(part, Text)]
        assert parts == ([said] if said else [])
        said.encode()


def test_a_surrogate_pair_split_between_two_deltas_is_joined() -> None:
    first = '{"type":"response.output_text.delta","output_index":0,"delta":"a\\ud83c"}'
    second = '{"type":"response.output_text.delta","output_index":0,"delta":"\\udf78b"}'
    events, answer = decode(first, second, ended())
    assert events == [TextDelta("a"), TextDelta("\U0001f378b")]
    assert answer.parts == (Text("a\U0001f378b"),)


WHOLE = [
    {"type": "response.created", "response": response("in_progress")},
    *streamed_reasoning(0, "Let me see.", "And then."),
    *streamed_text(1, "Hel", "lo ", "你好"),
    *streamed_call(2, "c1", '{"p":', "1}"),
    *streamed_call(3, "c2", "{}"),
    ended(output=[message("Hello 你好")], usage=usage(9, 2)),
]


@pytest.mark.parametrize("kept", range(len(WHOLE)))
def test_a_stream_cut_after_any_event_is_broken_and_keeps_what_was_told(kept: int) -> None:
    fresh = decoder()
    told = feed(fresh, *WHOLE[:kept])
    with pytest.raises(StreamBroken) as caught:
        fresh.finish()

    partial = caught.value.partial
    parts = partial.parts if partial else ()
    said = "".join(event.text for event in told if isinstance(event, TextDelta))
    assert "".join(part.text for part in parts if isinstance(part, Text)) == said
    assert not any(isinstance(part, ToolCall) for part in parts)


@pytest.mark.skipif(not RECORDED.exists(), reason=f"the recorded stream {RECORDED} is not here")
def test_a_recorded_stream_comes_out_as_it_went_in() -> None:
    recorded = yaml.safe_load(RECORDED.read_text())["interactions"][0]["response"]["body"]["string"]
    texts = [line[6:] for line in recorded.split("\n") if line.startswith("data: ")]
    _, answer = decode(*texts)
    ends = [json.loads(text) for text in texts if '"response.output_item.done"' in text]
    proof = ends[0]["item"]
    assert answer.parts[0] == thought("", proof["id"], proof["encrypted_content"])
    assert calls_of(answer) == [
        ("call_CWXgs68YprAjp6t0371hiPOI", "final_result", '{"result":6666}')
    ]
    assert answer.usage is not None
    assert answer.usage.input_tokens == 53
    assert answer.usage.cache_read == 0
