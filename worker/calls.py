"""Running the tool calls of one answer: asked about in order, run in parallel, one result each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import orjson
from attrs import evolve, frozen

from .foreign import Abandoned, Failure, attempt, bounded
from .hooks import (
    Abort,
    Action,
    Ask,
    Continue,
    HookPoint,
    Pause,
    Skip,
    SyntheticResult,
    ToolCallView,
    ToolResultView,
)
from .items import ToolCall, ToolResult, new_uid
from .text import clean_text, first_line
from .tools import BadArguments, Tool, ToolOutput, render_output

if TYPE_CHECKING:
    from .worker import Worker

_ERROR_CHARS = 2_000


def parse_arguments(call: ToolCall) -> dict[str, Any]:
    """Return the arguments of a call; text that is blank or `null` means none.

    Raises:
        BadArguments: The text is not one JSON object.
    """
    text = call.arguments.strip()
    if text in {"", "null"}:
        return {}

    try:
        value = orjson.loads(clean_text(text))
    except orjson.JSONDecodeError as error:
        message = f"they are not valid JSON ({error}); the tool was not run"
        raise BadArguments(message) from error

    if not isinstance(value, dict):
        found = type(value).__name__
        message = f"they must be a JSON object, not {found}; the tool was not run"
        raise BadArguments(message)

    return value


async def execute(call: ToolCall, tools: Mapping[str, Tool], timeout_s: float) -> ToolOutput:
    """Run one call and return what it came to; nothing but cancellation from outside is raised."""
    tool = tools.get(call.name)
    if tool is None:
        return _unknown_tool(call, tools)

    limit_s = timeout_s if tool.timeout_s is None else tool.timeout_s

    async def run() -> ToolOutput:
        arguments = parse_arguments(call)
        # A tool made by hand may give back anything; this also cuts summaries to size.
        return render_output(await tool.call(arguments))

    output = await bounded(lambda: attempt(run), limit_s)
    match output:
        case ToolOutput():
            return output
        case Failure():
            return _error(_failure_message(call.name, output))
        case None:
            return _error(f"{call.name} timed out after {limit_s:g} s")
        case Abandoned():
            message = (
                f"{call.name} timed out after {limit_s:g} s and did not stop when it was told to; "
                "it was left behind and may go on"
            )
            return _error(message)


def _why_it_cannot_run(call: ToolCall, tools: Mapping[str, Tool]) -> ToolOutput | None:
    """Return the result of a call that there is nothing to run for, else None."""
    if call.name not in tools:
        return _unknown_tool(call, tools)

    try:
        parse_arguments(call)
    except BadArguments as error:
        return _error(_failure_message(call.name, Failure(error)))

    return None


def _unknown_tool(call: ToolCall, tools: Mapping[str, Tool]) -> ToolOutput:
    known = ", ".join(sorted(tools)) or "none"
    return _error(f"unknown tool {call.name}; available: {known}")


def _failure_message(name: str, failure: Failure) -> str:
    match failure.error:
        case BadArguments() as error:
            return f"bad arguments for {name}: {error}"
        case asyncio.CancelledError():
            return f"{name} cancelled itself"
        case _:
            return f"{name} failed: {failure}"


def _error(message: str) -> ToolOutput:
    text = clean_text(message)
    if len(text) <= _ERROR_CHARS // 4 and "\n" not in text:
        return ToolOutput(text, is_error=True)

    return ToolOutput(first_line(text, 200), text[:_ERROR_CHARS], is_error=True)


class CallBatch:
    """The calls of one answer on their way to one result each."""

    def __init__(self, worker: Worker, calls: Sequence[ToolCall]) -> None:
        self.worker = worker
        self.calls = calls
        self.started: set[str] = set()
        """The `call_uid`s of those whose tool was called."""
        self._results: dict[str, ToolResult] = {}
        self._looked_at = 0
        self._looking = anyio.Lock()
        self._abort: Abort | None = None

    async def run(self) -> Abort | Pause | None:
        """Give every call its result, unless a hook pauses before anything ran.

        Returns the action of a hook that ends or pauses the run, else None. Raises what the
        journal raises; calls still running are cancelled then.
        """
        decided: list[_Decision] = []
        for call in self.calls:
            decision = await self._decide(call, 0)
            if isinstance(decision.action, Abort | Pause):
                return await self._ended_by(decision.action)

            decided.append(decision)

        decided = await self._approved(decided)
        for decision in decided:
            if isinstance(decision.action, Abort | Pause):
                return await self._ended_by(decision.action)

        return await self._run_all(decided)

    async def _ended_by(self, action: Abort | Pause) -> Abort | Pause:
        if isinstance(action, Abort):
            await self._refuse_all(f"not run: {action.reason}")

        return action

    async def _decide(self, call: ToolCall, asked: int) -> _Decision:
        """Ask the hooks about a call, leaving out the first `asked` of them."""
        view = _call_view(call)
        action, asked = await self.worker.hooks.ask_from(asked, HookPoint.PRE_TOOL_CALL, view)
        return _Decision(call, action, asked)

    async def _approved(self, decided: Sequence[_Decision]) -> list[_Decision]:
        """Have a person decide where hooks want it, about all such calls at once.

        None of the answer's calls runs before: who is asked sees all that is about to happen.
        """
        settled = list(decided)

        async def settle(place: int) -> None:
            settled[place] = await self._settle(decided[place])

        await _together([partial(settle, place) for place in range(len(decided))])
        return settled

    async def _settle(self, decision: _Decision) -> _Decision:
        call = decision.call
        if not isinstance(decision.action, Ask):
            return decision

        # There is nothing to allow; and what was not asked about does not run later either.
        refusal = _why_it_cannot_run(call, self.worker.tools)
        if refusal is not None:
            return evolve(decision, action=SyntheticResult(refusal))

        ruling = await self.worker.ports.approve(_call_view(call), decision.action.reason)
        if not ruling.allowed:
            return evolve(decision, action=Skip(f"permission denied for {call.name}: {ruling.why}"))

        while True:
            decision = await self._decide(call, decision.asked)
            # Once for a call is enough, whichever hook wanted it.
            if not isinstance(decision.action, Ask):
                return decision

    async def _refuse_all(self, reason: str) -> None:
        for call in self.calls:
            await self._finish(call, _error(reason))

    async def _run_all(self, decided: Sequence[_Decision]) -> Abort | None:
        with anyio.CancelScope() as scope:
            await _together([partial(self._run_one, decision, scope) for decision in decided])

        for call in self.calls:
            if self._abort is not None and call.call_uid not in self._results:
                await self._finish(call, _error(f"cancelled: {self._abort.reason}"))

        return self._abort

    async def _run_one(self, decision: _Decision, all_calls: anyio.CancelScope) -> None:
        call = decision.call
        match decision.action:
            case SyntheticResult() as action:
                output = render_output(action.output)
            case Skip() as action:
                output = _error(f"not run: {action.reason}")
            case Continue():
                self.started.add(call.call_uid)
                timeout_s = self.worker.config.tool_timeout_s
                output = await execute(call, self.worker.tools, timeout_s)
            case action:
                # None gets here. If one did, it would be no leave to run.
                output = _error(f"not run: {type(action).__name__}")

        await self._finish(call, output)
        if await self._look_at_results() is not None:
            all_calls.cancel()

    async def _look_at_results(self) -> Abort | None:
        """Ask the hooks about each result, in the order of the calls, as soon as that order allows.

        One that gives the run up does so while later calls can still be stopped.
        """
        async with self._looking:
            for call in self.calls[self._looked_at :]:
                result = self._results.get(call.call_uid)
                if result is None or self._abort is not None:
                    break

                view = _result_view(call, result)
                action = await self.worker.hooks.ask(HookPoint.POST_TOOL_CALL, view)
                self._looked_at += 1
                self._abort = action if isinstance(action, Abort) else None

            return self._abort

    async def _finish(self, call: ToolCall, output: ToolOutput) -> None:
        result = ToolResult(
            new_uid(),
            call.call_id,
            call.call_uid,
            output.summary,
            output.content,
            output.is_error,
            output.attachments,
        )
        self._results[call.call_uid] = await self.worker.admit_result(call, result)


@frozen
class _Decision:
    """What hooks said of a call, and how many of them were asked."""

    call: ToolCall
    action: Action
    asked: int


async def _together(steps: Sequence[Callable[[], Coroutine[Any, Any, None]]]) -> None:
    """Take the steps at the same time. What one of them raises ends the others."""
    try:
        async with anyio.create_task_group() as group:
            for step in steps:
                group.start_soon(step)
    except ExceptionGroup as failed:
        # Tools do not raise: this is the journal or a hook, and the first error says it all.
        raise failed.exceptions[0] from None


def _call_view(call: ToolCall) -> ToolCallView:
    return ToolCallView(call.call_id, call.call_uid, call.name, call.arguments)


def _result_view(call: ToolCall, result: ToolResult) -> ToolResultView:
    return ToolResultView(call.call_id, call.call_uid, call.name, result.summary, result.is_error)
