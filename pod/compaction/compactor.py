"""One compaction from its trigger to its last event: plan, check, commit, or failure."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import anyio
from attrs import asdict, define, field

from pod.compaction.plan import CompactionError, CompactionPlan, CompactionRequest
from pod.compaction.result import checked
from pod.compaction.state import FirstMeasurement
from pod.core import PodCore
from pod.journal import in_thread
from pod.protocol import (
    CompactionDone,
    CompactionFailed,
    CompactionStart,
    SessionChanged,
    Usage,
)
from pod.protocol.events import Trigger
from session_store import InvalidHistory, Session, SessionStoreError
from worker.items import AssistantMessage, Item
from worker.llm.types import Usage as MeasuredUsage


@define(eq=False)
class Compactor:
    """Compacts one pod's history. Single-flight: the pod's gate is held by the caller."""

    core: PodCore
    _scope: anyio.CancelScope | None = field(default=None, init=False)

    # ------------------------------------------------------------------ when

    async def due_before_request(self) -> Trigger | None:
        """Return the trigger that calls for compaction before the next request, if one does."""
        core = self.core
        self._settle_unmeasured()
        tokens = core.worker.occupancy().tokens
        trigger: Trigger = "request_threshold"
        if core.host.builtin is None:
            if core.memory.blocked_in_run or core.memory.disabled:
                return None
            if not await core.host.wants_compaction(tokens):
                return None
            trigger = "engine"
        else:
            limit = core.thresholds.request
            if limit is None or tokens <= limit or not core.memory.worth_trying(tokens, limit):
                return None
            if core.memory.blocked_in_run and not self._would_overflow(tokens):
                return None

        return trigger if core.host.has_content(self._request(trigger, None)) else None

    async def due_after_run(self) -> Trigger | None:
        """Return the trigger that calls for compaction now that a run has ended, if one does."""
        core = self.core
        self._settle_unmeasured()
        tokens = core.worker.occupancy().tokens
        if core.memory.disabled or not core.worker.history:
            return None

        if core.host.builtin is None:
            return "engine" if await core.host.wants_compaction(tokens) else None

        limit = core.thresholds.compact
        if limit is None or tokens <= limit or not core.memory.worth_trying(tokens, limit):
            return None

        sizes = core.sizes()
        return None if core.memory.floor == (sizes.floor, limit) else "threshold"

    def _settle_unmeasured(self) -> None:
        """Stop waiting for a first measurement where the provider answered and measured nothing."""
        memory, history = self.core.memory, self.core.worker.history
        if memory.pending is not None and any(
            isinstance(item, AssistantMessage) for item in history[memory.pending.history_len :]
        ):
            memory.pending = None

    def _would_overflow(self, tokens: int) -> bool:
        window = self.core.thresholds.window
        return window is not None and tokens >= window

    # ------------------------------------------------------------------ the compaction

    def preview(self, focus: str | None = None) -> CompactionRequest | None:
        """Return what a manual compaction would be asked to do, or None with nothing to cut."""
        request = self._request("manual", focus)
        return request if self.core.host.has_content(request) else None

    async def compact(
        self, trigger: Trigger, *, focus: str | None = None, in_run: bool = False
    ) -> CompactionDone | None:
        """Compact, and return what was done; None, silently, where there is nothing to cut.

        Every start is followed by one done or failed, in the log and in the events.

        Raises:
            CompactionError: It failed; the history is unchanged and the failure was told.
        """
        request = self._request(trigger, focus)
        if not self.core.host.has_content(request):
            return None

        started_s = time.monotonic()
        await self._announce(request)
        self._scope = anyio.CancelScope()
        try:
            with self._scope:
                plan = await self._plan(request)
                with anyio.CancelScope(shield=True):
                    return await self._commit(plan, request, started_s, in_run=in_run)
        except CompactionError as error:
            await self._failed(request, error)
            raise
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self._failed(request, CompactionError("cancelled", "cancelled"))
            raise
        finally:
            self._scope = None

        # The scope swallowed its own cancellation: `cancel` was called.
        cancelled = CompactionError("cancelled", "cancelled")
        await self._failed(request, cancelled)
        raise cancelled

    def cancel(self) -> None:
        """Cancel the compaction that is going on, if one is; the old state stays."""
        if self._scope is not None:
            self._scope.cancel()
            self.core.summarizer.cancel()

    @property
    def running(self) -> bool:
        """Whether a compaction is going on."""
        return self._scope is not None

    def _request(self, trigger: Trigger, focus: str | None) -> CompactionRequest:
        core = self.core
        tokens = core.worker.occupancy().tokens
        return CompactionRequest(
            session_id=core.session.session_id,
            head_hash=core.session.head.hash,
            items=tuple(core.worker.history),
            watermark=core.worker.watermark,
            trigger=trigger,
            threshold=core.thresholds.of(trigger),
            occupancy=tokens,
            generation=core.memory.generation,
            focus=focus,
            would_overflow=trigger == "overflow" or self._would_overflow(tokens),
        )

    async def _announce(self, request: CompactionRequest) -> None:
        core = self.core
        threshold = None if request.trigger == "engine" else request.threshold
        entry = {
            "trigger": request.trigger,
            "engine": core.host.name,
            "input_tokens": request.occupancy,
            "threshold": threshold,
        }
        (ref,) = await core.journal.append(("compaction_started", entry))
        core.publish(
            CompactionStart(
                session_id=request.session_id,
                trigger=request.trigger,
                engine=core.host.name,
                input_tokens=request.occupancy,
                threshold=threshold,
                focus=request.focus,
            ),
            ref,
        )

    async def _plan(self, request: CompactionRequest) -> CompactionPlan:
        core = self.core
        core.summarizer.on_progress = core.host.touch
        try:
            plan = await core.host.make_plan(request)
        finally:
            core.summarizer.cancel()

        def sent_after(made: CompactionPlan) -> Sequence[Item]:
            return core.sent(made.history, made.watermark)

        sent_before = core.sent(request.items, request.watermark)
        return checked(plan, request.items, core.worker.meter.estimate, sent_before, sent_after)

    # ------------------------------------------------------------------ success

    async def _commit(
        self, plan: CompactionPlan, request: CompactionRequest, started_s: float, *, in_run: bool
    ) -> CompactionDone:
        core = self.core
        old, before = core.session, tuple(core.worker.history)
        history = (*plan.history, *before[plan.base_len :])
        if in_run:
            outcome = {"outcome": "yielded", "interrupted": True}
            await core.journal.append(("run_outcome", outcome))

        done = self._done(plan, request, history, started_s)
        fields = self._entry(plan, done, in_run=in_run)
        try:
            new = await in_thread(
                lambda: core.store.publish_compacted(
                    old,
                    history=list(history),
                    watermark=plan.watermark,
                    compaction=fields,
                    start={
                        "system_prompt": core.worker.system_prompt,
                        "config": dict(core.config),
                    },
                )
            )
        except InvalidHistory as error:
            raise CompactionError("invalid_result", str(error)) from error
        except SessionStoreError as error:
            message = f"the new session could not be written: {error}"
            raise CompactionError("storage", message) from error

        await self._move_to(new, history, plan, request)
        done = done.model_copy(
            update={
                "new_session_id": new.session_id,
                "compacted_from": (old.session_id, old.head.hash),
            }
        )
        await self._tell(done, old, before)
        return done

    def _done(
        self,
        plan: CompactionPlan,
        request: CompactionRequest,
        history: Sequence[Item],
        started_s: float,
    ) -> CompactionDone:
        core = self.core
        estimate = core.worker.meter.estimate
        return CompactionDone(
            old_session_id=request.session_id,
            new_session_id="",
            compacted_from=(request.session_id, core.session.head.hash),
            trigger=request.trigger,
            engine=core.host.name,
            items_before=len(core.worker.history),
            items_after=len(history),
            tokens_before=estimate(core.sent(core.worker.history, core.worker.watermark)),
            tokens_after=estimate(core.sent(history, plan.watermark)),
            duration_ms=round((time.monotonic() - started_s) * 1000),
            usage=_usage(plan.usage, plan.model),
            generation=plan.generation,
            method=plan.method,
        )

    def _entry(self, plan: CompactionPlan, done: CompactionDone, *, in_run: bool) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "old": done.old_session_id,
            **done.model_dump(
                exclude={"old_session_id", "new_session_id", "compacted_from", "usage"}
            ),
            "usage": asdict(plan.usage) if plan.usage else None,
            "cost": None,
            "model": plan.model,
            "prompt_digest": plan.prompt_digest,
        }
        if in_run:
            fields["in_run"] = True

        if plan.failure is not None:
            self.core.memory.failed(plan.failure)
            fields["consecutive_failures"] = self.core.memory.failures
            fields["disabled"] = self.core.memory.disabled

        return fields

    async def _move_to(
        self,
        new: Session,
        history: Sequence[Item],
        plan: CompactionPlan,
        request: CompactionRequest,
    ) -> None:
        core, old = self.core, self.core.session
        core.journal.session = new
        core.worker.set_history(history, watermark=plan.watermark)
        if core.prune is not None:
            core.prune.reset()

        # A plugin engine has thresholds of its own; its effect is for it to judge.
        by_engine = request.trigger == "engine"
        pending = None if by_engine else FirstMeasurement(len(history), request.threshold)
        core.memory.committed(plan.generation, pending, by_digest=plan.failure is not None)
        await core.point_here()
        await in_thread(old.close)

    async def _tell(self, done: CompactionDone, old: Session, before: tuple[Item, ...]) -> None:
        core = self.core
        new_id = done.new_session_id
        core.publish(done, (new_id, 1))
        core.publish(
            SessionChanged(
                old_session_id=old.session_id, new_session_id=new_id, reason="compaction"
            )
        )
        await core.host.boundary(
            old.session_id, new_id, before, platform="pod", conversation_id=core.name
        )

    # ------------------------------------------------------------------ failure

    async def _failed(self, request: CompactionRequest, error: CompactionError) -> None:
        core, memory = self.core, self.core.memory
        memory.failed(error)
        if error.reason == "floor":
            memory.floor = (core.sizes().floor, request.threshold)

        fields = {
            "trigger": request.trigger,
            "reason": error.reason,
            "message": error.message,
            "consecutive_failures": memory.failures,
            "disabled": memory.disabled,
        }
        if memory.floor is not None:
            fields["floor"], fields["threshold"] = memory.floor

        (ref,) = await core.journal.append(("compaction_failed", fields))
        core.publish(
            CompactionFailed(
                session_id=request.session_id,
                trigger=request.trigger,
                reason=error.reason,
                message=error.message,
                consecutive_failures=memory.failures,
                disabled=memory.disabled,
            ),
            ref,
        )


def _usage(usage: MeasuredUsage | None, model: str) -> Usage | None:
    if usage is None:
        return None

    return Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read=usage.cache_read,
        cache_write=usage.cache_write,
        model=model or None,
    )
