"""The hook that prunes: before each request, where it pays, the watermark moves on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from attrs import define, field, frozen

from pod.compaction.break_even import CACHE_TTL_S, CachePrices, pays, requests_to_come
from worker.hooks import Action, Continue
from worker.items import Item, ToolResult, is_turn_start
from worker.ports import RequestStage
from worker.prune import (
    PruneConfig,
    PrunePlan,
    first_unseen,
    plan_between,
    prune_boundary,
    pruned_result,
)

if TYPE_CHECKING:
    from manifests import CompactionSection
    from worker import Worker


@frozen
class BreakEven:
    """What the policy of that name looks at, as it is at the moment."""

    prices: Callable[[], CachePrices]
    limit: Callable[[], int | None]
    """Tokens at which the history is compacted."""


@define(eq=False)
class PruneHook(RequestStage):
    """Prunes by `worker.prune` before a request, once the boundary has moved.

    With `break_even`, it does so where that is cheaper than the broken prompt cache; without, where
    enough is saved at once.
    """

    config: PruneConfig
    break_even: BreakEven | None = None
    _seen_boundary: int = -1
    _turn_starts: list[int] = field(factory=list)
    _seen_items: int = 0
    _asked_at_s: float | None = None

    async def before_request(self, worker: Worker) -> Action:
        """Move the watermark where that pays; the move is in the log before it takes effect."""
        is_cold = self._note_time(worker.ports.clock())
        boundary = self._boundary(worker)
        is_new = boundary != self._seen_boundary or (is_cold and self.break_even is not None)
        if not is_new or boundary <= worker.watermark:
            return Continue()

        self._seen_boundary = boundary
        plan, reason = self._plan(worker, boundary, is_cold=is_cold)
        if plan is not None:
            await worker.advance_watermark(plan, reason)

        return Continue()

    def _note_time(self, now_s: float) -> bool:
        """Note the time of a request; tell whether the provider has forgotten the last one."""
        before_s, self._asked_at_s = self._asked_at_s, now_s
        return before_s is None or now_s - before_s > CACHE_TTL_S

    def _plan(
        self, worker: Worker, boundary: int, *, is_cold: bool
    ) -> tuple[PrunePlan | None, str]:
        history, watermark = worker.history, worker.watermark
        if self.break_even is None:
            return plan_between(history, watermark, boundary, self.config.min_savings), "threshold"

        plan = plan_between(history, watermark, boundary, 1)
        if plan is None or is_cold:
            # Nothing is cached: whatever is left out is saved.
            return plan, "cold_cache"

        return plan if self._pays(worker, boundary, self.break_even) else None, "break_even"

    def _pays(self, worker: Worker, boundary: int, policy: BreakEven) -> bool:
        history, weigh = worker.history, worker.meter.weigh
        changing = [n for n in range(worker.watermark, boundary) if _has_detail(history[n])]
        saved = sum(weigh(history[n]) - weigh(pruned_result(history[n])) for n in changing)
        rewritten = sum(map(weigh, history[changing[0] :])) - saved
        to_come = requests_to_come(history, worker.occupancy().tokens, policy.limit())
        return pays(saved, rewritten, to_come, policy.prices())

    def reset(self) -> None:
        """Forget what was seen: the history was replaced."""
        self._seen_boundary = -1
        self._turn_starts.clear()
        self._seen_items = 0
        self._asked_at_s = None

    def _boundary(self, worker: Worker) -> int:
        """Return what `prune_boundary` does, looking at each item once in a pod's life.

        One turn may go on for thousands of requests: none of them goes through the history again.
        """
        history, config = worker.history, self.config
        if config.protected_tokens is not None or config.protected_turns == 0:
            return prune_boundary(history, config, weigh=worker.meter.weigh)

        for index in range(self._seen_items, len(history)):
            if is_turn_start(history[index]):
                self._turn_starts.append(index)

        self._seen_items = len(history)
        if len(self._turn_starts) <= config.protected_turns:
            return 0

        return min(self._turn_starts[-config.protected_turns], first_unseen(history))


def _has_detail(item: Item) -> bool:
    return isinstance(item, ToolResult) and bool(item.content or item.attachments)


def prune_config(section: CompactionSection) -> PruneConfig:
    """Return what a manifest's `[compaction]` says of pruning."""
    return PruneConfig(
        protected_turns=section.prune_protected_turns,
        min_savings=section.prune_min_savings,
        protected_tokens=section.prune_protected_tokens,
    )
