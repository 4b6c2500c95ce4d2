"""One compaction from its trigger to its last event: plan, check, commit, or failure."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import anyio
from anyio.lowlevel import checkpoint
from attrs import asdict, define, evolve, field

from pod.compaction.plan import CompactionError, CompactionPlan, CompactionRequest
from pod.compaction.result import checked
from pod.compaction.state import FLOOR_DOMAIN, floors_payload
from pod.core import PodCore
from pod.errors import PodBusy
from pod.journal import EntryDraft, in_thread
from pod.protocol import (
    Alert,
    CompactionDone,
    CompactionFailed,
    CompactionStart,
    SessionChanged,
    Usage,
)
from pod.protocol.events import Trigger
from session_store import InvalidHistory, Session, SessionStoreError
from worker.foreign import uninterrupted
from worker.items import Item


@define(eq=False)
class Compactor:
    """Compacts one pod's history. Single-flight: the pod's gate is held by the caller."""

    core: PodCore
    _scope: anyio.CancelScope | None = field(default=None, init=False)

    # ------------------------------------------------------------------ when

    async def due_before_request(self) -> Trigger | None:
        """Return the trigger that calls for compaction before the next request, if one does."""
        core, memory = self.core, self.core.memory
        if not memory.answered(core.worker.history):
            return None

        tokens = core.worker.occupancy().tokens
        if core.host.builtin is None:
            trigger = None if memory.blocked_in_run else await self._by_engine(tokens)
        else:
            trigger = self._by_request_threshold(tokens)

        if trigger is None or not core.host.has_content(self._request(trigger, None)):
            return None

        return trigger

    async def due_after_run(self) -> Trigger | None:
        """Return the trigger that calls for compaction now that a run has ended, if one does."""
        core, memory = self.core, self.core.memory
        if not core.worker.history or not memory.answered(core.worker.history):
            return None

        tokens = core.worker.occupancy().tokens
        if core.host.builtin is None:
            return await self._by_engine(tokens)

        limit = core.thresholds.compact
        if limit is None or tokens <= limit:
            return None

        return "threshold" if memory.worth_trying(tokens, limit, core.sizes().floor) else None

    async def _by_engine(self, tokens: int) -> Trigger | None:
        if self.core.memory.disabled or not await self.core.host.wants_compaction(tokens):
            return None

        return "engine"

    def _by_request_threshold(self, tokens: int) -> Trigger | None:
        core, memory = self.core, self.core.memory
        limit = core.thresholds.request
        if limit is None or tokens <= limit:
            return None

        # After a failure the run goes on, until the window is full: then a digest may still do.
        at_window = self._would_overflow(tokens)
        if memory.blocked_at_window or (memory.blocked_in_run and not at_window):
            return None

        worth = memory.worth_trying(tokens, limit, core.sizes().floor)
        return "request_threshold" if worth else None

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
            PodBusy: The run is paused, and tool calls wait for it to go on.
            SessionStoreError: The session's log takes nothing more.
        """
        core = self.core
        self._refuse_while_calls_wait()
        request = self._request(trigger, focus)
        if not core.host.has_content(request):
            return None

        state, self._scope = core.state, anyio.CancelScope()
        try:
            core.set_state("compacting")
            return await self._attempt(request, time.monotonic(), in_run=in_run)
        finally:
            self._scope = None
            core.set_state(state)

    async def _attempt(
        self, request: CompactionRequest, started_s: float, *, in_run: bool
    ) -> CompactionDone:
        """Announce, plan and commit. A cancellation is heard while planning, and only then."""
        await uninterrupted(self._announce(request))
        try:
            plan = await self._planned(request)
            return await uninterrupted(self._commit(plan, request, started_s, in_run=in_run))
        except CompactionError as error:
            await uninterrupted(self._failed(request, error))
            raise
        except anyio.get_cancelled_exc_class():
            await uninterrupted(self._failed(request, _cancelled()))
            raise

    async def _planned(self, request: CompactionRequest) -> CompactionPlan:
        scope = self._scope
        assert scope is not None  # noqa: S101  made by `compact`
        with scope:
            await checkpoint()
            return await self._plan(request)

        # The scope swallowed its own cancellation: `cancel` was called.
        raise _cancelled()

    def cancel(self) -> None:
        """Cancel the compaction that is going on, if one is; the old state stays."""
        if self._scope is not None:
            self._scope.cancel()

    @property
    def running(self) -> bool:
        """Whether a compaction is going on."""
        return self._scope is not None

    def _refuse_while_calls_wait(self) -> None:
        if self.core.state == "paused" and self.core.worker.open_calls():
            message = "the run is paused before tool calls that have not run yet"
            raise PodBusy(message, hint="resume it, or go on with another prompt, first")

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
            focus=core.masked(focus) if focus is not None else None,
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
        with core.summarizer.attempt():
            said = await core.memory_host.before_compaction(request.items)
            plan = await core.host.make_plan(evolve(request, memory_context=said))

        return await in_thread(
            lambda: checked(
                plan,
                request.items,
                tokens_before=core.worker.meter.prompt_estimate(),
                tokens_of=lambda made: core.tokens_of(made.history, made.watermark),
            )
        )

    # ------------------------------------------------------------------ success

    async def _commit(
        self, plan: CompactionPlan, request: CompactionRequest, started_s: float, *, in_run: bool
    ) -> CompactionDone:
        core = self.core
        old, before = core.session, tuple(core.worker.history)
        known = set(map(id, before))
        made = (i if id(i) in known else core.worker.as_kept(i) for i in plan.history)
        history = (*made, *before[plan.base_len :])
        figures = await in_thread(lambda: self._figures(plan, request, history, started_s))
        new = await self._publish(plan, history, figures, in_run=in_run)
        # From here on the new session is the truth: nothing may fail any more, only be told.
        self._move_to(new, history, plan, request)
        await self._leave(old)
        done = CompactionDone(
            old_session_id=old.session_id,
            new_session_id=new.session_id,
            compacted_from=(old.session_id, old.head.hash),
            usage=self._usage(plan),
            **figures,
        )
        await self._tell(done, plan, before)
        return done

    def _figures(
        self,
        plan: CompactionPlan,
        request: CompactionRequest,
        history: Sequence[Item],
        started_s: float,
    ) -> dict[str, Any]:
        """Return what the log and the event say alike."""
        core = self.core
        return {
            "trigger": request.trigger,
            "engine": core.host.name,
            "items_before": len(core.worker.history),
            "items_after": len(history),
            "tokens_before": core.worker.meter.prompt_estimate(),
            "tokens_after": core.tokens_of(history, plan.watermark),
            "duration_ms": round((time.monotonic() - started_s) * 1000),
            "generation": plan.generation,
            "method": plan.method,
        }

    async def _publish(
        self,
        plan: CompactionPlan,
        history: Sequence[Item],
        figures: dict[str, Any],
        *,
        in_run: bool,
    ) -> Session:
        """Write the new session whole, and return it. Raises `CompactionError`."""
        core, old = self.core, self.core.session
        fields = {"old": old.session_id, **figures, **self._entry(plan, in_run=in_run)}
        start = {"system_prompt": core.worker.system_prompt, "config": dict(core.config)}
        try:
            if in_run:
                # The run goes on in the new session, which counts as interrupted until it ends.
                outcome = {"outcome": "yielded", "interrupted": False}
                await core.journal.append(("run_outcome", outcome))

            return await in_thread(
                lambda: core.store.publish_compacted(
                    old,
                    history=list(history),
                    watermark=plan.watermark,
                    compaction=fields,
                    start=start,
                )
            )
        except InvalidHistory as error:
            raise CompactionError("invalid_result", str(error)) from error
        except SessionStoreError as error:
            message = f"the new session could not be written: {error}"
            raise CompactionError("storage", message) from error

    def _cost(self, plan: CompactionPlan) -> float | None:
        """Return what the summary cost, in US dollars, where that is known."""
        if plan.usage is None:
            return None

        return self.core.prices(plan.usage, self.core.summarizer.client(), plan.model)

    def _usage(self, plan: CompactionPlan) -> Usage | None:
        if plan.usage is None:
            return None

        return Usage(**asdict(plan.usage), model=plan.model or None, cost=self._cost(plan))

    def _entry(self, plan: CompactionPlan, *, in_run: bool) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "usage": asdict(plan.usage) if plan.usage else None,
            "cost": self._cost(plan),
            "model": plan.model,
            "prompt_digest": plan.prompt_digest,
        }
        if in_run:
            fields["in_run"] = True

        if plan.failure is not None:
            failures, disabled = self.core.memory.after(plan.failure)
            fields |= {
                "reason": plan.failure.reason,
                "consecutive_failures": failures,
                "disabled": disabled,
            }

        return fields

    def _move_to(
        self,
        new: Session,
        history: Sequence[Item],
        plan: CompactionPlan,
        request: CompactionRequest,
    ) -> None:
        core = self.core
        core.journal.session = new
        core.worker.set_history(history, watermark=plan.watermark)
        if core.prune is not None:
            core.prune.reset()

        # A plugin engine has thresholds of its own; its effect is for it to judge.
        threshold = request.threshold if core.host.builtin is not None else None
        core.memory.committed(
            plan.generation, len(history), threshold=threshold, failure=plan.failure
        )

    async def _leave(self, old: Session) -> None:
        """Move the pointer and let go of the old session; what fails is told and harms nothing."""
        core = self.core
        try:
            await core.point_here()
        except SessionStoreError as error:
            self._warn(f"the pod's pointer still names the session before: {error}")

        try:
            await in_thread(old.close)
        except SessionStoreError as error:
            self._warn(f"the session before was not closed in order: {error}")

    def _warn(self, message: str) -> None:
        self.core.publish(Alert(level="warning", message=message))

    async def _tell(
        self, done: CompactionDone, plan: CompactionPlan, before: tuple[Item, ...]
    ) -> None:
        core = self.core
        old_id, new_id = done.old_session_id, done.new_session_id
        core.publish(done, (new_id, 1))
        core.publish(
            SessionChanged(old_session_id=old_id, new_session_id=new_id, reason="compaction")
        )
        if plan.failure is not None:
            off = "; compaction is off for this session now" if core.memory.disabled else ""
            self._warn(
                f"a digest took the summary's place, for the summarizer failed: "
                f"{core.masked(plan.failure.message)}{off}"
            )

        await core.host.boundary(old_id, new_id, before, platform="pod", conversation_id=core.name)
        await core.memory_host.compacted(old_id, new_id, before)

    # ------------------------------------------------------------------ failure

    async def _failed(self, request: CompactionRequest, error: CompactionError) -> None:
        """Count a failure, log it and tell of it; what the store raises comes after that."""
        core, memory = self.core, self.core.memory
        memory.failed(error, at_window=request.would_overflow)
        message = core.masked(error.message)
        entry = {
            "trigger": request.trigger,
            "reason": error.reason,
            "message": message,
            "consecutive_failures": memory.failures,
            "disabled": memory.disabled,
        }
        drafts: list[EntryDraft] = [("compaction_failed", entry)]
        if error.reason == "floor":
            memory.floors[request.threshold] = core.sizes().floor
            payload = {"domain": FLOOR_DOMAIN, "payload": floors_payload(memory)}
            drafts.append(("extension", payload))

        ref: tuple[str, int] | None = None
        try:
            ref = (await core.journal.append(*drafts))[0]
        finally:
            # A log that takes nothing more is no reason to leave a start without its end.
            core.publish(
                CompactionFailed(
                    session_id=request.session_id,
                    trigger=request.trigger,
                    reason=error.reason,
                    message=message,
                    consecutive_failures=memory.failures,
                    disabled=memory.disabled,
                ),
                ref,
            )


def _cancelled() -> CompactionError:
    return CompactionError("cancelled", "cancelled")
