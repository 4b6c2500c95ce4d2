"""Connections that break, pods that are started again: events go on, and results are found."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pod.bus import QUEUE_LIMIT
from pod.client import (
    Backoff,
    ConnectionLost,
    LinkState,
    NotServed,
    Patience,
    PodClient,
    Position,
    RunUnknown,
)
from pod.protocol import (
    CompactionDone,
    Envelope,
    Lagged,
    RunEnd,
    RunStart,
    SessionChanged,
    Snapshot,
    TextDelta,
)
from tests.fake_provider import Asked, Say, serving
from tests.pod.client.relay import Relay, relaying
from tests.pod.client.served import Served, served, until
from tests.pod.pods import COMPACT, chat, manifest, prose
from tests.pod.serve.clients import serving_pod

pytestmark = pytest.mark.anyio
QUICK = Patience(for_s=10.0, backoff=Backoff(first_s=0.002, most_s=0.02))


@asynccontextmanager
async def held(home: Path, tmp_path: Path) -> AsyncIterator[tuple[Served, Relay, threading.Event]]:
    """A pod whose first answer stops after its first piece until the event is set."""
    wait = threading.Event()
    async with (
        served(home, lambda _asked, n: Say("whole", wait=wait if n == 1 else None)) as pod,
        relaying(pod.path, tmp_path) as relay,
    ):
        try:
            yield pod, relay, wait
        finally:
            wait.set()


async def test_a_run_is_found_again_after_the_connection_was_lost(
    home: Path, tmp_path: Path
) -> None:
    async with (
        held(home, tmp_path) as (pod, relay, wait),
        PodClient.connect(relay.path, patience=QUICK) as client,
    ):
        heard: list[int] = []
        client.listen(lambda envelope: heard.append(envelope.seq))
        running = asyncio.create_task(client.run("long"))
        await until(lambda: client.status().state == "running")
        relay.is_open = False
        relay.cut()
        await until(lambda: client.link.phase == "waiting")
        ended: list[RunEnd] = []
        pod.pod.on(RunEnd, ended.append)
        wait.set()
        await until(lambda: bool(ended))
        relay.is_open = True
        result = await running
        assert (result.outcome, result.text) == ("finished", "whole")
        assert client.history == pod.pod.history
        assert heard == list(range(heard[0], heard[0] + len(heard))), "no gap, nothing twice"
        assert client.link.replay == "memory"


@pytest.mark.parametrize("is_handed_on", [True, False], ids=["after", "before"])
async def test_a_prompt_whose_answer_was_lost_is_run_once(
    home: Path, tmp_path: Path, is_handed_on: bool
) -> None:
    """The connection breaks after the pod had the request, or before."""
    async with (
        served(home, lambda _asked, n: Say(f"answer {n}")) as pod,
        relaying(pod.path, tmp_path) as relay,
        PodClient.connect(relay.path, patience=QUICK) as client,
    ):
        if is_handed_on:
            relay.swallow = b'"method":"run"'
        else:
            relay.swallow_before = b'"method":"run"'

        result = await client.run("hello")
        assert (result.outcome, result.text) == ("finished", "answer 1")
        assert len(client.history) == 2
        assert len(pod.asked) == 1
        assert relay.connections == 2


async def test_a_resume_whose_answer_was_lost_is_not_asked_for_again(
    home: Path, tmp_path: Path
) -> None:
    async with (
        served(home, lambda _asked, n: Say(f"answer {n}")) as pod,
        relaying(pod.path, tmp_path) as relay,
        PodClient.connect(relay.path, patience=QUICK) as client,
    ):
        relay.swallow_before = b'"method":"resume"'
        with pytest.raises(RunUnknown, match="was accepted"):
            await client.resume()


async def test_a_compaction_is_found_again(home: Path, tmp_path: Path) -> None:
    async with (
        served(home, lambda _asked, _n: Say(prose(4_000))) as pod,
        relaying(pod.path, tmp_path) as relay,
        PodClient.connect(relay.path, patience=QUICK) as client,
    ):
        for prompt in ("one", "two", "three", "four"):
            await client.run(prompt)

        relay.swallow = b'"method":"compact"'
        done = await client.compact()
        assert done is not None
        assert done.new_session_id == client.session_id == pod.pod.session_id
        assert relay.connections == 2

        relay.swallow_before = b'"method":"compact"'
        with pytest.raises(ConnectionLost, match="was accepted"):
            await client.compact()


async def test_what_is_no_longer_held_comes_from_the_log(home: Path, tmp_path: Path) -> None:
    async with (
        served(home, lambda _asked, n: Say(f"answer {n}")) as pod,
        relaying(pod.path, tmp_path) as relay,
        PodClient.connect(relay.path, patience=QUICK) as client,
    ):
        heard: list[Envelope] = []
        ends = client.events(RunEnd)
        client.listen(heard.append)
        relay.is_open = False
        relay.cut()
        await until(lambda: client.link.phase == "waiting")
        for prompt in ("one", "two", "three"):
            await pod.pod.run(prompt)

        pod.scene.server.hub.ring.max_events = 3
        await pod.pod.run("four")
        relay.is_open = True
        texts = []
        for _ in range(4):
            end = await anext(ends)
            assert isinstance(end, RunEnd)
            texts.append(end.text)

        assert texts == [f"answer {n}" for n in range(1, 5)]
        assert client.link.replay == "log"
        numbers = [envelope.seq for envelope in heard]
        assert numbers == sorted(set(numbers))
        await client.idle()
        assert client.history == pod.pod.history


async def test_a_pod_that_is_started_again_goes_on_where_it_was(home: Path) -> None:
    """Across a restart, and a compaction's change of session before it."""
    with serving(chat(lambda _asked, _n: Say(prose(4_000)))) as model:
        path = manifest(home, model.base_url, COMPACT)
        states: list[LinkState] = []
        async with serving_pod(path, home) as scene:
            client = PodClient.connect("probe", home=home, patience=QUICK)
            client.watch_link(states.append)
            heard: list[Envelope] = []
            client.listen(heard.append)
            await client.start()
            await client.run("one")
            first = client.session_id
            # The client is away when the pod compacts, and when it is started again.
            position = client.position
            await client.aclose()
            for prompt in ("two", "three", "four", "five"):
                await scene.pod.run(prompt)
                await scene.pod.idle()

            second = scene.pod.session_id
            assert second != first

        client = PodClient.connect("probe", home=home, patience=QUICK, since=position)
        events = client.events(CompactionDone, RunEnd, SessionChanged)
        async with serving_pod(path, home, resume=second) as scene, client:
            got = []
            while [type(event) for event in got].count(RunEnd) < 4 or not [
                event for event in got if isinstance(event, CompactionDone)
            ]:
                got.append(await anext(events))

            done = [event for event in got if isinstance(event, CompactionDone)]
            assert done[0].old_session_id == first
            assert done[-1].new_session_id == second == client.session_id
            assert client.link.replay == "log"
            assert client.history == scene.pod.history
            result = await client.run("six")
            assert result.outcome == "finished"


