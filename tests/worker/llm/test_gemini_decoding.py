from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from worker.errors import BadAnswer, ProviderRefused, ProviderUnavailable, StreamBroken
from worker.items import AssistantMessage, Item, Reasoning, Text, ToolCall, ToolResult, user_message
from worker.llm import (
    Answer,
    Endpoint,
    LlmRequest,
    ReasoningDelta,
    StreamEvent,
    TextDelta,
    ToolCallArgsDelta,
    ToolCallDone,
    ToolCallStart,
    Usage,
)
from worker.llm.failures import ReportedError, classify
from worker.llm.schemes.gemini.decoder import GeminiDecoder
from worker.llm.schemes.gemini.scheme import GeminiScheme

MODEL = "gemini-3.8-flash"
SHARED = Path(__file__).parents[3].parent / "shared" / "realdata"

Part = dict[str, Any]


def ids() -> Callable[[], str]:
    numbers = itertools.count(1)
    return lambda: f"{next(numbers):08x}".ljust(32, "0")


def decoder() -> GeminiDecoder:
    return GeminiDecoder("gemini", MODEL, new_id=ids())


def chunk(
    *parts: Part, finish: str | None = None, usage: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    """One chunk of a stream."""
    candidate: dict[str, Any] = {"index": 0, **more}
    if parts:
        candidate["content"] = {"role": "model", "parts": list(parts)}
    if finish:
        candidate["finishReason"] = finish
    whole: dict[str, Any] = {"candidates": [candidate], "modelVersion": MODEL}
    return whole | ({"usageMetadata": usage} if usage else {})


def text(said: str, signature: str | None = None, **more: Any) -> Part:
    return {"text": said, **more} | ({"thoughtSignature": signature} if signature else {})


def thought(said: str, signature: str | None = None) -> Part:
    return text(said, signature, thought=True)


def call(name: str, args: object = None, signature: str | None = None, **more: Any) -> Part:
    function = {"name": name, **more} | ({} if args is None else {"args": args})
    part: Part = {"functionCall": function}
    return part | ({"thoughtSignature": signature} if signature else {})


def feed(fresh: GeminiDecoder, *chunks: object) -> list[StreamEvent]:
    texts = [one if isinstance(one, str) else json.dumps(one) for one in chunks]
    return [event for data in texts for event in fresh.feed(data)]


def decode(*chunks: object) -> tuple[list[StreamEvent], Answer]:
    fresh = decoder()
    return feed(fresh, *chunks), fresh.finish()


def own(said: str = "", signature: str | None = None, blob: str | None = None) -> Reasoning:
    return Reasoning(said, signature, blob, provider="gemini", model=MODEL)


def refused(*chunks: object) -> ReportedError:
    with pytest.raises(ReportedError) as caught:
        feed(decoder(), *chunks)
    return caught.value


def failure(error: ReportedError) -> Any:
    endpoint = Endpoint(provider="gemini", model=MODEL, base_url="http://provider.test")
    return classify(error.report, endpoint)


# --- text and thoughts --------------------------------------------------------------------------


def test_text_arrives_in_deltas_and_as_one_part() -> None:
    events, answer = decode(
        chunk(text("Hel"), usage={"promptTokenCount": 9}),
        chunk(text("lo")),
        chunk(text(""), finish="STOP", usage={"promptTokenCount": 9, "candidatesTokenCount": 2}),
    )
    assert events == [TextDelta("Hel"), TextDelta("lo")]
    assert answer == Answer((Text("Hello"),), "end", Usage(9, 2), MODEL)


def test_thoughts_are_kept_apart_and_tagged() -> None:
    events, answer = decode(
        chunk(thought("Let me ")), chunk(thought("see.")), chunk(text("Hi"), finish="STOP")
    )
    assert events == [ReasoningDelta("Let me "), ReasoningDelta("see."), TextDelta("Hi")]
    assert answer.parts == (own("Let me see."), Text("Hi"))


def test_signed_and_unsigned_parts_are_not_merged() -> None:
    _, answer = decode(
        chunk(thought("Hm."), thought("Hm!", "T+/=")),
        chunk(text("one")),
        chunk(text("two", "S1")),
        chunk(text("three")),
        chunk(text("four", "S2"), text("", "S3"), finish="STOP"),
    )
    assert answer.parts == (
        own("Hm."),
        own("Hm!", "T+/="),
        Text("one"),
        own(blob="S1"),
        Text("two"),
        Text("three"),
        own(blob="S2"),
        Text("four"),
        own(signature="S3"),
    )


def test_a_thought_whose_last_part_carries_only_its_signature_has_it() -> None:
    _, answer = decode(
        chunk(thought("Hm.")), chunk(thought("", "T")), chunk(text("Hi"), finish="STOP")
    )
    assert answer.parts == (own("Hm.", "T"), Text("Hi"))


def test_the_signature_of_blank_text_does_not_pass_to_the_part_behind_it() -> None:
    _, answer = decode(chunk(text("\n", "S1"), call("look", {}), finish="STOP"))
    assert answer.parts[:2] == (Text("\n"), own(signature="S1"))
    assert isinstance(answer.parts[2], ToolCall)


def test_a_surrogate_pair_split_over_two_deltas_is_joined() -> None:
    chunks = [json.dumps(chunk(text(half))) for half in ("a\ud83c", "\udf78b")]
    events, answer = decode(*chunks, chunk(finish="STOP"))
    assert answer.parts == (Text("a\U0001f378b"),)
    assert "".join(one.text for one in events if isinstance(one, TextDelta)) == "a\U0001f378b"


def test_half_a_pair_at_the_end_is_replaced() -> None:
    events, answer = decode(json.dumps(chunk(text("a\ud83c"), finish="STOP")))
    assert events == [TextDelta("a"), TextDelta("\ufffd")]
    assert answer.parts == (Text("a\ufffd"),)


def test_what_follows_a_finish_reason_still_counts() -> None:
    """Some servers write STOP into every chunk, even into empty ones before the text."""
    events, answer = decode(
        chunk(finish="STOP"),
        chunk(text("Hel"), finish="STOP"),
        chunk(text("lo"), finish="STOP"),
        {"usageMetadata": {"promptTokenCount": 3}},
    )
    assert len(events) == 2
    assert answer == Answer((Text("Hello"),), "end", Usage(3), MODEL)


def test_unknown_parts_chunks_and_candidates_are_skipped() -> None:
    _, answer = decode(
        {"responseId": "r"},
        {"candidates": []},
        {"candidates": None, "promptFeedback": {"safetyRatings": []}},
        chunk({"executableCode": {"code": "1"}}, {"codeExecutionResult": {"output": "1"}}),
        chunk({"inlineData": {"mimeType": "image/png", "data": "AA=="}}, {"new": 1}, text("Hi")),
        {"candidates": [{"index": 1, "content": {"parts": [text("other")]}}]},
        {"candidates": [{"content": None}, {"index": 1, "finishReason": "SAFETY"}]},
        {"candidates": [{"content": {"role": "model"}}, "odd"], "error": None},
        chunk(finish="STOP", groundingMetadata={}),
        "[DONE]",
    )
    assert answer.parts == (Text("Hi"),)
    assert answer.stop_reason == "end"


def test_an_end_marker_of_a_proxy_ends_the_reading() -> None:
    fresh = decoder()
    feed(fresh, chunk(text("Hi"), finish="STOP"))
    assert fresh.is_complete
    assert not fresh.is_done
    feed(fresh, "[DONE]")
    assert fresh.is_done


def test_an_answer_that_is_not_streamed_is_an_object_or_a_list() -> None:
    whole = chunk(text("Hi"), finish="STOP")
    assert decode(whole)[1].parts == (Text("Hi"),)
    events, answer = decode([chunk(text("Hel")), chunk(text("lo"), finish="STOP")])
    assert events == [TextDelta("Hel"), TextDelta("lo")]
    assert answer.parts == (Text("Hello"),)


@pytest.mark.parametrize("signature", [None, "S"])
def test_an_event_that_repeats_the_one_before_means_what_it_would_mean_itself(
    signature: str | None,
) -> None:
    fresh = decoder()
    feed(fresh, chunk(thought("H", signature)))
    fresh.more("m", "")
    feed(fresh, chunk(text("one", signature)))
    fresh.more("two", "")
    feed(fresh, chunk(finish="STOP"))

    spelled = decode(
        *(chunk(part) for part in (thought("H", signature), thought("m", signature))),
        *(chunk(part) for part in (text("one", signature), text("two", signature))),
        chunk(finish="STOP"),
    )[1]
    assert fresh.finish() == spelled


# --- calls --------------------------------------------------------------------------------------


def test_a_whole_call_with_its_id() -> None:
    events, answer = decode(
        chunk(call("look", {"word": "pod", "n": 1.5}, id="fc_1")), chunk(text(""), finish="STOP")
    )
    arguments = '{"word":"pod","n":1.5}'
    assert events == [
        ToolCallStart("fc_1", "look"),
        ToolCallArgsDelta("fc_1", arguments),
        ToolCallDone("fc_1", "look", arguments),
    ]
    (made,) = answer.parts
    assert isinstance(made, ToolCall)
    assert (made.call_id, made.name, made.arguments) == ("fc_1", "look", arguments)
    assert answer.stop_reason == "tool_calls"


def test_c04_a_call_behind_a_thought_keeps_its_own_signature() -> None:
    """C04: the call is not the first part, and the thought before it is not visible text."""
    events, answer = decode(
        chunk(thought("I should look."), call("look", {}, "S1+/=", id="a")), chunk(finish="STOP")
    )
    assert events[0] == ReasoningDelta("I should look.")
    assert answer.parts[:2] == (own("I should look."), own(blob="S1+/="))
    assert isinstance(answer.parts[2], ToolCall)
    assert answer.parts[2].call_id == "a"
    assert not any(isinstance(part, Text) for part in answer.parts)


def test_parallel_calls_without_ids_have_one_each_and_only_the_first_is_signed() -> None:
    _, answer = decode(
        chunk(call("look", {"n": 1}, "S1"), call("look", {"n": 1})),
        chunk(call("read", {}), finish="STOP"),
    )
    calls = [part for part in answer.parts if isinstance(part, ToolCall)]
    assert [part.name for part in calls] == ["look", "look", "read"]
    assert len({part.call_id for part in calls}) == 3
    assert all(part.call_id for part in calls)
    assert len({part.call_uid for part in calls}) == 3
    assert [part for part in answer.parts if isinstance(part, Reasoning)] == [own(blob="S1")]


@pytest.mark.parametrize(
    ("args", "arguments"),
    [
        (None, ""),
        ({}, "{}"),
        ([1], "[1]"),
        ("", ""),
        ('{"a":1}', '{"a":1}'),
        ({"a": "\ud800"}, '{"a": "\ufffd"}'),
    ],
)
def test_arguments_are_kept_as_received(args: object, arguments: str) -> None:
    _, answer = decode(json.dumps(chunk(call("look", args), finish="STOP")))
    (made,) = answer.parts
    assert isinstance(made, ToolCall)
    assert made.arguments == arguments


def test_the_name_that_was_written_out_is_the_tools_own_again() -> None:
    _, answer = decode(chunk(call("mcp_0x2E_files", {}), finish="STOP"))
    (made,) = answer.parts
    assert isinstance(made, ToolCall)
    assert made.name == "mcp.files"


def test_whole_calls_are_kept_where_the_cap_cuts_behind_them() -> None:
    _, answer = decode(chunk(call("look", {"n": 1}, id="a")), chunk(finish="MAX_TOKENS"))
    assert answer.stop_reason == "max_tokens"
    assert len(answer.parts) == 1


# --- how it ends --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("finish", "stop_reason"),
    [
        ("STOP", "end"),
        ("MAX_TOKENS", "max_tokens"),
        ("CONTINUATION", "max_tokens"),
        ("SAFETY", "content_filter"),
        ("RECITATION", "content_filter"),
        ("PROHIBITED_CONTENT", "content_filter"),
        ("BLOCKLIST", "content_filter"),
        ("SPII", "content_filter"),
        ("LANGUAGE", "content_filter"),
        ("SOMETHING_NEW", "end"),
    ],
)
def test_finish_reasons_of_an_answer_with_text(finish: str, stop_reason: str) -> None:
    _, answer = decode(chunk(text("Hi")), chunk(finish=finish))
    assert answer.stop_reason == stop_reason
    assert answer.parts == (Text("Hi"),)


