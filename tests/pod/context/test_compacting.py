"""Compactions of one engine: limits, late results, places in the pool, and what it says of them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pod.compaction.plan import CompactionError, CompactionPlan, CompactionRequest
from pod.context.compacting import Attempt
from pod.context.engine import ContextEngine, Message
from pod.context.errors import EngineNotCopied
from pod.context.facts import Beginning
from pod.context.host import EngineHost, ModelFacts
from pod.context.ownership import owned, release_engine
from pod.context.threads import CompactionPool
from tests.pod.compaction.stories import an_answer
from tests.pod.context.engine_shelf import Recorder
from tests.pod.desk import until
from worker.items import Item, user_message

pytestmark = pytest.mark.anyio

ITEMS: tuple[Item, ...] = tuple(
    item for n in range(3) for item in (user_message(f"q{n}"), an_answer(f"a{n}"))
)


def asking(**more: Any) -> CompactionRequest:
    numbers: dict[str, Any] = {
        "session_id": "s",
        "head_hash": "h",
        "items": ITEMS,
        "watermark": 0,
        "trigger": "engine",
        "threshold": 1_000,
        "occupancy": 900,
        "generation": 0,
    }
    return CompactionRequest(**(numbers | more))


def hosting(
    engine: Recorder, *, idle_s: float = 5.0, pool: CompactionPool | None = None, **more: Any
) -> tuple[EngineHost, list[str]]:
    told: list[str] = []
    host = EngineHost(
        engine, lambda _name, text: told.append(text), idle_s, pool or CompactionPool(), **more
    )
    return host, told


@asynccontextmanager
async def attempt_of(host: EngineHost) -> AsyncIterator[Attempt]:
    attempt = await host.compactions.admit()
    try:
        yield attempt
    finally:
        host.compactions.close(attempt)


async def planned(host: EngineHost, request: CompactionRequest) -> CompactionPlan:
    async with attempt_of(host) as attempt:
        return await host.make_plan(attempt, request)


class Slow(Recorder):
    """Compacts when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()
        self.began = threading.Event()
        self.ended = threading.Event()

    def compress(self, messages: list[Message], *args: Any, **kwargs: Any) -> list[Message]:
        self.note("compress")
        self.began.set()
        self.go.wait(10)
        self.ended.set()
        return messages[-2:]


class Plain(Recorder):
    """Has nothing to do at the end of a session."""

    on_session_end = ContextEngine.on_session_end


# ------------------------------------------------------------------ arguments


async def test_the_messages_are_a_copy_without_a_system_row_and_compress_is_called_once() -> None:
    class Spoiling(Recorder):
        def compress(self, messages: list[Message], *args: Any, **kwargs: Any) -> list[Message]:
            self.note("compress", [dict(row) for row in messages], **kwargs)
            kept = [dict(row) for row in messages[-2:]]
            for row in messages:
                row["content"] = "SPOILED"

            return kept

    engine = Spoiling()
    host, _ = hosting(engine)
    plan = await planned(host, asking(focus="the plan"))
    (call,) = engine.of("compress")
    assert [row["message_uid"] for row in call.args[0]] == [item.uid for item in ITEMS]
    assert {row["role"] for row in call.args[0]} == {"user", "assistant"}
    assert call.kwargs == {"current_tokens": 900, "focus_topic": "the plan", "force": False}
    assert all(a is b for a, b in zip(plan.history, ITEMS[-2:], strict=True))


async def test_by_hand_it_is_forced() -> None:
    engine = Recorder()
    host, _ = hosting(engine)
    await planned(host, asking(trigger="manual"))
    assert engine.of("compress")[0].kwargs["force"] is True


async def test_a_type_error_of_the_body_is_a_failure_after_one_call() -> None:
    class Confused(Recorder):
        def compress(self, messages: list[Message], *args: Any, **kwargs: Any) -> list[Message]:
            self.note("compress")
            raise TypeError("compress() got an unexpected keyword argument 'force'")

    engine = Confused()
    host, _ = hosting(engine)
    with pytest.raises(CompactionError, match="TypeError") as caught:
        await planned(host, asking())

    assert caught.value.reason == "engine_error"
    assert len(engine.of("compress")) == 1


