"""The hook that prunes: before each request, when enough can be saved, the watermark moves on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import define, field

from worker.hooks import Action, Continue
from worker.items import is_turn_start
from worker.ports import RequestStage
from worker.prune import PruneConfig, first_unseen, plan_between, prune_boundary

if TYPE_CHECKING:
    from manifests import CompactionSection
    from worker import Worker


@define(eq=False)
class PruneHook(RequestStage):
    """Prunes by `worker.prune` before a request, once the boundary has moved."""

    config: PruneConfig
    _seen_boundary: int = -1
    _turn_starts: list[int] = field(factory=list)
    _seen_items: int = 0

    async def before_request(self, worker: Worker) -> Action:
        """Move the watermark where that pays; the move is in the log before it takes effect."""
        history = worker.history
        boundary = self._boundary(worker)
        if boundary == self._seen_boundary or boundary <= worker.watermark:
            return Continue()

        self._seen_boundary = boundary
        plan = plan_between(history, worker.watermark, boundary, self.config.min_savings)
        if plan is not None:
            await worker.advance_watermark(plan, "threshold")

        return Continue()

    def reset(self) -> None:
        """Forget what was seen: the history was replaced."""
        self._seen_boundary = -1
        self._turn_starts.clear()
        self._seen_items = 0

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


def prune_config(section: CompactionSection) -> PruneConfig:
    """Return what a manifest's `[compaction]` says of pruning."""
    return PruneConfig(
        protected_turns=section.prune_protected_turns,
        min_savings=section.prune_min_savings,
        protected_tokens=section.prune_protected_tokens,
    )
