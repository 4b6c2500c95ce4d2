"""When to compact by itself: the built-in engine by the pod's thresholds, others when they say."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from attrs import define, field, frozen

from pod.compaction.plan import CompactionRequest
from pod.context.decisions import Decision, Situation
from pod.core import PodCore
from pod.protocol import CompactionDone
from pod.protocol.events import Trigger

RequestFor: TypeAlias = Callable[[Trigger], CompactionRequest]

MOST_PASSES = 3
"""How often an engine may compact in one run."""
LEAST_PROGRESS = 0.05
"""By what part a pass must make the prompt smaller, if not the history shorter, to be repeated."""


@frozen
class Due:
    """A compaction that is called for."""

    trigger: Trigger
    at_turn_start: bool = False
    is_upkeep: bool = False
    """Whether no threshold is reached."""
    is_repeated: bool = False
    """Whether one went before it, with no request in between."""

    @property
    def is_optional(self) -> bool:
        """Whether nothing needs to come of it: then it is told of only when something does."""
        return self.is_upkeep or self.is_repeated


@define(eq=False)
class WhenDue:
    """Tells when one pod's history is to be compacted, and remembers what that came to in a run."""

    core: PodCore
    _passes: int = field(default=0, init=False)
    """How often an engine compacted in the present run."""
    _has_asked: bool = field(default=False, init=False)
    """Whether the run's first request has gone out."""
    _is_settled: bool = field(default=False, init=False)
    """Whether no further pass is of use before that."""
    _in_vain_at: int | None = field(default=None, init=False)
    """How long the history was when compacting came to nothing: it is not tried again at that."""

    def new_run(self) -> None:
        """Forget what concerned the last run only."""
        self._passes, self._has_asked, self._is_settled = 0, False, False
        self._in_vain_at = None

    def done(self, due: Due | None, done: CompactionDone | None) -> None:
        """Note what a compaction in a run came to; None: it was put off, or came to nothing."""
        self._passes += 1
        if done is None:
            self._in_vain_at = len(self.core.worker.history)
            self._is_settled = True
            return

        is_smaller = done.tokens_after < done.tokens_before * (1 - LEAST_PROGRESS)
        progressed = is_smaller or done.items_after < done.items_before
        self._is_settled = not progressed or (due is not None and due.is_upkeep)

    # ------------------------------------------------------------------ before a request

    async def before_request(self, request_for: RequestFor) -> Due | None:
        """Return what calls for compaction before the next request, if anything does."""
        due = await self._before_request()
        if due is not None and not self.core.host.has_content(request_for(due.trigger)):
            due = None

        self._has_asked = self._has_asked or due is None
        return due

    async def _before_request(self) -> Due | None:
        core = self.core
        if len(core.worker.history) == self._in_vain_at:
            return None

        if core.host.builtin is None:
            return await self._engine_in_run()

        if not core.memory.answered(core.worker.history):
            return None

        trigger = self._by_request_threshold(core.worker.occupancy().tokens)
        return Due(trigger) if trigger else None

    async def _engine_in_run(self) -> Due | None:
        core, at_start = self.core, not self._has_asked
        if core.memory.blocked_in_run or self._passes >= MOST_PASSES:
            return None

        # After a compaction the model answers first; only before a run's first request may an
        # engine take several passes, as long as they lead somewhere.
        may_ask = not self._is_settled if at_start else core.memory.answered(core.worker.history)
        return await self._by_engine(at_turn_start=at_start) if may_ask else None

    def _by_request_threshold(self, tokens: int) -> Trigger | None:
        core, memory = self.core, self.core.memory
        limit = core.thresholds.request
        if limit is None or tokens <= limit:
            return None

        # After a failure the run goes on, until the window is full: then a digest may still do.
        at_window = core.would_overflow(tokens)
        if memory.blocked_at_window or (memory.blocked_in_run and not at_window):
            return None

        worth = memory.worth_trying(tokens, limit, core.sizes().floor)
        return "request_threshold" if worth else None

    # ------------------------------------------------------------------ after a run

    async def after_run(self) -> Due | None:
        """Return what calls for compaction now that a run has ended, if anything does."""
        core, memory = self.core, self.core.memory
        if not core.worker.history or not memory.answered(core.worker.history):
            return None

        if core.host.builtin is None:
            return await self._by_engine(at_turn_start=False)

        tokens, limit = core.worker.occupancy().tokens, core.thresholds.compact
        if limit is None or tokens <= limit:
            return None

        worth = memory.worth_trying(tokens, limit, core.sizes().floor)
        return Due("threshold") if worth else None

    async def _by_engine(self, *, at_turn_start: bool) -> Due | None:
        core = self.core
        await core.tell_engine_of_model()
        worker = core.worker
        tokens = worker.occupancy().tokens
        fixed = round(worker.meter.fixed_raw * worker.meter.scale)
        decision: Decision = await core.host.wants_compaction(
            Situation(
                items=tuple(worker.history),
                tokens=tokens,
                message_tokens=max(0, tokens - fixed),
                at_turn_start=at_turn_start,
            )
        )
        if core.memory.disabled or not decision.compress:
            return None

        is_repeated = at_turn_start and self._passes > 0
        return Due("engine", at_turn_start, decision.below_threshold, is_repeated)
