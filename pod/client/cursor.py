"""Where a client is in the stream of a pod's events: what comes next, and what is missing."""

from __future__ import annotations

from typing import Literal, TypeAlias

from attrs import define, frozen

Verdict: TypeAlias = Literal["new", "again", "gap"]


@frozen
class Position:
    """A place in the stream: the next event wanted, by its number within a launch."""

    launch: str
    seq: int


@define(eq=False)
class Cursor:
    """Follows the numbers of events, within a launch and from one launch to the next.

    Numbers rise by one. They may leap only where the pod said that it replays what the log knows:
    what was never in a log is not in there.
    """

    position: Position | None = None
    """None until the first subscription."""
    is_filtered: bool = False
    """Whether not all events are asked for, so that numbers leap."""
    _last: Position | None = None
    """The last event before the newest subscription: up to there, what comes is a replay."""
    _leaps: bool = False
    """Whether numbers may leap up to there."""

    def subscribed(self, launch: str, seq: int, *, from_log: bool) -> None:
        """Note a subscription's answer: the present launch and its last event."""
        if self.position is None:
            self.position = Position(launch, seq + 1)

        self._last, self._leaps = Position(launch, seq), from_log

    def take(self, launch: str, seq: int, first_seq: int | None = None) -> Verdict:
        """Say what an event is: the next one, one that came already, or one after a gap.

        A gap leaves the cursor where it was.
        """
        at = self.position
        if at is not None and launch == at.launch:
            if seq < at.seq:
                return "again"

            if (first_seq or seq) > at.seq and not self._may_leap(launch, at.seq):
                return "gap"

        elif at is not None and not self._may_leap(launch, 0):
            return "gap"

        self.position = Position(launch, seq + 1)
        return "new"

    def leap(self, launch: str, seq: int) -> None:
        """Go on after `seq`: a snapshot stands for all up to it, or a heartbeat came after."""
        at = self.position
        if at is None or at.launch != launch or at.seq <= seq:
            self.position = Position(launch, seq + 1)

    def is_behind(self, launch: str, seq: int) -> bool:
        """Tell whether a heartbeat names an event that should have come and did not."""
        at = self.position
        return at is not None and not self.is_filtered and launch == at.launch and seq >= at.seq

    @property
    def is_replaying(self) -> bool:
        """Whether what comes next was published before the newest subscription."""
        at, last = self.position, self._last
        return at is not None and last is not None and self._precedes(at.launch, at.seq, last)

    def _may_leap(self, launch: str, wanted: int) -> bool:
        if self.is_filtered:
            return True

        last = self._last
        return self._leaps and last is not None and self._precedes(launch, wanted, last)

    @staticmethod
    def _precedes(launch: str, seq: int, last: Position) -> bool:
        return launch != last.launch or seq <= last.seq
