"""Runs of a pod: the Worker's run, the compactions in the middle of it, and how it is recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

import anyio
from attrs import asdict, define, field, frozen

from pod.compaction.compactor import Compactor
from pod.compaction.plan import CompactionError
from pod.compaction.state import added_since
from pod.core import PodCore
from pod.errors import RequestCancelled, Thrash
from pod.failures import EXPECTED_ERRORS, error_info
from pod.journal import in_thread
from pod.protocol import Alert, ErrorInfo, RunEnd, RunStart, Usage
from pod.protocol.events import Outcome, Trigger
from session_store import SessionStoreError
from worker.errors import ContextOverflow, ProviderRefused
from worker.foreign import uninterrupted
from worker.items import AssistantMessage, Item, UserMessage, is_turn_start
from worker.llm.types import Usage as MeasuredUsage
from worker.worker import WorkerResult


@frozen
class RunResult:
    """How a run ended. With outcome `error`, `error` says what went wrong; `text` still stands.

    `usage` sums all requests of the run; `cost` is what they cost in US dollars, as far as prices
    are known, else None; `output` is the validated value of `output=`.
    """

    outcome: Outcome
    text: str
    usage: MeasuredUsage
    cost: float | None
    session_id: str
    output: Any = None
    requests: int = 0
    message: str = ""
    error: ErrorInfo | None = None
    exception: Exception | None = field(default=None, repr=False, eq=False)

    def raise_for_error(self) -> None:
        """Raise the exception that ended the run, if one did."""
        if self.exception is not None:
            raise self.exception


_NO_USAGE = MeasuredUsage()


@define
class Steering:
    """What is asked of one run from outside, from the moment on that it is accepted.

    The Worker hears it while it works; this keeps it for when the Worker works next.
    """

    asked: Literal["pause", "cancel"] | None = None

    def pause(self) -> None:
        """Ask the run to pause, unless it was asked for more."""
        self.asked = self.asked or "pause"

    def cancel(self) -> None:
        """Ask the run to end."""
        self.asked = "cancel"


@define(eq=False)
class RunDriver:
    """Drives runs of one pod, one at a time."""

    core: PodCore
    compactor: Compactor
    key_hint: str = ""
    _steering: Steering = field(factory=Steering, init=False)
    _recovered_at: int | None = field(default=None, init=False)
    """How long the history was that the last compaction for an overflow made, in this run."""
    _spent: MeasuredUsage = field(default=_NO_USAGE, init=False)
    """What this run's requests were measured to use, all together."""
    _cost: float | None = field(default=None, init=False)
    """What they cost, in US dollars, as far as that is known."""

    async def run(
        self, prompt: UserMessage, output: type[Any] | None, steering: Steering | None = None
    ) -> RunResult:
        """Run with a prompt, to its end; what goes wrong is in the result."""
        worker = self.core.worker
        return await self._drive(prompt.text, lambda: worker.run(prompt, output=output), steering)

    async def resume(self, steering: Steering | None = None) -> RunResult:
        """Go on where the last run stopped."""
        return await self._drive(None, self.core.worker.resume, steering)

    async def _drive(
        self,
        text: str | None,
        start: Callable[[], Awaitable[WorkerResult]],
        steering: Steering | None,
    ) -> RunResult:
        core = self.core
        self.compactor.new_run()
        self._steering = steering or Steering()
        self._recovered_at = None
        self._spent, self._cost = _NO_USAGE, None
        shown = core.masked(text) if text is not None else None
        core.publish(RunStart(session_id=core.session.session_id, input=shown))
        core.set_state("running")
        try:
            await core.point_here()
            ended = self._ended(await self._with_compactions(await self._steered(start)))
        except EXPECTED_ERRORS as error:
            ended = self._broken(error)
        except anyio.get_cancelled_exc_class():
            await uninterrupted(self._record(self._result("cancelled", message="cancelled")))
            raise
        except Exception as error:  # supervision point of a run: whatever happens, it has an end
            await uninterrupted(self._record(self._result("error", error=error)))
            raise

        return await uninterrupted(self._record(ended))

    async def _steered(self, work: Callable[[], Awaitable[WorkerResult]]) -> WorkerResult:
        """Have the Worker work; what was asked of it meanwhile, it hears as soon as it does."""
        worker, asked = self.core.worker, self._steering.asked
        if asked is not None:
            stop = worker.cancel if asked == "cancel" else worker.pause
            # It hears nothing before it has begun; it lets the loop run before its first request.
            asyncio.get_running_loop().call_soon(stop)

        return await work()

    async def _with_compactions(self, result: WorkerResult) -> WorkerResult:
        """Compact and resume as long as the run yields for it."""
        while (trigger := _trigger_of(result)) is not None:
            if self.core.memory.thrashed_now:
                raise self._thrash()

            if isinstance(result.overflow, ContextOverflow):
                await self._recover(result.overflow)
            else:
                await self._compact_in_run(trigger)

            result = await self._steered(self.core.worker.resume)

        return result

    async def _compact_in_run(self, trigger: Trigger) -> None:
        try:
            await self.compactor.compact(trigger, in_run=True)
        except CompactionError as error:
            if error.reason == "cancelled":
                raise
            # The failure was told; the run goes on with the history as it is.

    async def _recover(self, overflow: ContextOverflow) -> None:
        """Compact after the provider's "prompt too long"; once without an answer in between."""
        core = self.core
        await self._learn_window(overflow)
        if core.host.builtin is not None and not core.thresholds.automatic:
            raise self._too_long(overflow, "automatic compaction is off")

        if core.memory.disabled:
            raise self._too_long(overflow, "compaction is off after repeated failures")

        if self._recovered_at is not None and not _has_answer(
            core.worker.history[self._recovered_at :]
        ):
            raise self._too_long(overflow, "compacting did not make it fit")

        try:
            done = await self.compactor.compact("overflow", in_run=True)
        except CompactionError as error:
            if error.reason == "cancelled":
                raise
            raise self._too_long(overflow, error.message) from error

        if done is None:
            raise self._too_long(overflow, "there is nothing to compact")

        self._recovered_at = len(core.worker.history)

    async def _learn_window(self, overflow: ContextOverflow) -> None:
        limit = overflow.limit_tokens
        window = self.core.thresholds.window
        if limit is not None and (window is None or limit < window):
            await self.core.learn_window(limit)
            await self.core.tell_engine_of_model()

    def _too_long(self, overflow: ContextOverflow, why: str) -> ContextOverflow:
        core = self.core
        tokens = core.worker.occupancy().tokens
        window = overflow.limit_tokens or core.thresholds.window
        size = f"about {tokens:,} tokens" + (f" for a window of {window:,}" if window else "")
        error = ContextOverflow(
            f"the prompt is too long ({size}), and {why}",
            provider=overflow.provider,
            status=overflow.status,
            code=overflow.code,
            hint="compact by hand (pod sessions compact, /compact), set "
            "compaction.compact_threshold, fork at an earlier entry, or use a larger model",
        )
        error.limit_tokens = overflow.limit_tokens
        return error

    def _thrash(self) -> Thrash:
        memory, sizes = self.core.memory, self.core.sizes()
        return Thrash(
            f"thrash: right after a compaction the prompt measured {memory.thrash_tokens or 0:,} "
            f"tokens, again over its threshold of {memory.thrash_threshold:,}; what cannot be "
            f"compacted takes {sizes.floor:,} ({sizes.describe()})",
            hint="raise compact_threshold, keep fewer turns, or shorten the largest of these",
        )

    # ------------------------------------------------------------------ the end

    def _ended(self, result: WorkerResult) -> RunResult:
        if self.core.memory.thrashed_now and result.outcome == "finished":
            error: Exception = self._thrash()
            return self._result("error", worker=result, error=error)

        return self._result(result.outcome, worker=result, message=result.message)

    def _broken(self, error: Exception) -> RunResult:
        if isinstance(error, CompactionError) and error.reason == "cancelled":
            return self._result("cancelled", message="cancelled")

        if isinstance(error, RequestCancelled):
            return self._result("cancelled", message=error.message)

        if isinstance(error, ProviderRefused) and error.is_auth and not error.hint:
            error.hint = self.key_hint

        return self._result("error", error=error)

    def _result(
        self,
        outcome: Outcome,
        *,
        worker: WorkerResult | None = None,
        message: str = "",
        error: Exception | None = None,
    ) -> RunResult:
        info = self._told(error) if error is not None else None
        return RunResult(
            outcome=outcome,
            text=worker.text if worker else "",
            usage=self._spent,
            cost=self._cost,
            session_id=self.core.session.session_id,
            output=worker.output if worker else None,
            requests=worker.requests if worker else 0,
            message=self.core.masked(message) or (info.message if info else ""),
            error=info,
            exception=error,
        )

    def _told(self, error: Exception) -> ErrorInfo:
        """Return an error in words; a provider may quote the key that it refuses."""
        info = error_info(error)
        return info.model_copy(update={"message": self.core.masked(info.message)})

    async def _record(self, result: RunResult) -> RunResult:
        """Write the outcome and the anchor, then tell of the end."""
        core = self.core
        entry = {
            "outcome": result.outcome,
            "message": result.message or None,
            "interrupted": result.outcome not in {"finished", "limit_reached"},
        }
        ref = None
        try:
            (ref,) = await core.journal.append(("run_outcome", entry))
            await in_thread(core.session.write_anchor)
        except SessionStoreError as error:
            if result.error is None:
                result = self._result("error", error=error)

        core.publish(self._run_end(result), ref)
        core.set_state("paused" if result.outcome == "paused" else "idle")
        if result.outcome == "finished":
            core.memory_host.run_finished(core.worker.history, result.text)

        if core.plugin_host is not None:
            await core.plugin_host.run_ended(result.outcome, result.text)

        await core.host.turn_complete(
            tuple(core.worker.history),
            turn_id=_turn_id(core.worker.history),
            task_id=core.session.session_id,
            turn_exit_reason=result.outcome,
            interrupted=result.outcome == "cancelled",
            failed=result.outcome == "error",
        )
        return result

    def _run_end(self, result: RunResult) -> RunEnd:
        usage = result.usage
        return RunEnd(
            outcome=result.outcome,
            session_id=result.session_id,
            text=result.text or None,
            error=result.error,
            message=result.message or None,
            requests=result.requests,
            usage=Usage(**asdict(usage), cost=result.cost),
            cost=result.cost,
        )

    # ------------------------------------------------------------------ measurements

    def measured(self, usage: MeasuredUsage, model: str) -> None:
        """Take a request's usage: for the engine, and to judge a compaction by its effect."""
        core = self.core
        self._spent += usage
        cost = core.prices(usage, core.worker.client, model)
        if cost is not None:
            self._cost = (self._cost or 0.0) + cost

        core.host.after_response(usage)
        pending = core.memory.pending
        if pending is None or not usage.input_tokens:
            return

        history = core.worker.history
        # An answer has joined the history already; it was no part of the request.
        asked = len(history) - isinstance(history[-1], AssistantMessage)
        added = added_since(history, pending.history_len, asked, core.worker.meter.weigh)
        if core.memory.measured(usage.input_tokens, added):
            core.publish(Alert(level="warning", message=self._thrash().message))


def _trigger_of(result: WorkerResult) -> Trigger | None:
    """Return what a run yielded for, if that was one of our triggers and not somebody's hook."""
    if result.outcome != "yielded":
        return None

    if isinstance(result.overflow, ContextOverflow):
        return "overflow"

    match result.yielded_for:
        case "request_threshold" | "engine":
            return result.yielded_for
        case _:
            return None


def _turn_id(history: Sequence[Item]) -> str:
    """Return the uid of the message that the newest turn began with, as hooks are told it too."""
    return next((item.uid for item in reversed(history) if is_turn_start(item)), "")


def _has_answer(items: Sequence[Item]) -> bool:
    return any(isinstance(item, AssistantMessage) for item in items)