def test_what_was_filtered_runs_nothing() -> None:
    _, answer = decode(chunk(text("Hi"), call("look", {}, "S")), chunk(finish="SAFETY"))
    assert answer.stop_reason == "content_filter"
    assert answer.parts == (Text("Hi"),)


@pytest.mark.parametrize("finish", [None, "", "FINISH_REASON_UNSPECIFIED"])
def test_without_a_finish_reason_the_answer_is_broken(finish: str | None) -> None:
    fresh = decoder()
    feed(fresh, chunk(thought("Hm."), text("Hel"), call("look", {}), finish=finish))
    assert not fresh.is_complete
    with pytest.raises(StreamBroken) as caught:
        fresh.finish()
    partial = caught.value.partial
    assert partial is not None
    assert partial == fresh.partial()
    assert partial.parts == (own("Hm."), Text("Hel"))
    assert partial.stop_reason == "partial"


def test_nothing_at_all_is_no_partial_answer() -> None:
    assert decoder().partial() is None


@pytest.mark.parametrize("reason", ["SAFETY", "OTHER", "PROHIBITED_CONTENT", "SOMETHING_NEW"])
def test_a_prompt_that_is_blocked_is_refused_with_the_reason(reason: str) -> None:
    feedback = {
        "blockReason": reason,
        "blockReasonMessage": "Not this.",
        "safetyRatings": [
            {"category": "HARM_CATEGORY_DANGEROUS_CONTENT", "blocked": True},
            {"category": "HARM_CATEGORY_HARASSMENT", "probability": "LOW"},
        ],
    }
    failed = failure(refused({"promptFeedback": feedback, "usageMetadata": {}}))
    assert isinstance(failed.error, ProviderRefused)
    assert not failed.is_retryable
    assert failed.error.code == "content_filter"
    assert "the prompt was blocked" in failed.error.message
    assert f"({reason}); Not this.; dangerous content" in failed.error.message