@pytest.mark.parametrize("raised", [KeyboardInterrupt("stop"), SystemExit(3), StopIteration()])
async def test_what_is_no_exception_fails_the_compaction_and_nothing_else(
    raised: BaseException,
) -> None:
    class Leaving(Recorder):
        def compress(self, messages: list[Message], *args: Any, **kwargs: Any) -> list[Message]:
            raise raised

    host, _ = hosting(Leaving())
    with pytest.raises(CompactionError, match=f"^the engine \\w+ raised {type(raised).__name__}"):
        await planned(host, asking())


async def test_an_async_compress_is_named_as_such_and_leaves_no_warning() -> None:
    class Waiting(Recorder):
        async def compress(self, messages: list[Message], **_: Any) -> list[Message]:  # type: ignore[override]
            return messages

    host, _ = hosting(Waiting())
    with pytest.raises(CompactionError, match="compress is async; it must be a plain function"):
        await planned(host, asking())


# ------------------------------------------------------------------ limits


async def test_silence_for_too_long_ends_an_attempt_and_its_late_result_is_refused() -> None:
    engine = Slow()
    host, _ = hosting(engine, idle_s=0.1)
    async with attempt_of(host) as attempt:
        with pytest.raises(CompactionError, match=r"no sign of life for 0\.1 s") as caught:
            await host.make_plan(attempt, asking())

        assert caught.value.reason == "timeout"
        engine.go.set()
        assert await asyncio.to_thread(engine.ended.wait, 5)
        with pytest.raises(CompactionError, match="late result"):
            attempt.begin_commit()


async def test_signs_of_life_keep_an_attempt_going_up_to_the_ceiling() -> None:
    engine = Slow()
    host, _ = hosting(engine, idle_s=0.5, ceiling_s=1.0)

    async def touch() -> None:
        while True:
            await asyncio.sleep(0.03)
            host.touch()

    touching = asyncio.create_task(touch())
    began = time.monotonic()
    with pytest.raises(CompactionError, match="was not done after 1 s"):
        await planned(host, asking())

    assert time.monotonic() - began >= 1.0
    touching.cancel()
    engine.go.set()


async def test_a_ceiling_below_the_silence_that_is_allowed_is_that() -> None:
    engine = Slow()
    host, _ = hosting(engine, idle_s=2.0, ceiling_s=0.01)
    asyncio.get_running_loop().call_later(0.1, engine.go.set)
    assert len((await planned(host, asking())).history) == 2


async def test_a_commit_that_has_begun_is_not_given_up() -> None:
    host, _ = hosting(Recorder(), idle_s=0.5)
    async with attempt_of(host) as attempt:
        await host.make_plan(attempt, asking())
        attempt.begin_commit()
        await asyncio.sleep(0.6)
        assert not attempt.fence.cancel()
        with pytest.raises(CompactionError, match="begun already"):
            attempt.begin_commit()


async def test_a_result_whose_time_ran_out_before_the_commit_is_refused() -> None:
    host, _ = hosting(Recorder(), idle_s=0.5, ceiling_s=0.5)
    async with attempt_of(host) as attempt:
        await host.make_plan(attempt, asking())
        await asyncio.sleep(0.6)
        with pytest.raises(CompactionError, match="given up") as caught:
            attempt.begin_commit()

        assert caught.value.reason == "timeout"


# ------------------------------------------------------------------ places


async def test_one_that_was_left_behind_is_not_joined_by_another_and_takes_one_place() -> None:
    engine, pool = Slow(), CompactionPool(2)
    host, told = hosting(engine, idle_s=0.1, pool=pool)
    with pytest.raises(CompactionError):
        await planned(host, asking())

    for _ in range(3):
        assert host.compactions.try_admit() is None

    assert len(told) == 1
    assert "still at work" in told[0]
    with pytest.raises(CompactionError, match="earlier compaction") as caught:
        await host.compactions.admit()

    assert caught.value.reason == "busy"
    other = pool.reserve()
    assert other is not None, "one place of two is free"
    assert pool.reserve() is None
    engine.go.set()
    assert len((await planned(host, asking())).history) == 2, "it waited for the end"
    assert len(engine.of("compress")) == 2


