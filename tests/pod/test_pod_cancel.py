"""Compaction that is cancelled, runs out of time or of disk, or dies: one end for every start."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from pod.compaction.plan import CompactionError
from pod.errors import PodBusy
from pod.protocol import (
    CompactionDone,
    CompactionFailed,
    CompactionStart,
    RunEnd,
)
from session_store import FileSessionStore
from tests.fake_provider import Asked, Say, serving
from tests.pod.pods import (
    BIG_TOOL,
    COMPACT,
    Story,
    chat,
    kinds,
    living,
    log_of,
    logs,
    manifest,
    pointer,
    prose,
    summary,
)
from tests.session_store.builders import answer, result_of
from worker.items import ToolCall, new_uid, user_message

pytestmark = pytest.mark.anyio

QUESTIONS = ("one " + prose(8_000), "two " + prose(8_000), "three " + prose(8_000))


def short(asked: Asked, number: int) -> Say:
    return Say(f"answer {number}")


def assert_old_state(home: Path, story: Story, session_id: str) -> None:
    assert story.pod.session_id == session_id
    assert logs(home) == [session_id]
    assert pointer(home) == session_id
    assert len(story.of(CompactionStart)) == 1
    (failed,) = story.of(CompactionFailed)
    assert failed.reason == "cancelled"
    assert failed.consecutive_failures == 0
    assert not story.of(CompactionDone)
    assert kinds(home, session_id)[-2:] == ["compaction_started", "compaction_failed"]


async def test_cancelling_the_pod_keeps_the_old_state(home: Path) -> None:
    stuck = threading.Event()
    with serving(chat(short, lambda _asked, _n: Say(summary(), wait=stuck))) as served:
        async with living(manifest(home, served.base_url, COMPACT), home) as story:
            for question in QUESTIONS:
                await story.pod.run(question)

            await asyncio.to_thread(served.wait_for, 4)
            session_id = story.pod.session_id
            story.pod.cancel()
            await story.pod.idle()
            assert_old_state(home, story, session_id)
            stuck.set()
            assert (await story.pod.run("four")).outcome == "finished"


async def test_cancelling_from_the_start_event_is_heard(home: Path) -> None:
    """It comes before anything is asked."""
    with serving(chat(short)) as served:
        async with living(manifest(home, served.base_url, COMPACT), home) as story:
            await story.turns(*QUESTIONS[:2])
            story.pod.on(CompactionStart, lambda _: story.pod.cancel())
            await story.turns(QUESTIONS[2])
            assert_old_state(home, story, story.pod.session_id)
            assert not any(asked.wants_summary for asked in served.asked)


async def test_cancelling_the_task_keeps_the_old_state(home: Path) -> None:
    stuck = threading.Event()
    with serving(chat(short, lambda _asked, _n: Say(summary(), wait=stuck))) as served:
        async with living(manifest(home, served.base_url), home) as story:
            await story.turns(*QUESTIONS)
            session_id = story.pod.session_id
            task = asyncio.create_task(story.pod.compact())
            await asyncio.to_thread(served.wait_for, 4)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

            assert_old_state(home, story, session_id)
            stuck.set()


async def test_impatience_ends_it_and_is_told_of_as_such(home: Path) -> None:
    stuck = threading.Event()
    with serving(chat(short, lambda _asked, _n: Say(summary(), wait=stuck))) as served:
        async with living(manifest(home, served.base_url), home) as story:
            await story.turns(*QUESTIONS)
            session_id = story.pod.session_id
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await story.pod.compact()

            assert_old_state(home, story, session_id)
            stuck.set()


@pytest.mark.parametrize("steps", range(0, 60, 4))
async def test_wherever_a_task_is_cancelled_it_is_the_old_state_or_the_new(
    home: Path, steps: int
) -> None:
    """Step by step through the whole compaction; never a mix, always one end."""
    with serving(chat(short)) as served:
        async with living(manifest(home, served.base_url), home) as story:
            await story.turns(*QUESTIONS)
            old_id, history = story.pod.session_id, story.pod.history
            task = asyncio.create_task(story.pod.compact())
            for _ in range(steps):
                await asyncio.sleep(0)
                if steps % 8:
                    await asyncio.sleep(0.001)

            task.cancel()
            await asyncio.wait({task})
            ends = [*story.of(CompactionDone), *story.of(CompactionFailed)]
            assert len(ends) == len(story.of(CompactionStart)) <= 1
            if story.of(CompactionDone):
                assert story.pod.session_id != old_id
                assert kinds(home, old_id)[-1] == "compaction_started"
                assert len(logs(home)) == 2
            else:
                assert story.pod.session_id == old_id
                assert story.pod.history == history
                assert logs(home) == [old_id]

            assert pointer(home) == story.pod.session_id
            assert (await story.pod.run("go on")).outcome == "finished"

        store = FileSessionStore(home)
        assert all(store.verify(session_id).ok for session_id in logs(home))
        assert not store.restore(pointer(home)).interrupted


async def test_cancelling_a_run_that_compacts_cancels_the_run(home: Path) -> None:
    stuck = threading.Event()
    extra = BIG_TOOL + (
        "[compaction]\ncompact_threshold = 50000\ncompact_request_threshold = 20000\n"
    )

    def calling(asked: Asked, number: int) -> Say:
        return Say(calls=(("big", '{"n": 1}'),))

    with serving(chat(calling, lambda _asked, _n: Say(summary(), wait=stuck))) as served:
        async with living(manifest(home, served.base_url, extra), home) as story:
            started = asyncio.Event()
            story.pod.on(CompactionStart, lambda _: started.set())
            task = asyncio.create_task(story.pod.run("go"))
            await started.wait()
            await asyncio.to_thread(
                served.wait_for, 1 + sum(not a.wants_summary for a in served.asked)
            )
            story.pod.cancel()
            result = await task
            assert result.outcome == "cancelled"
            assert story.of(CompactionFailed)[-1].reason == "cancelled"
            assert [end.outcome for end in story.of(RunEnd)] == ["cancelled"]
            stuck.set()


async def test_a_summarizer_that_falls_silent_is_given_up(home: Path) -> None:
    stuck = threading.Event()
    extra = f"{COMPACT}[context]\ntimeout_seconds = 0.4\n"
    with serving(chat(short, lambda _asked, _n: Say(summary(), wait=stuck))) as served:
        async with living(manifest(home, served.base_url, extra), home) as story:
            await story.turns(*QUESTIONS)
            (failed,) = story.of(CompactionFailed)
            assert failed.reason == "timeout"
            assert failed.consecutive_failures == 1
            assert "0.4 s" in failed.message
            stuck.set()
            await asyncio.sleep(0.2)
            assert not story.of(CompactionDone), "what comes late is dropped"
            assert len(logs(home)) == 1


async def test_no_request_is_made_for_an_attempt_that_is_over(home: Path) -> None:
    """A summary of many parts that is cancelled in its first asks for no second one."""
    stuck = threading.Event()
    small = '[compaction.provider]\nkind = "openai_compatible"\nmodel = "m"\n'
    with serving(chat(lambda _asked, _n: Say(prose(7_000)))) as served:

        def summaries(asked: Asked, number: int) -> Say:
            return Say(summary(), wait=stuck if number == 2 else None)

        with serving(summaries) as other:
            extra = (
                f"[compaction]\ncompact_retained_turns = 1\n{small}"
                f'context_window = 4000\nbase_url = "{other.base_url}"\napi_key_env = "FAKE_KEY"\n'
            )
            async with living(manifest(home, served.base_url, extra), home) as story:
                await story.turns(*(f"turn {n}" for n in range(8)))
                task = asyncio.create_task(story.pod.compact())
                await asyncio.to_thread(other.wait_for, 2)
                story.pod.cancel()
                with pytest.raises(CompactionError):
                    await task

                stuck.set()
                await asyncio.sleep(0.3)
                assert len(other.asked) == 2


async def test_leaving_the_block_by_an_error_does_not_wait_for_a_summary(home: Path) -> None:
    stuck = threading.Event()
    with serving(chat(short, lambda _asked, _n: Say(summary(), wait=stuck))) as served:
        path = manifest(home, served.base_url, COMPACT)
        told: list[str] = []

        async def fail() -> None:
            async with living(path, home) as story:
                story.pod.listen(lambda envelope: told.append(envelope.event))
                for question in QUESTIONS:
                    await story.pod.run(question)

                await asyncio.to_thread(served.wait_for, 4)
                message = "mine"
                raise RuntimeError(message)

        with pytest.raises(RuntimeError, match="mine"):
            await fail()

        assert told.count("compaction_failed") == 1
        stuck.set()


# --- paused and interrupted -----------------------------------------------------------------


async def test_calls_of_a_paused_run_are_not_compacted_away(home: Path) -> None:
    pausing = 'point = "PreToolCall"\npython = "tests.pod.big_tools:pause_once"\n'
    extra = f"{BIG_TOOL}[[hooks]]\n{pausing}"

    def script(asked: Asked, number: int) -> Say:
        if "please call" in asked.text and asked.body["messages"][-1]["role"] == "user":
            return Say(calls=(("big", '{"n": 7}'),))

        return Say(prose(4_000))

    with serving(chat(script)) as served:
        path = manifest(home, served.base_url, extra)
        async with living(path, home) as story:
            await story.turns("one", "two", "three")
            assert (await story.pod.run("please call")).outcome == "paused"
            with pytest.raises(PodBusy, match="paused"):
                await story.pod.compact()

            assert story.pod.status().state == "paused"
            assert not story.of(CompactionStart)

        async with living(path, home, resume=pointer(home)) as story:
            assert story.pod.status().state == "paused"
            with pytest.raises(PodBusy, match="paused"):
                await story.pod.compact()

            assert (await story.pod.resume()).outcome == "finished"
            assert "CONTENT-7" in served.asked[-1].text
            assert await story.pod.compact() is not None


async def test_calls_that_a_crash_left_open_get_their_result_in_the_new_session(
    home: Path,
) -> None:
    def script(asked: Asked, number: int) -> Say:
        return Say(prose(4_000))

    with serving(chat(script)) as served:
        path = manifest(home, served.base_url, "[compaction]\ncompact_retained_turns = 1\n")
        async with living(path, home) as story:
            await story.turns("one", "two", "three")
            session_id = story.pod.session_id

        # As a process leaves it that dies while two of its tools run, one of which has ended.
        with FileSessionStore(home).open(session_id) as session:
            calls = [ToolCall(f"c{n}", "big", "{}", new_uid()) for n in (1, 2)]
            session.append_items("user_input", [user_message("four")])
            session.append_items("assistant_items", [answer("let me see", *calls)])
            session.append_items("tool_results", [result_of(calls[0])])

        async with living(path, home, resume=session_id) as story:
            done = await story.pod.compact()
            assert done is not None
            assert (await story.pod.run("five")).outcome == "finished"

        messages = served.asked[-1].body["messages"]
        results = [message for message in messages if message["role"] == "tool"]
        assert [message["tool_call_id"] for message in results] == ["c1", "c2"]
        assert "interrupted" in results[1]["content"]
        logged = [e["items"] for e in log_of(home, session_id) if e["kind"] == "tool_results"]
        assert [item["call_id"] for items in logged for item in items] == ["c1"]


# --- crashes --------------------------------------------------------------------------------


async def begun(home: Path, path: Path) -> str:
    """Leave a session as a process does that dies in the middle of a compaction."""
    async with living(path, home) as story:
        await story.turns(*QUESTIONS[:2])
        session_id = story.pod.session_id

    with FileSessionStore(home).open(session_id) as session:
        session.append("compaction_started", trigger="threshold", engine="compressor")

    return session_id


async def test_a_compaction_that_a_crash_ended_is_told_of_once(home: Path) -> None:
    with serving(chat(short)) as served:
        path = manifest(home, served.base_url, COMPACT)
        session_id = await begun(home, path)
        async with living(path, home, resume=session_id) as story:
            (failed,) = story.of(CompactionFailed)
            assert failed.reason == "interrupted"
            assert failed.trigger == "threshold"
            assert failed.consecutive_failures == 0
            (envelope,) = (e for e in story.told if e.event == "compaction_failed")
            assert envelope.ref == (session_id, len(log_of(home, session_id)) - 1)

        async with living(path, home, resume=session_id) as story:
            assert not story.of(CompactionFailed)


async def test_a_compaction_that_was_committed_is_told_of_by_nobody(home: Path) -> None:
    """Also after the old session went on; and one that broke off after that is told of."""
    with serving(chat(short)) as served:
        path = manifest(home, served.base_url, COMPACT)
        async with living(path, home) as story:
            await story.turns(*QUESTIONS)
            (done,) = story.of(CompactionDone)

        old_id = done.old_session_id
        for prompt in ("on", "and on"):
            async with living(path, home, resume=old_id) as story:
                assert not story.of(CompactionFailed), "it made a session"
                story.pod.on(CompactionStart, lambda _, pod=story.pod: pod.cancel())
                await story.pod.run(prompt)
                await story.pod.idle()

        with FileSessionStore(home).open(old_id) as session:
            session.append("compaction_started", trigger="manual", engine="compressor")

        async with living(path, home, resume=old_id) as story:
            (failed,) = story.of(CompactionFailed)
            assert failed.reason == "interrupted"
