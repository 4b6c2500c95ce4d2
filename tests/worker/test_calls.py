"""Every call ends with one result, whatever its tool does; the model sees them in order."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from worker import (
    Abort,
    Hook,
    HookPoint,
    Skip,
    SyntheticResult,
    Tool,
    ToolOutput,
    ToolResult,
    WorkerConfig,
    tool,
)
from worker.hooks import ToolCallView
from worker.ports import ToolResulted
from worker.testing import call, calls, say

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).resolve().parents[2]


@tool
def add(a: int, b: int = 1) -> int:
    """Add."""
    return a + b


@tool
def boom() -> str:
    """Fail."""
    message = "kaput"
    raise RuntimeError(message)


@tool
def leave() -> str:
    """Exit."""
    sys.exit(3)


@tool
async def leave_async() -> str:
    """Exit from the loop."""
    sys.exit(3)


@tool
async def cancel_itself() -> str:
    """Raise what cancellation raises."""
    raise asyncio.CancelledError


@tool(timeout_s=0.05)
async def slow() -> str:
    """Take for ever."""
    await anyio.sleep_forever()
    return "never"


@tool(timeout_s=0.05)
def stuck() -> str:
    """Block a thread."""
    time.sleep(3)
    return "late"


class Unspeakable(Exception):
    def __str__(self) -> str:
        message = "no words"
        raise ValueError(message)


@tool
def unspeakable() -> str:
    """Fail without words."""
    raise Unspeakable


@tool
async def group() -> str:
    """Fail in a task group."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.sleep, 0)
        message = "inner"
        raise KeyError(message)


TOOLS = [add, boom, leave, leave_async, cancel_itself, slow, stuck, unspeakable, group]

FAILURES: list[tuple[str, str, str]] = [
    ("boom", "{}", "boom failed: RuntimeError: kaput"),
    ("leave", "{}", "leave failed: RuntimeError: raised SystemExit: 3"),
    ("leave_async", "{}", "leave_async failed: SystemExit: 3"),
    ("cancel_itself", "{}", "cancel_itself cancelled itself"),
    ("slow", "{}", "slow timed out after 0.05 s"),
    ("stuck", "{}", "stuck timed out after 0.05 s"),
    ("unspeakable", "{}", "unspeakable failed: Unspeakable: <exception str() failed>"),
    ("group", "{}", "group failed: KeyError: 'inner'"),
    ("no_such", "{}", "unknown tool no_such; available: add, boom, "),
    ("add", "{not json", "bad arguments for add: they are not valid JSON"),
    ("add", '{"a": 1', "bad arguments for add: they are not valid JSON"),
    ("add", "[1]", "bad arguments for add: they must be a JSON object, not list"),
    ("add", '{"a": "x"}', "bad arguments for add: a: Input should be a valid integer"),
    ("add", '{"b": 2}', "bad arguments for add: a: Field required"),
    ("add", '{"a": 1, "c": 2}', "bad arguments for add: c: Extra inputs are not permitted"),
    ("add", "", "bad arguments for add: a: Field required"),
    ("add", "null", "bad arguments for add: a: Field required"),
]


@pytest.mark.parametrize(("name", "arguments", "summary"), FAILURES)
async def test_a_call_that_fails_has_an_error_result_and_the_run_goes_on(
    bench: Any, name: str, arguments: str, summary: str
) -> None:
    b = bench([calls((name, arguments), ("add", {"a": 1})), say("recovered")], tools=TOOLS)

    ended = await b.worker.run("go")

    assert (ended.outcome, ended.text) == ("finished", "recovered")
    failed, good = b.results()
    assert failed.is_error
    assert failed.summary.startswith(summary)
    assert (good.summary, good.is_error) == ("2", False)


