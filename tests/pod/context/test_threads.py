from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

import pytest

from pod.context.errors import EngineInterrupted, EngineTimeout
from pod.context.threads import CompactionPool, EngineThread, compaction_pool

pytestmark = pytest.mark.anyio

T = TypeVar("T")
number = contextvars.ContextVar("number", default=0)


class Stop(KeyboardInterrupt):
    """What an engine raises to cancel a request."""


def raising(error: BaseException) -> Callable[[], None]:
    def function() -> None:
        raise error

    return function


def fail(error: Exception) -> None:
    raise AssertionError(error)


async def begun(pool: CompactionPool, function: Callable[[], T]) -> Future[T]:
    """Wait for a slot, and begin in it."""
    slot = await pool.reserve_when_free()
    try:
        return slot.run(function)
    finally:
        slot.let_go()


# ------------------------------------------------------------------ the engine's thread


async def test_calls_are_made_in_order_in_one_thread_with_the_caller_s_context() -> None:
    thread = EngineThread()
    seen: list[tuple[int, str]] = []

    def note() -> str:
        seen.append((number.get(), threading.current_thread().name))
        return "noted"

    for n in range(3):
        number.set(n)
        thread.post(note, on_error=fail)
    number.set(3)

    assert await thread.call(note) == "noted"
    assert [n for n, _ in seen] == [0, 1, 2, 3]
    assert len({name for _, name in seen}) == 1
    assert seen[0][1] != threading.current_thread().name
    assert await thread.aclose(5)


async def test_arguments_and_errors_travel() -> None:
    thread = EngineThread()
    assert await thread.call(sorted, [1, 3, 2], reverse=True) == [3, 2, 1]
    with pytest.raises(ZeroDivisionError):
        await thread.call(divmod, 1, 0, timeout_s=5)
    with pytest.raises(TimeoutError, match="its own"):
        await thread.call(raising(TimeoutError("its own")), timeout_s=5)
    thread.close()


@pytest.mark.parametrize("raised", [Stop("now"), SystemExit(3), StopIteration("x")])
async def test_what_would_end_the_loop_arrives_as_an_ordinary_error(raised: BaseException) -> None:
    thread = EngineThread()
    with pytest.raises(EngineInterrupted, match=type(raised).__name__) as caught:
        await thread.call(raising(raised))
    assert caught.value.__cause__ is raised
    assert await thread.call(lambda: "alive") == "alive"
    thread.close()


async def test_a_call_that_takes_too_long_is_left_behind_and_the_next_waits_for_it() -> None:
    thread, gate = EngineThread(), threading.Event()
    with pytest.raises(EngineTimeout, match=r"after 0\.05 s"):
        await thread.call(gate.wait, 10, timeout_s=0.05)
    assert thread.busy_s > 0

    calls: list[int] = []
    with pytest.raises(EngineTimeout):
        await thread.call(calls.append, 1, timeout_s=0.05)
    gate.set()

    assert await thread.call(lambda: "again", timeout_s=5) == "again"
    assert calls == [], "given up before it began"
    assert await thread.aclose(5)
    assert thread.busy_s == 0


async def test_a_cancelled_call_that_has_not_begun_is_never_made() -> None:
    thread, gate = EngineThread(), threading.Event()
    thread.post(gate.wait, 10, on_error=fail)
    made: list[int] = []
    waiting = asyncio.create_task(thread.call(made.append, 1))
    await asyncio.sleep(0.02)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    gate.set()
    assert await thread.aclose(5)
    assert made == []


async def test_a_failed_post_is_told_on_the_loop() -> None:
    thread = EngineThread()
    told: asyncio.Future[tuple[Exception, str]] = asyncio.get_running_loop().create_future()

    def on_error(error: Exception) -> None:
        told.set_result((error, threading.current_thread().name))

    thread.post(raising(ValueError("broken")), on_error=on_error)

    error, name = await told
    assert str(error) == "broken"
    assert name == threading.current_thread().name
    thread.close()


async def test_closing_makes_what_waits_and_refuses_what_comes() -> None:
    thread, made = EngineThread(), list[int]()
    for n in range(3):
        thread.post(made.append, n, on_error=fail)
    assert await thread.aclose(5)
    assert await thread.aclose(5), "closing again does nothing"
    assert made == [0, 1, 2]
    with pytest.raises(RuntimeError, match="closed"):
        await thread.call(made.append, 3)
    assert await EngineThread().aclose(1), "one that was never used"


