"""A run from outside: what joins the history, what is sent, and how a run ends and goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import anyio
import pytest
from pydantic import BaseModel

from tests.worker.bench import Journal
from worker import (
    AssistantMessage,
    BadAnswer,
    Cancel,
    ContextOverflow,
    Continue,
    ContinueWith,
    HistoryError,
    Hook,
    HookPoint,
    Image,
    LlmRequest,
    OutputInvalid,
    Pause,
    ProviderRefused,
    PruneConfig,
    RequestStage,
    StreamBroken,
    SummaryMessage,
    SystemNote,
    Text,
    ToolCall,
    ToolDefinitionError,
    ToolResult,
    Usage,
    UserMessage,
    Worker,
    WorkerConfig,
    WorkerError,
    Yield,
    new_uid,
    plan_prune,
    tool,
    user_message,
)
from worker.hooks import Action, HookView
from worker.items import Item
from worker.llm.scripted import ScriptedAnswer
from worker.llm.types import StreamEvent, TextDelta
from worker.ports import (
    Alert,
    ItemsRecord,
    PruneApplied,
    Record,
    RequestStart,
    Selection,
    TextDone,
    ToolResulted,
    TurnEnd,
    TurnEndRecord,
    TurnStart,
    UsageMeasured,
    UsageRecord,
)
from worker.testing import call, calls, fail, say

pytestmark = pytest.mark.anyio


def kinds(items: Sequence[Item]) -> list[str]:
    return [type(item).__name__ for item in items]


class Counter:
    """A tool that counts how often it ran, and may wait."""

    def __init__(self) -> None:
        self.ran = 0
        self.started = anyio.Event()
        self.wait = False

    async def touch(self) -> str:
        """Touch something."""
        self.ran += 1
        self.started.set()
        if self.wait:
            await anyio.sleep_forever()
        return f"touched {self.ran}"


class Streaming:
    """A client that says `pieces` and then waits for ever, or ends without a word."""

    provider = model = "streaming"
    context_window: int | None = None

    def __init__(self, *pieces: str, waits: bool = True) -> None:
        self.pieces, self.waits = pieces, waits
        self.said, self.closed = anyio.Event(), False
        self.requests: list[LlmRequest] = []

    async def stream(self, request: LlmRequest) -> AsyncGenerator[StreamEvent, None]:
        self.requests.append(request)
        try:
            for piece in self.pieces:
                yield TextDelta(piece)
            self.said.set()
            if self.waits:
                await anyio.sleep_forever()
        finally:
            self.closed = True

    async def aclose(self) -> None:
        """Nothing."""


# --- the ordinary run ---------------------------------------------------------------------------


async def test_a_run_journals_tells_and_returns(bench: Any) -> None:
    counter = Counter()
    usage = Usage(100, 7, 60, 3)
    b = bench([call("touch"), say("done", usage=usage)], tools=[tool(counter.touch)])
    measured: list[tuple[Usage, str]] = []
    stop = b.worker.on_usage(lambda usage, model: measured.append((usage, model)))

    ended = await b.worker.run("go")

    assert (ended.outcome, ended.text, ended.requests) == ("finished", "done", 2)
    assert kinds(b.worker.history) == [
        "UserMessage",
        "AssistantMessage",
        "ToolResult",
        "AssistantMessage",
    ]
    written = [
        r.kind if isinstance(r, ItemsRecord) else type(r).__name__ for r in b.journal.records
    ]
    assert written == [
        "user_input",
        "assistant_items",
        "UsageRecord",
        "tool_results",
        "assistant_items",
        "UsageRecord",
        "TurnEndRecord",
    ]
    assert [r.history_len for r in b.journal.records if isinstance(r, UsageRecord)] == [1, 3]
    assert measured[-1] == (usage, "scripted")
    assert ended.usage.input_tokens == (measured[0][0].input_tokens or 0) + 100
    assert (b.worker.occupancy().source, b.worker.occupancy().tokens >= 100) == (
        "interpolated",
        True,
    )
    kept = (TurnStart, RequestStart, ToolResulted, TextDone, UsageMeasured, TurnEnd)
    assert [type(e) for e in b.events if isinstance(e, kept)] == [
        TurnStart,
        RequestStart,
        UsageMeasured,
        ToolResulted,
        RequestStart,
        TextDone,
        UsageMeasured,
        TurnEnd,
    ]
    stop()
    stop()
    assert b.told(TurnEnd) == [TurnEnd(1)]


async def test_tools_are_sent_sorted_by_name(bench: Any) -> None:
    @tool
    def zebra() -> str:
        """Z."""
        return ""

    @tool
    def ant() -> str:
        """A."""
        return ""

    b = bench([say("ok")], tools=[zebra, ant])
    await b.worker.run("go")
    assert [spec.name for spec in b.client.requests[0].tools] == ["ant", "zebra"]


def test_two_tools_of_one_name_are_refused(bench: Any) -> None:
    with pytest.raises(ToolDefinitionError, match="two tools are named touch"):
        bench([], tools=[tool(Counter().touch), tool(Counter().touch)])


@pytest.mark.parametrize("prompt", ["", "\n", "\u200b ", "\ufeff"])
async def test_an_empty_prompt_is_refused_before_anything_happens(bench: Any, prompt: str) -> None:
    b = bench([say("never")])
    for empty in (prompt, UserMessage(new_uid(), (Text(prompt), Text("")))):
        with pytest.raises(ValueError, match="empty"):
            await b.worker.run(empty)
    assert (list(b.worker.history), b.journal.records, b.client.requests) == ([], [], [])


async def test_an_image_alone_is_a_prompt(bench: Any) -> None:
    b = bench([say("a cat")])
    image = Image("image/png", b"png")
    await b.worker.run(UserMessage(new_uid(), (image, Text(" "))))
    (sent,) = b.client.requests[0].items
    assert sent.parts == (image,)


async def test_lone_surrogates_and_secrets_never_reach_the_journal_or_the_model(bench: Any) -> None:
    def mask(item: Any) -> Any:
        seen.append(type(item).__name__)
        return item

    seen: list[str] = []

    @tool
    def give() -> str:
        """Give."""
        return "tool \ud835!"

    said = ScriptedAnswer(
        text="model \ud800!", tool_calls=call("give").tool_calls, usage=Usage(1, 1)
    )
    answers = [said, say("ok")]
    hook = Hook(HookPoint.ON_PROMPT_SUBMIT, lambda _view: ContinueWith(("note \udfff!",)))
    b = bench(answers, tools=[give], hooks=[hook], intake=mask)
    await b.worker.run("prompt \ud83d\ude00 \ud83d!")

    prompt, note, answer, result, _ = b.worker.history
    assert (prompt.text, note.text) == ("prompt 😀 \ufffd!", "note \ufffd!")
    assert (answer.text, result.summary) == ("model \ufffd!", "tool \ufffd!")
    assert seen == [type(item).__name__ for item in b.worker.history], "every item, each once"


async def test_an_empty_text_beside_a_call_is_not_sent_back(bench: Any) -> None:
    counter = Counter()
    answer = ScriptedAnswer(text="\n", tool_calls=call("touch").tool_calls)
    b = bench([answer, say("ok")], tools=[tool(counter.touch)])
    await b.worker.run("go")

    (sent,) = [i for i in b.client.requests[1].items if isinstance(i, AssistantMessage)]
    assert kinds(sent.parts) == ["ToolCall"]  # type: ignore[arg-type]
    (kept, _) = [i for i in b.worker.history if isinstance(i, AssistantMessage)]
    assert kinds(kept.parts) == ["Text", "ToolCall"], "the history keeps what was received"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (ScriptedAnswer(reasoning="hm", stop_reason="max_tokens"), "output cap (max_tokens = 77)"),
        (ScriptedAnswer(text=" ", stop_reason="refusal"), "refused to answer"),
        (ScriptedAnswer(), "answered nothing"),
    ],
)
async def test_an_answer_that_says_nothing_is_an_error_and_no_item(
    bench: Any, answer: ScriptedAnswer, words: str
) -> None:
    from worker import RequestOptions

    b = bench([answer], config=WorkerConfig(options=RequestOptions(max_tokens=77)))
    with pytest.raises(BadAnswer) as caught:
        await b.worker.run("go")
    assert words in caught.value.message
    assert kinds(b.worker.history) == ["UserMessage"]
    assert len(b.told(UsageMeasured)) == 1, "the tokens were spent all the same"


async def test_an_answer_cut_at_the_cap_is_kept_with_a_warning(bench: Any) -> None:
    b = bench([say("half a sen", stop_reason="max_tokens")])
    assert (await b.worker.run("go")).text == "half a sen"
    (alert,) = b.told(Alert)
    assert (alert.level, "output cap" in alert.message) == ("warning", True)


async def test_a_stream_without_its_end_is_an_error_that_keeps_the_text(bench: Any) -> None:
    b = bench([], client=Streaming("half", waits=False))
    with pytest.raises(BadAnswer, match="without its last event"):
        await b.worker.run("go")
    assert [i.text for i in b.worker.history] == ["go", "half"]
    assert b.worker.history[-1].stop_reason == "partial"


async def test_a_usage_callback_that_raises_is_an_alert(bench: Any) -> None:
    def broken(_usage: Usage, _model: str) -> None:
        message = "no disk"
        raise OSError(message)

    b = bench([say("ok")])
    b.worker.on_usage(broken)
    assert (await b.worker.run("go")).outcome == "finished"
    assert [a.message for a in b.told(Alert)] == ["an on_usage callback raised OSError: no disk"]


async def test_one_run_at_a_time(bench: Any) -> None:
    client = Streaming("x")
    b = bench([], client=client)
    async with anyio.create_task_group() as group:
        group.start_soon(b.worker.run, "first")
        await client.said.wait()
        with pytest.raises(WorkerError, match="going on already"):
            await b.worker.run("second")
        with pytest.raises(WorkerError, match="cannot be replaced"):
            b.worker.set_history([])
        b.worker.cancel()


# --- the journal --------------------------------------------------------------------------------


@pytest.mark.parametrize("fails_at", [1, 2, 3, 4, 5])
async def test_nothing_is_true_before_it_is_journaled(bench: Any, fails_at: int) -> None:
    """Commits: 1 prompt, 2 intents, 3 result, 4 answer, 5 turn end."""
    counter = Counter()
    aborted: list[HookView] = []
    b = bench(
        [call("touch"), say("done")],
        tools=[tool(counter.touch)],
        hooks=[Hook(HookPoint.ON_ABORT, aborted.append)],
        journal=Journal(fails_at=fails_at),
    )
    with pytest.raises(OSError, match="disk full"):
        await b.worker.run("go")

    assert list(b.worker.history) == b.journal.items
    assert len(b.worker.history) == min(fails_at - 1, 4)
    assert counter.ran == (1 if fails_at > 2 else 0), "no tool ran whose intent was not journaled"
    assert len(b.client.requests) == {1: 0, 2: 1, 3: 1}.get(fails_at, 2)
    assert b.journal.commits == fails_at, "a journal that failed is left alone"
    assert len(aborted) == 1


async def test_a_result_that_cannot_be_journaled_stops_the_other_calls(bench: Any) -> None:
    waiting = Counter()
    waiting.wait = True

    @tool
    async def quick() -> str:
        """Be quick."""
        await waiting.started.wait()
        return "quick"

    b = bench(
        [calls(("quick", {}), ("touch", {}))],
        tools=[quick, tool(waiting.touch)],
        journal=Journal(fails_at=3),
    )
    with pytest.raises(OSError, match="disk full"), anyio.fail_after(5):
        await b.worker.run("go")
    assert kinds(b.worker.history) == ["UserMessage", "AssistantMessage"]


async def test_an_item_joins_once(bench: Any) -> None:
    b = bench([])
    item = user_message("hello")
    await b.worker.admit("user_input", item)
    for again in ((item,), (user_message("x"), twin := user_message("y"), twin)):
        with pytest.raises(HistoryError, match="in the history already"):
            await b.worker.commit(ItemsRecord("user_input", again))
    assert list(b.worker.history) == [item] == b.journal.items


async def test_history_and_journal_have_one_order(bench: Any) -> None:
    async def later_is_faster(records: Sequence[Record]) -> None:
        await anyio.sleep(0.02 if not b.journal.commits else 0)

    b = bench([])
    b.journal.before_commit = later_is_faster
    items = [user_message(str(n)) for n in range(4)]
    async with anyio.create_task_group() as group:
        for item in items:
            group.start_soon(b.worker.admit, "user_input", item)
    assert list(b.worker.history) == b.journal.items == items


# --- cancelling ---------------------------------------------------------------------------------


async def test_cancel_in_mid_stream_keeps_what_was_said(bench: Any) -> None:
    client = Streaming("Once upon", " a time")
    aborted: list[HookView] = []
    b = bench([], client=client, hooks=[Hook(HookPoint.ON_ABORT, aborted.append)])
    ended = []
    async with anyio.create_task_group() as group:
        group.start_soon(run_into, b.worker, "go", ended)
        await client.said.wait()
        b.worker.cancel()

    assert ended == ["cancelled"]
    assert client.closed
    answer = b.worker.history[-1]
    assert (answer.text, answer.stop_reason) == ("Once upon a time", "partial")
    assert len(aborted) == 1
    b.worker.cancel()  # Nothing runs: nothing happens.


async def run_into(worker: Worker, prompt: str, ended: list[str]) -> None:
    ended.append((await worker.run(prompt)).outcome)


async def test_going_on_after_a_cut_off_answer_ends_the_request_with_a_note(bench: Any) -> None:
    b = bench([fail(after="Half of", message="reset"), say(" the truth")])
    with pytest.raises(StreamBroken):
        await b.worker.run("go")
    assert (await b.worker.resume()).text == " the truth"

    sent = b.client.requests[1].items
    assert kinds(sent) == ["UserMessage", "AssistantMessage", "SystemNote"]
    assert len(b.told(TurnStart)) == 1, "it is the same turn"


@pytest.mark.parametrize("how", ["cancel", "task", "scope"])
async def test_stopping_in_mid_tool_closes_every_call_and_runs_none_again(
    bench: Any, how: str
) -> None:
    waiting = Counter()
    waiting.wait = True

    @tool
    def quick() -> str:
        """Be quick."""
        return "quick"

    b = bench([calls(("quick", {}), ("touch", {})), say("ok")], tools=[quick, tool(waiting.touch)])
    quick_is_in = anyio.Event()
    b.on_event = lambda event: quick_is_in.set() if isinstance(event, ToolResulted) else None
    ended: list[str] = []
    async with anyio.create_task_group() as group:
        task = asyncio.ensure_future(run_into(b.worker, "go", ended)) if how != "scope" else None
        if task is None:
            group.start_soon(run_into, b.worker, "go", ended)
        await waiting.started.wait()
        await quick_is_in.wait()
        if how == "cancel":
            b.worker.cancel()
        elif task is None:
            group.cancel_scope.cancel()
        else:
            task.cancel()
    if task is not None:
        await asyncio.wait([task])
        assert task.cancelled() is (how == "task")

    assert ended == (["cancelled"] if how == "cancel" else [])
    assert kinds(b.worker.history) == [
        "UserMessage",
        "AssistantMessage",
        "ToolResult",
        "ToolResult",
    ]
    waiting.wait = False
    assert (await b.worker.run("and now?")).outcome == "finished"
    assert waiting.ran == 1
    assert [(r.summary.split(":")[0], r.is_error) for r in b.results()] == [
        ("quick", False),
        ("cancelled", True),
    ]


async def test_a_task_cancelled_while_journaling_keeps_history_and_journal_together(
    bench: Any,
) -> None:
    """At every commit in turn: cancellation waits until what is written is also remembered."""
    for at in range(1, 6):
        counter = Counter()
        b = bench([call("touch"), say("done")], tools=[tool(counter.touch)])
        writing = anyio.Event()

        async def slowly(
            _records: Sequence[Record], b: Any = b, at: int = at, writing: anyio.Event = writing
        ) -> None:
            if b.journal.commits + 1 == at:
                writing.set()
                await anyio.sleep(0.02)

        b.journal.before_commit = slowly
        task = asyncio.ensure_future(b.worker.run("go"))
        await writing.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        assert task.cancelled()
        assert list(b.worker.history) == b.journal.items
        assert len(b.journal.items) >= min(at, 4)
        assert b.worker.open_calls() == []


async def test_a_timeout_around_a_run_is_a_timeout(bench: Any) -> None:
    async def slowly(_records: Sequence[Record]) -> None:
        await anyio.sleep(0.05)

    b = bench([say("x")])
    b.journal.before_commit = slowly
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await b.worker.run("go")
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_journal_that_fails_during_cancellation_does_not_hide_it(bench: Any) -> None:
    waiting = Counter()
    waiting.wait = True
    b = bench([call("touch")], tools=[tool(waiting.touch)], journal=Journal(fails_at=3))
    task = asyncio.ensure_future(b.worker.run("go"))
    await waiting.started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (alert,) = b.told(Alert)
    assert alert == Alert("error", "the end of the run could not be recorded: OSError: disk full")


# --- pausing and going on -----------------------------------------------------------------------


async def test_pause_stops_before_the_next_request_and_resume_goes_on(bench: Any) -> None:
    @tool
    def touch() -> str:
        """Ask for a pause."""
        b.worker.pause()
        return "touched"

    b = bench([call("touch"), say("done")], tools=[touch])
    assert (await b.worker.run("go")).outcome == "paused"
    assert (len(b.client.requests), len(b.worker.history)) == (1, 3)

    ended = await b.worker.resume()
    assert (ended.outcome, ended.text, ended.requests) == ("finished", "done", 1)
    assert len(b.told(ToolResulted)) == 1
    assert b.told(TurnEnd) == [TurnEnd(1)]


@pytest.mark.parametrize("restored", [False, True])
async def test_a_hook_pauses_before_the_calls_and_resume_runs_each_once(
    bench: Any, restored: bool
) -> None:
    counter = Counter()
    allowed: list[bool] = []

    def ask(_view: HookView) -> Pause | None:
        return None if allowed else Pause()

    hooks = [Hook(HookPoint.PRE_TOOL_CALL, ask)]
    b = bench([calls(("touch", {}), ("touch", "{ }"))], tools=[tool(counter.touch)], hooks=hooks)
    assert (await b.worker.run("go")).outcome == "paused"
    assert counter.ran == 0
    history = list(b.worker.history)
    assert (await b.worker.resume()).outcome == "paused", "the hook is asked again"

    allowed.append(True)
    b2 = bench([say("done")], tools=[tool(counter.touch)], hooks=hooks)
    b2.seed(history, turns=1)
    if restored:
        b2.worker.restore_paused()
    assert (await b2.worker.resume()).outcome == "finished"
    assert counter.ran == (2 if restored else 0)
    told = [r.summary.split(":")[0] for r in b2.results()]
    assert sorted(told) == (["touched 1", "touched 2"] if restored else ["interrupted"] * 2)


async def test_another_prompt_after_a_pause_leaves_the_calls_not_run(bench: Any) -> None:
    counter = Counter()
    hook = Hook(HookPoint.PRE_TOOL_CALL, lambda _view: Pause())
    b = bench([call("touch"), say("fine")], tools=[tool(counter.touch)], hooks=[hook])
    await b.worker.run("go")
    await b.worker.run("never mind")
    assert counter.ran == 0
    assert [r.summary.split(":")[0] for r in b.results()] == ["not run"]


async def test_calls_left_open_by_a_crash_are_never_run_again(bench: Any) -> None:
    """`[summary, A(c1, c2, c3), T(c1), T(c2)]`: a normal prompt works, c3 has one error result."""
    counter = Counter()
    three = tuple(ToolCall(f"c{n}", "touch", "{}", new_uid()) for n in (1, 2, 3))
    answer = AssistantMessage(new_uid(), three, "p", "m", "tool_calls")
    results = [
        ToolResult(new_uid(), c.call_id, c.call_uid, "ok", None, is_error=False) for c in three[:2]
    ]
    b = bench([say("fine")], tools=[tool(counter.touch)])
    b.seed([SummaryMessage(new_uid(), "so far", None, 1), answer, *results])
    await b.worker.run("go on")

    assert counter.ran == 0
    assert [(r.call_id, r.is_error) for r in b.results()] == [
        ("c1", False),
        ("c2", False),
        ("c3", True),
    ]
    assert b.journal.records[0].kind == "tool_results"


async def test_a_drop_after_a_tool_repeats_the_request_and_not_the_tool(bench: Any) -> None:
    counter = Counter()
    b = bench([call("touch"), fail(status=503), say("done")], tools=[tool(counter.touch)])
    with pytest.raises(WorkerError):
        await b.worker.run("go")
    assert (await b.worker.resume()).text == "done"
    assert counter.ran == 1
    assert b.client.requests[1].items == b.client.requests[2].items


async def test_resume_with_nothing_to_do(bench: Any) -> None:
    b = bench([say("done")])
    with pytest.raises(WorkerError, match="nothing to resume"):
        await b.worker.resume()
    await b.worker.run("go")
    ended = await b.worker.resume()
    assert (ended.outcome, ended.text, ended.requests) == ("finished", "done", 0)
    assert b.told(TurnEnd) == [TurnEnd(1)], "a turn ends once"


async def test_a_pause_at_the_end_of_a_turn_ends_it_on_resume(bench: Any) -> None:
    actions: list[Action] = [Pause(), Pause(), Continue()]
    hook = Hook(HookPoint.ON_TURN_END, lambda _view: actions.pop(0))
    b = bench([say("done")], hooks=[hook])
    first, second, third = (
        await b.worker.run("go"),
        await b.worker.resume(),
        await b.worker.resume(),
    )
    assert [first.outcome, second.outcome, third.outcome] == ["paused", "paused", "finished"]
    assert (first.text, third.text, len(b.client.requests)) == ("done", "done", 1)
    assert [r for r in b.journal.records if isinstance(r, TurnEndRecord)] == [TurnEndRecord(1)]


# --- limits -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (WorkerConfig(max_requests=2), "2 requests, the limit of one run"),
        (WorkerConfig(max_tokens_used=20), "22 tokens used, the limit of one run is 20"),
        (WorkerConfig(max_seconds=25.0), "30 s passed, the limit of one run is 25 s"),
    ],
)
async def test_a_limit_ends_a_run_between_requests_and_resume_starts_a_new_count(
    bench: Any, config: WorkerConfig, words: str
) -> None:
    counter, seconds = Counter(), iter(range(0, 1_000, 15))
    touch = ScriptedAnswer(tool_calls=call("touch").tool_calls, usage=Usage(10, 1))
    b = bench(
        [touch, touch, say("done", usage=Usage(10, 1))],
        tools=[tool(counter.touch)],
        config=config,
        clock=lambda: float(next(seconds)),
    )
    ended = await b.worker.run("go")
    assert (ended.outcome, ended.message) == ("limit_reached", words)
    assert (counter.ran, b.worker.open_calls()) == (ended.requests, [])
    while ended.outcome == "limit_reached":
        ended = await b.worker.resume()
    assert ended.text == "done"


# --- errors, overflow, stages -------------------------------------------------------------------


async def test_a_refusal_is_raised_and_the_prompt_stays(bench: Any) -> None:
    def broken(_view: HookView) -> None:
        message = "on abort"
        raise RuntimeError(message)

    b = bench([fail(status=401, message="bad key")], hooks=[Hook(HookPoint.ON_ABORT, broken)])
    with pytest.raises(ProviderRefused):
        await b.worker.run("go")
    assert kinds(b.worker.history) == ["UserMessage"]
    assert "on abort" in b.told(Alert)[0].message, "told, and not raised over the refusal"


OVERFLOW = fail(status=400, code="context_length_exceeded", message="maximum context length is 9")


async def test_an_overflow_is_raised_or_yielded(bench: Any) -> None:
    b = bench([OVERFLOW])
    with pytest.raises(ContextOverflow):
        await b.worker.run("go")

    b = bench([OVERFLOW, say("fits")], config=WorkerConfig(yield_on_overflow=True))
    ended = await b.worker.run("go")
    assert (ended.outcome, ended.yielded_for) == ("yielded", "overflow")
    assert isinstance(ended.overflow, ContextOverflow)
    resumed = await b.worker.resume()
    assert (resumed.outcome, resumed.requests) == ("finished", 2), "one run, counted as one"


async def test_a_failed_request_leaves_the_occupancy_as_high_as_it_was(bench: Any) -> None:
    @tool
    def lots() -> str:
        """Say a lot."""
        return "lots " * 10_000

    first = ScriptedAnswer(tool_calls=call("lots").tool_calls, usage=Usage(100, 5))
    b = bench([first, fail(status=503)], tools=[lots])
    with pytest.raises(WorkerError):
        await b.worker.run("go")
    assert b.worker.occupancy().tokens > 10_000
    assert b.told(RequestStart)[1].input_tokens > 10_000


class Stage(RequestStage):
    """Does what the test says."""

    def __init__(self, *decisions: Action, selects: Any = None) -> None:
        self.decisions, self.selects = list(decisions), selects
        self.asked = 0

    async def before_request(self, worker: Worker) -> Action:
        self.asked += 1
        return self.decisions.pop(0) if self.decisions else Continue()

    async def select(self, worker: Worker, items: list[Item]) -> Selection | None:
        return self.selects(items) if self.selects else None


async def test_a_stage_yields_and_the_run_goes_on_over_another_history(bench: Any) -> None:
    stage = Stage(Yield("compact", ("remember the milk",)))
    b = bench([say("done")], stages=(stage,))
    ended = await b.worker.run("go")
    assert (ended.outcome, ended.yielded_for, b.client.requests) == ("yielded", "compact", [])
    assert kinds(b.worker.history) == ["UserMessage", "SystemNote"]

    history = [SummaryMessage(new_uid(), "so far", None, 1), *b.worker.history]
    fresh = bench([say("done")])
    fresh.seed(history)
    assert (await fresh.worker.resume()).text == "done"
    assert fresh.client.requests[0].items == history


async def test_a_stage_may_cancel(bench: Any) -> None:
    last = Stage()
    b = bench([], stages=(Stage(Cancel("over budget")), last))
    ended = await b.worker.run("go")
    assert (ended.outcome, ended.message, last.asked) == ("cancelled", "over budget", 0)


@pytest.mark.moves_prefix(reason="a selection is another prompt")
async def test_a_selection_changes_that_request_alone_and_is_repaired(bench: Any) -> None:
    counter = Counter()

    def select(items: list[Item]) -> Selection:
        del items[1:2]  # The assistant message: its result is an orphan now.
        return Selection(items, system="Selected.")

    b = bench(
        [call("touch"), say("done")], tools=[tool(counter.touch)], stages=(Stage(selects=select),)
    )
    await b.worker.run("go")
    second = b.client.requests[1]
    assert (kinds(second.items), second.system) == (["UserMessage"], "Selected.")
    assert len(b.worker.history) == 4
    assert kinds(b.worker.project()) == kinds(b.worker.history)


@pytest.mark.parametrize("selected", [[], [user_message(" ")]])
async def test_a_selection_of_nothing_is_passed_over_with_a_warning(
    bench: Any, selected: list[Item]
) -> None:
    stage = Stage(selects=lambda _items: Selection(selected, system="x"))
    b = bench([say("done")], stages=(stage,))
    await b.worker.run("go")
    assert (kinds(b.client.requests[0].items), b.client.requests[0].system) == (
        ["UserMessage"],
        "You help.",
    )
    assert "left nothing to send" in b.told(Alert)[0].message


@pytest.mark.moves_prefix(reason="prune drops old content")
async def test_prune_moves_the_watermark_forward_once_and_for_all(bench: Any) -> None:
    @tool
    def lots() -> str:
        """Say a lot."""
        return "lots\n" * 5_000

    b = bench([call("lots"), say("one"), say("two")], tools=[lots])
    await b.worker.run("first")
    before = b.worker.occupancy().tokens
    await b.worker.admit("user_input", user_message("second"))
    plan = plan_prune(b.worker.history, PruneConfig(protected_turns=1))
    assert plan is not None
    await b.worker.advance_watermark(plan, "test")

    assert b.worker.occupancy().tokens < before - 4_000
    assert b.told(PruneApplied) == [PruneApplied(plan.watermark, 1, plan.est_savings, "test")]
    await b.worker.resume()
    assert [r.content for r in b.results()] == [None]
    assert [i.content for i in b.worker.history if isinstance(i, ToolResult)] == ["lots\n" * 5_000]
    with pytest.raises(ValueError, match="only moves forward"):
        await b.worker.advance_watermark(plan, "again")


@pytest.mark.parametrize("watermark", [-1, 2])
def test_a_watermark_lies_in_the_history(bench: Any, watermark: int) -> None:
    b = bench([])
    with pytest.raises(HistoryError, match="outside a history of 1 item"):
        b.worker.set_history([user_message("x")], watermark=watermark)
    twin = user_message("x")
    with pytest.raises(HistoryError, match="share a uid"):
        b.worker.set_history([twin, twin])


# --- typed output -------------------------------------------------------------------------------


class Review(BaseModel):
    """A review."""

    stars: int


@pytest.mark.parametrize("answer", ['{"stars": 4}', '```json\n{"stars": 4}\n```', ' {"stars":4}\n'])
async def test_output_is_validated_data(bench: Any, answer: str) -> None:
    b = bench([say(answer)])
    ended = await b.worker.run("review it", output=Review)
    assert ended.output == Review(stars=4)
    (_, note, _) = b.worker.history
    assert isinstance(note, SystemNote)
    assert "JSON Schema" in note.text
    assert b.client.requests[0].options.response_schema is None


async def test_output_is_repaired_once(bench: Any) -> None:
    b = bench([say("four stars"), say('{"stars": 4}')])
    assert (await b.worker.run("review it", output=Review)).output == Review(stars=4)
    asked = b.client.requests[1].items[-1]
    assert (asked.origin, "Invalid JSON" in asked.text) == ("injected", True)

    b = bench([say("four stars"), say('{"stars": "many"}'), say("never")])
    with pytest.raises(OutputInvalid, match="stars: Input should be a valid integer"):
        await b.worker.run("review it", output=Review)


async def test_output_is_asked_for_natively_where_the_model_can(bench: Any) -> None:
    b = bench([say("[1, 2]")], config=WorkerConfig(native_schema=True))
    ended = await b.worker.run("numbers", output=list[int])
    assert ended.output == [1, 2]
    assert b.client.requests[0].options.response_schema == {
        "items": {"type": "integer"},
        "type": "array",
    }


async def test_output_outlives_a_pause(bench: Any) -> None:
    counter = Counter()
    actions: list[Action] = [Pause(), Continue()]
    hook = Hook(HookPoint.PRE_TOOL_CALL, lambda _view: actions.pop(0))
    b = bench(
        [call("touch"), say("?"), say('{"stars": 5}')], tools=[tool(counter.touch)], hooks=[hook]
    )
    assert (await b.worker.run("review it", output=Review)).outcome == "paused"
    assert (await b.worker.resume()).output == Review(stars=5)
