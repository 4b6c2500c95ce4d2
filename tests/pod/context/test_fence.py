from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import Future

import pytest

from pod.context.errors import EngineTimeout, FenceClosed
from pod.context.fence import Fence

pytestmark = pytest.mark.anyio


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def test_a_commit_that_came_first_cannot_be_given_up() -> None:
    fence = Fence()
    fence.begin_commit()
    assert fence.committing
    assert not fence.cancel()
    assert not fence.cancelled
    with pytest.raises(FenceClosed, match="already"):
        fence.begin_commit()


async def test_an_attempt_that_was_given_up_cannot_commit() -> None:
    fence = Fence()
    assert fence.cancel()
    assert fence.cancelled
    with pytest.raises(FenceClosed, match="late result"):
        fence.begin_commit()
    assert not fence.committing


@pytest.mark.parametrize("limits", [{"idle_timeout_s": 5}, {"ceiling_s": 5}])
async def test_a_commit_after_the_limit_is_refused(limits: dict[str, float]) -> None:
    clock = Clock()
    fence = Fence(**limits, clock=clock)
    clock.now += 6
    with pytest.raises(FenceClosed):
        fence.begin_commit()
    assert fence.cancelled


async def test_a_touch_holds_off_the_silence_and_not_the_ceiling() -> None:
    clock = Clock()
    fence = Fence(idle_timeout_s=5, ceiling_s=12, clock=clock)
    assert fence.remaining_s() == 5
    clock.now += 4
    assert (fence.idle_s(), fence.remaining_s()) == (4, 1)
    fence.touch()
    assert (fence.last_touch, fence.remaining_s()) == (104, 5)
    clock.now += 4
    fence.touch()
    assert fence.remaining_s() == 4
    clock.now += 4
    fence.touch()
    with pytest.raises(FenceClosed):
        fence.begin_commit()


async def test_limits_of_nothing_hold_nothing_and_the_ceiling_is_never_the_lower() -> None:
    assert Fence(idle_timeout_s=0, ceiling_s=-1).remaining_s() is None
    clock = Clock()
    fence = Fence(idle_timeout_s=10, ceiling_s=1, clock=clock)
    assert fence.remaining_s() == 10


async def test_waiting_returns_the_result_or_what_was_raised() -> None:
    fence, future = Fence(idle_timeout_s=5), Future[int]()
    threading.Timer(0.02, future.set_result, [7]).start()
    assert await fence.wait(future) == 7
    assert not fence.cancelled

    broken: Future[int] = Future()
    broken.set_exception(ValueError("x"))
    with pytest.raises(ValueError, match="x"):
        await Fence().wait(broken)


async def test_silence_ends_the_wait_and_the_attempt() -> None:
    fence, future = Fence(idle_timeout_s=0.05), Future[int]()
    future.set_running_or_notify_cancel()
    with pytest.raises(EngineTimeout, match=r"no sign of life after 0\.05 s"):
        await fence.wait(future)
    assert fence.cancelled
    future.set_result(1)
    with pytest.raises(FenceClosed):
        fence.begin_commit()


async def test_signs_of_life_go_on_to_the_ceiling() -> None:
    fence, future = Fence(idle_timeout_s=0.1, ceiling_s=0.3), Future[int]()
    future.set_running_or_notify_cancel()
    began = time.monotonic()

    async def live() -> None:
        while True:
            fence.touch()
            await asyncio.sleep(0.02)

    living = asyncio.create_task(live())
    with pytest.raises(EngineTimeout, match=r"not done after 0\.3 s"):
        await fence.wait(future)
    living.cancel()
    assert time.monotonic() - began >= 0.3


async def test_a_commit_under_way_is_waited_for_past_every_limit() -> None:
    fence, future = Fence(idle_timeout_s=0.05, ceiling_s=0.05), Future[str]()
    future.set_running_or_notify_cancel()
    fence.begin_commit()
    threading.Timer(0.2, future.set_result, ["kept"]).start()
    assert await fence.wait(future) == "kept"


async def test_cancelling_the_wait_gives_the_attempt_up() -> None:
    fence, future = Fence(idle_timeout_s=5), Future[int]()
    future.set_running_or_notify_cancel()
    waiting = asyncio.create_task(fence.wait(future))
    await asyncio.sleep(0.02)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert fence.cancelled