async def test_closing_does_not_wait_for_a_plugin_that_hangs() -> None:
    thread, gate = EngineThread(), threading.Event()
    thread.post(gate.wait, 10, on_error=fail)
    assert not await thread.aclose(0.05)
    gate.set()
    assert await thread.aclose(5)


HANGS = """
import asyncio, threading, time
from pod.context.threads import EngineThread, compaction_pool

async def main():
    thread = EngineThread()
    thread.post(time.sleep, 60, on_error=print)
    future = compaction_pool().try_submit(lambda: time.sleep(60))
    await asyncio.sleep(0.1)
    thread.close()

asyncio.run(main())
print("out")
"""


async def test_a_process_ends_while_plugins_hang() -> None:
    began = time.monotonic()
    done = subprocess.run(  # noqa: ASYNC221  the test itself has nothing else to do
        [sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=15, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == ("out\n", "", 0)
    assert time.monotonic() - began < 15


# ------------------------------------------------------------------ the pool


class Gate:
    """Work that ends when it is let."""

    def __init__(self) -> None:
        self.opened = threading.Event()

    def __call__(self) -> str:
        assert self.opened.wait(10)
        return "done"


async def test_the_pool_admits_as_many_as_it_has_workers_and_queues_none() -> None:
    pool, gates = CompactionPool(), [Gate() for _ in range(4)]
    futures = [pool.try_submit(gate) for gate in gates]
    assert all(futures)
    assert pool.try_submit(Gate()) is None

    gates[0].opened.set()
    assert futures[0] is not None
    assert await asyncio.wrap_future(futures[0]) == "done"
    fifth = await admitted(pool, number.get)
    for gate in gates:
        gate.opened.set()
    assert await asyncio.wrap_future(fifth) == number.get()


async def admitted(pool: CompactionPool, function: Callable[[], int]) -> Future[int]:
    # A slot is free a moment after the result is there.
    for _ in range(200):
        future = pool.try_submit(function)
        if future is not None:
            return future
        await asyncio.sleep(0.01)
    raise AssertionError("no slot became free")


async def test_who_waits_for_a_slot_gets_it_in_order_and_before_newcomers() -> None:
    pool, gate = CompactionPool(workers=1), Gate()
    assert pool.try_submit(gate) is not None
    order: list[int] = []

    async def overflow(n: int) -> None:
        number.set(n)
        future = await begun(pool, lambda: order.append(number.get()))
        await asyncio.wrap_future(future)

    waiting = [asyncio.create_task(overflow(n)) for n in range(3)]
    await asyncio.sleep(0.02)
    assert pool.try_submit(lambda: order.append(99)) is None
    gate.opened.set()
    await asyncio.gather(*waiting)

    assert order == [0, 1, 2]


async def test_a_slot_is_not_lost_with_one_who_stopped_waiting() -> None:
    pool, gate = CompactionPool(workers=1), Gate()
    assert pool.try_submit(gate) is not None
    first = asyncio.create_task(begun(pool, lambda: 1))
    second = asyncio.create_task(begun(pool, lambda: 2))
    await asyncio.sleep(0.02)
    first.cancel()
    gate.opened.set()

    future = await second

    assert first.cancelled()
    assert await asyncio.wrap_future(future) == 2
    await admitted(pool, lambda: 3)


async def test_a_slot_given_to_one_who_is_cancelled_at_that_moment_is_free_again() -> None:
    pool, gate = CompactionPool(workers=1), Gate()
    running = pool.try_submit(gate)
    waiting = asyncio.create_task(begun(pool, lambda: 1))
    await asyncio.sleep(0.02)
    gate.opened.set()
    assert running is not None
    deadline = time.monotonic() + 5
    while not running.done() and time.monotonic() < deadline:
        time.sleep(0.01)  # noqa: ASYNC251  the loop must not notice yet
    time.sleep(0.05)  # noqa: ASYNC251  the turn is given by now
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    await admitted(pool, lambda: 2)


async def test_what_a_compaction_raises_frees_its_slot() -> None:
    pool = CompactionPool(workers=1)
    future = pool.try_submit(raising(Stop("now")))
    assert future is not None
    with pytest.raises(EngineInterrupted):
        await asyncio.wrap_future(future)
    await admitted(pool, lambda: 1)


async def test_there_is_one_pool_for_the_process() -> None:
    assert compaction_pool() is compaction_pool()
