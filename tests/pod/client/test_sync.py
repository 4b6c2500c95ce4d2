"""Without an event loop: the same, blocking; and what importing costs."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pod import PodBusy, PodClosed
from pod.client import NotServed, Patience, RunUnknown, SyncPodClient
from pod.protocol import ApprovalRequest, Envelope, RunEnd, RunStart, TextDelta
from tests.fake_provider import Asked, Say, Script
from tests.pod.client.served import Served, served


@contextmanager
def served_elsewhere(home: Path, script: Script, extra: str = "") -> Iterator[Served]:
    """A pod that is served by another thread, as far as one process has another."""
    ready: list[Served] = []
    is_ready, stop = threading.Event(), threading.Event()

    async def serve() -> None:
        async with served(home, script, extra) as pod:
            ready.append(pod)
            is_ready.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert is_ready.wait(10)
        yield ready[0]
    finally:
        stop.set()
        thread.join()


def test_it_is_a_pod_for_programs_without_a_loop(home: Path) -> None:
    with served_elsewhere(home, lambda _asked, n: Say(f"answer {n}")):
        heard: list[Envelope] = []
        starts: list[RunStart] = []
        with SyncPodClient.connect("probe", home=home) as client:
            client.listen(heard.append)
            stop = client.on(RunStart, starts.append)
            events = client.events(RunStart, RunEnd)
            assert client.run("one").text == "answer 1"
            stop()
            assert client.run("two").text == "answer 2"
            assert [start.input for start in starts] == ["one"]
            assert [type(next(events)) for _ in range(4)] == [RunStart, RunEnd] * 2
            assert client.status().history_len == len(client.history) == 4
            assert client.name == "probe"
            assert client.link.phase == "connected"
            assert client.compact() is None
            client.cancel()
            client.pause()
            client.idle()
            fork = client.fork()
            assert fork.session_id != client.session_id
            client.new()
            assert client.history == ()
            assert client.waiting_approvals() == ()
            assert client.engine_commands() == {}
            assert client.call("ping")["launch"]
            position = client.position

        assert position is not None
        assert heard[-1].seq < position.seq
        with pytest.raises(PodClosed):
            client.run("three")

        assert [envelope.data for envelope in events.envelopes()] == []


def test_a_callback_may_use_the_client(home: Path) -> None:
    with (
        served_elsewhere(home, lambda _asked, n: Say(f"answer {n}")),
        SyncPodClient.connect("probe", home=home) as client,
    ):
        said: list[str] = []

        def again(start: RunStart) -> None:
            said.append(client.status().state)
            client.refresh()
            client.idle()
            if start.input == "one":
                said.append(client.run("two").text)

        def fails(_: RunEnd) -> None:
            raise ValueError

        client.on(RunEnd, fails)
        client.on(RunStart, again)
        assert client.run("one").text == "answer 1"
        assert said[1:2] == ["answer 2"], "all that was due is done when it returns"


def test_calls_are_decided_by_a_callback(home: Path) -> None:
    def script(asked: Asked, _n: int) -> Say:
        if asked.body["messages"][-1]["role"] == "tool":
            return Say(asked.body["messages"][-1]["content"][:30])

        return Say("on it", calls=(("big", '{"n":1}'),))

    extra = (
        '[tools]\npython = ["tests.pod.big_tools:big"]\n[permissions]\ntools = { big = "ask" }\n'
    )
    with (
        served_elsewhere(home, script, extra),
        SyncPodClient.connect("probe", home=home) as client,
    ):
        client.on(ApprovalRequest, lambda call: client.approve(call.call_uid, "deny", by="ada"))
        assert "permission denied" in client.run("go").text


def test_several_threads_may_use_one(home: Path) -> None:
    wait = threading.Event()
    with (
        served_elsewhere(home, lambda _asked, _n: Say("whole", wait=wait)),
        SyncPodClient.connect("probe", home=home) as client,
    ):
        deltas = client.events(TextDelta)
        results: list[str] = []
        thread = threading.Thread(
            target=lambda: results.append(client.run("long").text), daemon=True
        )
        thread.start()
        assert isinstance(next(deltas), TextDelta)
        with pytest.raises(PodBusy):
            client.run("another")

        wait.set()
        thread.join(10)
        assert results == ["whole"]
        deltas.close()
        assert len(list(deltas)) >= 1


def test_events_end_where_the_pod_was_stopped(home: Path) -> None:
    with served_elsewhere(home, lambda _asked, _n: Say("fine")):
        quick = Patience(for_s=0.0)
        watcher = SyncPodClient.connect("probe", home=home, patience=quick).start()
        events = watcher.events(RunEnd)
        client = SyncPodClient.connect("probe", home=home).start()
        client.run("one")
        client.shutdown()
        assert [type(event) for event in events] == [RunEnd]
        watcher.close()
        watcher.close()


def test_nobody_there_is_told_and_leaves_no_thread(home: Path) -> None:
    before = threading.active_count()
    with pytest.raises(NotServed):
        SyncPodClient.connect("nobody", home=home).start()

    with pytest.raises(PodClosed):
        SyncPodClient.connect("nobody", home=home).run("hello")

    assert threading.active_count() == before


def test_closing_it_while_another_thread_waits_wakes_that(home: Path) -> None:
    wait = threading.Event()
    with served_elsewhere(home, lambda _asked, _n: Say("whole", wait=wait)):
        client = SyncPodClient.connect("probe", home=home).start()
        deltas = client.events(TextDelta)
        caught: list[Exception] = []

        def run() -> None:
            try:
                client.run("long")
            except RunUnknown as error:
                caught.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        next(deltas)
        client.close()
        thread.join(5)
        assert not thread.is_alive()
        assert len(caught) == 1
        wait.set()


def test_importing_it_loads_neither_models_nor_stores() -> None:
    code = "import sys, pod.client; print(sorted(m for m in sys.modules if m.startswith('pod')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['pod', 'pod.client', 'pod.lazy']"
    code = "import sys; from pod.client import PodClient; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not loaded & {
        "httpx",
        "session_store",
        "manifests",
        "pod.pod",
        "pod.launching.launch",
        "sqlite3",
    }