@pytest.mark.parametrize("reason", ["SAFETY", "RECITATION", "SPII"])
def test_an_answer_that_is_withheld_as_a_whole_is_refused_with_the_reason(reason: str) -> None:
    failed = failure(refused(chunk(finish=reason, finishMessage="Because.")))
    assert isinstance(failed.error, ProviderRefused)
    assert failed.error.code == "content_filter"
    assert "the answer was blocked" in failed.error.message
    assert f"({reason}); Because." in failed.error.message


@pytest.mark.parametrize("reason", ["OTHER", "MALFORMED_RESPONSE", "TOO_MANY_TOOL_CALLS"])
def test_an_answer_that_ends_for_no_good_reason_is_asked_for_again(reason: str) -> None:
    failed = failure(refused(chunk(finish=reason)))
    assert isinstance(failed.error, ProviderUnavailable)
    assert failed.is_retryable
    assert f"({reason})" in failed.error.message
    refused(chunk(text("Hel")), chunk(finish=reason))


def test_a_missing_signature_is_not_asked_for_again() -> None:
    failed = failure(refused(chunk(finish="MISSING_THOUGHT_SIGNATURE")))
    assert not failed.is_retryable


# --- calls that Google itself could not read ----------------------------------------------------

UNREADABLE = pytest.mark.parametrize("reason", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL"])


@UNREADABLE
@pytest.mark.parametrize(
    "words",
    [
        "Malformed function call: print(default_api.write_file(path='a', content='b'))",
        "Malformed function call: call:default_api:write_file{path:a}",
    ],
)
def test_an_unreadable_call_is_a_call_whose_arguments_are_not_run(reason: str, words: str) -> None:
    """The model is told by the error result, as with any other provider, and the run goes on."""
    events, answer = decode(chunk(thought("Hm.")), chunk(finish=reason, finishMessage=words))
    assert answer.stop_reason == "tool_calls"
    made = answer.parts[-1]
    assert isinstance(made, ToolCall)
    assert (made.name, made.arguments) == ("write_file", f"{reason}: {words}")
    assert [type(one) for one in events] == [
        ReasoningDelta,
        ToolCallStart,
        ToolCallArgsDelta,
        ToolCallDone,
    ]


@UNREADABLE
def test_an_unreadable_call_of_an_unknown_tool_is_told_of_behind_what_was_said(reason: str) -> None:
    _, answer = decode(chunk(text("Now I")), chunk(finish=reason))
    made = answer.parts[-1]
    assert isinstance(made, ToolCall)
    assert made.name == "unnamed"


@UNREADABLE
def test_where_nothing_is_known_of_an_unreadable_call_it_is_asked_for_again(reason: str) -> None:
    failed = failure(refused(chunk(finish=reason)))
    assert failed.is_retryable
    assert reason in failed.error.message


@UNREADABLE
def test_beside_whole_calls_an_unreadable_one_is_no_matter(reason: str) -> None:
    _, answer = decode(chunk(call("look", {})), chunk(finish=reason, finishMessage="Malformed"))
    assert answer.stop_reason == "tool_calls"
    assert len(answer.parts) == 1


@pytest.mark.parametrize("indexes", [(1,), (0, 1), (1, 0)])
def test_one_answer_is_read_of_several(indexes: tuple[int, ...]) -> None:
    """Siblings of I13."""
    candidates = [chunk(text(f"of {at}"), index=at)["candidates"][0] for at in indexes]
    ends = [{"index": at, "finishReason": "STOP"} for at in indexes]
    _, answer = decode({"candidates": candidates}, {"candidates": None}, {"candidates": ends})
    assert answer.parts == (Text(f"of {min(indexes)}"),)


# --- usage --------------------------------------------------------------------------------------


def usage(*reports: object) -> Usage | None:
    chunks = [{"usageMetadata": report} for report in reports]
    return decode(*chunks, chunk(text("Hi"), finish="STOP"))[1].usage


def test_d05_the_cached_part_is_inside_the_prompt_and_thoughts_are_output() -> None:
    """D05: nothing is added to the prompt but what tools of Google's own brought in."""
    counts = {
        "promptTokenCount": 152_700,
        "cachedContentTokenCount": 150_000,
        "candidatesTokenCount": 10,
        "thoughtsTokenCount": 490,
        "totalTokenCount": 153_200,
    }
    assert usage(counts) == Usage(152_700, 500, cache_read=150_000)
    assert usage(counts | {"toolUsePromptTokenCount": 100}) == Usage(
        152_800, 500, cache_read=150_000
    )


def test_i12_the_last_real_numbers_hold() -> None:
    """I12: neither early nulls and zeros nor a field that is left out later take anything away."""
    early = {"promptTokenCount": 0, "candidatesTokenCount": None, "trafficType": "ON_DEMAND"}
    middle = {"promptTokenCount": 55, "cachedContentTokenCount": 40, "candidatesTokenCount": 1}
    last = {"promptTokenCount": 257, "candidatesTokenCount": 8, "cachedContentTokenCount": 0}
    assert usage(early, middle, last) == Usage(257, 8, cache_read=40)


def test_what_is_not_said_is_none() -> None:
    assert usage({"promptTokenCount": 5}) == Usage(5, None)
    assert usage({"thoughtsTokenCount": 5}) == Usage(None, 5)
    assert usage() is None
    assert usage(None, "odd", {}, {"promptTokenCount": True, "candidatesTokenCount": -1}) is None
    assert usage({"promptTokenCount": 0, "candidatesTokenCount": 0}) is None
    assert usage({"promptTokenCount": 0, "candidatesTokenCount": 2}) == Usage(None, 2)
    assert usage({"promptTokenCount": 9.0, "candidatesTokenCount": 2}) == Usage(9, 2)


# --- errors -------------------------------------------------------------------------------------

ERROR = {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}


@pytest.mark.parametrize("shape", [{"error": ERROR}, [{"error": ERROR}]])
def test_an_error_in_the_stream_or_as_a_list_is_reported(shape: object) -> None:
    failed = failure(refused(shape))
    assert isinstance(failed.error, ProviderUnavailable)
    assert (failed.error.status, failed.error.code) == (503, "unavailable")
    assert "overloaded" in failed.error.message
    assert refused(chunk(text("Hi")), shape).report.status == 503


@pytest.mark.parametrize("data", ["", "hello", "<html>", "1", "null", '{"a"', "[1]", '["a", {}]'])
def test_what_is_no_chunk_is_a_bad_answer(data: str) -> None:
    with pytest.raises(BadAnswer):
        decoder().feed(data)


# --- there and back -----------------------------------------------------------------------------

_signatures = st.none() | st.sampled_from(["S1", "AAAA+/==", "AAAA-_"])
_said = st.sampled_from(["one", "two\n", "你好"])
_sent_parts = st.lists(
    st.builds(text, _said, _signatures)
    | st.builds(thought, _said, _signatures)
    | st.builds(lambda signature: text("", signature), st.sampled_from(["S8", "S9"]))
    | st.builds(
        lambda name, args, signature, number: call(name, args, signature, id=f"c{number}"),
        st.sampled_from(["read", "look"]),
        st.dictionaries(_said, st.none() | st.integers(-5, 5) | _said | st.floats(0, 1)),
        _signatures,
        st.integers(),
    ),
    max_size=8,
)


def _merged(parts: list[Part]) -> list[Part]:
    """The parts as they are kept: unsigned ones of a kind that follow each other are one."""
    kept: list[Part] = []
    for part in parts:
        last = kept[-1] if kept else {}
        if "text" in part and set(part) == set(last) and "thoughtSignature" not in part:
            kept[-1] = last | {"text": last["text"] + part["text"]}
        else:
            kept.append(part)
    return kept


def send_back(answer: Answer) -> list[Part]:
    """The parts that the next request holds for `answer`."""
    calls = [part for part in answer.parts if isinstance(part, ToolCall)]
    items: list[Item] = [
        user_message("Go."),
        AssistantMessage("a" * 32, answer.parts, "gemini", MODEL, answer.stop_reason),
        *(ToolResult("", one.call_id, one.call_uid, "ok", None, is_error=False) for one in calls),
    ]
    sent = json.loads(GeminiScheme().encoder("gemini", MODEL).encode(LlmRequest("", items)))
    parts = sent["contents"][1]["parts"]
    assert isinstance(parts, list)
    return parts


@given(_sent_parts, st.lists(st.integers(1, 3), max_size=8))
def test_what_the_model_said_goes_back_as_it_was(parts: list[Part], sizes: list[int]) -> None:
    parts = [*parts, call("read", {"n": 1}, "LAST", id="last")]
    seen: set[str] = set()
    for part in parts:
        # The first of the calls is signed, as it always is.
        if "functionCall" in part and not seen:
            part.setdefault("thoughtSignature", "FIRST")
            seen.add("call")

    rest, chunks = list(parts), []
    for size in sizes:
        chunks.append(chunk(*rest[:size]))
        rest = rest[size:]
    _, answer = decode(*chunks, chunk(*rest, finish="STOP"))
    assert send_back(answer) == _merged(parts)


# --- a recorded stream --------------------------------------------------------------------------


def recorded() -> list[dict[str, Any]]:
    path = SHARED / "sse_gemini_tool_call_thought_signature.yaml"
    if not path.exists():
        pytest.skip(f"the recorded stream is not here: {path}")
    interactions = yaml.safe_load(path.read_text(encoding="utf-8"))["interactions"]
    assert isinstance(interactions, list)
    return interactions


def streamed(interaction: dict[str, Any]) -> list[str]:
    lines = interaction["response"]["body"]["string"].split("\r\n")
    return [line.removeprefix("data: ") for line in lines if line]


def test_c04_a_recorded_call_and_its_signature_go_back_byte_for_byte() -> None:
    """C04, C10: against what Google sent, and what it then took."""
    first, second = recorded()
    data = streamed(first)
    (received,) = json.loads(data[0])["candidates"][0]["content"]["parts"]
    _, answer = decode(*data)
    assert answer.usage == Usage(29, 10 + 202)
    assert answer.stop_reason == "tool_calls"

    (sent,) = send_back(answer)
    assert sent["thoughtSignature"] == received["thoughtSignature"]
    assert sent["functionCall"]["name"] == received["functionCall"]["name"]
    # An id that Google did not give was taken then.
    taken = second["request"]["parsed_body"]["contents"][1]["parts"][0]
    assert set(sent) == set(taken)
    assert set(sent["functionCall"]) == set(taken["functionCall"])

    _, said = decode(*streamed(second))
    assert said.parts == (Text("The capital of Mexico is Mexico City."),)
    assert said.usage == Usage(257, 8)
