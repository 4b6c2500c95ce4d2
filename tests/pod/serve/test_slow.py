"""Subscribers that do not read: bounded, joined, cut with where to go on, and no harm to others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pod.protocol import Alert, Error, EventData, TextDelta, ToolResult
from pod.serve.outbox import MAX_EVENTS
from tests.fake_provider import Say, serving
from tests.pod.pods import chat, manifest
from tests.pod.serve.clients import Client, Scene, serving_pod

pytestmark = pytest.mark.anyio

BIG = "x" * 4_000


@asynccontextmanager
async def quiet(home: Path, **options: Any) -> AsyncIterator[Scene]:
    """A served pod whose events the test publishes by itself."""
    with serving(chat(lambda _asked, _n: Say("hi"))) as served:
        async with serving_pod(manifest(home, served.base_url), home, **options) as scene:
            yield scene


async def stalled(scene: Scene, **params: Any) -> Client:
    """A subscriber that takes the answer and then does not read: its socket fills up."""
    client = await scene.client()
    await client.call("subscribe", **params)
    reading(client).pause_reading()
    return client


def wake(client: Client) -> None:
    reading(client).resume_reading()


def reading(client: Client) -> asyncio.ReadTransport:
    transport: asyncio.ReadTransport = client.writer.transport  # type: ignore[assignment]  # is both
    return transport


def first_of(event: dict[str, Any]) -> int:
    first: int = event["first_seq"] if "first_seq" in event else event["seq"]
    return first


async def publish(scene: Scene, *data: EventData) -> None:
    """Publish as a pod does: the loop goes on in between."""
    for one in data:
        scene.pod.bus.publish(one)
        await asyncio.sleep(0)


async def test_a_burst_without_a_pause_is_no_slowness_of_the_readers(home: Path) -> None:
    async with quiet(home) as scene:
        client = await scene.subscriber()
        before = scene.server.hub.seq
        for n in range(4_000):
            scene.pod.bus.publish(Alert(level="info", message=str(n)))
            if n % 200 == 0:
                await client.seq(before + 1 + n)

        await client.call("ping")
        seqs = [event["seq"] for event in client.events]
        assert seqs == list(range(before + 1, before + 4_001))


async def test_whoever_does_not_read_is_cut_and_told_where_to_go_on(home: Path) -> None:
    async with quiet(home) as scene:
        slow, fast = await stalled(scene), await scene.subscriber()
        alerts = [Alert(level="info", message=f"{n} {BIG}") for n in range(2 * MAX_EVENTS)]
        for alert in alerts:
            await publish(scene, alert)
            await fast.event("alert")

        assert len(scene.server.hub) == 1, "it is no subscriber any more"
        wake(slow)
        await slow.rest()
        lagged = slow.events[-1]
        assert lagged["event"] == "lagged"
        next_seq: int = lagged["data"]["next_seq"]
        got = [event["seq"] for event in slow.events[:-1]]
        assert got == list(range(fast.events[0]["seq"], next_seq))
        assert lagged["seq"] == next_seq - 1
        again = await scene.subscriber(from_seq=next_seq, launch=lagged["launch"])
        await again.seq(fast.events[-1]["seq"])
        assert slow.events[:-1] + again.events == fast.events


async def test_deltas_are_joined_before_anybody_is_cut(home: Path) -> None:
    async with quiet(home) as scene:
        slow = await stalled(scene)
        texts = [f"{n} " for n in range(30_000)]
        await publish(scene, *(TextDelta(text=text) for text in texts))
        scene.pod.bus.publish(Alert(level="info", message="end"))
        assert len(scene.server.hub) == 1
        wake(slow)
        await slow.event("alert")
        deltas = [event for event in slow.events if event["event"] == "text_delta"]
        assert "".join(event["data"]["text"] for event in deltas) == "".join(texts)
        assert any("first_seq" in event for event in deltas)
        covered: list[int] = [
            seq for event in slow.events for seq in range(first_of(event), event["seq"] + 1)
        ]
        assert covered == list(range(covered[0], covered[0] + len(covered)))


async def test_what_is_not_wanted_takes_no_room(home: Path) -> None:
    async with quiet(home) as scene:
        result = ToolResult(call_id="c", name="t", summary="s", is_error=False)
        slow = await stalled(scene, events=["tool_*"])
        await publish(scene, result, *[TextDelta(text=BIG)] * 10_000, result)
        wake(slow)
        await slow.event("tool_result")
        await slow.event("tool_result")
        assert slow.names == ["tool_result", "tool_result"]


async def test_a_slow_one_gets_at_least_one_event_between_two_cuts(home: Path) -> None:
    async with quiet(home) as scene:
        scene.server.hub.ring.max_events = 2 * MAX_EVENTS
        from_seq = scene.server.hub.seq + 1
        for _ in range(5):
            client = await stalled(scene, from_seq=from_seq)
            await publish(scene, *[Alert(level="info", message=BIG)] * (3 * MAX_EVENTS))
            wake(client)
            await client.rest()
            assert client.names[-1] == "lagged"
            assert client.names[0] == "alert"
            from_seq = max(client.events[-1]["data"]["next_seq"], scene.server.hub.seq - 100)


async def test_many_that_do_not_read_take_little_and_hold_up_nobody(home: Path) -> None:
    async with quiet(home) as scene:
        slow = [await stalled(scene) for _ in range(100)]
        fast = await scene.subscriber()
        hub = scene.server.hub
        waits = []
        for n in range(1_000):
            began = time.perf_counter()
            scene.pod.bus.publish(Alert(level="info", message=f"{n} {BIG}"))
            await fast.event("alert")
            waits.append(time.perf_counter() - began)
            assert hub.meter.held <= hub.meter.limit

        assert len(hub) == 1
        assert sorted(waits)[-10] < 0.5
        for client in slow:
            wake(client)

        await slow[0].rest()
        assert slow[0].names[-1] == "lagged"


async def test_all_together_are_bounded_also_where_each_is(home: Path) -> None:
    """Each wants something else, so that they share nothing, and each stays below its own bound."""
    async with quiet(home) as scene:
        hub = scene.server.hub
        hub.meter.limit = 1 << 20
        kinds = ["alert", "text_delta", "tool_result", "error"]
        slow = [await stalled(scene, events=[kind]) for kind in kinds]
        fast = await scene.subscriber(events=["status"])
        for n in range(400):
            text = f"{n} {BIG}"
            await publish(
                scene,
                Alert(level="info", message=text),
                TextDelta(text=text),
                ToolResult(call_id="c", name="t", summary=text, is_error=False),
            )
            assert hub.meter.held <= (1 << 20) + 3 * 5_000

        assert len(hub) < 1 + len(slow)
        assert await fast.call("ping")


async def test_of_those_that_were_cut_large_lines_are_not_held_and_no_other_is_cut(
    home: Path,
) -> None:
    """A line that was begun stays whole, unless there is no room for it."""
    async with quiet(home) as scene:
        hub = scene.server.hub
        hub.meter.limit = 4 << 20
        fast = await scene.subscriber(events=["status", "error"])
        slow = []
        for n in range(12):
            slow.append(await stalled(scene, events=["alert"]))
            await publish(scene, *[Alert(level="info", message=str(n) * 600_000)] * 3)

        for _ in range(8):
            await publish(scene, Error(code="x", message="y" * 600_000))
            await fast.event("error")

        assert hub.meter.held < 4 << 20
        assert len(hub) == 1
        for client in slow:
            wake(client)
            async with asyncio.timeout(5):
                assert await client.reader.read(), "and then the end"


async def test_whoever_is_cut_in_the_middle_of_asking_is_told_all_the_same(home: Path) -> None:
    async with quiet(home) as scene:
        slow = await stalled(scene)
        await publish(scene, *[Alert(level="info", message=BIG)] * 200)
        slow.write(b'{"id":77,"method":"get_history","params":{}}\n{"id":78,"meth')
        await publish(scene, *[Alert(level="info", message=BIG)] * 400)
        slow.write(b'od":"ping"}\n')
        await asyncio.sleep(0.05)
        wake(slow)
        await slow.rest()
        assert slow.names[-1] == "lagged"


SIZES = st.sampled_from([1, 1, 1, 10, 3_000, 200_000, 300_000, 1_200_000])


@given(
    bursts=st.lists(st.lists(st.tuples(SIZES, st.booleans()), max_size=6), min_size=1, max_size=6),
    reads=st.lists(st.booleans(), min_size=6, max_size=6),
)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_lines_stay_whole_whatever_their_sizes(
    scene: Scene, bursts: list[list[tuple[int, bool]]], reads: list[bool]
) -> None:
    """Large and small, deltas and others, to somebody who reads at times: in order, without a gap.

    Or it is cut, and told where to go on.
    """
    client = await stalled(scene)
    first = scene.server.hub.seq + 1
    for burst, is_reading in zip(bursts, reads, strict=False):
        for size, is_delta in burst:
            text = "x" * size
            data = TextDelta(text=text) if is_delta else Alert(level="info", message=text)
            scene.pod.bus.publish(data)

        if is_reading:
            wake(client)
            await asyncio.sleep(0.005)
            reading(client).pause_reading()

    wake(client)
    end = scene.server.hub.seq
    while not client.events or client.events[-1]["seq"] < end:
        if end < first or (client.names and client.names[-1] == "lagged"):
            break

        await client.line()

    seqs = [
        seq
        for event in client.events
        if event["event"] != "lagged"
        for seq in range(first_of(event), event["seq"] + 1)
    ]
    upto = end
    if client.names and client.names[-1] == "lagged":
        upto = client.events[-1]["data"]["next_seq"] - 1

    assert seqs == list(range(first, upto + 1))
    client.close()


@pytest.fixture
async def scene(home: Path) -> AsyncIterator[Scene]:
    async with quiet(home) as scene:
        yield scene


async def test_fifty_subscribers_get_all_of_it(home: Path) -> None:
    async with quiet(home) as scene:
        clients = [await scene.subscriber() for _ in range(50)]
        waiting = [asyncio.create_task(client.event("alert")) for client in clients]
        for n in range(2_000):
            scene.pod.bus.publish(TextDelta(text=str(n)))
            if n % 50 == 0:
                await asyncio.sleep(0)

        scene.pod.bus.publish(Alert(level="info", message="end"))
        await asyncio.gather(*waiting)
        for client in clients:
            assert client.events == clients[0].events

        seqs = [event["seq"] for event in clients[0].events]
        assert seqs == list(range(seqs[0], seqs[0] + 2_001))


async def test_whoever_catches_up_too_slowly_is_cut_too(home: Path) -> None:
    async with quiet(home) as scene:
        hub = scene.server.hub
        hub.ring.max_events = 300
        first = hub.seq + 1
        await publish(scene, *[Alert(level="info", message=BIG)] * 250)
        slow = await stalled(scene, from_seq=first)
        await publish(scene, *[Alert(level="info", message=BIG)] * 600)
        wake(slow)
        await slow.rest()
        assert slow.names[-1] == "lagged"
        next_seq: int = slow.events[-1]["data"]["next_seq"]
        assert [event["seq"] for event in slow.events[:-1]] == list(range(first, next_seq))


async def test_answers_wait_unread_and_so_do_the_requests_behind_them(home: Path) -> None:
    """Whoever asks and does not read is not answered without bound."""
    async with quiet(home) as scene:
        client = await stalled(scene)
        client.write(b'{"id":1,"method":"status","params":{}}\n' * 200_000)
        other = await scene.subscriber()
        for _ in range(50):
            assert await other.call("ping")
            await asyncio.sleep(0.01)

        assert scene.server.hub.meter.held < 4 << 20
        wake(client)
        for _ in range(10_000):
            assert "ok" in await client.line()


async def test_of_large_answers_too_few_wait_unread_to_matter(home: Path) -> None:
    with serving(chat(lambda _asked, _n: Say("x" * 900_000))) as served:
        path = manifest(home, served.base_url, window=2_000_000)
        async with serving_pod(path, home) as scene:
            other = await scene.subscriber(events=["run_end"])
            await other.run("hello")
            held = scene.server.hub.meter.held
            client = await stalled(scene)
            for number in range(100, 160):
                client.write(b'{"id":%d,"method":"get_history","params":{}}\n' % number)

            for _ in range(20):
                assert await other.call("ping")

            assert scene.server.hub.meter.held - held < 4 << 20
            wake(client)
            for number in range(100, 160):
                assert (await client.answer(number))["ok"]["total"] == 2
