"""Blocking and failing code of others: abandoned, told, never let loose."""

from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import anyio
import pytest

from worker.foreign import Failure, attempt, uninterrupted
from worker.threads import call_in_daemon_thread

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).resolve().parents[2]


def raising(error: BaseException) -> Callable[[], NoReturn]:
    def function() -> NoReturn:
        raise error

    return function


async def test_a_thread_gives_back_what_its_function_does() -> None:
    variable = contextvars.ContextVar("variable", default="unset")
    variable.set("mine")
    assert await call_in_daemon_thread(variable.get) == "mine"
    assert await call_in_daemon_thread(lambda: None) is None
    name = await call_in_daemon_thread(lambda: threading.current_thread().name, name="tool-x")
    assert name.startswith("tool-x-")


@pytest.mark.parametrize(
    ("error", "arrives", "words"),
    [
        (ValueError("bad"), ValueError, "bad"),
        (SystemExit(3), RuntimeError, "raised SystemExit: 3"),
        (KeyboardInterrupt(), RuntimeError, "raised KeyboardInterrupt"),
        (StopIteration("x"), RuntimeError, "raised StopIteration: x"),
        (asyncio.CancelledError(), RuntimeError, "raised CancelledError"),
    ],
)
async def test_whatever_is_raised_in_a_thread_is_an_error_here(
    error: BaseException, arrives: type[Exception], words: str
) -> None:
    with pytest.raises(arrives, match=words):
        await call_in_daemon_thread(raising(error))


async def test_a_cancelled_wait_abandons_its_thread() -> None:
    go, done = threading.Event(), threading.Event()

    def block() -> str:
        go.wait(10)
        done.set()
        return "late"

    with anyio.move_on_after(0.02) as scope:
        await call_in_daemon_thread(block)
    assert scope.cancelled_caught
    go.set()
    assert await asyncio.to_thread(done.wait, 10), "it may still finish; its result is discarded"
    await asyncio.sleep(0)


def test_a_thread_that_outlives_its_loop_is_silent() -> None:
    program = """
import asyncio, threading
from worker.threads import call_in_daemon_thread
go, done = threading.Event(), threading.Event()
def block():
    go.wait(10)
    done.set()
async def main():
    try:
        await asyncio.wait_for(call_in_daemon_thread(block), 0.05)
    except TimeoutError:
        print("abandoned")
asyncio.run(main())
go.set(); done.wait(10)
[thread.join(10) for thread in threading.enumerate() if thread.daemon]
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("abandoned\n", "")


async def test_an_attempt_is_a_value_or_a_failure() -> None:
    async def fine() -> int:
        return 1

    async def broken() -> int:
        members = [ValueError("one"), ExceptionGroup("inner", [KeyError("two")])]
        raise ExceptionGroup("outer", members)

    assert await attempt(fine) == 1
    failed = await attempt(broken)
    assert isinstance(failed, Failure)
    assert str(failed) == "ValueError: one; KeyError: 'two'"


async def test_an_attempt_lets_real_cancellation_through() -> None:
    with anyio.move_on_after(0.01) as scope:
        await attempt(anyio.sleep_forever)
    assert scope.cancelled_caught


@pytest.mark.parametrize("native", [True, False])
async def test_uninterrupted_work_ends_and_then_cancellation_comes(native: bool) -> None:
    done: list[str] = []
    working = anyio.Event()

    async def work() -> str:
        working.set()
        await anyio.sleep(0.02)
        done.append("work")
        return "result"

    async def caller() -> None:
        done.append(await uninterrupted(work()))
        await anyio.sleep_forever()

    if native:
        task = asyncio.ensure_future(caller())
        await working.wait()
        task.cancel("why")
        with pytest.raises(asyncio.CancelledError, match="why"):
            await task
    else:
        async with anyio.create_task_group() as group:
            group.start_soon(caller)
            await working.wait()
            group.cancel_scope.cancel()
        assert group.cancel_scope.cancelled_caught
    assert done == ["work", "result"]


async def test_uninterrupted_work_raises_its_own_error() -> None:
    async def work() -> None:
        message = "own"
        raise ValueError(message)

    with pytest.raises(ValueError, match="own"):
        await uninterrupted(work())
