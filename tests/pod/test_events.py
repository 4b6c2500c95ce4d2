"""The Worker's events as the protocol's, without secrets."""

from __future__ import annotations

from pod import protocol
from pod.events import EventTranslator
from session_store.masking import Masker
from worker import ports
from worker.llm.types import ReasoningDelta, TextDelta, ToolCallArgsDelta, Usage

SECRET = "sk-verysecret-0123456789"


def translated(*events: tuple[ports.WorkerEvent, ports.Ref]) -> list[protocol.EventData]:
    told: list[protocol.EventData] = []
    translate = EventTranslator(lambda data, _ref: told.append(data), Masker({"KEY": SECRET}))
    for event, ref in events:
        translate(event, ref)

    return told


def test_a_secret_never_passes_in_pieces() -> None:
    pieces = [SECRET[n : n + 5] for n in range(0, len(SECRET), 5)]
    told = translated(
        *((TextDelta(piece), None) for piece in ["it is ", *pieces, ", yes"]),
        *((ReasoningDelta(piece), None) for piece in pieces),
        *((ToolCallArgsDelta("c1", piece), None) for piece in pieces),
        (ports.TextDone("done"), ("s", 3)),
    )
    text = "".join(data.text for data in told if isinstance(data, protocol.TextDelta))
    assert text == "it is [masked: KEY], yes"
    assert SECRET[:10] not in repr(told)
    thoughts = "".join(data.text for data in told if isinstance(data, protocol.ReasoningDelta))
    assert thoughts == "[masked: KEY]"
    assert isinstance(told[-1], protocol.TextDone), "what was held back comes before the next event"


def test_refs_and_fields_are_passed_on() -> None:
    refs: list[tuple[str, int] | None] = []
    told: list[protocol.EventData] = []

    def publish(data: protocol.EventData, ref: tuple[str, int] | None) -> None:
        told.append(data)
        refs.append(ref)

    translate = EventTranslator(publish, Masker({}))
    translate(ports.ToolResulted("c1", "look", "sum", "content", is_error=True), ("s", 7))
    translate(ports.UsageMeasured(Usage(10, 2, 3, None), "m"), ("s", 8))
    translate(ports.TurnStart(2), None)
    assert refs == [("s", 7), ("s", 8), None]
    assert told == [
        protocol.ToolResult(
            call_id="c1", name="look", summary="sum", content="content", is_error=True
        ),
        protocol.Usage(input_tokens=10, output_tokens=2, cache_read=3, model="m"),
        protocol.TurnStart(turn=2),
    ]


def test_what_a_broken_stream_left_held_back_is_not_told_in_the_next_one() -> None:
    """A run that is cancelled while it thinks has no event that could end the thought."""
    told = translated(
        (ReasoningDelta(f"it begins with {SECRET[:9]}"), None),
        (ports.TurnStart(2), None),
        (ReasoningDelta("anew"), None),
        (ports.TextDone("done"), ("s", 3)),
    )
    thoughts = [data.text for data in told if isinstance(data, protocol.ReasoningDelta)]
    assert thoughts == ["it begins with ", "anew"]
