"""When a plugin's engine compacts in a whole pod, how often, and what is told of it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from pod.compaction.plan import CompactionError
from pod.context.engine import JsonDict, Message
from pod.context.threads import compaction_pool
from pod.protocol import (
    CompactionDone,
    CompactionFailed,
    CompactionStart,
    EngineNotice,
    RunEnd,
)
from tests.fake_provider import Asked, Say, serving
from tests.pod.context.engine_shelf import USE, Recorder, shelve
from tests.pod.pods import BIG_TOOL, Story, assert_paired, chat, kinds, living, manifest, prose

pytestmark = pytest.mark.anyio

COMPACTS = pytest.mark.moves_prefix("an engine of its own compacts without a summary")


def long(asked: Asked, number: int) -> Say:
    return Say(f"answer {number} {prose(8_000)}")


def notices(story: Story) -> list[str]:
    return [notice.message for notice in story.of(EngineNotice)]


class OneLess(Recorder):
    """Gives up its oldest row each time, as long as more than `keep` are there."""

    keep = 2

    def compress(self, messages: list[Message], *args: Any, **kwargs: Any) -> list[Message]:
        self.note("compress", len(messages))
        return messages[1:] if len(messages) > self.keep else messages


# ------------------------------------------------------------------ before a run's first request


@COMPACTS
async def test_before_the_first_request_it_may_take_three_passes(home: Path) -> None:
    """Each is a compaction of its own; then the request goes out, whatever it wants."""
    engine = OneLess()
    shelve(home, lambda: engine)
    with serving(chat(long)) as served:
        async with living(manifest(home, served.base_url, USE), home) as story:
            await story.turns("one", "two", "three", "four")
            engine.wants = lambda _: True
            engine.calls.clear()
            result = await story.pod.run("five")
            assert result.outcome == "finished"
            assert [call.args for call in engine.of("compress")] == [(9,), (8,), (7,)]
            assert len(story.of(CompactionDone)) == 3
            assert not story.of(CompactionFailed)
            engine.wants = lambda _: False


@COMPACTS
async def test_a_pass_that_leads_nowhere_is_the_last_and_no_failure(home: Path) -> None:
    engine = OneLess()
    shelve(home, lambda: engine)
    with serving(chat(long)) as served:
        async with living(manifest(home, served.base_url, USE), home) as story:
            await story.turns("one", "two")
            engine.wants, engine.keep = lambda _: True, 4
            engine.calls.clear()
            await story.pod.run("three")
            assert [call.args for call in engine.of("compress")][:2] == [(5,), (4,)]
            engine.wants = lambda _: False
            await story.pod.idle()
            assert len(story.of(CompactionStart)) == len(story.of(CompactionDone)) == 1
            assert not story.of(CompactionFailed)
            assert story.pod.status().compaction_failures == 0


@COMPACTS
async def test_it_stops_as_soon_as_the_engine_is_content(home: Path) -> None:
    engine = OneLess()
    shelve(home, lambda: engine)
    with serving(chat(long)) as served:
        async with living(manifest(home, served.base_url, USE), home) as story:
            await story.turns("one", "two", "three")
            size = story.pod.status().occupancy
            engine.wants = lambda tokens: tokens > size - 500
            engine.calls.clear()
            await story.pod.run("four")
            assert engine.hooks[: engine.hooks.index("update_from_response")] == [
                "should_compress",
                "compress",  # the first row is a short question
                "on_session_end",
                "on_session_start",
                "should_compress",
                "compress",
                "on_session_end",
                "on_session_start",
                "should_compress",
            ]
            engine.wants = lambda _: False


@COMPACTS
async def test_upkeep_below_the_threshold_is_done_once_and_told_where_it_changed_something(
    home: Path,
) -> None:
    class Tidy(OneLess):
        def should_compress_preflight(self, messages: list[Message]) -> bool:
            self.note("upkeep")
            return True

    engine = Tidy()
    shelve(home, lambda: engine)
    with serving(chat(long)) as served:
        async with living(manifest(home, served.base_url, USE), home) as story:
            engine.keep = 99
            await story.turns("one", "two", "three")
            assert len(engine.of("compress")) == 2, "a single row is nothing to tidy"
            assert not story.of(CompactionStart)
            assert kinds(home, story.pod.session_id).count("compaction_started") == 0
            engine.keep = 2
            engine.calls.clear()
            await story.turns("four")
            assert engine.hooks.count("compress") == engine.hooks.count("upkeep") == 1
            assert len(story.of(CompactionStart)) == len(story.of(CompactionDone)) == 1


# ------------------------------------------------------------------ in the middle of a run


@COMPACTS
async def test_in_one_run_it_compacts_three_times_at_most(home: Path) -> None:
    engine = Recorder()
    shelve(home, lambda: engine)

    def script(asked: Asked, number: int) -> Say:
        if number <= 2:
            return long(asked, number)
        if number <= 8:
            return Say(f"step {number}", calls=(("big", f'{{"n": {number}}}'),))

        return Say("done")

    with serving(chat(script)) as served:
        async with living(manifest(home, served.base_url, USE + BIG_TOOL), home) as story:
            await story.turns("one", "two")
            engine.wants = lambda _: True
            ended: list[int] = []
            story.pod.on(RunEnd, lambda _: ended.append(len(engine.of("compress"))))
            assert (await story.pod.run("go")).outcome == "finished"
            assert ended == [3]
            assert_paired(served.asked)
            engine.wants = lambda _: False


async def test_an_engine_that_waits_for_a_reading_is_left_alone(home: Path) -> None:
    class Waiting(Recorder):
        deferred = 0

        def should_defer_preflight_to_real_usage(self, rough_tokens: int) -> bool:
            self.deferred += 1
            return True

    engine = Waiting(wants=lambda _: True)
    shelve(home, lambda: engine)
    with serving(chat(long)) as served:
        async with living(manifest(home, served.base_url, USE), home) as story:
            await story.turns("one", "two")
            assert engine.deferred
            assert not engine.of("should_compress")
            assert await story.pod.compact() is not None, "by hand it is not asked"


async def test_why_it_holds_back_is_told_once(home: Path) -> None:
    class Blocked(Recorder):
        asked = 0

        def should_compress_info(self, prompt_tokens: int | None = None) -> tuple[bool, str | None]:
            self.asked += 1
            return False, f"it did not help, {self.asked} times"

    engine = Blocked()
    shelve(home, lambda: engine)
    with serving(chat(long)) as served:
        async with living(manifest(home, served.base_url, USE), home) as story:
            await story.turns("one", "two", "three")
            assert notices(story) == ["it did not help, 1 times"]
            assert engine.asked > 1


async def test_a_cooldown_concerns_what_is_automatic_alone(home: Path) -> None:
    class Cooling(Recorder):
        def get_active_compression_failure_cooldown(self) -> JsonDict:
            return {"remaining_seconds": 60.0}

    engine = Cooling(wants=lambda _: True)
    shelve(home, lambda: engine)
    with serving(chat(long)) as served:
        async with living(manifest(home, served.base_url, USE), home) as story:
            await story.turns("one", "two")
            assert not story.of(CompactionStart)
            assert len(notices(story)) == 1
            assert await story.pod.compact() is not None


# ------------------------------------------------------------------ by hand


async def test_by_hand_an_engine_that_finds_nothing_is_not_asked_to_compress(home: Path) -> None:
    class Empty(Recorder):
        def has_content_to_compress(self, messages: list[Message]) -> bool:
            self.note("has_content_to_compress", len(messages))
            return False

    engine = Empty()
    shelve(home, lambda: engine)
    with serving(chat(long)) as served:
        async with living(manifest(home, served.base_url, USE), home) as story:
            await story.turns("one", "two")
            assert await story.pod.compact() is None
            assert engine.of("has_content_to_compress")[0].args == (4,)
            assert not engine.of("compress")
            assert not story.of(CompactionStart)


# ------------------------------------------------------------------ what is said


@COMPACTS
@pytest.mark.parametrize(
    ("said", "message"),
    [("tidying up …", "tidying up …"), (None, ""), ("  ", "")],
)
async def test_what_is_said_of_a_compaction_is_the_engine_s_to_choose(
    home: Path, said: str | None, message: str
) -> None:
    class Speaking(Recorder):
        def get_automatic_compaction_status_message(
            self, *, phase: str, default_message: str, **context: object
        ) -> str | None:
            self.note("status", phase, **context)
            return said

    engine = Speaking(wants=lambda tokens: tokens > 3_000)
    shelve(home, lambda: engine)
    with serving(chat(long)) as served:
        async with living(manifest(home, served.base_url, USE), home) as story:
            await story.turns("one", "two")
            start = story.of(CompactionStart)[0]
            assert start.message == message
            call = engine.of("status")[0]
            assert call.args == ("compress",)
            assert call.kwargs["approx_tokens"] == start.input_tokens
            assert set(call.kwargs) == {
                "approx_tokens",
                "threshold_tokens",
                "context_length",
                "model",
            }
            engine.wants = lambda _: False
            await story.turns("three", "four")
            await story.pod.compact()
            assert story.of(CompactionStart)[-1].trigger == "manual"
            assert story.of(CompactionStart)[-1].message is None


@COMPACTS
async def test_an_engine_that_wants_no_routine_told_has_its_failures_told(home: Path) -> None:
    class Quiet(Recorder):
        emit_automatic_compaction_status = False

    engine = Quiet(wants=lambda tokens: tokens > 3_000)
    shelve(home, lambda: engine)
    with serving(chat(long)) as served:
        async with living(manifest(home, served.base_url, USE), home) as story:
            await story.turns("one", "two", "three", "four")
            assert {start.message for start in story.of(CompactionStart)} == {""}
            assert engine.compression_count > 1
            assert not notices(story), "no count of compactions either"
            vars(engine).update(
                _last_compress_aborted=True, _last_summary_error="no model answered"
            )
            with pytest.raises(CompactionError, match="gave up: no model answered"):
                await story.pod.compact()

            assert story.of(CompactionFailed)[-1].message.endswith("no model answered")


async def test_a_model_for_summaries_that_failed_is_told_of(home: Path) -> None:
    engine = Recorder()
    vars(engine).update(
        _last_aux_model_failure_model="small",
        _last_aux_model_failure_error="404",
        _last_summary_dropped_count=7,
        _last_summary_fallback_used=True,
    )
    shelve(home, lambda: engine)
    with serving(chat(long)) as served:
        async with living(manifest(home, served.base_url, USE), home) as story:
            await story.turns("one", "two")
            await story.pod.compact()
            assert notices(story) == [
                "its model for summaries, small, failed (404); another one was used",
                "its summary failed, and a fallback took its place; 7 messages were left out",
            ]


# ------------------------------------------------------------------ no place in the pool


async def test_without_a_place_in_the_pool_it_is_put_off_and_nothing_failed(home: Path) -> None:
    """No start, no failure, and the run goes on; by hand, one waits."""
    engine = Recorder()
    shelve(home, lambda: engine)

    def script(asked: Asked, number: int) -> Say:
        return Say(calls=(("big", '{"n": 1}'),)) if number in {3, 4} else long(asked, number)

    pool = compaction_pool()
    with serving(chat(script)) as served:
        extra = BIG_TOOL + USE + "timeout_seconds = 1\n"
        async with living(manifest(home, served.base_url, extra), home) as story:
            await story.turns("one", "two")
            engine.wants = lambda _: True
            slots = [slot for _ in range(4) if (slot := pool.reserve()) is not None]
            try:
                assert (await story.pod.run("three")).outcome == "finished"
                await story.pod.idle()
                assert not story.of(CompactionStart)
                assert not story.of(CompactionFailed)
                assert not engine.of("compress")
                assert sum("put off" in message for message in notices(story)) == 1
                with pytest.raises(CompactionError, match="too many") as caught:
                    await story.pod.compact()

                assert caught.value.reason == "busy"
            finally:
                for slot in slots:
                    slot.let_go()

            assert await story.pod.compact() is not None


# ------------------------------------------------------------------ the window is full

FAILING = {
    "raises": ValueError("broken on purpose"),
    "gives nothing": None,
    "gives it back": "messages",
    "falls silent": threading.Event(),
}


@pytest.mark.parametrize("how", FAILING)
async def test_where_nothing_else_would_fit_a_digest_takes_its_place(home: Path, how: str) -> None:
    """DESIGN §10: for every engine. The run goes on; it counts as a failure all the same."""

    class Failing(Recorder):
        def compress(self, messages: list[Message], *args: Any, **kwargs: Any) -> Any:
            self.note("compress")
            match FAILING[how]:
                case Exception() as error:
                    raise error
                case None:
                    return None
                case threading.Event() as never:
                    never.wait(1.5)
                case _:
                    pass

            return messages

    engine = Failing()
    shelve(home, lambda: engine)

    def script(asked: Asked, number: int) -> Say:
        if number == 5:
            error = "maximum context length is 9000 tokens"
            return Say(status=400, error=error, code="context_length_exceeded")

        return long(asked, number)

    with serving(chat(script)) as served:
        extra = USE + "timeout_seconds = 0.5\n"
        async with living(manifest(home, served.base_url, extra), home) as story:
            first = story.pod.session_id
            await story.turns("THE-TASK", "two", "three", "four", "five")
            end = story.of(RunEnd)[-1]
            assert end.outcome == "finished", end
            (done,) = story.of(CompactionDone)
            assert (done.method, done.trigger, done.engine) == ("digest", "overflow", "shelved")
            assert not story.of(CompactionFailed)
            assert story.pod.status().compaction_failures == 1
            assert "THE-TASK" in served.asked[-1].text
            assert "digest" in served.asked[-1].text
            # It is told of the boundary as after any other.
            assert engine.of("on_session_end")[0].args[0] == first
            assert engine.of("on_session_start")[-1].args == (done.new_session_id,)
            assert vars(engine)["last_prompt_tokens"] != 0
