"""The step before each request in which what is remembered for a prompt joins the history."""

from __future__ import annotations

from attrs import define

from worker.hooks import Action, Continue, ContinueWith
from worker.ports import RequestStage
from worker.worker import Worker

from .host import NOTE_KIND, MemoryHost


@define(eq=False)
class MemoryStage(RequestStage):
    """Adds notes to the history, which are in the log before any request contains them."""

    host: MemoryHost
    changed: str = ""
    """What has changed in the memory since the system prompt was written."""

    async def before_request(self, worker: Worker) -> Action:
        """Add what there is to say: of the memory, once, and for a prompt that was just sent."""
        recalled = await self.host.recall(worker.history, worker.turns)
        notes = tuple(note for note in (self.changed, recalled) if note)
        self.changed = ""  # Not before: a run that is cancelled until here is still to be told.
        return ContinueWith(notes, NOTE_KIND) if notes else Continue()