async def test_a_client_stays_through_a_restart(home: Path) -> None:
    with serving(chat(lambda _asked, n: Say(f"answer {n}"))) as model:
        path = manifest(home, model.base_url)
        client = PodClient.connect("probe", home=home, patience=QUICK)
        ends = client.events(RunEnd)
        async with serving_pod(path, home) as scene:
            await client.start()
            await client.run("one")
            session_id = scene.pod.session_id

        await until(lambda: client.link.phase == "waiting")
        async with serving_pod(path, home, resume=session_id) as scene:
            await until(lambda: client.link.phase == "connected")
            assert (await client.run("two")).text == "answer 2"
            assert len(client.history) == 4
            position = client.position
            assert position is not None
            assert position.launch == scene.pod.bus.launch
            await client.aclose()

        texts = [end.text async for end in ends if isinstance(end, RunEnd)]
        assert texts == ["answer 1", "answer 2"]


async def test_a_run_begins_while_an_earlier_life_is_still_told(home: Path) -> None:
    """Ends of an earlier launch that come meanwhile are not of this run, nor the end of it."""
    with serving(chat(lambda _asked, n: Say(f"answer {n}"))) as model:
        path = manifest(home, model.base_url)
        async with serving_pod(path, home) as scene, PodClient.connect("probe", home=home) as early:
            since = early.position
            for number in range(60):
                await scene.pod.run(f"prompt {number}")

            session_id = scene.pod.session_id

        client = PodClient.connect("probe", home=home, patience=QUICK, since=since)
        ends = client.events(RunEnd)
        async with serving_pod(path, home, resume=session_id), client:
            assert client.link.replay == "log"
            assert (await client.run("now")).text == "answer 61"
            await client.aclose()

        texts = [end.text async for end in ends if isinstance(end, RunEnd)]
        assert texts == [f"answer {n}" for n in range(1, 62)]


