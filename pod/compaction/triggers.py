"""When to compact by itself: after a run, and before a request in the middle of one."""

from __future__ import annotations

from attrs import define

from pod.compaction.compactor import Compactor
from worker.hooks import Action, Continue, Yield
from worker.ports import RequestStage
from worker.worker import Worker


@define(eq=False)
class TriggerStage(RequestStage):
    """Yields a run before a request whose prompt calls for compaction first."""

    compactor: Compactor | None = None

    async def before_request(self, worker: Worker) -> Action:
        """Yield with the trigger's name, where compaction is due and there is something to cut."""
        if self.compactor is None:
            return Continue()

        trigger = await self.compactor.due_before_request()
        return Yield(trigger) if trigger else Continue()
