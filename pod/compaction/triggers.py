"""When to compact by itself: after a run, and before a request in the middle of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import define

from pod.protocol.events import Trigger
from worker.hooks import Action, Continue, Yield
from worker.ports import RequestStage
from worker.worker import Worker

if TYPE_CHECKING:
    from pod.compaction.compactor import Compactor


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


IN_RUN_TRIGGERS: frozenset[str] = frozenset({"request_threshold", "overflow", "engine"})
"""What a yielded run may be yielded for by us; anything else is somebody's hook."""


def as_trigger(text: str) -> Trigger:
    """Return the trigger of that name. Raises `ValueError` for any other text."""
    match text:
        case "request_threshold" | "overflow" | "engine":
            return text
        case _:
            message = f"not a trigger of ours: {text}"
            raise ValueError(message)
