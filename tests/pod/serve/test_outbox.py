"""What a connection is yet to be sent: bounded, in order, joined before it is cut, counted once."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pod.protocol import (
    Envelope,
    EventData,
    ReasoningDelta,
    Status,
    TextDelta,
    ToolCallArgsDelta,
)
from pod.serve.outbox import MAX_EVENT_BYTES, MAX_EVENTS, Outbox
from pod.serve.record import Joiner, Meter, Record, record_of
from pod.serve.ring import Ring

LAUNCH = "f" * 32


def event(seq: int, data: EventData) -> Record:
    return record_of(Envelope(seq, LAUNCH, 1_000 + seq, data))


def box(meter: Meter | None = None) -> Outbox:
    return Outbox(meter or Meter(1 << 40), Joiner())


def parsed(outbox: Outbox) -> list[dict[str, Any]]:
    return [json.loads(record.line) for record in outbox]


KINDS: list[Callable[[str], EventData]] = [
    lambda text: TextDelta(text=text),
    lambda text: ReasoningDelta(text=text),
    lambda text: ToolCallArgsDelta(call_id="a", text=text),
    lambda text: ToolCallArgsDelta(call_id="b", text=text),
    lambda _: Status(state="idle"),
]


def streams(lines: list[dict[str, Any]]) -> dict[str, str]:
    """Each stream's text, whole."""
    texts: dict[str, str] = {}
    for line in lines:
        key = line["event"] + line["data"].get("call_id", "")
        texts[key] = texts.get(key, "") + line["data"].get("text", "|")

    return texts


@given(st.lists(st.tuples(st.integers(0, 4), st.text(max_size=4)), min_size=1, max_size=60))
def test_joining_keeps_every_text_every_number_and_the_order(given_: list[tuple[int, str]]) -> None:
    records = [event(n, KINDS[kind](text)) for n, (kind, text) in enumerate(given_, 1)]
    joined = Joiner().join(records)
    lines = [json.loads(record.line) for record in joined]
    assert streams(lines) == streams([json.loads(record.line) for record in records])
    covered = [
        seq for line in lines for seq in range(line.get("first_seq", line["seq"]), line["seq"] + 1)
    ]
    assert covered == list(range(1, len(records) + 1))
    assert len(joined) <= len(records)
    neighbours = itertools.pairwise(lines)
    for one, other in neighbours:
        same = (one["event"], one["data"].get("call_id")) == (
            other["event"],
            other["data"].get("call_id"),
        )
        assert not (same and one["event"].endswith("delta")), "what can be joined is joined"


def test_what_several_slow_ones_need_is_joined_once() -> None:
    joiner = Joiner()
    records = [event(n, TextDelta(text=str(n))) for n in range(1, 6)]
    (one,), (other,) = joiner.join(records), joiner.join(records)
    assert one is other


def test_deltas_are_joined_before_anything_is_refused() -> None:
    outbox = box()
    for n in range(1, 100 * MAX_EVENTS):
        assert outbox.offer(event(n, TextDelta(text="x")))

    assert outbox.events <= MAX_EVENTS
    assert streams(parsed(outbox)) == {"text_delta": "x" * (100 * MAX_EVENTS - 1)}


def test_what_cannot_be_joined_is_refused_when_it_is_too_much() -> None:
    outbox = box()
    took = [outbox.offer(event(n, Status(state="idle"))) for n in range(1, MAX_EVENTS + 2)]
    assert took == [True] * MAX_EVENTS + [False]
    first = outbox.cut()
    assert first is not None
    assert first.first_seq == 1
    assert not outbox


def test_bytes_are_bounded_too_but_a_single_event_always_has_room() -> None:
    outbox = box()
    big = TextDelta(text="x" * (MAX_EVENT_BYTES * 2))
    assert outbox.offer(event(1, big))
    assert not outbox.offer(event(2, Status(state="idle")))
    outbox.sent(len(next(iter(outbox)).line))
    assert outbox.offer(event(3, Status(state="idle")))


