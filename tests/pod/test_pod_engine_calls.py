"""What an engine hears of a whole pod's life: which calls, in which order, with what."""

from __future__ import annotations

import asyncio
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from pod.protocol import CompactionStart, EngineNotice
from tests.fake_provider import Asked, Say, serving
from tests.pod.context.engine_shelf import USE, Recorder, shelve
from tests.pod.pods import BIG_TOOL, KEY, Story, chat, living, log_of, manifest, pointer, prose
from tests.pod.test_pod_head_mismatch import foreign_line

pytestmark = pytest.mark.anyio


def short(asked: Asked, number: int) -> Say:
    return Say(f"answer {number}")


def long(asked: Asked, number: int) -> Say:
    return Say(f"answer {number} {prose(8_000)}")


def notices(story: Story) -> list[str]:
    return [notice.message for notice in story.of(EngineNotice)]


# ------------------------------------------------------------------ the model


async def test_at_the_start_it_hears_of_the_model_then_of_the_session(home: Path) -> None:
    class Binding(Recorder):
        def bind_session_state(self, session_db: Any, session_id: str) -> None:
            self.note("bind_session_state", session_db, session_id)

        def get_tool_schemas(self) -> list[dict[str, Any]]:
            self.note("get_tool_schemas")
            return []

    engine = Binding()
    shelve(home, lambda: engine)
    extra = USE + '[compaction.model_thresholds]\n"fake" = 0.5\n'
    with serving(chat(short)) as served:
        async with living(manifest(home, served.base_url, extra), home) as story:
            session_id = story.pod.session_id
            hooks = ["update_model", "bind_session_state", "get_tool_schemas", "on_session_start"]
            assert engine.hooks == hooks
            (model,), (bound,), (start,) = map(
                engine.of, ("update_model", "bind_session_state", "on_session_start")
            )
            assert model.args == ("fake", 200_000)
            assert model.kwargs == {
                "base_url": served.base_url,
                "api_key": KEY,
                "provider": "openai_compatible",
                "api_mode": "chat_completions",
            }
            assert engine.threshold_tokens == 100_000, "the map was there before the model"
            assert bound.args[1] == session_id
            assert start.args == (session_id,)
            assert start.kwargs == {
                "hermes_home": str(home / "engines" / "shelved"),
                "platform": "cli",
                "model": "fake",
                "context_length": 200_000,
                "conversation_id": session_id,
            }
            # What it was bound to reads sessions, and nothing else.
            await story.pod.run("one")
            records = bound.args[0]
            rows = await asyncio.to_thread(records.get_messages_as_conversation, session_id)
            assert [row["content"] for row in rows] == ["one", "answer 1"]
            known = await asyncio.to_thread(records.get_session, session_id)
            assert (known["message_count"], known["parent_session_id"]) == (2, None)

    assert KEY not in str(story.told)


async def test_a_model_that_stands_in_is_told_and_the_first_choice_when_it_is_back(
    home: Path,
) -> None:
    engine = Recorder()
    shelve(home, lambda: engine)

    def declining(asked: Asked, number: int) -> Say:
        # A refusal of what was asked: the next request is made here again.
        return Say(finish="content_filter") if number == 1 else short(asked, number)

    with ExitStack() as stack:
        first = stack.enter_context(serving(declining))
        up = stack.enter_context(serving(chat(short)))
        path = manifest(home, first.base_url, USE)
        other = (
            f'fallbacks = [{{ kind = "openai_compatible", model = "m1", context_window = 9000, '
            f'base_url = "{up.base_url}" }}]\n'
        )
        path.write_text(path.read_text().replace("\n[worker]", f"\n{other}[worker]", 1))
        async with living(path, home) as story:
            await story.turns("one", "two")

    told = [(call.args, call.kwargs["base_url"]) for call in engine.of("update_model")]
    own, other_one = (("fake", 200_000), first.base_url), (("m1", 9_000), up.base_url)
    assert told == [own, other_one, own]


