"""One compaction from its trigger to its last event: plan, check, commit, or failure."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import anyio
from anyio.lowlevel import checkpoint
from attrs import define, evolve, field

from pod.compaction.due import Due, WhenDue
from pod.compaction.figures import entry_of, figures_of, usage_of
from pod.compaction.plan import CompactionError, CompactionPlan, CompactionRequest
from pod.compaction.result import checked
from pod.compaction.state import FLOOR_DOMAIN, floors_payload
from pod.compaction.thresholds import UNKNOWN_WINDOW
from pod.context.compacting import Attempt
from pod.context.words import one_line
from pod.core import PodCore
from pod.errors import PodBusy
from pod.journal import EntryDraft, in_thread
from pod.protocol import (
    Alert,
    CompactionDone,
    CompactionFailed,
    CompactionStart,
    SessionChanged,
)
from pod.protocol.events import Trigger
from session_store import InvalidHistory, Session, SessionStoreError
from worker.foreign import uninterrupted
from worker.items import Item

_AWAITED: frozenset[Trigger] = frozenset({"manual", "overflow", "model_switch"})
"""Compactions that somebody waits for: they wait for a place in turn, the others do without."""


@define(eq=False)
class _Work:
    """One compaction, from its trigger on."""

    request: CompactionRequest
    due: Due | None
    in_run: bool = field(kw_only=True)
    started_s: float = field(factory=time.monotonic, init=False)
    attempt: Attempt | None = field(default=None, init=False)
    is_announced: bool = field(default=False, init=False)
    stood_in: bool = field(default=False, init=False)
    """Whether a digest takes the place of what the engine should have made."""

    @property
    def duration_s(self) -> float:
        """For how long it has been going on."""
        return time.monotonic() - self.started_s

    @property
    def is_optional(self) -> bool:
        """Whether nothing needs to come of it: it is told of only when something does."""
        return self.due is not None and self.due.is_optional


@define(eq=False)
class Compactor:
    """Compacts one pod's history. Single-flight: the pod's gate is held by the caller."""

    core: PodCore
    when: WhenDue = field(init=False)
    _due: Due | None = field(default=None, init=False)
    """What called for the compaction that is asked for next."""
    _scope: anyio.CancelScope | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        """Set up the parts."""
        self.when = WhenDue(self.core)

    # ------------------------------------------------------------------ when

    def new_run(self) -> None:
        """Note that a run begins."""
        self.core.memory.new_run()
        self.core.host.new_run()
        self.when.new_run()

    async def due_before_request(self) -> Trigger | None:
        """Return the trigger that calls for compaction before the next request, if one does."""
        self._due = await self.when.before_request(lambda trigger: self._request(trigger, None))
        return self._due.trigger if self._due else None

    async def due_after_run(self) -> Trigger | None:
        """Return the trigger that calls for compaction now that a run has ended, if one does."""
        self._due = await self.when.after_run()
        return self._due.trigger if self._due else None

    # ------------------------------------------------------------------ the compaction

    def preview(self, focus: str | None = None) -> CompactionRequest | None:
        """Return what a manual compaction would be asked to do, or None with nothing to cut."""
        request = self._request("manual", focus)
        return request if self.core.host.has_content(request) else None

    async def compact(
        self, trigger: Trigger, *, focus: str | None = None, in_run: bool = False
    ) -> CompactionDone | None:
        """Compact, and return what was done; None, silently, where there is nothing to cut.

        Every start is followed by one done or failed, in the log and in the events. One that nobody
        waits for is put off, and None too, where no place is free for it.

        Raises:
            CompactionError: It failed; the history is unchanged and the failure was told.
            PodBusy: The run is paused, and tool calls wait for it to go on.
            SessionStoreError: The session's log takes nothing more.
        """
        self._refuse_while_calls_wait()
        due, self._due = self._due, None
        if due is not None and due.trigger != trigger:
            due = None  # The run ended before it came to that.

        done = await self._compact(self._request(trigger, focus), due, in_run=in_run)
        if in_run:
            self.when.done(due, done)

        return done

    async def _compact(
        self, request: CompactionRequest, due: Due | None, *, in_run: bool
    ) -> CompactionDone | None:
        core = self.core
        if not await self._has_content(request):
            return None

        work = _Work(request, due, in_run=in_run)
        if request.trigger not in _AWAITED:
            work.attempt = core.host.compactions.try_admit()
            if work.attempt is None:
                return None

        state, self._scope = core.state, anyio.CancelScope()
        try:
            core.set_state("compacting")
            return await self._attempt(work)
        finally:
            if work.attempt is not None:
                core.host.compactions.close(work.attempt)

            self._scope = None
            core.set_state(state)

    async def _has_content(self, request: CompactionRequest) -> bool:
        host = self.core.host
        if not host.has_content(request):
            return False

        return request.trigger != "manual" or await host.finds_content(request)

    async def _attempt(self, work: _Work) -> CompactionDone | None:
        """Announce, plan and commit. A cancellation is heard while planning, and only then."""
        if not work.is_optional:
            await uninterrupted(self._announce(work))

        try:
            plan = await self._planned(work)
            return await uninterrupted(self._commit(plan, work))
        except CompactionError as error:
            if work.is_optional and error.reason == "no_progress":
                return None  # Nothing was announced, and nothing had to come of it.

            await uninterrupted(self._failed(work, error))
            raise
        except anyio.get_cancelled_exc_class():
            await uninterrupted(self._failed(work, _cancelled()))
            raise

    async def _planned(self, work: _Work) -> CompactionPlan:
        scope = self._scope
        assert scope is not None  # noqa: S101  made by `compact`
        with scope:
            await checkpoint()
            return await self._plan(work)

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
            would_overflow=trigger == "overflow" or core.would_overflow(tokens),
        )

    async def _announce(self, work: _Work) -> None:
        """Tell of the start, once."""
        if work.is_announced:
            return

        core, request = self.core, work.request
        work.is_announced = True
        threshold = None if request.trigger == "engine" else request.threshold
        entry = {
            "trigger": request.trigger,
            "engine": core.host.name,
            "input_tokens": request.occupancy,
            "threshold": threshold,
        }
        message = await self._routine_message(work)
        (ref,) = await core.journal.append(("compaction_started", entry))
        core.publish(
            CompactionStart(
                session_id=request.session_id,
                trigger=request.trigger,
                engine=core.host.name,
                input_tokens=request.occupancy,
                threshold=threshold,
                focus=request.focus,
                message=message,
            ),
            ref,
        )

    async def _routine_message(self, work: _Work) -> str | None:
        """Return what the engine wants said of a compaction that nobody asked for by hand."""
        core, request = self.core, work.request
        if request.trigger == "manual" or core.host.builtin is not None:
            return None

        said = await core.host.routine_message(
            "preflight" if work.due is not None and work.due.at_turn_start else "compress",
            f"compacting about {request.occupancy:,} tokens",
            approx_tokens=request.occupancy,
            threshold_tokens=request.threshold,
            context_length=core.thresholds.window or UNKNOWN_WINDOW,
            model=core.worker.client.model,
        )
        return one_line(core.masked(said)) if said is not None else None

    async def _plan(self, work: _Work) -> CompactionPlan:
        core, request = self.core, work.request
        core.summarizer.on_progress = core.host.touch
        with core.summarizer.attempt():
            if await core.host.wants_memory(request):
                said = await core.memory_host.before_compaction(request.items)
                request = evolve(request, memory_context=said)

            try:
                if work.attempt is None:
                    work.attempt = await core.host.compactions.admit()

                plan = await core.host.make_plan(work.attempt, request)
                return await self._checked(plan, request)
            except CompactionError as error:
                return await self._digest(work, request, error)

    async def _digest(
        self, work: _Work, request: CompactionRequest, error: CompactionError
    ) -> CompactionPlan:
        """Return a digest in place of what an engine could not do, where nothing else would fit.

        The built-in engine has made its own already. Raises `error` where there is none to make.
        """
        host = self.core.host
        if host.builtin is not None or not request.would_overflow:
            raise error

        plan = await in_thread(lambda: host.digest_plan(request, error))
        if plan is None:
            raise error

        work.stood_in = True
        return await self._checked(plan, request)

    async def _checked(self, plan: CompactionPlan, request: CompactionRequest) -> CompactionPlan:
        core = self.core
        return await in_thread(
            lambda: checked(
                plan,
                request.items,
                tokens_before=core.worker.meter.prompt_estimate(),
                tokens_of=lambda made: core.tokens_of(made.history, made.watermark),
            )
        )

    # ------------------------------------------------------------------ success

    async def _commit(self, plan: CompactionPlan, work: _Work) -> CompactionDone:
        core, request = self.core, work.request
        await self._announce(work)
        if work.attempt is not None and not work.stood_in:
            work.attempt.begin_commit()

        old, before = core.session, tuple(core.worker.history)
        known = set(map(id, before))
        made = (i if id(i) in known else core.worker.as_kept(i) for i in plan.history)
        history = (*made, *before[plan.base_len :])
        figures = await in_thread(
            lambda: figures_of(
                core, plan, history, trigger=request.trigger, duration_s=work.duration_s
            )
        )
        new = await self._publish(plan, history, figures, in_run=work.in_run)
        # From here on the new session is the truth: nothing may fail any more, only be told.
        self._move_to(new, history, plan, request)
        await self._leave(old)
        done = CompactionDone(
            old_session_id=old.session_id,
            new_session_id=new.session_id,
            compacted_from=(old.session_id, old.head.hash),
            usage=usage_of(core, plan),
            **figures,
        )
        await self._tell(done, plan, before, work.attempt)
        return done

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
        fields = {"old": old.session_id, **figures, **entry_of(core, plan, in_run=in_run)}
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
        self,
        done: CompactionDone,
        plan: CompactionPlan,
        before: tuple[Item, ...],
        attempt: Attempt | None,
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

        await core.host.boundary(attempt, before, new_id, done.tokens_after)
        await core.memory_host.compacted(old_id, new_id, before)

    # ------------------------------------------------------------------ failure

    async def _failed(self, work: _Work, error: CompactionError) -> None:
        """Count a failure, log it and tell of it; what the store raises comes after that."""
        core, memory, request = self.core, self.core.memory, work.request
        await self._announce(work)
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
