"""Cases (n): event subscribers. Each begins with the id of its case; siblings follow it."""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from pod import Home, Pod
from pod.client import Backoff, Patience, PodClient, Position, RemoteError
from pod.protocol import Alert, EventData, Lagged, RunEnd, Snapshot, TextDelta, ToolResult
from pod.serve import Places, reachable
from session_store import FileSessionStore
from tests.fake_provider import Asked, Say, serving
from tests.pod.client.served import served, until
from tests.pod.desk import Desk
from tests.pod.desk import until as seen
from tests.pod.pods import chat, manifest
from tests.pod.serve.clients import Client, serving_pod

pytestmark = pytest.mark.anyio
BIG_TOOL = '[tools]\npython = ["tests.pod.big_tools:big"]\n'
QUICK = Patience(for_s=10.0, backoff=Backoff(first_s=0.001, most_s=0.02))


def plain(_: Asked, number: int) -> Say:
    return Say(f"answer {number}")


def numbers(client: Client) -> list[int]:
    return [event["seq"] for event in client.events]


# --- N03: gap notices must not starve the reader ------------------------------------------------


async def test_n03_a_reader_that_is_always_too_slow_gets_events_between_two_notices(
    home: Path,
) -> None:
    """Overload without end, and little is held for who resumes: notices come again and again."""
    async with served(home, plain) as pod:
        pod.scene.server.hub.ring.max_events = 300
        flooding = asyncio.create_task(flood(pod.pod))
        between: list[int] = []
        last = 0
        params: dict[str, Any] = {}
        while len(between) < 6:
            async with slow_lines(pod.path, params) as lines:
                got = 0
                async for line in lines:
                    if line.get("event") == "lagged":
                        params = {"from_seq": line["data"]["next_seq"]}
                        assert line["data"]["next_seq"] > last
                        break

                    if "event" in line:
                        assert line["seq"] > last, "in order, and nothing twice"
                        last = line["seq"]
                        got += 1

                between.append(got)

        flooding.cancel()
        assert min(between) > 0, between


async def flood(pod: Pod) -> None:
    for number in itertools.count():
        pod.bus.publish(Alert(level="info", message=f"{number} {'x' * 4_000}"))
        if number % 10 == 0:
            await asyncio.sleep(0.001)


@asynccontextmanager
async def slow_lines(
    path: Path, params: dict[str, Any]
) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    """The lines of a new subscriber that takes them slowly, and holds few."""
    reader, writer = await asyncio.open_unix_connection(path, limit=1 << 13)
    writer.write(json.dumps({"id": 1, "method": "subscribe", "params": params}).encode() + b"\n")

    async def lines() -> AsyncIterator[dict[str, Any]]:
        while data := await reader.readline():
            yield json.loads(data)
            await asyncio.sleep(0.001)

    try:
        yield lines()
    finally:
        writer.transport.abort()


async def test_n03_a_client_that_is_cut_off_again_and_again_has_every_event(
    home: Path, tmp_path: Path
) -> None:
    total = 3_000
    async with served(home, plain) as pod, pod.client(patience=QUICK) as client:
        events = client.events(Alert)
        got: list[str] = []
        again: list[str] = []
        client.watch_link(lambda link: again.append(link.phase))

        async def read() -> None:
            async for event in events:
                assert isinstance(event, Alert | Lagged)
                assert isinstance(event, Alert), "the client's own reader is fast enough"
                got.append(event.message.split()[0])

        reading = asyncio.create_task(read())
        for number in range(total):
            pod.pod.bus.publish(Alert(level="info", message=f"{number} {'x' * 2_000}"))
            if number % 700 == 699:  # far more than fits the bound, without a pause
                await asyncio.sleep(0.05)

        await until(lambda: len(got) == total)
        assert got == [str(number) for number in range(total)]
        assert again.count("waiting") > 1, "it was cut off more than once"
        reading.cancel()


# --- N04: a cursor is heeded, and what is too old or of another epoch is said -------------------


async def test_n04_reconnecting_with_a_cursor_replays_from_it(home: Path) -> None:
    async with served(home, plain) as pod:
        first = await pod.scene.subscriber()
        await first.run("one")
        last = numbers(first)[-1]
        for start in (numbers(first)[0], last - 2, last):
            again = await pod.scene.client()
            answer = await again.call("subscribe", from_seq=start)
            assert (answer["replay"], answer.get("reason")) == ("memory", None)
            await again.seq(last)
            assert numbers(again)[: last - start + 1] == list(range(start, last + 1))


