"""Runs of a pod: the Worker's run, the compactions in the middle of it, and how it is recorded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
from attrs import define, field, frozen

from pod.compaction.compactor import Compactor
from pod.compaction.plan import CompactionError
from pod.compaction.state import added_since
from pod.compaction.triggers import IN_RUN_TRIGGERS, as_trigger
from pod.core import PodCore
from pod.errors import Thrash
from pod.failures import EXPECTED_ERRORS, error_info
from pod.journal import in_thread
from pod.protocol import Alert, ErrorInfo, RunEnd, RunStart, Usage
from pod.protocol.events import Outcome
from session_store import SessionStoreError
from worker.errors import ContextOverflow, ProviderRefused
from worker.items import UserMessage
from worker.llm.types import Usage as MeasuredUsage
from worker.worker import WorkerResult


@frozen
class RunResult:
    """How a run ended. With outcome `error`, `error` says what went wrong; `text` still stands.

    `usage` sums all requests of the run; `output` is the validated value of `output=`.
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


_NO_USAGE = MeasuredUsage(0, 0, 0, 0)


@define(eq=False)
class RunDriver:
    """Drives runs of one pod, one at a time."""

    core: PodCore
    compactor: Compactor
    key_hint: str = ""
    _overflowed_at: int = field(default=-1, init=False)

    async def run(self, prompt: UserMessage, output: type[Any] | None) -> RunResult:
        """Run with a prompt, to its end; what goes wrong is in the result."""
        worker = self.core.worker
        return await self._drive(prompt.text, lambda: worker.run(prompt, output=output))

    async def resume(self) -> RunResult:
        """Go on where the last run stopped."""
        return await self._drive(None, self.core.worker.resume)

    async def _drive(
        self, text: str | None, start: Callable[[], Awaitable[WorkerResult]]
    ) -> RunResult:
        core = self.core
        core.memory.new_run()
        self._overflowed_at = -1
        await core.point_here()
        core.publish(RunStart(session_id=core.session.session_id, input=text))
        core.set_state("running")
        try:
            result = await self._with_compactions(await start())
            ended = self._ended(result)
        except EXPECTED_ERRORS as error:
            ended = self._broken(error)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self._record(self._result("cancelled", message="cancelled"))
            raise

        return await self._record(ended)

    async def _with_compactions(self, result: WorkerResult) -> WorkerResult:
        """Compact and resume as long as the run yields for it."""
        while result.outcome == "yielded" and result.yielded_for in IN_RUN_TRIGGERS:
            if self.core.memory.thrashed_now:
                raise self._thrash()

            if result.yielded_for == "overflow":
                await self._recover(result.overflow)
            else:
                await self._compact_in_run(result.yielded_for)

            self.core.set_state("running")
            result = await self.core.worker.resume()

        return result

    async def _compact_in_run(self, yielded_for: str) -> None:
        self.core.set_state("compacting")
        try:
            await self.compactor.compact(as_trigger(yielded_for), in_run=True)
        except CompactionError as error:
            if error.reason == "cancelled":
                raise
            # The failure was told; the run goes on with the history as it is.
            self.core.memory.blocked_in_run = True

    async def _recover(self, overflow: Exception | None) -> None:
        """Compact after the provider's "prompt too long"; once without a success in between."""
        core = self.core
        assert isinstance(overflow, ContextOverflow)
        self._learn_window(overflow)
        if core.host.builtin is not None and not core.thresholds.automatic:
            raise self._too_long(overflow, "automatic compaction is off")

        if core.memory.disabled:
            raise self._too_long(overflow, "compaction is off after repeated failures")

        if len(core.worker.history) == self._overflowed_at:
            raise self._too_long(overflow, "compacting did not make it fit")

        core.set_state("compacting")
        try:
            done = await self.compactor.compact("overflow", in_run=True)
        except CompactionError as error:
            if error.reason == "cancelled":
                raise
            raise self._too_long(overflow, error.message) from error

        if done is None:
            raise self._too_long(overflow, "there is nothing to compact")

        self._overflowed_at = len(core.worker.history)

    def _learn_window(self, overflow: ContextOverflow) -> None:
        limit = overflow.limit_tokens
        window = self.core.thresholds.window
        if limit is not None and (window is None or limit < window):
            self.core.learn_window(limit)

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
        core = self.core
        tokens = core.memory.thrash_tokens or 0
        limit = core.thresholds.compact or core.thresholds.request
        sizes = core.sizes()
        over = f"its threshold of {limit:,}" if limit else "its threshold"
        return Thrash(
            f"thrash: right after a compaction the prompt measured {tokens:,} tokens, again over "
            f"{over}; what cannot be compacted: {sizes.describe()}",
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
        info = error_info(error) if error is not None else None
        return RunResult(
            outcome=outcome,
            text=worker.text if worker else "",
            usage=worker.usage if worker else _NO_USAGE,
            cost=None,
            session_id=self.core.session.session_id,
            output=worker.output if worker else None,
            requests=worker.requests if worker else 0,
            message=message or (info.message if info else ""),
            error=info,
            exception=error,
        )

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
        usage = result.usage
        await core.host.turn_complete(
            tuple(core.worker.history),
            usage,
            turn_exit_reason=result.outcome,
            interrupted=result.outcome == "cancelled",
            failed=result.outcome == "error",
            api_call_count=result.requests,
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
            usage=Usage(
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
                cache_read=usage.cache_read,
                cache_write=usage.cache_write,
            ),
        )

    # ------------------------------------------------------------------ measurements

    def measured(self, usage: MeasuredUsage, _model: str) -> None:
        """Take a request's usage: for the engine, and to judge a compaction by its effect."""
        core = self.core
        core.host.after_response(usage)
        pending = core.memory.pending
        if pending is None or usage.input_tokens is None:
            return

        history = core.worker.history
        # The answer joined the history already; it was no part of the request.
        added = added_since(history, pending.history_len, len(history) - 1, core.worker.meter.weigh)
        if core.memory.measured(usage.input_tokens, added):
            core.publish(Alert(level="warning", message=self._thrash().message))