async def test_results_go_out_in_call_order_and_are_told_as_they_come(bench: Any) -> None:
    first_may_end = anyio.Event()

    @tool
    async def first() -> str:
        """Wait."""
        await first_may_end.wait()
        return "first"

    @tool
    async def second() -> str:
        """Let the other go."""
        first_may_end.set()
        return "second"

    b = bench([calls(("first", {}), ("second", {})), say("ok")], tools=[first, second])
    await b.worker.run("go")

    assert [r.summary for r in b.results()] == ["first", "second"]
    assert [e.name for e in b.told(ToolResulted)] == ["second", "first"]
    journaled = [i.summary for i in b.journal.items if isinstance(i, ToolResult)]
    assert journaled == ["second", "first"], "each result is journaled as it finishes"


async def test_one_bad_sibling_harms_no_other(bench: Any) -> None:
    three = calls(("cancel_itself", {}), ("boom", {}), ("add", {"a": 4}))
    b = bench([three, say("ok")], tools=TOOLS)

    await b.worker.run("go")

    assert [(r.is_error, r.summary) for r in b.results()] == [
        (True, "cancel_itself cancelled itself"),
        (True, "boom failed: RuntimeError: kaput"),
        (False, "5"),
    ]


@pytest.mark.parametrize(
    ("action", "is_error", "summary"),
    [
        (Skip("not today"), True, "not run: not today"),
        (SyntheticResult(ToolOutput("made up")), False, "made up"),
        (SyntheticResult(ToolOutput("x" * 5_000)), False, "x" * 79 + "… (1 line, 5,000 bytes)"),
    ],
)
async def test_a_hook_may_answer_for_a_tool(
    bench: Any, action: object, is_error: bool, summary: str
) -> None:
    ran: list[int] = []

    @tool
    def touch(n: int) -> str:
        """Note that it ran."""
        ran.append(n)
        return f"touched {n}"

    def guard(view: ToolCallView) -> Any:
        return action if '"n":1' in view.arguments else None

    b = bench(
        [calls(("touch", {"n": 1}), ("touch", {"n": 2})), say("ok")],
        tools=[touch],
        hooks=[Hook(HookPoint.PRE_TOOL_CALL, guard)],
    )
    await b.worker.run("go")

    assert ran == [2]
    assert [(r.is_error, r.summary) for r in b.results()] == [
        (is_error, summary),
        (False, "touched 2"),
    ]


async def test_abort_before_the_calls_runs_none_and_closes_all(bench: Any) -> None:
    ran: list[str] = []

    @tool
    def touch() -> str:
        """Note that it ran."""
        ran.append("ran")
        return "touched"

    asked: list[str] = []

    def guard(view: ToolCallView) -> Abort | None:
        asked.append(view.arguments)
        return Abort("enough") if len(asked) == 3 else None

    b = bench(
        [calls(("touch", {}), ("touch", "{ }"), ("touch", "{  }"))],
        tools=[touch],
        hooks=[Hook(HookPoint.PRE_TOOL_CALL, guard)],
    )
    ended = await b.worker.run("go")

    assert (ended.outcome, ended.message, ran) == ("cancelled", "enough", [])
    results = [i for i in b.worker.history if isinstance(i, ToolResult)]
    assert [r.summary for r in results] == ["not run: enough"] * 3
    assert all(r.is_error for r in results)


async def test_a_repeated_call_runs_once_and_a_reused_id_is_a_call_of_its_own(bench: Any) -> None:
    from worker.llm.scripted import ScriptedAnswer, ScriptedCall

    ran: list[int] = []

    @tool
    def touch(n: int) -> str:
        """Note that it ran."""
        ran.append(n)
        return f"touched {n}"

    answer = ScriptedAnswer(
        tool_calls=(
            ScriptedCall("touch", '{"n":1}', "call_0"),
            ScriptedCall("touch", '{"n":1}', "call_0"),
            ScriptedCall("touch", '{"n":2}', "call_0"),
            ScriptedCall("touch", '{"n":3}', "call_0"),
        )
    )
    b = bench([answer, say("ok"), answer, say("ok")], tools=[touch])
    await b.worker.run("go")
    await b.worker.run("again: the same ids in another turn")

    assert sorted(ran) == [1, 1, 2, 2, 3, 3]
    results = b.results()
    assert [r.summary for r in results] == ["touched 1", "touched 2", "touched 3"] * 2
    assert len({r.call_id for r in results[:3]}) == 3


