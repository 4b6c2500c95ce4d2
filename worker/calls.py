"""Running the tool calls of one answer: pre-hooks in order, execution in parallel, one result each."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import anyio
import orjson
from attrs import define, field

from worker.hooks import (
    Abort,
    Action,
    HookPoint,
    Pause,
    Skip,
    SyntheticResult,
    ToolCallView,
    ToolResultView,
)
from worker.items import ToolCall, ToolResult, new_uid
from worker.ports import ItemsRecord, ToolResulted
from worker.text import clean_text, first_line
from worker.tools import BadArguments, Tool, ToolOutput

if TYPE_CHECKING:
    from worker.worker import Worker

_ERROR_CHARS = 2_000


def parse_arguments(call: ToolCall) -> dict[str, Any]:
    """Return the arguments of a call; text that is empty or `null` means none.

    Raises:
        BadArguments: The text is not one JSON object.
    """
    text = call.arguments.strip()
    if text in {"", "null"}:
        return {}

    try:
        value = orjson.loads(clean_text(text))
    except orjson.JSONDecodeError as error:
        message = f"the arguments of {call.name} are not valid JSON ({error}); the tool was not run"
        raise BadArguments(message) from error

    if not isinstance(value, dict):
        found = type(value).__name__
        message = f"the arguments of {call.name} must be a JSON object, not {found}; not run"
        raise BadArguments(message)

    return value


def result_of(call: ToolCall, output: ToolOutput) -> ToolResult:
    """Return the history item for what a call came to."""
    return ToolResult(
        new_uid(),
        call.call_id,
        call.call_uid,
        output.summary,
        output.content,
        output.is_error,
        output.attachments,
    )


async def execute(call: ToolCall, tools: Mapping[str, Tool], timeout_s: float) -> ToolOutput:
    """Run one call and return what it came to; nothing but cancellation from outside is raised."""
    tool = tools.get(call.name)
    if tool is None:
        known = ", ".join(sorted(tools)) or "none"
        return _error(f"unknown tool {call.name}; available: {known}")

    limit_s = tool.timeout_s or timeout_s
    try:
        arguments = parse_arguments(call)
        with anyio.move_on_after(limit_s):
            return await tool.call(arguments)
    except BadArguments as error:
        return _error(f"bad arguments for {call.name}: {error}")
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise  # We are being cancelled; otherwise the tool raised it by itself.

        return _error(f"{call.name} cancelled itself")
    except Exception as error:  # supervision point of tool code
        return _error(f"{call.name} failed: {type(error).__name__}: {error}")

    return _error(f"{call.name} timed out after {limit_s:g} s")


def _error(message: str) -> ToolOutput:
    text = clean_text(message)
    if len(text) <= _ERROR_CHARS // 4 and "\n" not in text:
        return ToolOutput(text, is_error=True)

    return ToolOutput(first_line(text, 200), text[:_ERROR_CHARS], is_error=True)


@define
class CallBatch:
    """The calls of one answer on their way to one result each."""

    worker: Worker
    calls: Sequence[ToolCall]
    _results: dict[str, ToolResult] = field(factory=dict)
    _failures: list[Exception] = field(factory=list)

    async def run(self) -> Abort | Pause | None:
        """Give every call its result, unless a hook pauses before anything ran.

        Returns the action of a hook that ends or pauses the run, else None.
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
            await self._finish(call, ToolOutput(reason, is_error=True))

    async def _run_all(self, decided: Mapping[str, Action]) -> None:
        async with anyio.create_task_group() as group:
            for call in self.calls:
                group.start_soon(self._run_one, call, decided[call.call_uid], group.cancel_scope)

        if self._failures:
            raise self._failures[0]

    async def _run_one(self, call: ToolCall, action: Action, scope: anyio.CancelScope) -> None:
        match action:
            case SyntheticResult():
                output = action.output
            case Skip():
                output = ToolOutput(f"not run: {action.reason}", is_error=True)
            case _:
                timeout_s = self.worker.config.tool_timeout_s
                output = await execute(call, self.worker.tools, timeout_s)

        try:
            await self._finish(call, output)
        except Exception as error:  # carried out of the group, which would wrap it
            self._failures.append(error)
            scope.cancel()

    async def _finish(self, call: ToolCall, output: ToolOutput) -> None:
        result = self.worker.ports.intake(result_of(call, output))
        (ref,) = await self.worker.commit(ItemsRecord("tool_results", (result,)))
        self._results[call.call_uid] = result
        event = ToolResulted(
            call.call_id, call.name, result.summary, result.content, result.is_error
        )
        self.worker.ports.emit(event, ref)

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
