"""Finding the end of a run, or of a compaction, among the events."""

from __future__ import annotations

import asyncio

from attrs import define, field

from pod.protocol import CompactionDone, CompactionFailed, Envelope, RunEnd, Snapshot

from .cursor import Position
from .errors import RunUnknown

_RESTARTED = "the pod was restarted while the run was going on"
_RESUMABLE = "it can be resumed; the history has what was done"
_MISSED = "the pod went on for so long that it cannot be told how the run ended"


@define(eq=False)
class RunWatch:
    """Waits for the end of one run: the first `run_end` after the event at which it was accepted.

    There is one run at a time, so no other run's end can come between.
    """

    accepted: Position | None = field(default=None, init=False)
    """The first event after the acceptance; None until the run is accepted."""
    _early: list[Envelope] = field(factory=list, init=False)
    """What came before it was known from where on to look."""
    _is_reached: bool = field(default=False, init=False)
    """Whether what comes is of the launch that accepted the run: until then it may be of an earlier
    one, which is still being told."""
    _unreadable: Position | None = field(default=None, init=False)
    """The last end that only a newer version can read."""
    _end: asyncio.Future[RunEnd] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._end = asyncio.get_running_loop().create_future()

    @property
    def is_over(self) -> bool:
        """Whether there is nothing more to wait for."""
        return self._end.done()

    def accept(self, launch: str, seq: int) -> None:
        """Look from the event after `seq` on."""
        self.accepted = Position(launch, seq + 1)
        early, self._early = self._early, []
        for envelope in early:
            self.take(envelope)

        if self._unreadable is not None:
            self.ended_unreadably(self._unreadable.launch, self._unreadable.seq)

    def take(self, envelope: Envelope) -> None:
        """Take in an event."""
        if self.accepted is None:
            if isinstance(envelope.data, RunEnd | Snapshot):
                self._early.append(envelope)
        elif not self._end.done():
            self._look_at(envelope, self.accepted)

    def _look_at(self, envelope: Envelope, accepted: Position) -> None:
        if envelope.launch != accepted.launch and not self._is_reached:
            return

        self._is_reached = True
        if envelope.launch != accepted.launch:
            self.fail(RunUnknown(_RESTARTED, hint=_RESUMABLE))
        elif envelope.seq >= accepted.seq:
            match envelope.data:
                case RunEnd() as end:
                    self._end.set_result(end)
                case Snapshot():
                    hint = "it may still be going on: look at its status and history"
                    self.fail(RunUnknown(_MISSED, hint=hint))
                case _:
                    pass

    def heard_of(self, launch: str) -> None:
        """Take in that the pod is alive in `launch`, and that nothing before it is to come."""
        if self.accepted is None:
            return

        self._is_reached = True
        if launch != self.accepted.launch:
            self.fail(RunUnknown(_RESTARTED, hint=_RESUMABLE))

    def ended_unreadably(self, launch: str, seq: int) -> None:
        """Take in an end that only a newer version can read."""
        at, self._unreadable = self.accepted, Position(launch, seq)
        if at is not None and launch == at.launch and seq >= at.seq:
            message = "the run ended in a way that this version of the client does not know"
            self.fail(RunUnknown(message, hint="use the podworker that the pod runs on"))

    def fail(self, error: Exception) -> None:
        """Give up, unless the run has ended."""
        if not self._end.done():
            self._end.set_exception(error)
            self._end.exception()  # told to whoever waits, if anybody still does

    async def ended(self) -> RunEnd:
        """Return the run's end. Raises `RunUnknown` where it cannot be told."""
        return await asyncio.shield(self._end)


@define(eq=False)
class CompactionWatch:
    """Keeps the last end of a compaction by hand, for whoever asked for one."""

    done: CompactionDone | None = None
    failed: CompactionFailed | None = None

    def take(self, envelope: Envelope) -> None:
        """Take in an event."""
        match envelope.data:
            case CompactionDone(trigger="manual") as done:
                self.done = done
            case CompactionFailed(trigger="manual") as failed:
                self.failed = failed
            case _:
                pass