async def test_nor_is_one_whose_callback_at_a_boundary_never_comes_back() -> None:
    class Hangs(Slow):
        def on_session_start(self, session_id: str, **kwargs: Any) -> None:
            if kwargs.get("boundary_reason"):
                self.began.set()
                self.go.wait(10)

        def compress(self, messages: list[Message], *args: Any, **kwargs: Any) -> list[Message]:
            return messages[-2:]

    engine, pool = Hangs(), CompactionPool(2)
    assert is_free(engine)
    host, told = hosting(engine, idle_s=0.1, pool=pool)
    await host.introduce(ModelFacts("m", 1_000), "s")
    await host.start(Beginning("s"))
    async with attempt_of(host) as attempt:
        await host.make_plan(attempt, asking())
        attempt.begin_commit()
        await host.boundary(attempt, ITEMS, "new", 10)

    assert engine.began.is_set()
    assert host.compactions.try_admit() is None, "it is still at work in there"
    assert "boundary" in told[0]
    assert "still at work" in told[1]
    host.let_go()
    assert not is_free(engine)
    engine.go.set()
    until(lambda: is_free(engine))


async def test_a_boundary_beside_one_that_was_left_behind_takes_no_further_place() -> None:
    """As where a digest takes the place of what an engine did not get done."""
    engine, pool = Slow(), CompactionPool(2)
    host, _ = hosting(engine, idle_s=0.1, pool=pool)
    await host.introduce(ModelFacts("m", 1_000), "s")
    await host.start(Beginning("s"))
    async with attempt_of(host) as attempt:
        with pytest.raises(CompactionError):
            await host.make_plan(attempt, asking())

        await host.boundary(attempt, ITEMS, "new", 10)

    first, second = engine.of("on_session_start")
    assert second.kwargs["boundary_reason"] == "compression"
    assert second.thread == first.thread, "where all its calls are but compress"
    assert host.compactions.is_left_behind
    engine.go.set()


async def test_a_system_that_gives_no_thread_fails_the_compaction_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    host, _ = hosting(Recorder())
    async with attempt_of(host) as attempt:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuse)
            with pytest.raises(CompactionError, match="can't start new thread") as caught:
                await host.make_plan(attempt, asking())

    assert caught.value.reason == "engine_error"
    assert len((await planned(host, asking())).history) == 3