RETURNED: list[tuple[Callable[[], object], str]] = [
    (lambda: None, "(no output)"),
    (lambda: "", "(no output)"),
    (lambda: b"\xff\xfe\x00", "\ufffd\ufffd\x00"),
    (lambda: "x\ud835y", "x\ufffdy"),
    (lambda: {"a": "x\ud835y"}, '{"a":"x\ufffdy"}'),
    (lambda: (n for n in range(3)), "[0,1,2]"),
]


@pytest.mark.parametrize(("make", "summary"), RETURNED)
async def test_whatever_a_tool_returns_the_turn_completes(
    bench: Any, make: Callable[[], object], summary: str
) -> None:
    @tool
    def give() -> object:
        """Give."""
        return make()

    b = bench([call("give"), say("ok")], tools=[give])
    await b.worker.run("go")

    assert b.results()[0].summary == summary


async def test_a_tool_made_by_hand_is_held_to_the_same_sizes(bench: Any) -> None:
    async def huge(_arguments: dict[str, Any]) -> ToolOutput:
        return ToolOutput("s" * 10_000_000)

    b = bench([call("huge"), say("ok")], tools=[Tool("huge", "", {"type": "object"}, huge)])
    await b.worker.run("go")

    kept = next(i for i in b.worker.history if isinstance(i, ToolResult))
    assert len(kept.summary) < 200
    assert kept.content == "s" * 10_000_000, "the history has all of it"
    (sent,) = b.results()
    assert sent.content is not None
    assert len(sent.content.encode()) <= WorkerConfig().tool_output_max_bytes


@pytest.mark.parametrize(("window", "cap"), [(None, 65_536), (8_000, 5_000)])
async def test_a_result_is_capped_on_the_wire_with_head_tail_and_where_the_whole_is(
    bench: Any, window: int | None, cap: int
) -> None:
    @tool
    def lots() -> str:
        """Say a lot."""
        return "HEAD\n" + "é" * 1_000_000 + "\nTAIL"

    b = bench([call("lots"), say("ok")], tools=[lots], context_window=window)
    await b.worker.run("go")

    (sent,) = b.results()
    kept = next(i for i in b.worker.history if isinstance(i, ToolResult))
    assert sent.content is not None
    assert len(sent.content.encode()) <= cap
    assert sent.content.startswith("HEAD")
    assert sent.content.endswith("TAIL")
    assert f"the session log holds all of it, uid {kept.uid}" in sent.content
    assert kept.content is not None
    assert len(kept.content) > 1_000_000


async def test_fifty_equal_results_are_fifty_items(bench: Any) -> None:
    @tool
    def ok(n: int) -> dict[str, str]:
        """Say ok."""
        return {"status": "ok"}

    b = bench([calls(*(("ok", {"n": n}) for n in range(50))), say("done")], tools=[ok])
    await b.worker.run("go")

    results = b.results()
    assert [r.summary for r in results] == ['{"status":"ok"}'] * 50
    assert len({r.uid for r in results}) == 50


STUCK = {
    "a thread": """
def stuck() -> str:
    "Block."
    time.sleep(60)
    return ""
""",
    "deaf to cancellation": """
async def stuck() -> str:
    "Wait for ever."
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass
""",
}


@pytest.mark.parametrize("source", STUCK.values(), ids=STUCK.keys())
def test_a_stuck_tool_does_not_delay_the_exit_of_the_process(source: str) -> None:
    program = f"""
import asyncio, time
from worker import Worker, tool
from worker.testing import ScriptedClient, call, say

@tool(timeout_s=0.05)
{source.strip()}

print(asyncio.run(Worker(ScriptedClient([call("stuck"), say("ok")]), tools=[stuck]).run("go")).text)
"""
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=15,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")
    assert time.monotonic() - started < 15
