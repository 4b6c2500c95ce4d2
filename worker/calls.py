"""Running the tool calls of one answer: asked about in order, run in parallel, one result each."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import anyio
import orjson

from .foreign import Failure, attempt
from .hooks import (
    Abort,
    Action,
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
        known = ", ".join(sorted(tools)) or "none"
        return _error(f"unknown tool {call.name}; available: {known}")

    limit_s = timeout_s if tool.timeout_s is None else tool.timeout_s

    async def run() -> ToolOutput | None:
        arguments = parse_arguments(call)
        with anyio.move_on_after(limit_s):
            # A tool made by hand may give back anything; this also cuts summaries to size.
            return render_output(await tool.call(arguments))

        return None

    output = await attempt(run)
    if isinstance(output, Failure):
        return _error(_failure_message(call.name, output))

    return output or _error(f"{call.name} timed out after {limit_s:g} s")


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
        self._results: dict[str, ToolResult] = {}

    async def run(self) -> Abort | Pause | None:
        """Give every call its result, unless a hook pauses before anything ran.

        Returns the action of a hook that ends or pauses the run, else None. Raises what the
        journal raises; calls still running are cancelled then.
        """
        decided: dict[str, Action] = {}
        for call in self.calls:
            action = await self.worker.hooks.ask(HookPoint.PRE_TOOL_CALL, _call_view(call))
            if isinstance(action, Pause):
                return action

            if isinstance(action, Abort):
                await self._refuse_all(f"not run: {action.reason}")
                return action

            decided[call.call_uid] = action

        await self._run_all(decided)
        return await self._after_all()

    async def _refuse_all(self, reason: str) -> None:
        for call in self.calls:
            await self._finish(call, _error(reason))

    async def _run_all(self, decided: Mapping[str, Action]) -> None:
        try:
            async with anyio.create_task_group() as group:
                for call in self.calls:
                    group.start_soon(self._run_one, call, decided[call.call_uid])
        except ExceptionGroup as failed:
            # Tools do not raise: this is the journal, and the first error says it all.
            raise failed.exceptions[0] from None

    async def _run_one(self, call: ToolCall, action: Action) -> None:
        match action:
            case SyntheticResult():
                output = render_output(action.output)
            case Skip():
                output = _error(f"not run: {action.reason}")
            case _:
                timeout_s = self.worker.config.tool_timeout_s
                output = await execute(call, self.worker.tools, timeout_s)

        await self._finish(call, output)

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

    async def _after_all(self) -> Abort | None:
        for call in self.calls:
            view = _result_view(call, self._results[call.call_uid])
            action = await self.worker.hooks.ask(HookPoint.POST_TOOL_CALL, view)
            if isinstance(action, Abort):
                return action

        return None


def _call_view(call: ToolCall) -> ToolCallView:
    return ToolCallView(call.call_id, call.call_uid, call.name, call.arguments)


def _result_view(call: ToolCall, result: ToolResult) -> ToolResultView:
    return ToolResultView(call.call_id, call.call_uid, call.name, result.summary, result.is_error)