async def test_where_a_client_is_follows_from_what_it_hears_without_events(home: Path) -> None:
    """Where the new life of a pod has told nothing, its place is still not in the old one."""
    with serving(chat(lambda _asked, n: Say(f"answer {n}"))) as model:
        path = manifest(home, model.base_url)
        client = PodClient.connect("probe", home=home, patience=QUICK)
        async with serving_pod(path, home) as scene:
            await client.start()
            await client.run("one")
            session_id = scene.pod.session_id

        await until(lambda: client.link.phase == "waiting")
        async with serving_pod(path, home, resume=session_id) as scene:
            await until(lambda: client.link.phase == "connected")
            here = Position(scene.pod.bus.launch, scene.pod.bus.seq + 1)
            await until(lambda: client.position == here)
            assert client.history == scene.pod.history
            await client.aclose()


async def test_a_run_that_a_restart_interrupted_is_told_as_that(home: Path, tmp_path: Path) -> None:
    """The first launch vanishes, as a killed process does; nothing says how its run ended."""
    wait = threading.Event()
    with serving(chat(lambda _asked, n: Say("whole", wait=wait if n == 1 else None))) as model:
        path = manifest(home, model.base_url)
        async with serving_pod(path, home) as scene:
            other = tmp_path / "other-home"
            other.mkdir(mode=0o700)
            async with relaying(scene.places.socket, tmp_path) as relay:
                client = PodClient.connect(relay.path, patience=QUICK)
                await client.start()
                running = asyncio.create_task(client.run("long"))
                await until(lambda: client.status().state == "running")
                async with serving_pod(manifest(other, model.base_url), other) as again:
                    relay.target = again.places.socket
                    relay.cut()
                    with pytest.raises(RunUnknown, match="restarted"):
                        await running

                    assert (await client.run("hello")).outcome == "finished"
                    await client.aclose()

            wait.set()


async def test_what_nobody_can_tell_is_a_snapshot(home: Path, tmp_path: Path) -> None:
    async with (
        served(home, lambda _asked, n: Say(f"answer {n}")) as pod,
        relaying(pod.path, tmp_path) as relay,
        PodClient.connect(relay.path, patience=QUICK) as client,
    ):
        events = client.events(Snapshot, RunStart)
        relay.is_open = False
        relay.cut()
        await until(lambda: client.link.phase == "waiting")
        await pod.pod.run("one")
        pod.scene.server.hub.ring.max_events = 2
        await pod.pod.run("two")
        pod.scene.places.ledger.write_bytes(b"")
        relay.is_open = True
        snapshot = await anext(events)
        assert isinstance(snapshot, Snapshot)
        assert snapshot.history_len == 4
        assert client.link.replay == "snapshot"
        await client.run("three")
        start = await anext(events)
        assert isinstance(start, RunStart)
        assert start.input == "three"


