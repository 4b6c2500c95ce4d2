"""A client of a pod that is served in this process: as if it were the pod itself."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from pydantic import BaseModel

from pod import CompactionError, Pod, PodBusy, PodClosed, RunResult
from pod.client import Fork, NotServed, PodClient, RemoteError, RunUnknown
from pod.protocol import (
    CompactionDone,
    CompactionStart,
    Envelope,
    EventData,
    RunEnd,
    RunStart,
    TextDelta,
)
from tests.fake_provider import Asked, Say
from tests.pod.client.served import Served, served, until
from tests.pod.pods import COMPACT, chat, prose
from worker import Image, Text, UserMessage

pytestmark = pytest.mark.anyio


async def test_a_run_is_what_it_is_in_process(home: Path) -> None:
    async with (
        served(home, lambda _asked, n: Say(f"answer {n}", prompt_tokens=100 + n)) as pod,
        pod.client() as client,
    ):
        assert client.status() == pod.pod.status()
        assert (client.name, client.session_id) == ("probe", pod.pod.session_id)
        assert client.history == ()
        heard: list[Envelope] = []
        told: list[Envelope] = []
        client.listen(heard.append)
        pod.pod.listen(told.append)
        starts: list[RunStart] = []
        client.on(RunStart, starts.append)
        result = await client.run("hello")

        assert isinstance(result, RunResult)
        assert (result.outcome, result.text, result.requests) == ("finished", "answer 1", 1)
        assert result.usage.input_tokens == 101
        assert result.session_id == client.session_id
        assert client.history == pod.pod.history
        assert client.status() == pod.pod.status()
        assert [start.input for start in starts] == ["hello"]
        assert heard == told
        result.raise_for_error()


async def test_what_a_provider_refuses_is_in_the_result(home: Path) -> None:
    async with (
        served(home, lambda _asked, _n: Say(status=400, error="not like this")) as pod,
        pod.client() as client,
    ):
        result = await client.run("hello")

    assert result.outcome == "error"
    assert result.error is not None
    assert "not like this" in result.error.message
    with pytest.raises(RemoteError, match="not like this"):
        result.raise_for_error()


async def test_compaction_events_are_the_same_models(home: Path) -> None:
    async with served(home, lambda _asked, _n: Say(prose(4_000)), COMPACT) as pod:
        async with pod.client() as client:
            events = client.events(CompactionStart, CompactionDone)
            for prompt in ("one", "two", "three"):
                await client.run(prompt)
                await client.idle()

            old = client.session_id
            for prompt in ("four", "five"):
                await client.run(prompt)
                await client.idle()
                if client.session_id != old:
                    break

            got = [await anext(events), await anext(events)]
            assert [type(event) for event in got] == [CompactionStart, CompactionDone]
            assert client.session_id == pod.pod.session_id
            assert client.history == pod.pod.history

            done = await client.compact("the plan")
            assert done is None or isinstance(done, CompactionDone)
            assert client.session_id == pod.pod.session_id

        rest = [event async for event in events]
        assert all(isinstance(event, CompactionStart | CompactionDone) for event in rest)


async def test_compact_by_hand_returns_what_was_done(home: Path) -> None:
    async with served(home, lambda _asked, _n: Say(prose(4_000))) as pod, pod.client() as client:
        assert await client.compact() is None
        for prompt in ("one", "two", "three", "four"):
            await client.run(prompt)

        before = client.session_id
        done = await client.compact(focus="the plan")
        assert done is not None
        assert (done.old_session_id, done.new_session_id) == (before, client.session_id)
        assert client.history == pod.pod.history


async def test_a_compaction_that_fails_is_the_same_error(home: Path) -> None:
    script = chat(lambda _asked, _n: Say(prose(4_000)), lambda _asked, _n: Say("I will not."))
    async with served(home, script, is_whole_script=True) as pod, pod.client() as client:
        for prompt in ("one", "two", "three", "four"):
            await client.run(prompt)

        before = client.history
        with pytest.raises(CompactionError) as caught:
            await client.compact()

        assert caught.value.reason == "refusal"
        assert client.history == before


async def test_a_second_run_is_refused_as_in_process(home: Path) -> None:
    async with held(home) as (pod, wait), pod.client() as one, pod.client() as other:
        running = asyncio.create_task(one.run("first"))
        await until(lambda: other.status().state == "running")
        with pytest.raises(PodBusy, match="going on"):
            await other.run("second")

        with pytest.raises(ValueError, match="empty"):
            await other.run("   ")

        wait.set()
        assert (await running).text == "whole"


async def test_cancel_and_pause_are_asked_for_at_once(home: Path) -> None:
    async with held(home) as (pod, wait), pod.client() as client:
        running = asyncio.create_task(client.run("long"))
        await until(lambda: client.status().state == "running")
        client.cancel()
        assert (await running).outcome == "cancelled"
        assert client.status().state == "idle"
        wait.set()
        assert (await client.resume()).outcome == "finished"
        await client.cancel()
        await client.pause()


async def test_whoever_is_cancelled_while_waiting_cancels_the_run(home: Path) -> None:
    async with held(home) as (pod, _), pod.client() as client:
        ends = client.events(RunEnd)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await client.run("long")

        async with asyncio.timeout(5):
            end = await anext(ends)
        assert isinstance(end, RunEnd)
        assert end.outcome == "cancelled"


async def test_closing_the_client_leaves_the_run_going_on(home: Path) -> None:
    async with held(home) as (pod, wait):
        async with pod.client() as client:
            running = asyncio.create_task(client.run("long"))
            await until(lambda: client.status().state == "running")

        with pytest.raises(RunUnknown, match="client is closed"):
            await running

        assert pod.pod.status().state == "running"
        async with pod.client() as again:
            ends = again.events(RunEnd)
            wait.set()
            end = await anext(ends)
            assert isinstance(end, RunEnd)
            assert end.outcome == "finished"


class Review(BaseModel):
    verdict: str
    score: int


async def test_typed_output_is_validated_here_and_repaired_once(home: Path) -> None:
    answers = ['{"verdict": "good", "score": "high"}', '{"verdict": "good", "score": 7}']

    def script(asked: Asked, number: int) -> Say:
        return Say(answers[number - 1])

    async with served(home, script) as pod, pod.client() as client:
        result = await client.run("As data", output=Review)

    assert result.output == Review(verdict="good", score=7)
    assert '"verdict"' in str(pod.asked[0].body)
    assert "score" in str(pod.asked[1].body["messages"][-1])


async def test_typed_output_that_stays_wrong_is_an_error_in_the_result(home: Path) -> None:
    async with (
        served(home, lambda _asked, _n: Say('{"verdict": 1}')) as pod,
        pod.client() as client,
    ):
        result = await client.run("As data", output=Review)

    assert (result.outcome, result.output) == ("error", None)
    assert result.error is not None
    assert result.error.code == "output_invalid"


async def test_new_rewind_and_fork(home: Path) -> None:
    async with served(home, lambda _asked, n: Say(f"answer {n}")) as pod, pod.client() as client:
        await client.run("one")
        first = client.session_id
        head = pod.head()
        await client.run("two")

        fork = await client.fork(at=head)
        assert isinstance(fork, Fork)
        assert fork.session_id not in {first, client.session_id}
        assert client.session_id == first

        await client.rewind(head)
        assert client.session_id != first
        assert len(client.history) == 2
        assert client.history == pod.pod.history

        await client.new()
        assert client.history == ()
        with pytest.raises(RemoteError) as caught:
            await client.rewind("f" * 64)

        assert caught.value.code == "unknown_entry"


async def test_a_fork_is_launched_here_by_entering_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_KEY", "sk-test-0123456789abcdef")
    async with served(home, lambda _asked, n: Say(f"answer {n}")) as pod, pod.client() as client:
        await client.run("one")
        fork = await client.fork()
        async with fork as child:
            assert isinstance(child, Pod)
            assert child.session_id == fork.session_id
            assert (await child.run("two")).text == "answer 2"
            assert len(client.history) == 2


async def test_the_mirror_follows_what_others_do(home: Path) -> None:
    async with (
        served(home, lambda _asked, n: Say(f"answer {n}")) as pod,
        pod.client() as one,
        pod.client() as other,
    ):
        await one.run("hello")
        await until(lambda: len(other.history) == 2)
        assert other.history == one.history == pod.pod.history
        before = other.session_id
        await one.new()
        await until(lambda: other.session_id != before)
        await until(lambda: other.history == ())
        assert other.session_id == one.session_id == pod.pod.session_id


async def test_events_before_and_after(home: Path) -> None:
    """From now on; and, for who comes back, from where an earlier client was."""
    async with served(home, lambda _asked, n: Say(f"answer {n}")) as pod:
        async with pod.client() as client:
            await client.run("one")
            position = client.position
            assert position is not None

        await pod.pod.run("two")
        later = PodClient.connect(pod.path, since=position)
        events = later.events(RunStart, RunEnd)
        numbers: list[int] = []
        later.listen(lambda envelope: numbers.append(envelope.seq))
        async with later:
            start, end = await anext(events), await anext(events)
            assert isinstance(start, RunStart)
            assert start.input == "two"
            assert isinstance(end, RunEnd)
            assert numbers[0] == position.seq
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


async def test_only_what_is_wanted_is_sent(home: Path) -> None:
    async with (
        served(home, lambda _asked, _n: Say("a long answer", pieces=10)) as pod,
        pod.client(only=[CompactionDone]) as client,
    ):
        heard: list[Envelope] = []
        client.listen(heard.append)
        assert (await client.run("one")).outcome == "finished"
        assert client.history == pod.pod.history

    assert heard
    assert not [envelope for envelope in heard if isinstance(envelope.data, TextDelta)]


async def test_a_pod_that_is_stopped_ends_the_events(home: Path) -> None:
    got: list[EventData] = []
    async with served(home, lambda _asked, _n: Say("fine")) as pod:
        client = await pod.client().start()
        events = client.events(RunStart, RunEnd)
        await client.run("one")
        await client.shutdown()
        got += [event async for event in events]
        with pytest.raises(PodClosed):
            await client.run("two")

        with pytest.raises(NotServed):
            await pod.client().start()

    assert [type(event) for event in got] == [RunStart, RunEnd]


async def test_nothing_is_left_behind(home: Path) -> None:
    async with served(home, lambda _asked, _n: Say("fine")) as pod:
        async with pod.client() as client:  # whatever is made once, is made now
            await client.run("one")

        await asyncio.sleep(0.05)
        tasks, files = len(asyncio.all_tasks()), len(list(Path("/proc/self/fd").iterdir()))
        for _ in range(20):
            async with pod.client() as client:
                await client.run("again")

        await until(lambda: len(asyncio.all_tasks()) <= tasks)
        await until(lambda: len(list(Path("/proc/self/fd").iterdir())) <= files)
        assert (await pod.pod.run("still there")).outcome == "finished"


async def test_being_cancelled_at_any_step_leaves_nothing_behind(home: Path) -> None:
    async def use(pod: Served) -> None:
        async with pod.client() as client:
            await client.run("hello")
            await client.new()

    async with served(home, lambda _asked, _n: Say("fine")) as pod:
        await use(pod)  # whatever is made once, is made now
        await asyncio.sleep(0.05)
        tasks, files = len(asyncio.all_tasks()), len(list(Path("/proc/self/fd").iterdir()))
        for steps in range(60):
            using = asyncio.create_task(use(pod))
            for _ in range(steps):
                await asyncio.sleep(0)

            using.cancel()
            await asyncio.gather(using, return_exceptions=True)
            await pod.pod.idle()

        await until(lambda: len(asyncio.all_tasks()) <= tasks)
        await until(lambda: len(list(Path("/proc/self/fd").iterdir())) <= files)
        async with pod.client() as client:
            assert (await client.run("again")).outcome == "finished"


async def test_whoever_is_cancelled_before_it_was_accepted_cancels_nobody_elses_run(
    home: Path,
) -> None:
    async with held(home) as (pod, wait), pod.client() as one, pod.client() as other:
        running = asyncio.create_task(one.run("long"))
        await until(lambda: other.status().state == "running")
        for steps in range(4):
            second = asyncio.create_task(other.run("another"))
            for _ in range(steps):
                await asyncio.sleep(0)

            second.cancel()
            await asyncio.gather(second, return_exceptions=True)

        await other.call("ping")
        wait.set()
        assert (await running).outcome == "finished"


async def test_images_go_along(home: Path) -> None:
    picture = Image(media_type="image/png", data=b"\x89PNG\r\n\x1a\n" + bytes(64))
    async with served(home, lambda _asked, _n: Say("a picture")) as pod, pod.client() as client:
        result = await client.run("What is it?", images=(picture,))
        assert result.text == "a picture"
        message = client.history[0]
        assert isinstance(message, UserMessage)
        assert message.parts == (Text("What is it?"), picture)
        assert client.history == pod.pod.history
        again = await client.run(UserMessage(uid="a" * 32, parts=(Text("and now?"),)))
        assert again.outcome == "finished"
        assert client.history[2].uid == "a" * 32


async def test_a_prompt_of_a_known_uid_is_run_once(home: Path) -> None:
    async with served(home, plain) as pod, pod.client() as client:
        params = {"input": "hello", "uid": "b" * 32}
        first = await client.call("run", params)
        assert await client.call("run", params) == first
        await client.idle()
        assert await client.call("run", params) == first
        assert len(client.history) == 2
        assert len(pod.asked) == 1
        with pytest.raises(RemoteError) as caught:
            await client.call("run", {"input": "hello", "uid": "not a uid"})

        assert caught.value.code == "bad_params"


async def test_many_clients_all_have_everything(home: Path) -> None:
    async with served(home, plain) as pod, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(pod.client()) for _ in range(30)]
        heard: list[list[int]] = [[] for _ in clients]
        for client, numbers in zip(clients, heard, strict=True):
            client.listen(lambda envelope, numbers=numbers: numbers.append(envelope.seq))

        for number in range(3):
            await clients[number].run(f"prompt {number}")

        last = pod.scene.server.hub.seq
        await until(lambda: all(numbers[-1:] == [last] for numbers in heard))
        assert all(numbers == heard[0] for numbers in heard)
        for client in clients:
            await until(lambda client=client: client.history == pod.pod.history)


def plain(_: Asked, number: int) -> Say:
    return Say(f"answer {number}")


async def test_a_client_that_was_not_started_says_so(home: Path) -> None:
    client = PodClient.connect("probe", home=home)
    for look in (client.status, lambda: client.history, lambda: client.session_id):
        with pytest.raises(PodClosed, match="not connected"):
            look()

    await client.aclose()
    with pytest.raises(PodClosed):
        await client.start()


async def test_any_method_can_be_called(home: Path) -> None:
    async with served(home, lambda _asked, _n: Say("fine")) as pod, pod.client() as client:
        assert (await client.call("ping"))["launch"] == pod.pod.bus.launch
        with pytest.raises(RemoteError) as caught:
            await client.call("no_such")

        assert caught.value.code == "unknown_method"


# --- what these tests are made with -----------------------------------------------------------


@asynccontextmanager
async def held(home: Path) -> AsyncIterator[tuple[Served, threading.Event]]:
    """A pod whose first answer stops after its first piece until the event is set."""
    wait = threading.Event()
    async with served(home, lambda _asked, n: Say("whole", wait=wait if n == 1 else None)) as pod:
        try:
            yield pod, wait
        finally:
            wait.set()
