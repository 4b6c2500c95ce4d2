"""The event bus: numbered, in order, never waiting."""

from __future__ import annotations

import asyncio
import logging

import pytest

from pod.bus import QUEUE_LIMIT, EventBus
from pod.protocol import Alert, Envelope, EventData, Lagged, Status, TextDelta

pytestmark = pytest.mark.anyio


def delta(n: int) -> TextDelta:
    return TextDelta(text=str(n))


async def test_everybody_gets_every_event_numbered_by_one() -> None:
    bus = EventBus(clock=lambda: 12.5)
    heard: list[Envelope] = []
    typed: list[TextDelta] = []
    bus.listen(heard.append)
    stop = bus.on(TextDelta, typed.append)
    everything, some = bus.subscribe(), bus.subscribe(Status)
    bus.publish(delta(1))
    bus.publish(Status(state="idle"), ("s", 4))
    stop()
    bus.publish(delta(2))
    bus.close()
    assert [envelope.seq for envelope in heard] == [1, 2, 3]
    assert [envelope.ref for envelope in heard] == [None, ("s", 4), None]
    assert {envelope.ts for envelope in heard} == {12_500}
    assert len({envelope.launch for envelope in heard}) == 1
    assert [data.text for data in typed] == ["1"]
    assert [data async for data in everything] == [envelope.data for envelope in heard]
    assert [data async for data in some] == [Status(state="idle")]


async def test_what_a_listener_publishes_comes_to_all_after_what_it_heard() -> None:
    bus = EventBus()
    first: list[int] = []
    last: list[int] = []

    def answer(envelope: Envelope) -> None:
        first.append(envelope.seq)
        if isinstance(envelope.data, TextDelta):
            bus.publish(Alert(level="info", message="heard"))

    bus.listen(answer)
    bus.listen(lambda envelope: last.append(envelope.seq))
    subscription = bus.subscribe()
    bus.publish(delta(1))
    bus.publish(delta(2))
    assert first == last == [1, 2, 3, 4]
    bus.close()
    kinds = [type(data) async for data in subscription]
    assert kinds == [TextDelta, Alert, TextDelta, Alert]


async def test_a_listener_that_raises_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    bus = EventBus()
    heard: list[EventData] = []

    def broken(_: Envelope) -> None:
        message = "mine"
        raise RuntimeError(message)

    bus.listen(broken)
    bus.on(TextDelta, heard.append)
    with caplog.at_level(logging.ERROR, "pod.events"):
        bus.publish(delta(1))

    assert heard == [delta(1)]
    assert "text_delta" in caplog.text


async def test_a_subscriber_that_is_too_slow_is_cut_off_and_told_where() -> None:
    bus = EventBus()
    slow, fast = bus.subscribe(), bus.subscribe(Status)
    for n in range(1, QUEUE_LIMIT + 10):
        bus.publish(delta(n))

    bus.publish(Status(state="idle"))
    got = [data async for data in slow]
    assert len(got) == QUEUE_LIMIT + 1
    assert got[-1] == Lagged(next_seq=QUEUE_LIMIT + 1)
    assert got[-2] == delta(QUEUE_LIMIT)
    bus.close()
    assert [data async for data in fast] == [Status(state="idle")]


async def test_a_subscription_ends_with_the_bus_and_with_its_block() -> None:
    bus = EventBus()
    waiting = asyncio.create_task(anext(aiter(bus.subscribe()), None))
    await asyncio.sleep(0)
    async with bus.subscribe() as left:
        bus.publish(delta(1))

    bus.publish(delta(2))
    assert [data async for data in left] == [delta(1)]
    assert await waiting == delta(1)
    bus.close()
    late = [data async for data in bus.subscribe()]
    assert late == [], "after the end there is nothing to wait for"


async def test_waiting_for_an_event_ends_when_the_bus_closes() -> None:
    bus = EventBus()
    waiting = asyncio.create_task(anext(aiter(bus.subscribe()), None))
    await asyncio.sleep(0)
    bus.close()
    assert await asyncio.wait_for(waiting, 1) is None


async def test_a_subscription_gives_the_envelopes_too_where_they_are_asked_for() -> None:
    bus = EventBus()
    subscription = bus.subscribe(TextDelta)
    bus.publish(Status(state="idle"))
    published = [bus.publish(delta(1)), bus.publish(delta(2))]
    assert subscription.backlog == bus.backlog == 2
    bus.close()
    assert [envelope async for envelope in subscription.envelopes()] == published
    assert bus.backlog == 0


async def test_what_came_from_another_process_keeps_its_number() -> None:
    bus = EventBus()
    subscription = bus.subscribe()
    foreign = Envelope(41, "other", 7, delta(1), ("s", 3))
    bus.relay(foreign)
    bus.close()
    assert [envelope async for envelope in subscription.envelopes()] == [foreign]


async def test_a_bus_that_ends_for_a_reason_tells_it_after_what_is_queued() -> None:
    bus = EventBus()
    early = bus.subscribe()
    bus.publish(delta(1))
    bus.close(RuntimeError("gone"))
    assert [(await anext(early))] == [delta(1)]
    for subscription in (early, bus.subscribe()):
        with pytest.raises(RuntimeError, match="gone"):
            await anext(subscription)