@pytest.mark.moves_prefix("an engine of its own compacts without a summary")
async def test_a_smaller_window_that_the_provider_names_is_told_before_it_compacts(
    home: Path,
) -> None:
    engine = Recorder()
    shelve(home, lambda: engine)

    def script(asked: Asked, number: int) -> Say:
        if number == 3:
            error = "maximum context length is 9000 tokens"
            return Say(status=400, error=error, code="context_length_exceeded")

        return long(asked, number)

    with serving(chat(script)) as served:
        async with living(manifest(home, served.base_url, USE), home) as story:
            await story.turns("one", "two", "three")
            assert story.of(CompactionStart)[0].trigger == "overflow"

    assert [call.args[1] for call in engine.of("update_model")] == [200_000, 9_000]
    hooks = engine.hooks
    assert hooks.index("compress") > len(hooks) - hooks[::-1].index("update_model") - 1


# ------------------------------------------------------------------ readings


async def test_a_reading_is_there_before_it_is_asked(home: Path) -> None:
    """Every response's usage comes before the next question, whatever it is."""
    engine = Recorder()
    shelve(home, lambda: engine)

    def script(asked: Asked, number: int) -> Say:
        return Say(calls=(("big", '{"n": 1}'),)) if number == 1 else Say("done")

    with serving(chat(script)) as served:
        async with living(manifest(home, served.base_url, USE + BIG_TOOL), home) as story:
            await story.turns("one")

    order = [h for h in engine.hooks if h in {"update_from_response", "should_compress"}]
    assert order == ["update_from_response", "should_compress"] * 2
    usage = engine.of("update_from_response")[0].args[0]
    assert set(usage) == {
        "prompt_tokens",
        "completion_tokens",
        "total_tokens",
        "input_tokens",
        "output_tokens",
        "cache_read_tokens",
        "cache_write_tokens",
        "reasoning_tokens",
    }
    assert usage["prompt_tokens"] > 0
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


@pytest.mark.moves_prefix("an engine of its own compacts without a summary")
async def test_a_response_without_usage_is_told_while_the_engine_waits_for_one(
    home: Path,
) -> None:
    engine = Recorder()
    shelve(home, lambda: engine)
    with serving(
        chat(lambda _asked, n: Say(f"answer {n} {prose(4_000)}", measures=False))
    ) as served:
        async with living(manifest(home, served.base_url, USE), home) as story:
            await story.turns("one", "two")
            assert not engine.of("update_from_response")
            assert await story.pod.compact() is not None
            assert engine.awaiting_real_usage_after_compression is True  # type: ignore[attr-defined]  # the host's
            await story.turns("three", "four")

    assert [call.args[0] for call in engine.of("update_from_response")] == [{}, {}]
    assert [call.args[1] for call in engine.of("on_turn_complete")] == [None] * 4


# ------------------------------------------------------------------ the end of a run


async def test_whoever_cancels_a_run_does_not_wait_for_what_the_engine_makes_of_it(
    home: Path,
) -> None:
    let_go = threading.Event()

    class Slow(Recorder):
        def on_turn_complete(self, *args: Any, **kwargs: Any) -> None:
            let_go.wait(15)
            self.note("on_turn_complete", *args, **kwargs)

    engine = Slow()
    shelve(home, lambda: engine)
    never = threading.Event()
    with serving(Say("never said", wait=never)) as served:
        async with living(manifest(home, served.base_url, USE), home) as story:
            running = asyncio.create_task(story.pod.run("is cancelled"))
            await asyncio.to_thread(served.wait_for, 1)
            story.pod.cancel()
            assert (await running).outcome == "cancelled"
            assert not engine.of("on_turn_complete")
            let_go.set()
            never.set()

    assert len(engine.of("on_turn_complete")) == 1