async def test_a_replay_of_more_than_fits_a_queue_comes_whole(home: Path, tmp_path: Path) -> None:
    """A reader that works on each event is not cut off because a replay is fast."""
    count = QUEUE_LIMIT + 2_000
    async with (
        served(home, lambda _asked, _n: Say("fine")) as pod,
        relaying(pod.path, tmp_path) as relay,
    ):
        async with PodClient.connect(relay.path) as client:
            position = client.position

        for number in range(count):
            pod.pod.bus.publish(TextDelta(text=str(number)))

        client = PodClient.connect(relay.path, since=position, patience=QUICK)
        events = client.events(TextDelta)
        async with client, asyncio.timeout(15):
            for number in range(count):
                assert await anext(events) == TextDelta(text=str(number))
                if number % 500 == 0:
                    await asyncio.sleep(0.001)


async def test_whoever_reads_nothing_is_cut_off_and_nobody_else(home: Path) -> None:
    async with served(home, lambda _asked, n: Say(f"answer {n}")) as pod, pod.client() as client:
        idle, good = client.events(TextDelta), client.events(TextDelta)
        read = 0

        async def reading() -> None:
            nonlocal read
            async for _ in good:
                read += 1

        task = asyncio.create_task(reading())
        for number in range(QUEUE_LIMIT + 1_500):
            pod.pod.bus.publish(TextDelta(text=str(number)))
            if number % 50 == 0:
                await asyncio.sleep(0.001)

        await until(lambda: read == QUEUE_LIMIT + 1_500)
        assert (await client.run("hello")).text == "answer 1"
        kept = [event async for event in idle]
        assert len(kept) == QUEUE_LIMIT + 1
        assert isinstance(kept[-1], Lagged)
        task.cancel()


async def test_patience_ends_with_an_error_that_says_why(home: Path, tmp_path: Path) -> None:
    """The clock is the test's own: a long wait takes no time."""
    now = 0.0
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        waits.append(seconds)
        await asyncio.sleep(0)

    patience = Patience(
        for_s=60.0,
        backoff=Backoff(first_s=0.5, most_s=8.0, chance=lambda: 0.0),
        clock=lambda: now,
        sleep=sleep,
    )
    async with (
        served(home, lambda _asked, _n: Say("fine")) as pod,
        relaying(pod.path, tmp_path) as relay,
    ):
        client = await PodClient.connect(relay.path, patience=patience).start()
        events = client.events(RunEnd)
        relay.is_open = False
        relay.cut()
        with pytest.raises(ConnectionLost):
            await asyncio.wait_for(anext(events), 5)

        with pytest.raises(ConnectionLost):
            await client.run("hello")

        assert client.link.phase == "closed"
        assert waits[:7] == [0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 8.0]
        assert 60 <= now < 70
        await client.aclose()


async def test_a_first_connection_may_be_waited_for(home: Path) -> None:
    with serving(chat(lambda _asked, n: Say(f"answer {n}"))) as model:
        path = manifest(home, model.base_url)
        client = PodClient.connect(
            "probe", home=home, patience=Patience(first_for_s=10.0, backoff=QUICK.backoff)
        )
        starting = asyncio.create_task(client.start())
        await until(lambda: client.link.attempt > 2)
        async with serving_pod(path, home):
            await starting
            assert (await client.run("hello")).text == "answer 1"
            await client.aclose()

        with pytest.raises(NotServed):
            await PodClient.connect("probe", home=home).start()


async def test_many_cuts_at_any_byte_lose_nothing(home: Path, tmp_path: Path) -> None:
    def script(_: Asked, number: int) -> Say:
        return Say(f"answer {number}", pieces=6)

    async with (
        served(home, script) as pod,
        relaying(pod.path, tmp_path) as relay,
        PodClient.connect(relay.path, patience=QUICK) as client,
    ):
        told: list[Envelope] = []
        heard: list[Envelope] = []
        pod.pod.listen(told.append)
        client.listen(heard.append)
        relay.cut()
        for number in range(12):
            relay.cut_after = 2_000 + 131 * number
            result = await client.run(f"prompt {number}")
            assert result.text == f"answer {number + 1}"

        relay.cut_after = None
        await client.call("ping")
        await until(lambda: len(heard) >= len(told))
        assert heard == told
        assert relay.connections > 12
