"""Hooks: asked in order, the first answer other than Continue wins, and a guard fails closed."""

from __future__ import annotations

import asyncio
import functools
import sys
import threading
from typing import Any

import pytest

from worker import (
    Abort,
    Cancel,
    Continue,
    ContinueWith,
    Hook,
    HookFailed,
    HookPoint,
    Pause,
    Skip,
    SystemNote,
    ToolResult,
    Yield,
    tool,
)
from worker.hooks import (
    ALLOWED,
    AbortView,
    HookView,
    PromptView,
    RequestView,
    ToolCallView,
    ToolResultView,
    TurnEndView,
)
from worker.ports import Alert, ItemsRecord
from worker.testing import call, calls, fail, say

pytestmark = pytest.mark.anyio


@tool
def echo(text: str) -> str:
    """Say it again."""
    return text


async def test_every_point_is_asked_with_its_view_in_order(bench: Any) -> None:
    seen: list[HookView] = []
    hooks = [Hook(point, seen.append) for point in HookPoint]
    b = bench([call("echo", text="hi"), say("done")], tools=[echo], hooks=hooks)
    await b.worker.run("go")

    shape = [(type(view), getattr(view, "name", None)) for view in seen]
    assert shape == [
        (PromptView, None),
        (RequestView, None),
        (ToolCallView, "echo"),
        (ToolResultView, "echo"),
        (RequestView, None),
        (TurnEndView, None),
    ]
    prompt, first, asked, result, second, end = seen
    assert isinstance(first, RequestView)
    assert isinstance(second, RequestView)
    assert (first.history_len, second.history_len, first.request, second.request) == (1, 3, 1, 2)
    assert second.occupancy_tokens > 0
    assert isinstance(asked, ToolCallView)
    assert asked.arguments == '{"text":"hi"}'
    assert isinstance(result, ToolResultView)
    assert (result.summary, result.is_error, result.call_uid) == ("hi", False, asked.call_uid)
    assert (prompt, end) == (PromptView("go"), TurnEndView("done"))


async def test_the_first_action_other_than_continue_wins(bench: Any) -> None:
    asked: list[str] = []

    def named(name: str, action: Any) -> Hook:
        def function(_view: HookView) -> Any:
            asked.append(name)
            return action

        return Hook(HookPoint.ON_PROMPT_SUBMIT, function)

    hooks = [
        named("a", None),
        named("b", Continue()),
        named("c", Cancel("no")),
        named("d", ContinueWith(("x",))),
    ]
    b = bench([], hooks=hooks)
    ended = await b.worker.run("go")
    assert (ended.outcome, ended.message, asked) == ("cancelled", "no", ["a", "b", "c"])
    assert (list(b.worker.history), b.journal.records) == ([], [])


class AsyncGuard:
    """A guard that is an object with an async call."""

    async def __call__(self, _view: HookView) -> Skip:
        await asyncio.sleep(0)
        return Skip()


def skip(_view: HookView, reason: str = "x") -> Skip:
    return Skip(reason)


async def skip_async(_view: HookView, reason: str = "x") -> Skip:
    await asyncio.sleep(0)
    return Skip(reason)


def skip_later(view: HookView) -> Any:
    return skip_async(view)


@pytest.mark.parametrize(
    "function",
    [
        skip,
        skip_async,
        AsyncGuard(),
        functools.partial(skip, reason="y"),
        functools.partial(skip_async, reason="y"),
        skip_later,
    ],
)
async def test_a_hook_may_be_any_kind_of_callable(bench: Any, function: Any) -> None:
    b = bench(
        [call("echo", text="hi"), say("ok")],
        tools=[echo],
        hooks=[Hook(HookPoint.PRE_TOOL_CALL, function)],
    )
    await b.worker.run("go")
    assert b.results()[0].summary.startswith("not run: ")


async def test_a_plain_hook_never_blocks_the_event_loop(bench: Any) -> None:
    threads: list[threading.Thread] = []
    hook = Hook(HookPoint.ON_TURN_END, lambda _view: threads.append(threading.current_thread()))
    await bench([say("ok")], hooks=[hook]).worker.run("go")
    assert threads
    assert threading.main_thread() not in threads
    assert threads[0].daemon


@pytest.mark.parametrize(
    ("point", "action", "sent"),
    [
        (HookPoint.ON_PROMPT_SUBMIT, ContinueWith(("note one", " ", "two")), ["note one", "two"]),
        (HookPoint.PRE_LLM_REQUEST, ContinueWith(("note",), kind="clock"), ["note"]),
    ],
)
async def test_notes_are_journaled_before_they_are_sent(
    bench: Any, point: HookPoint, action: ContinueWith, sent: list[str]
) -> None:
    b = bench([say("ok")], hooks=[Hook(point, lambda _view: action)])
    await b.worker.run("go")

    notes = [i for i in b.client.requests[0].items if isinstance(i, SystemNote)]
    assert [n.text for n in notes] == sent
    assert {n.kind for n in notes} == {action.kind}
    (record,) = [
        r for r in b.journal.records if isinstance(r, ItemsRecord) and r.kind == "system_item"
    ]
    assert list(record.items) == notes


async def test_a_note_at_the_end_of_a_turn_makes_the_model_answer_again(bench: Any) -> None:
    actions = [ContinueWith(("are you sure?",)), ContinueWith(()), None]
    hook = Hook(HookPoint.ON_TURN_END, lambda _view: actions.pop(0))
    b = bench([say("first"), say("second")], hooks=[hook])
    ended = await b.worker.run("go")
    assert (ended.text, len(actions)) == ("second", 1), "no note, nothing to answer"
    assert b.client.requests[1].items[-1].text == "are you sure?"