def test_a_line_that_was_begun_is_ended_and_answers_are_never_dropped() -> None:
    outbox = box()
    first = event(1, TextDelta(text="one"))
    outbox.add(first)
    outbox.add(Record(b'{"id":1,"ok":{}}\n'))
    outbox.add(event(2, TextDelta(text="two")))
    outbox.add(event(3, TextDelta(text="three")))
    outbox.sent(5)
    dropped = outbox.cut()
    assert dropped is not None
    assert dropped.seq == 2
    assert b"".join(outbox.buffers()) == first.line[5:] + b'{"id":1,"ok":{}}\n'


def test_a_line_that_was_begun_is_not_joined() -> None:
    outbox = box()
    for n in range(1, MAX_EVENTS + 1):
        outbox.offer(event(n, TextDelta(text=f"{n} ")))

    begun = next(iter(outbox)).line
    outbox.sent(3)
    assert outbox.offer(event(MAX_EVENTS + 1, TextDelta(text="last")))
    data = b"".join(outbox.buffers())
    assert data.startswith(begun[3:])
    lines = [json.loads(line) for line in (begun[:3] + data).split(b"\n")[:-1]]
    assert [line["seq"] for line in lines] == [1, MAX_EVENTS, MAX_EVENTS + 1]
    assert lines[1]["first_seq"] == 2


@given(
    sizes=st.lists(st.integers(1, 400), min_size=1, max_size=60),
    steps=st.lists(st.integers(1, 700), min_size=1, max_size=200),
)
def test_whatever_is_taken_at_once_the_bytes_come_out_in_order(
    sizes: list[int], steps: list[int]
) -> None:
    meter = Meter(1 << 40)
    outbox = box(meter)
    records = [event(n, TextDelta(text="x" * size)) for n, size in enumerate(sizes, 1)]
    for record in records:
        outbox.add(record)

    got = b""
    for step in steps:
        data = b"".join(outbox.buffers())[:step]
        got += data
        outbox.sent(len(data))

    assert (got + b"".join(outbox.buffers()))[: len(got)] == got
    whole = b"".join(record.line for record in records)
    assert whole.startswith(got)
    left = [record for record in outbox]  # noqa: C416  what is left, as a list
    assert outbox.events == len(left)
    assert meter.held == sum(record.size for record in left)
    outbox.clear()
    assert (meter.held, outbox.events, outbox.event_bytes) == (0, 0, 0)


def test_what_many_hold_is_counted_once() -> None:
    meter = Meter(1 << 40)
    boxes = [box(meter) for _ in range(1_000)]
    ring = Ring(meter)
    records = [event(n, Status(state="idle")) for n in range(1, 11)]
    for record in records:
        ring.append(record)
        for outbox in boxes:
            assert outbox.offer(record)

    assert meter.held == sum(record.size for record in records)
    for outbox in boxes:
        outbox.cut()

    assert meter.held == sum(record.size for record in records)
    assert ring.shrink()
    assert ring.first_seq == 6
    assert meter.held == sum(record.size for record in records[5:])


@pytest.mark.parametrize("limits", [{"max_events": 10}, {"max_bytes": 5_000}])
def test_the_ring_holds_the_newest_without_a_gap(limits: dict[str, int]) -> None:
    meter = Meter(1 << 40)
    ring = Ring(meter, **limits)
    assert ring.first_seq is None
    assert not ring.holds(1)
    for n in range(1, 101):
        ring.append(event(n, Status(state="idle")))

    first = next(n for n in range(1, 101) if ring.holds(n))
    assert 1 < first < 100
    assert not ring.holds(first - 1)
    assert not ring.holds(101)
    assert [record.seq for record in ring.after(first, 1_000)] == list(range(first, 101))
    assert [record.seq for record in ring.after(95, 3)] == [95, 96, 97]
    assert meter.held == sum(record.size for record in ring.after(first, 1_000))