async def test_a_cancelled_compaction_leaves_its_thread_to_itself() -> None:
    engine = Slow()
    host, _ = hosting(engine)
    task = asyncio.create_task(planned(host, asking()))
    assert await asyncio.to_thread(engine.began.wait, 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert host.compactions.is_left_behind
    engine.go.set()
    assert await asyncio.to_thread(engine.ended.wait, 5)
    assert len((await planned(host, asking())).history) == 2


async def test_four_at_once_in_a_process_and_the_fifth_is_put_off() -> None:
    pool = CompactionPool()
    engines = [Slow() for _ in range(5)]
    hosts = [hosting(engine, pool=pool)[0] for engine in engines]
    running = [asyncio.create_task(planned(host, asking())) for host in hosts[:4]]
    for engine in engines[:4]:
        assert await asyncio.to_thread(engine.began.wait, 5)

    assert hosts[4].compactions.try_admit() is None
    waiting = asyncio.create_task(planned(hosts[4], asking(trigger="overflow")))
    await asyncio.sleep(0.05)
    assert not engines[4].began.is_set(), "it queues"
    for engine in engines:
        engine.go.set()

    plans = await asyncio.gather(*running, waiting)
    assert [len(plan.history) for plan in plans] == [2] * 5


# ------------------------------------------------------------------ what it says


async def test_an_engine_that_gave_up_has_its_result_refused() -> None:
    engine = Recorder()
    vars(engine).update(_last_compress_aborted=True, _last_summary_error="401 from the model")
    host, told = hosting(engine)
    with pytest.raises(CompactionError, match="gave up: 401 from the model"):
        await planned(host, asking())

    assert not told, "the failure says it"


@pytest.mark.parametrize("strange", [7, object(), ["x"], b"x"])
async def test_attributes_of_any_kind_are_read_without_harm(strange: object) -> None:
    engine = Recorder()
    names = ("_last_compress_aborted", "_last_summary_error", "_last_summary_fallback_used")
    more = ("_last_summary_dropped_count", "_last_aux_model_failure_model")
    vars(engine).update(dict.fromkeys((*names, *more), strange))
    host, told = hosting(engine)
    assert len((await planned(host, asking())).history) == 3
    assert not told


# ------------------------------------------------------------------ memory


@pytest.mark.parametrize(
    ("trigger", "operation", "wants"),
    [
        ("engine", "sanitize", False),
        ("engine", "other", True),
        ("engine", None, True),
        ("manual", "sanitize", True),
        ("overflow", "sanitize", True),
    ],
)
async def test_memory_is_not_gathered_where_it_only_cleans_up(
    trigger: str, operation: str | None, wants: bool
) -> None:
    class Cleaning(Recorder):
        def pending_compression_operation(self, messages: list[Message]) -> str | None:
            self.note("pending", len(messages))
            return operation

    engine = Cleaning()
    host, _ = hosting(engine)
    assert await host.wants_memory(asking(trigger=trigger)) is wants
    assert len(engine.of("pending")) == (trigger == "engine")
    host.let_go()


async def test_an_operation_that_cannot_be_told_is_an_ordinary_one() -> None:
    class Broken(Recorder):
        def pending_compression_operation(self, messages: list[Message]) -> str | None:
            raise ValueError("no")

    host, _ = hosting(Broken())
    assert await host.wants_memory(asking())
    host.let_go()


# ------------------------------------------------------------------ whose it is


def is_free(engine: Recorder) -> bool:
    """Whether another pod may have the very object; then it has it."""
    vars(engine)["clone_for_agent"] = lambda: engine  # no copy is to be had
    try:
        return owned(engine, object(), "shelved") is engine
    except EngineNotCopied:
        return False


async def test_an_engine_that_blocks_is_not_handed_to_the_next_pod_before_it_answers() -> None:
    engine, go = Recorder(), threading.Event()
    assert is_free(engine)
    host, told = hosting(engine, call_timeout_s=0.05)
    await host.calls.guarded("a hook", go.wait, 10)
    host.let_go()
    assert len(told) == 1
    assert not is_free(engine)
    go.set()
    until(lambda: is_free(engine))


async def test_nor_one_that_is_at_a_call_which_nobody_waits_for_any_more() -> None:
    engine, go, began = Recorder(), threading.Event(), threading.Event()
    assert is_free(engine)
    host, _ = hosting(engine)

    def work() -> None:
        began.set()
        go.wait(10)

    task = asyncio.create_task(host.calls.guarded("a hook", work))
    assert await asyncio.to_thread(began.wait, 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    host.let_go()
    assert not is_free(engine)
    go.set()
    until(lambda: is_free(engine))


async def test_one_that_was_told_of_the_end_is_free_at_once() -> None:
    for _ in range(50):
        engine = Plain()
        assert is_free(engine)
        host, _ = hosting(engine)
        host.calls.post("slow", lambda: time.sleep(0.002))
        await host.end("s", ITEMS)
        host.let_go()
        assert is_free(engine)


async def test_who_lets_go_of_an_engine_does_not_wait_for_one_that_is_being_copied() -> None:
    began, go = threading.Event(), threading.Event()

    def clone() -> Recorder:
        began.set()
        go.wait(10)
        return Recorder()

    shared, mine = Recorder(), Recorder()
    assert is_free(shared)
    vars(shared)["clone_for_agent"] = clone
    host, _ = hosting(mine)
    copying = asyncio.create_task(asyncio.to_thread(owned, shared, object(), "shelved"))
    assert await asyncio.to_thread(began.wait, 5)
    started = time.monotonic()
    host.let_go()
    assert time.monotonic() - started < 5
    go.set()
    assert await copying is not shared


async def test_an_engine_may_be_of_a_class_that_nothing_can_be_noted_on() -> None:
    class Slotted:
        __slots__ = ("name",)

        def __deepcopy__(self, memo: object) -> Slotted:
            raise ValueError("not copied")

    engine: Any = Slotted()
    assert owned(engine, object(), "slotted") is engine
    with pytest.raises(EngineNotCopied):
        owned(engine, object(), "slotted")

    release_engine(engine)
    assert owned(engine, object(), "slotted") is engine
    release_engine(engine)


async def test_a_copy_that_another_pod_has_is_none() -> None:
    shared, other = Recorder(), Recorder()
    assert is_free(shared)
    assert is_free(other)
    vars(shared)["clone_for_agent"] = lambda: other
    with pytest.raises(EngineNotCopied, match="another pod"):
        owned(shared, object(), "shelved")


async def test_nor_one_that_still_compacts() -> None:
    engine = Slow()
    assert is_free(engine)
    host, _ = hosting(engine, idle_s=0.05)
    with pytest.raises(CompactionError):
        await planned(host, asking())

    host.let_go()
    assert not is_free(engine)
    engine.go.set()
    until(lambda: is_free(engine))
    host.let_go()
    assert not is_free(engine), "it is the next pod's by now"
