"""One run: prompt, requests, tool calls, and how it ends. Driven by `Worker.run` and `resume`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import anyio
from anyio.lowlevel import checkpoint

from .calls import CallBatch
from .errors import ContextOverflow, HookFailed, OutputInvalid, WorkerError
from .exchange import Exchange
from .foreign import Failure, attempt, uninterrupted
from .hooks import (
    Abort,
    AbortView,
    Action,
    Cancel,
    ContinueWith,
    HookPoint,
    Pause,
    PromptView,
    RequestView,
    TurnEndView,
    Yield,
)
from .items import (
    AssistantMessage,
    SystemNote,
    ToolCall,
    UserMessage,
    new_uid,
    user_message,
)
from .output import NotTheOutput, OutputType
from .ports import Alert, ItemsRecord, TurnEnd, TurnEndRecord, TurnStart
from .progress import RunEnd, RunLimits, RunProgress
from .projection import INTERRUPTED_SUMMARY, interrupted_result
from .text import clean_text, is_blank

if TYPE_CHECKING:
    from .worker import Worker

CANCELLED_SUMMARY = "cancelled: the run was stopped before this call had a result"
STOPPED_SUMMARY = "not run: the run was stopped before this call began"
NOT_STARTED_SUMMARY = "not run: the run was paused before this call, and then went on without it"
CUT_OFF_NOTE = "The last answer broke off in the middle. Go on from where it stopped."


class Runner:
    """Drives one run of a worker to its end."""

    def __init__(self, worker: Worker, progress: RunProgress) -> None:
        self.worker = worker
        self.progress = progress
        self.pause_requested = False
        self._scope = anyio.CancelScope()
        self._exchange = Exchange(worker, progress)
        self._batch: CallBatch | None = None

    def cancel(self) -> None:
        """Stop the run now."""
        self._scope.cancel()

    async def run(self) -> RunEnd:
        """Run to the end and return how it ended; raises `WorkerError`s and what a journal raises.

        However it ends, the history is whole: what was streamed is kept, every call has a result.
        """
        try:
            end = await self._until_cancelled()
            # A cancellation that came during the last commit is still to be heard.
            await checkpoint()
        except asyncio.CancelledError:
            # The task itself is being cancelled: no more hooks, but the history is left whole.
            await self._try_to_clean_up()
            raise
        # The supervision point of a run: it is ended in order, and the error goes on.
        except Exception as error:
            # What is not ours comes from the journal, which then takes nothing more.
            if isinstance(error, WorkerError):
                await self._try_to_clean_up()

            await self._tell_abort(str(error))
            raise

        return end

    async def _until_cancelled(self) -> RunEnd:
        with self._scope:
            return await self._from_the_start()

        await uninterrupted(self._clean_up())
        await self._tell_abort("cancelled")
        return RunEnd("cancelled", message="cancelled")

    # ------------------------------------------------------------------ the start

    async def _from_the_start(self) -> RunEnd:
        prompt, self.progress.prompt = self.progress.prompt, None
        end = await self._settle_open_calls(is_resumed=prompt is None)
        if end is None:
            end = await (self._pick_up() if prompt is None else self._submit(prompt))

        return end or await self._loop()

    async def _settle_open_calls(self, *, is_resumed: bool) -> RunEnd | None:
        calls = self.worker.open_calls()
        never_ran = self.progress.calls_never_ran
        if calls and never_ran and is_resumed:
            return await self._run_calls(calls)

        await self._close_calls(NOT_STARTED_SUMMARY if never_ran else INTERRUPTED_SUMMARY)
        return None

    async def _submit(self, prompt: UserMessage) -> RunEnd | None:
        view = PromptView(clean_text(prompt.text))
        action = await self.worker.hooks.ask(HookPoint.ON_PROMPT_SUBMIT, view)
        if isinstance(action, Cancel):
            return RunEnd("cancelled", message=action.reason)

        await self.worker.admit("user_input", prompt)
        self.worker.start_turn()
        self.worker.ports.emit(TurnStart(self.worker.turns), None)
        await self._heed(action)
        if self.progress.output is not None:
            await self._add_notes((self.progress.output.instruction,), "output")

        return None

    async def _pick_up(self) -> RunEnd | None:
        """Find where a run that is resumed stands: an answer may be cut off, or be the last one."""
        if not self.worker.history:
            message = "there is nothing to resume: the history is empty"
            raise WorkerError(message, hint="run with a prompt instead")

        last = self.worker.history[-1]
        if not isinstance(last, AssistantMessage) or last.tool_calls:
            return None

        if last.stop_reason == "partial":
            # Not every model goes on from an answer of its own: the note ends the request.
            await self._add_notes((CUT_OFF_NOTE,), "resume")
            return None

        if self.worker.turn_is_open:
            return await self._turn_end(last)

        return RunEnd("finished", text=last.text)

    # ------------------------------------------------------------------ the loop

    async def _loop(self) -> RunEnd:
        end: RunEnd | None = None
        while end is None:
            await checkpoint()
            end = self._stopped() or await self._before_request() or await self._step()

        return end

    def _stopped(self) -> RunEnd | None:
        if self.pause_requested:
            return RunEnd("paused")

        config = self.worker.config
        limits = RunLimits(
            requests=config.max_requests,
            tokens=config.max_tokens_used,
            cost=config.max_cost,
            seconds=config.max_seconds,
        )
        limit = self.progress.limit_reached(self.worker.ports.clock(), limits)
        return RunEnd("limit_reached", message=limit) if limit else None

    async def _before_request(self) -> RunEnd | None:
        worker = self.worker
        occupancy = worker.occupancy().tokens
        view = RequestView(len(worker.history), occupancy, self.progress.requests + 1)
        end = await self._heed(await worker.hooks.ask(HookPoint.PRE_LLM_REQUEST, view))
        for stage in worker.ports.stages:
            if end is None:
                end = await self._heed(await stage.before_request(worker))

        return end

    async def _heed(self, action: Action) -> RunEnd | None:
        """Do what a hook or a stage decided, and return the end that this is, if it is one."""
        match action:
            case ContinueWith():
                await self._add_notes(action.notes, action.kind)
            case Yield():
                await self._add_notes(action.notes, "hook")
                return RunEnd("yielded", yielded_for=action.reason)
            case Cancel():
                return RunEnd("cancelled", message=action.reason)
            case _:
                pass  # `Continue`: hooks are held to the actions of their point.

        return None

    async def _step(self) -> RunEnd | None:
        """Make one request and do what its answer asks for."""
        try:
            message = await self._exchange.ask()
        except ContextOverflow as error:
            if not self.worker.config.yield_on_overflow:
                raise

            return RunEnd("yielded", yielded_for="overflow", overflow=error)

        if message.tool_calls:
            return await self._run_calls(message.tool_calls)

        return await self._turn_end(message)

    async def _run_calls(self, calls: Sequence[ToolCall]) -> RunEnd | None:
        self._batch = CallBatch(self.worker, calls)
        match await self._batch.run():
            case Pause():
                return RunEnd("paused")
            case Abort(reason):
                await self._tell_abort(reason)
                return RunEnd("cancelled", message=reason)
            case None:
                return None

    # ------------------------------------------------------------------ the end

    async def _turn_end(self, message: AssistantMessage) -> RunEnd | None:
        output = None
        if (expected := self.progress.output) is not None:
            try:
                output = expected.parse(message.text)
            except NotTheOutput as problem:
                await self._repair_output(expected, problem)
                return None

        action = await self.worker.hooks.ask(HookPoint.ON_TURN_END, TurnEndView(message.text))
        if isinstance(action, Pause):
            return RunEnd("paused", text=message.text)

        if isinstance(action, ContinueWith) and await self._add_notes(action.notes, action.kind):
            return None

        (ref,) = await self.worker.commit(TurnEndRecord(self.worker.turns))
        self.worker.turn_is_open = False
        self.worker.ports.emit(TurnEnd(self.worker.turns), ref)
        return RunEnd("finished", text=message.text, output=output)

    async def _repair_output(self, expected: OutputType, problem: NotTheOutput) -> None:
        if self.progress.repaired:
            message = f"the answer does not fit the output type, also after one repair: {problem}"
            raise OutputInvalid(message)

        self.progress.repaired = True
        request = user_message(expected.repair_request(problem), origin="injected")
        await self.worker.admit("user_input", request)

    async def _add_notes(self, notes: Sequence[str], kind: str) -> bool:
        """Journal the notes that show anything; returns whether there were any."""
        items = tuple(SystemNote(new_uid(), note, kind) for note in notes if not is_blank(note))
        if items:
            await self.worker.commit(ItemsRecord("system_item", items))

        return bool(items)

    async def _clean_up(self) -> None:
        """Leave the history whole after a stop: partial text is kept, open calls get a result."""
        await self._exchange.keep_partial()
        started = self._batch.started if self._batch is not None else frozenset()
        for call in self.worker.open_calls():
            did_start = call.call_uid in started
            await self._close_call(call, CANCELLED_SUMMARY if did_start else STOPPED_SUMMARY)

    async def _close_calls(self, summary: str) -> None:
        for call in self.worker.open_calls():
            await self._close_call(call, summary)

    async def _close_call(self, call: ToolCall, summary: str) -> None:
        await self.worker.admit_result(call, interrupted_result(call, new_uid(), summary))

    async def _try_to_clean_up(self) -> None:
        """Clean up on the way of an error, which must stay the one that is heard."""
        failed = await attempt(lambda: uninterrupted(self._clean_up()))
        if isinstance(failed, Failure):
            message = f"the end of the run could not be recorded: {failed}"
            self.worker.ports.emit(Alert("error", message), None)

    async def _tell_abort(self, reason: str) -> None:
        try:
            await self.worker.hooks.ask(HookPoint.ON_ABORT, AbortView(reason))
        except HookFailed as error:
            # The run has ended already; what ended it must stay the error that is heard.
            self.worker.ports.emit(Alert("error", str(error)), None)
