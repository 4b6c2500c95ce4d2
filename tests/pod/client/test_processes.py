"""Clients of `pod serve` as a process of its own: killed, stopped, started again."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pod.client import (
    Backoff,
    NotServed,
    Patience,
    PodClient,
    RunUnknown,
    SyncPodClient,
)
from pod.protocol import RunEnd, TextDelta, ToolResult
from tests.fake_provider import Asked, Say, serving
from tests.pod.client.served import until
from tests.pod.desk import Desk
from tests.pod.pods import chat

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]  # each starts processes
BIG_TOOL = '[tools]\npython = ["tests.pod.big_tools:big"]\n'
LONG = Patience(for_s=30.0, first_for_s=15.0, backoff=Backoff(first_s=0.01, most_s=0.05))


@pytest.fixture
def desk(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return Desk(work, home)


@contextmanager
def foreground(desk: Desk, *args: str) -> Iterator[subprocess.Popen[bytes]]:
    with desk.start("serve", *args, "--foreground") as process:
        yield process


def answers(asked: Asked, number: int) -> Say:
    return Say(f"answer {number}")


def test_a_program_without_a_loop_uses_a_pod_of_another_process(desk: Desk) -> None:
    with serving(chat(answers)) as model, foreground(desk, desk.manifest(model.base_url)) as pod:
        with SyncPodClient.connect("probe", home=desk.home, patience=LONG) as client:
            events = client.events(RunEnd)
            assert client.run("one").text == "answer 1"
            assert client.status().history_len == len(client.history) == 2
            child = client.fork()
            assert child.session_id != client.session_id
            assert child.manifest == str(desk.work / "probe.toml")
            client.shutdown()

        assert pod.wait(10) == 0
        assert [type(event) for event in events] == [RunEnd]


async def test_a_pod_that_is_killed_and_started_again_keeps_its_clients(desk: Desk) -> None:
    with serving(chat(answers)) as model:
        manifest = desk.manifest(model.base_url)
        client = PodClient.connect("probe", home=desk.home, patience=LONG)
        ends = client.events(RunEnd)
        with foreground(desk, manifest) as first:
            await client.start()
            assert (await client.run("one")).text == "answer 1"
            session_id = client.session_id
            first.send_signal(signal.SIGKILL)
            first.wait(10)

        await until(lambda: client.link.phase == "waiting")
        with foreground(desk, manifest, "--continue"):
            result = await client.run("two")
            assert result.text == "answer 2"
            assert (client.session_id, len(client.history)) == (session_id, 4)
            await client.aclose()

        texts = [end.text async for end in ends if isinstance(end, RunEnd)]
        assert texts == ["answer 1", "answer 2"], "each once"


async def test_a_run_that_was_killed_is_told_as_that_and_can_go_on(desk: Desk) -> None:
    wait = threading.Event()

    def script(asked: Asked, number: int) -> Say:
        if number == 1:
            return Say("on it", calls=(("big", '{"n":1}'),))

        return Say(f"answer {number}", wait=wait if number == 2 else None)

    with serving(chat(script)) as model:
        manifest = desk.manifest(model.base_url, BIG_TOOL)
        client = PodClient.connect("probe", home=desk.home, patience=LONG)
        with foreground(desk, manifest) as first:
            await client.start()
            results = client.events(ToolResult)
            deltas = client.events(TextDelta)
            running = asyncio.create_task(client.run("one"))
            await anext(results)
            await anext(deltas)
            await until(lambda: len(model.asked) == 2)
            first.send_signal(signal.SIGKILL)
            first.wait(10)

        wait.set()
        with foreground(desk, manifest, "--continue"):
            with pytest.raises(RunUnknown, match="restarted"):
                await running

            assert (await client.resume()).outcome == "finished"
            await client.aclose()


async def test_one_that_only_vanished_is_an_error_and_one_that_was_stopped_is_an_end(
    desk: Desk,
) -> None:
    short = Patience(for_s=0.5, first_for_s=15.0, backoff=Backoff(first_s=0.01, most_s=0.01))
    with serving(chat(answers)) as model:
        manifest = desk.manifest(model.base_url)
        with foreground(desk, manifest) as pod:
            client = await PodClient.connect("probe", home=desk.home, patience=short).start()
            events = client.events(RunEnd)
            pod.send_signal(signal.SIGKILL)
            with pytest.raises(NotServed, match="has ended"):
                await anext(events)

            await client.aclose()

        with foreground(desk, manifest) as pod:
            client = await PodClient.connect("probe", home=desk.home, patience=short).start()
            events = client.events(RunEnd)
            assert desk.pod("stop", "probe").exit_code == 0
            assert [event async for event in events] == []
            await client.aclose()
            assert pod.wait(10) == 0
