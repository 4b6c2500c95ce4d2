"""Subscribing to a pod: from now on, the types that are wanted, until the pod closes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pod.protocol import CompactionDone, CompactionStart, EventData, RunEnd, RunStart
from tests.fake_provider import Say, serving
from tests.pod.pods import chat, living, manifest, prose

pytestmark = pytest.mark.anyio


async def test_events_come_to_whoever_wants_them_until_the_pod_closes(home: Path) -> None:
    got: list[EventData] = []
    called: list[CompactionDone] = []
    with serving(chat(lambda _asked, _n: Say(prose(4_000)))) as served:
        async with living(manifest(home, served.base_url), home) as story:
            pod = story.pod
            subscription = pod.events(CompactionStart, CompactionDone)

            async def read() -> None:
                async for event in subscription:
                    got.append(event)  # noqa: PERF401  the test looks while it goes on

            reading = asyncio.create_task(read())
            stop = pod.on(CompactionDone, called.append)
            await story.turns("one", "two", "three")
            assert await pod.compact() is not None
            await asyncio.sleep(0)
            stop()
            await story.turns("four")
            assert not reading.done()
            late = pod.events(RunStart, RunEnd)
            await story.turns("five")

        await asyncio.wait_for(reading, 1)
        assert [type(event) for event in got] == [CompactionStart, CompactionDone]
        assert called == [got[1]]
        assert [type(event) async for event in late] == [RunStart, RunEnd]


async def test_every_run_has_one_start_and_one_end_whatever_happens(home: Path) -> None:
    """A hook that is broken, a provider that is: told as the run's end."""
    with serving(chat(lambda _asked, _n: Say(status=400, error="no"))) as served:
        async with living(manifest(home, served.base_url), home) as story:
            result = await story.pod.run("one")
            assert result.outcome == "error"
            assert [type(d) for d in story.of(RunStart)] == [RunStart]
            (end,) = story.of(RunEnd)
            assert end.error == result.error
            assert story.names[-2:] == ["run_end", "status"]


async def test_what_a_run_used_is_known_also_where_it_failed(home: Path) -> None:
    def script(asked: object, number: int) -> Say:
        if number == 1:
            return Say("on it", calls=(("nothing", "{}"),))

        return Say(status=400, error="no")

    with serving(chat(script)) as served:
        async with living(manifest(home, served.base_url), home) as story:
            result = await story.pod.run("one")
            assert result.outcome == "error"
            assert result.usage.input_tokens
            (end,) = story.of(RunEnd)
            assert end.usage is not None
            assert end.usage.input_tokens == result.usage.input_tokens
