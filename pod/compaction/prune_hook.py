"""The hook that prunes: before each request, when enough can be saved, the watermark moves on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import define

from worker.hooks import Action, Continue
from worker.ports import RequestStage
from worker.prune import PruneConfig, plan_between, prune_boundary

if TYPE_CHECKING:
    from manifests import CompactionSection
    from worker import Worker


@define(eq=False)
class PruneHook(RequestStage):
    """Prunes by `worker.prune` before a request, once the boundary has moved."""

    config: PruneConfig
    _seen_boundary: int = -1

    async def before_request(self, worker: Worker) -> Action:
        """Move the watermark where that pays; the move is in the log before it takes effect."""
        history = worker.history
        boundary = prune_boundary(history, self.config, weigh=worker.meter.weigh)
        if boundary == self._seen_boundary or boundary <= worker.watermark:
            return Continue()

        self._seen_boundary = boundary
        plan = plan_between(history, worker.watermark, boundary, self.config.min_savings)
        if plan is not None:
            await worker.advance_watermark(plan, "threshold")

        return Continue()

    def reset(self) -> None:
        """Forget the boundary: the history was replaced."""
        self._seen_boundary = -1


def prune_config(section: CompactionSection) -> PruneConfig:
    """Return what a manifest's `[compaction]` says of pruning."""
    return PruneConfig(
        protected_turns=section.prune_protected_turns,
        min_savings=section.prune_min_savings,
        protected_tokens=section.prune_protected_tokens,
    )
