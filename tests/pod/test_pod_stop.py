"""Cancelling and pausing at moments when neither the model nor a tool is at work: it is heard."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pod import Pod
from pod.protocol import CompactionDone, CompactionStart, RunStart
from tests.fake_provider import Asked, Say, serving
from tests.pod.pods import COMPACT, chat, living, manifest, prose, summary

pytestmark = pytest.mark.anyio

QUESTIONS = ("one " + prose(8_000), "two " + prose(8_000), "three " + prose(8_000))
IN_RUN = COMPACT + "compact_request_threshold = 6000\n"
STOPS = [(Pod.cancel, "cancelled"), (Pod.pause, "paused")]


def short(asked: Asked, number: int) -> Say:
    return Say(f"answer {number}")


@pytest.mark.parametrize(("stop", "outcome"), STOPS)
async def test_at_the_very_start_of_a_run(
    home: Path, stop: Callable[[Pod], None], outcome: str
) -> None:
    with serving(chat(short)) as served:
        async with living(manifest(home, served.base_url), home) as story:
            forget = story.pod.on(RunStart, lambda _: stop(story.pod))
            assert (await story.pod.run("one")).outcome == outcome
            assert not served.asked
            forget()
            assert (await story.pod.resume()).outcome == "finished"
            assert [asked.text.count("one") for asked in served.asked] == [1]


@pytest.mark.parametrize(("stop", "outcome"), STOPS)
async def test_while_a_compaction_in_the_middle_of_a_run_is_committed(
    home: Path, stop: Callable[[Pod], None], outcome: str
) -> None:
    with serving(chat(short)) as served:
        async with living(manifest(home, served.base_url, IN_RUN), home) as story:
            await story.turns(*QUESTIONS[:2])
            forget = story.pod.on(CompactionDone, lambda _: stop(story.pod))
            assert (await story.pod.run(QUESTIONS[2])).outcome == outcome
            assert len(story.of(CompactionDone)) == 1
            forget()
            assert (await story.pod.resume()).outcome == "finished"


async def test_pausing_while_the_summary_is_written_pauses_the_run_after_it(home: Path) -> None:
    with serving(chat(short)) as served:
        async with living(manifest(home, served.base_url, IN_RUN), home) as story:
            await story.turns(*QUESTIONS[:2])
            forget = story.pod.on(CompactionStart, lambda _: story.pod.pause())
            assert (await story.pod.run(QUESTIONS[2])).outcome == "paused"
            forget()
            assert (await story.pod.resume()).outcome == "finished"


async def test_a_run_that_waits_for_a_compaction_is_stopped_with_it(home: Path) -> None:
    stuck = threading.Event()
    with serving(chat(short, lambda _asked, _n: Say(summary(), wait=stuck))) as served:
        async with living(manifest(home, served.base_url, COMPACT), home) as story:
            for question in QUESTIONS:
                await story.pod.run(question)

            waiting = asyncio.create_task(story.pod.run("four"))
            await asyncio.to_thread(served.wait_for, 4)
            story.pod.cancel()
            assert (await waiting).outcome == "cancelled"
            stuck.set()
            assert (await story.pod.run("five")).outcome == "finished"


async def test_stopping_while_nothing_goes_on_stops_nothing_later(home: Path) -> None:
    with serving(chat(short)) as served:
        async with living(manifest(home, served.base_url), home) as story:
            story.pod.cancel()
            story.pod.pause()
            assert (await story.pod.run("one")).outcome == "finished"


async def leave_by_an_error(path: Path, home: Path) -> None:
    async with living(path, home) as story:
        for question in QUESTIONS:
            await story.pod.run(question)

        raise ZeroDivisionError


async def test_leaving_by_an_error_waits_for_no_compaction_that_is_only_due(home: Path) -> None:
    never = threading.Event()
    with serving(chat(short, lambda _asked, _n: Say(summary(), wait=never))) as served:
        try:
            with pytest.raises(ZeroDivisionError):
                await leave_by_an_error(manifest(home, served.base_url, COMPACT), home)

            assert not any(asked.wants_summary for asked in served.asked)
        finally:
            never.set()