async def test_each_run_s_end_is_told_once_however_it_ended(home: Path) -> None:
    """With the last response's usage, not the run's, and None where there was no response."""
    engine = Recorder()
    shelve(home, lambda: engine)
    never = threading.Event()

    def script(asked: Asked, number: int) -> Say:
        if number == 1:
            return Say(calls=(("big", '{"n": 1}'),), prompt_tokens=100)
        if number == 2:
            return Say("done", prompt_tokens=200)
        if number == 3:
            return Say(status=400, error="no")

        return Say("never said", wait=never)

    with serving(chat(script)) as served:
        async with living(manifest(home, served.base_url, USE + BIG_TOOL), home) as story:
            session_id = story.pod.session_id
            await story.turns("one", "fails")
            running = asyncio.create_task(story.pod.run("is cancelled"))
            await asyncio.to_thread(served.wait_for, 4)
            story.pod.cancel()
            assert (await running).outcome == "cancelled"
            never.set()

    finished, failed, cancelled = engine.of("on_turn_complete")
    messages, usage = finished.args
    assert [row["role"] for row in messages] == ["user", "assistant", "tool", "assistant"]
    assert all(len(row["message_uid"]) == 32 for row in messages)
    assert usage["prompt_tokens"] == 200
    assert finished.kwargs == {
        "turn_id": messages[0]["message_uid"],
        "task_id": session_id,
        "api_call_count": 2,
        "interrupted": False,
        "failed": False,
        "turn_exit_reason": "finished",
    }
    assert failed.args[1] is None
    assert failed.kwargs["failed"]
    assert failed.kwargs["turn_exit_reason"] == "error"
    assert failed.kwargs["api_call_count"] == 1
    assert cancelled.args[1] is None
    assert cancelled.kwargs["interrupted"]
    assert cancelled.kwargs["turn_exit_reason"] == "cancelled"


# ------------------------------------------------------------------ sessions


def told_of_sessions(engine: Recorder) -> list[tuple[str, Any, dict[str, Any]]]:
    """The session callbacks, without what every start has alike."""
    always = {"hermes_home", "platform", "model", "context_length"}
    return [
        (
            call.hook.removeprefix("on_session_"),
            call.args[0] if call.args else None,
            {key: value for key, value in call.kwargs.items() if key not in always},
        )
        for call in engine.calls
        if "session" in call.hook
    ]


class Carrying(Recorder):
    def carry_over_new_session_context(self, old: str, new: str) -> None:
        self.note("carry_over_session", old, new)


async def test_new_and_rewind_keep_the_engine_and_tell_it_what_was_left(home: Path) -> None:
    made: list[Carrying] = []

    def make() -> Carrying:
        made.append(Carrying())
        return made[-1]

    shelve(home, make)
    with serving(chat(short)) as served:
        async with living(manifest(home, served.base_url, USE), home) as story:
            first = story.pod.session_id
            await story.turns("one")
            await story.pod.new()
            second = story.pod.session_id
            await story.turns("two", "three")
            entries = log_of(home, second)
            ended = [entry["hash"] for entry in entries if entry["kind"] == "run_outcome"]
            await story.pod.rewind(to=ended[0])
            third = story.pod.session_id
            assert [item.text for item in story.pod.history] == ["two", "answer 2"]  # type: ignore[union-attr]  # messages alone

    (engine,) = made
    assert told_of_sessions(engine) == [
        ("start", first, {"conversation_id": first}),
        ("end", first, {}),
        ("reset", None, {}),
        ("start", second, {"conversation_id": second, "old_session_id": first}),
        ("end", second, {}),
        ("reset", None, {}),
        (
            "start",
            third,
            {"conversation_id": third, "old_session_id": second, "carry_over_context": True},
        ),
        ("carry_over_session", second, {}),
        ("end", third, {}),
    ]
    ends = engine.of("on_session_end")
    assert [len(call.args[1]) for call in ends] == [2, 4, 0], "the last one brought no news"


async def test_a_fork_s_engine_is_told_what_it_branched_off_from(home: Path) -> None:
    made: list[Carrying] = []

    def make() -> Carrying:
        made.append(Carrying())
        return made[-1]

    shelve(home, make)
    with serving(chat(short)) as served:
        path = manifest(home, served.base_url, USE)
        async with living(path, home) as story:
            parent = story.pod.session_id
            await story.turns("one")
            async with await story.pod.fork() as child:
                child_id = child.session_id
                await child.run("two")

            assert (await story.pod.run("three")).outcome == "finished"

        # By now it is a session like any other, which is taken up.
        async with living(path, home, resume=child_id):
            pass

    own, branched, resumed = made
    assert [what for what, *_ in told_of_sessions(own)] == ["start", "end"]
    assert told_of_sessions(branched) == [
        ("reset", None, {}),
        (
            "start",
            child_id,
            {"conversation_id": child_id, "old_session_id": parent, "carry_over_context": True},
        ),
        ("carry_over_session", parent, {}),
        ("end", child_id, {}),
    ]
    assert told_of_sessions(resumed)[0] == ("start", child_id, {"conversation_id": child_id})