async def test_n04_what_is_too_old_is_said_and_told_from_the_log(home: Path) -> None:
    async with served(home, plain) as pod:
        pod.scene.server.hub.ring.max_events = 4
        for prompt in ("one", "two"):
            await pod.pod.run(prompt)

        again = await pod.scene.client()
        answer = await again.call("subscribe", from_seq=1)
        assert (answer["replay"], answer["reason"]) == ("log", "too_old")
        await again.seq(answer["seq"])
        assert numbers(again) == sorted(set(numbers(again)))
        assert again.names.count("run_end") == 2
        assert all("ref" in event for event in again.events if event["seq"] < answer["seq"] - 4)


async def test_n04_another_launch_is_told_apart_though_its_numbers_are_the_same(
    home: Path,
) -> None:
    with serving(chat(plain)) as model:
        path = manifest(home, model.base_url)
        async with serving_pod(path, home) as scene:
            await scene.pod.run("one")
            launch, session_id = scene.pod.bus.launch, scene.pod.session_id

        async with serving_pod(path, home, resume=session_id) as scene:
            await scene.pod.run("two")
            client = await scene.client()
            answer = await client.call("subscribe", from_seq=1, launch=launch)
            assert (answer["replay"], answer["reason"]) == ("log", "other_launch")
            assert answer["launch"] == scene.pod.bus.launch != launch
            await client.until(lambda line: line.get("launch") == answer["launch"])
            await client.event("run_end")
            of_old = [event for event in client.events if event["launch"] == launch]
            of_new = [event for event in client.events if event["launch"] != launch]
            ends = [e["data"]["text"] for e in client.events if e["event"] == "run_end"]
            assert ends == ["answer 1", "answer 2"]
            assert client.events == [*of_old, *of_new]
            for part in (of_old, of_new):
                assert [e["seq"] for e in part] == sorted({e["seq"] for e in part})


async def test_n04_a_cursor_of_a_launch_that_nobody_knows_gets_a_snapshot(home: Path) -> None:
    async with served(home, plain) as pod:
        await pod.pod.run("one")
        client = PodClient.connect(pod.path, since=Position("never-was", 7))
        events = client.events(Snapshot, RunEnd)
        async with client:
            assert client.link.replay == "snapshot"
            snapshot = await anext(events)
            assert isinstance(snapshot, Snapshot)
            assert snapshot.history_len == 2
            await client.run("two")
            assert isinstance(await anext(events), RunEnd)


async def test_n04_a_cursor_that_is_ahead_is_refused(home: Path) -> None:
    """As one kept from an earlier life of the pod would be, its launch forgotten."""
    async with served(home, plain) as pod:
        raw = await pod.scene.client()
        error = await raw.refused("subscribe", from_seq=100_000)
        assert error["code"] == "ahead"
        assert "launch" in error["hint"]
        launch = pod.pod.bus.launch
        with pytest.raises(RemoteError, match="yet to come") as caught:
            await PodClient.connect(pod.path, since=Position(launch, 100_000)).start()

        assert caught.value.code == "ahead"


# --- N05: "nothing happened" and "I missed it" are not the same ---------------------------------


async def test_n05_every_event_has_the_next_number(home: Path) -> None:
    async with served(home, lambda _asked, _n: Say("many words", pieces=9)) as pod:
        watchers = [await pod.scene.subscriber() for _ in range(3)]
        for _ in range(3):
            await pod.pod.run("go")
            await pod.pod.new()

        last = pod.scene.server.hub.seq
        for watcher in watchers:
            await watcher.seq(last)
            assert numbers(watcher) == list(range(numbers(watcher)[0], last + 1))


async def test_n05_silence_names_the_last_event(home: Path) -> None:
    """A heartbeat says up to where all was sent: whoever has less knows that it missed it."""
    async with served(home, plain, heartbeat_s=0.05) as pod:
        watcher = await pod.scene.subscriber()
        await watcher.run("one")
        last = pod.scene.server.hub.seq
        beat = await watcher.until(lambda line: "heartbeat" in line)
        while beat["heartbeat"]["seq"] < last:
            beat = await watcher.until(lambda line: "heartbeat" in line)

        assert beat["heartbeat"]["seq"] == last == numbers(watcher)[-1]
        assert beat["heartbeat"]["launch"] == pod.pod.bus.launch