async def test_yield_hands_the_run_back(bench: Any) -> None:
    actions = [Yield("later", ("noted",)), None]
    hook = Hook(HookPoint.PRE_LLM_REQUEST, lambda _view: actions.pop(0))
    b = bench([say("ok")], hooks=[hook])
    ended = await b.worker.run("go")
    assert (ended.outcome, ended.yielded_for) == ("yielded", "later")
    assert b.worker.history[-1].text == "noted"
    assert (await b.worker.resume()).text == "ok"


async def test_abort_after_a_call_gives_the_run_up(bench: Any) -> None:
    aborted: list[HookView] = []
    hooks = [
        Hook(HookPoint.POST_TOOL_CALL, lambda _view: Abort("seen enough")),
        Hook(HookPoint.ON_ABORT, aborted.append),
    ]
    b = bench([calls(("echo", {"text": "1"}), ("echo", {"text": "2"}))], tools=[echo], hooks=hooks)
    ended = await b.worker.run("go")
    assert (ended.outcome, ended.message) == ("cancelled", "seen enough")
    assert aborted == [AbortView("seen enough")]
    results = [i.summary for i in b.worker.history if isinstance(i, ToolResult)]
    assert sorted(results) == ["1", "2"]


async def test_on_abort_tells_of_an_error(bench: Any) -> None:
    aborted: list[HookView] = []
    b = bench(
        [fail(status=401, message="bad key")], hooks=[Hook(HookPoint.ON_ABORT, aborted.append)]
    )
    with pytest.raises(Exception, match="bad key"):
        await b.worker.run("go")
    (view,) = aborted
    assert isinstance(view, AbortView)
    assert "bad key" in view.reason


# --- failing ------------------------------------------------------------------------------------


def raises(_view: HookView) -> None:
    message = "no policy file"
    raise OSError(message)


def exits(_view: HookView) -> None:
    sys.exit(2)


async def exits_async(_view: HookView) -> None:
    sys.exit(2)


async def cancels_itself(_view: HookView) -> None:
    raise asyncio.CancelledError


def answers_nonsense(_view: HookView) -> Any:
    return "allow"


def pauses_elsewhere(_view: HookView) -> Any:
    return Cancel("not here")


BROKEN = [
    (raises, "raised OSError: no policy file"),
    (exits, "raised RuntimeError: raised SystemExit: 2"),
    (exits_async, "raised SystemExit: 2"),
    (cancels_itself, "raised CancelledError"),
    (answers_nonsense, "returned str"),
    (pauses_elsewhere, "returned Cancel"),
]


@pytest.mark.parametrize(("function", "words"), BROKEN)
async def test_a_guard_that_fails_stops_the_run_before_the_tool(
    bench: Any, function: Any, words: str
) -> None:
    ran: list[str] = []

    @tool
    def touch() -> str:
        """Note that it ran."""
        ran.append("ran")
        return ""

    b = bench([call("touch")], tools=[touch], hooks=[Hook(HookPoint.PRE_TOOL_CALL, function)])
    with pytest.raises(HookFailed) as caught:
        await b.worker.run("go")

    assert f"hook {function.__name__}" in caught.value.message
    assert words in caught.value.message
    assert caught.value.hint
    assert ran == []
    (result,) = [i for i in b.worker.history if isinstance(i, ToolResult)]
    assert (result.is_error, result.summary.split(":")[0]) == (True, "not run")


@pytest.mark.parametrize(("function", "words"), BROKEN)
async def test_a_failure_that_is_ignored_is_told_and_the_next_hook_is_asked(
    bench: Any, function: Any, words: str
) -> None:
    hooks = [
        Hook(HookPoint.PRE_TOOL_CALL, function, on_error="ignore", name="watch"),
        Hook(HookPoint.PRE_TOOL_CALL, skip),
    ]
    b = bench([call("echo", text="hi"), say("ok")], tools=[echo], hooks=hooks)
    await b.worker.run("go")
    assert b.results()[0].summary == "not run: x"
    (alert,) = b.told(Alert)
    assert alert.level == "warning"
    assert "hook watch" in alert.message
    assert words in alert.message


@pytest.mark.parametrize("point", HookPoint)
async def test_an_action_of_another_point_is_refused_everywhere(
    bench: Any, point: HookPoint
) -> None:
    every = [Pause(), Skip(), Cancel("x"), Yield("x"), Abort("x"), ContinueWith(("x",))]
    wrong = next(action for action in every if not isinstance(action, ALLOWED[point]))
    answers = [call("echo", text="hi"), say("ok")]
    if point is HookPoint.ON_ABORT:
        answers = [fail(status=401)]
    b = bench(answers, tools=[echo], hooks=[Hook(point, lambda _view: wrong)])
    if point is HookPoint.ON_ABORT:
        with pytest.raises(Exception, match="scripted failure"):
            await b.worker.run("go")
        assert "returned Pause" in b.told(Alert)[-1].message
    else:
        with pytest.raises(HookFailed, match=f"returned {type(wrong).__name__}"):
            await b.worker.run("go")


def test_a_hook_says_what_it_is() -> None:
    assert Hook("PreToolCall", skip).point is HookPoint.PRE_TOOL_CALL
    assert Hook("PreToolCall", skip).on_error == "fail", "guards fail closed by default"
    for wrong in ({"point": "PreTool"}, {"point": "PreToolCall", "on_error": "fial"}):
        with pytest.raises(ValueError, match=r"PreTool|fial"):
            Hook(function=skip, **wrong)  # type: ignore[arg-type]