async def test_a_log_that_was_changed_underneath_makes_a_branch_that_the_engine_hears_of(
    home: Path,
) -> None:
    engine = Carrying()
    shelve(home, lambda: engine)
    with serving(chat(short)) as served:
        async with living(manifest(home, served.base_url, USE), home) as story:
            first = story.pod.session_id
            await story.turns("one")
            log = home / "sessions" / f"{first}.jsonl"
            line = foreign_line(log)
            with log.open("ab") as file:
                file.write(line)

            await story.turns("two")
            second = story.pod.session_id
            assert second != first

    branch = {"conversation_id": second, "old_session_id": first, "carry_over_context": True}
    assert told_of_sessions(engine)[1:4] == [
        ("reset", None, {}),
        ("start", second, branch),
        ("carry_over_session", first, {}),
    ]
    assert told_of_sessions(engine)[-1] == ("end", second, {})


async def test_a_compaction_ends_one_session_and_starts_the_next(home: Path) -> None:
    class Bound(Recorder):
        def bind_session_state(self, session_id: str) -> None:
            self.note("bind_session_state", session_id)

    engine = Bound()
    shelve(home, lambda: engine)
    with serving(chat(long)) as served:
        path = manifest(home, served.base_url, USE)
        async with living(path, home) as story:
            first = story.pod.session_id
            await story.turns("one", "two")
            engine.calls.clear()
            done = await story.pod.compact(focus="the plan")
            assert done is not None
            second = done.new_session_id
            assert engine.of("compress")[0].kwargs == {
                "current_tokens": engine.of("compress")[0].kwargs["current_tokens"],
                "focus_topic": "the plan",
                "force": True,
            }
            assert engine.hooks == [
                "compress",
                "on_session_end",
                "bind_session_state",
                "on_session_start",
            ]
            end, start = engine.of("on_session_end")[0], engine.of("on_session_start")[0]
            assert (end.args[0], len(end.args[1])) == (first, 4)
            assert start.args == (second,)
            assert start.kwargs == {
                "boundary_reason": "compression",
                "old_session_id": first,
                "platform": "cli",
                "conversation_id": first,
            }
            state = vars(engine)
            assert state["last_prompt_tokens"] == -1
            assert state["last_completion_tokens"] == 0
            assert state["awaiting_real_usage_after_compression"] is True
            assert state["last_compression_rough_tokens"] == done.tokens_after
            assert state["_verify_compaction_cleared_threshold"] is True
            assert story.pod.status().engine_status["last_prompt_tokens"] == 0

        async with living(path, home, resume=pointer(home)):
            pass

    taken_up = engine.of("on_session_start")[-1]
    assert taken_up.args == (second,)
    assert taken_up.kwargs["conversation_id"] == first, "it is the same conversation still"


@pytest.mark.moves_prefix("an engine of its own compacts without a summary")
async def test_a_compaction_that_is_recorded_is_recorded_on_the_class(home: Path) -> None:
    class Counting(Recorder):
        _last_summary_fallback_used = True
        _last_summary_error = "the model was away"

        def record_completed_compaction(self, *, used_fallback: bool) -> None:
            self.note("record_completed_compaction", used_fallback)

    engine = Counting()
    shelve(home, lambda: engine)
    with serving(chat(long)) as served:
        async with living(manifest(home, served.base_url, USE), home) as story:
            await story.turns("one", "two")
            await story.pod.compact()
            await story.turns("three")
            await story.pod.compact()

    assert [call.args for call in engine.of("record_completed_compaction")] == [(True,)] * 2
    assert "_verify_compaction_cleared_threshold" not in vars(engine)
    told = notices(story)
    fallback = "its summary failed (the model was away), and a fallback took its place"
    assert told.count(fallback) == 2
    assert told[-1] == "this conversation was compressed 2 times"