async def test_n05_what_was_joined_says_which_numbers_it_stands_for(home: Path) -> None:
    """Deltas that are joined for a slow reader leave no gap in the numbers."""
    async with served(home, plain) as pod:
        client = await pod.scene.client()
        await client.call("subscribe")
        before = pod.scene.server.hub.seq
        transport = client.writer.transport
        assert isinstance(transport, asyncio.ReadTransport)
        transport.pause_reading()
        for number in range(4_000):
            pod.pod.bus.publish(TextDelta(text=f"{number} {'y' * 100} "))
            if number % 50 == 0:
                await asyncio.sleep(0)

        transport.resume_reading()
        await client.seq(before + 4_000)
        at = before
        for event in client.events:
            assert event.get("first_seq", event["seq"]) == at + 1
            at = event["seq"]

        assert len(client.events) < 4_000, "some were joined"
        text = "".join(event["data"]["text"] for event in client.events)
        assert text.split()[::2] == [str(number) for number in range(4_000)]


# --- N07: attaching after the end ---------------------------------------------------------------


async def test_n07_whoever_attaches_after_the_end_gets_the_rest_and_the_end(home: Path) -> None:
    async with served(home, plain) as pod:
        watcher = await pod.scene.subscriber()
        await watcher.run("one")
        middle = numbers(watcher)[len(watcher.events) // 2]
        late = await pod.scene.client()
        await late.call("subscribe", from_seq=middle)
        end = await late.event("run_end")
        assert end["data"]["outcome"] == "finished"
        assert late.events == [e for e in watcher.events if middle <= e["seq"] <= end["seq"]]


async def test_n07_and_its_connection_ends_with_the_pod(home: Path) -> None:
    """Also where it attaches while the pod is ending: nobody hangs."""
    async with served(home, plain) as pod:
        watcher = await pod.scene.subscriber()
        await watcher.run("one")
        late = await pod.scene.client()
        await late.call("subscribe", from_seq=1)
        pod.scene.server.shutdown()
        rest = await late.rest()
        await pod.scene.server.ended()
        assert late.names.count("run_end") == 1
        assert all("event" in line or "heartbeat" in line for line in rest)


async def test_n07_a_client_that_comes_back_after_the_end_has_its_result(home: Path) -> None:
    async with served(home, plain) as pod:
        async with pod.client() as client:
            position = client.position

        await pod.pod.run("one")
        client = PodClient.connect(pod.path, since=position)
        ends = client.events(RunEnd)
        async with client, asyncio.timeout(5):
            end = await anext(ends)

        assert isinstance(end, RunEnd)
        assert end.text == "answer 1"
        assert [event async for event in ends] == []


# --- N08: what is not wanted takes no room ------------------------------------------------------


@pytest.mark.parametrize("names", [["tool_result"], ["tool_*"]])
async def test_n08_unwanted_events_evict_no_wanted_ones(home: Path, names: list[str]) -> None:
    """10,000 deltas between two results, for a subscriber that does not read meanwhile."""
    async with served(home, plain) as pod:
        client = await pod.scene.client()
        await client.call("subscribe", events=names)
        transport = client.writer.transport
        assert isinstance(transport, asyncio.ReadTransport)
        transport.pause_reading()
        results = [
            ToolResult(call_id=str(n), name="t", summary="s" * 1_000, is_error=False)
            for n in range(200)
        ]
        for result in results[:-1]:
            pod.pod.bus.publish(result)

        for number in range(10_000):
            pod.pod.bus.publish(TextDelta(text=f"{number} {'z' * 200}"))
            if number % 100 == 0:
                await asyncio.sleep(0)

        pod.pod.bus.publish(results[-1])
        transport.resume_reading()
        await client.until(lambda line: line.get("data", {}).get("call_id") == "199")
        assert [event["data"]["call_id"] for event in client.events] == [str(n) for n in range(200)]


async def test_n08_nor_where_they_are_replayed(home: Path) -> None:
    async with served(home, plain) as pod:
        before = pod.scene.server.hub.seq
        first = ToolResult(call_id="first", name="t", summary="s", is_error=False)
        last = first.model_copy(update={"call_id": "last"})
        pod.pod.bus.publish(first)
        for number in range(5_000):
            pod.pod.bus.publish(TextDelta(text=str(number)))

        pod.pod.bus.publish(last)
        client = await pod.scene.client()
        await client.call("subscribe", from_seq=before + 1, events=["tool_result"])
        await client.seq(before + 5_002)
        assert [event["data"]["call_id"] for event in client.events] == ["first", "last"]


async def test_n08_a_client_of_some_types_gets_all_of_those(home: Path) -> None:
    async with served(home, plain) as pod, pod.client(only=[ToolResult]) as client:
        results = client.events(ToolResult)
        heard: list[EventData] = []
        client.listen(lambda envelope: heard.append(envelope.data))
        for number in (1, 2):
            one = ToolResult(call_id=str(number), name="t", summary="s", is_error=False)
            pod.pod.bus.publish(one)
            for n in range(5_000):
                pod.pod.bus.publish(TextDelta(text=str(n)))

        got = [await anext(results), await anext(results)]
        assert [e.call_id for e in got if isinstance(e, ToolResult)] == ["1", "2"]
        assert not [data for data in heard if isinstance(data, TextDelta)]


# --- N09: what is told as done is stored --------------------------------------------------------


@pytest.fixture
def desk(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return Desk(work, home)


@contextmanager
def lines_of(path: Path) -> Iterator[tuple[socket.socket, Iterator[dict[str, Any]]]]:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(15)
        with reachable(path) as short:
            sock.connect(short)

        with sock.makefile("rb") as file:
            yield sock, map(json.loads, file)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("event", ["tool_result", "tool_call_done", "text_done", "usage"])
async def test_n09_an_event_that_says_done_comes_after_its_entry_is_durable(
    desk: Desk, event: str
) -> None:
    """The pod is killed as soon as the event comes: what it says is in the log."""

    def script(asked: Asked, number: int) -> Say:
        if number == 1:
            return Say("on it", calls=(("big", '{"n":1}'), ("big", '{"n":2}')))

        return Say("done")

    with serving(chat(script)) as model:
        path = desk.manifest(model.base_url, BIG_TOOL)
        places = Places.of(Home(desk.home), "probe")
        with desk.start("serve", path, "--foreground") as process:
            seen(lambda: places.socket.exists() or process.poll() is not None)
            with lines_of(places.socket) as (sock, lines):
                sock.sendall(b'{"id":1,"method":"subscribe"}\n')
                sock.sendall(b'{"id":2,"method":"run","params":{"input":"go"}}\n')
                told = next(line for line in lines if line.get("event") == event)
                kill(process)

        session_id, entry_seq = told["ref"]
        entries = list(FileSessionStore(desk.home).entries(session_id))
        entry = next(entry for entry in entries if entry.seq == entry_seq)
        stored = json.dumps(entry.data)
        match event:
            case "tool_result":
                assert told["data"]["call_id"] in stored
                assert json.dumps(told["data"]["summary"]) in stored
            case "tool_call_done":
                assert told["data"]["call_id"] in stored
            case "text_done":
                assert told["data"]["text"] in stored
            case _:
                assert entry.kind == "usage"


async def test_n09_every_durable_event_names_an_entry_that_can_be_read_at_once(
    home: Path,
) -> None:
    def script(asked: Asked, number: int) -> Say:
        if number % 2:
            return Say("on it", calls=(("big", '{"n":1}'),))

        return Say("done")

    async with served(home, script, BIG_TOOL) as pod:
        store = FileSessionStore(home)
        missing: list[str] = []

        def look(envelope: Any) -> None:
            if envelope.ref is not None:
                session_id, seq = envelope.ref
                stored = (home / "sessions" / f"{session_id}.jsonl").read_bytes()
                if f'"seq":{seq},' not in stored.decode():
                    missing.append(envelope.event)

        pod.pod.listen(look)
        await pod.pod.run("one")
        await pod.pod.run("two")
        assert not missing
        assert store.verify(pod.pod.session_id).ok


def kill(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait(10)
