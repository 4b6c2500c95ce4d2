"""Calling hooks: what each is given, and that one which hangs costs its time once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from pod.context.plugin_hooks import MOST_LEFT_BEHIND, REST_S, Answer, HookCaller
from pod.context.signature import accepted_keywords

pytestmark = pytest.mark.anyio


class Clock:
    """Time that a test moves."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Hanging:
    """A hook that hangs until it is let go."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.began = 0
        self.ended = threading.Semaphore(0)

    def __call__(self, **kwargs: object) -> str:
        self.began += 1
        self.let_go.wait(10)
        self.ended.release()
        return "late"


def caller(*hooks: Any, clock: Clock | None = None, **options: Any) -> tuple[HookCaller, list[str]]:
    told: list[str] = []
    options.setdefault("timeout_s", 0.05)
    made = HookCaller({"moment": list(hooks)}, told.append, clock=clock or Clock(), **options)
    return made, told


# ------------------------------------------------------------------ what a hook is given

PAYLOAD = {"a": 1, "b": 2, "c": 3}


def only_b(b: object) -> None: ...
def positional(a: object, /, b: object = None) -> None: ...
def keyword(*, c: object) -> None: ...
def everything(**kwargs: object) -> None: ...
def starred(*args: object) -> None: ...


@pytest.mark.parametrize(
    ("hook", "given"),
    [
        (only_b, {"b": 2}),
        (positional, {"b": 2}),
        (keyword, {"c": 3}),
        (everything, PAYLOAD),
        (starred, {}),
        (partial(keyword, c=4), {"c": 3}),
        (print, {}),
        (dict, PAYLOAD),
    ],
)
def test_a_hook_is_given_as_much_as_it_takes(hook: Any, given: dict[str, object]) -> None:
    assert accepted_keywords(hook, PAYLOAD) == given


def test_what_is_given_by_position_is_not_given_by_name_too() -> None:
    def tool(a: object, b: object = None) -> None: ...

    assert accepted_keywords(tool, PAYLOAD, positional=1) == {"b": 2}


async def test_a_failure_is_told_once_in_whatever_words_and_of_each_hook() -> None:
    def failing() -> Any:
        times: list[int] = []

        def hook() -> None:
            times.append(1)
            raise ValueError(f"time {len(times)}")

        return hook

    made, told = caller(failing(), failing())
    await made.call("moment", lambda: PAYLOAD)
    await made.call("moment", lambda: PAYLOAD)
    answers = await made.call("moment", lambda: PAYLOAD)
    assert [answer.failure.rpartition(" ")[2] for answer in answers] == ["3", "3"]
    assert len(told) == 2


async def test_each_hook_is_given_a_payload_of_its_own() -> None:
    def spoils(rows: list[int]) -> int:
        rows.append(1)
        return len(rows)

    made, _ = caller(spoils, spoils)
    answers = await made.call("moment", lambda: {"rows": []})
    assert answers == [Answer(1), Answer(1)]


async def test_hooks_are_called_in_order_within_what_surrounds_them() -> None:
    entered: list[str] = []

    @contextmanager
    def around() -> Iterator[None]:
        entered.append(threading.current_thread().name.partition("-")[0])
        yield
        entered.append("out")

    made, _ = caller(lambda: entered.append("first"), lambda: entered.append("second"))
    made.around = around
    await made.call("moment", dict)
    assert entered == ["plugin", "first", "out", "plugin", "second", "out"]
    assert await made.call("another", dict) == []
    assert (made.has("moment"), made.has("another")) == (True, False)


async def test_an_async_hook_is_awaited_in_its_thread() -> None:
    async def hook(a: int) -> int:
        await asyncio.sleep(0)
        return a + 1

    made, _ = caller(hook, timeout_s=5)
    assert await made.call("moment", lambda: PAYLOAD) == [Answer(2)]


# ------------------------------------------------------------------ what goes wrong


async def test_one_that_raises_does_not_keep_the_next_from_being_called() -> None:
    def raises() -> None:
        raise TimeoutError("of its own")

    made, told = caller(raises, lambda: "fine", timeout_s=5)
    failure = "hook moment (raises) raised TimeoutError: of its own"
    for _ in range(2):
        assert await made.call("moment", dict) == [Answer(failure=failure), Answer("fine")]

    assert told == [failure], "told once"


async def test_one_whose_payload_cannot_be_made_fails_like_any_other() -> None:
    def broken() -> dict[str, object]:
        raise ValueError("no payload")

    made, told = caller(lambda **_: 1)
    (answer,) = await made.call("moment", broken)
    assert "ValueError: no payload" in answer.failure
    assert len(told) == 1


async def test_one_that_hangs_rests_for_a_while_and_is_asked_again() -> None:
    clock, hook = Clock(), Hanging()
    made, told = caller(hook, clock=clock)
    (answer,) = await made.call("moment", dict)
    assert answer.failure == "hook moment (Hanging) took over 0.05 s"
    for _ in range(20):
        (answer,) = await made.call("moment", dict)
        assert answer.failure == "hook moment (Hanging) did not come back from an earlier call"

    assert hook.began == 1
    clock.now += REST_S + 1
    await made.call("moment", dict)
    assert hook.began == 2
    assert told == ["hook moment (Hanging) took over 0.05 s"]
    hook.let_go.set()


async def test_no_more_than_a_few_calls_are_left_behind() -> None:
    clock, hook = Clock(), Hanging()
    made, _ = caller(hook, clock=clock)
    for _ in range(MOST_LEFT_BEHIND + 2):
        await made.call("moment", dict)
        clock.now += REST_S + 1

    assert hook.began == MOST_LEFT_BEHIND
    hook.let_go.set()
    for _ in range(MOST_LEFT_BEHIND):
        assert await asyncio.to_thread(hook.ended.acquire, timeout=5)

    async with asyncio.timeout(10):
        while (answers := await made.call("moment", dict)) != [Answer("late")]:
            assert [answer.value for answer in answers] == [None], "until their threads have ended"

    assert hook.began == MOST_LEFT_BEHIND + 1, "once they end it is asked again"


async def test_a_call_that_is_given_up_from_outside_ends_at_once() -> None:
    hook = Hanging()
    made, told = caller(hook, timeout_s=30)
    task = asyncio.create_task(made.call("moment", dict))
    async with asyncio.timeout(10):
        while not hook.began:  # noqa: ASYNC110  the hook is in a thread
            await asyncio.sleep(0.005)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert told == []
    hook.let_go.set()
