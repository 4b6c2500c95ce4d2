"""What automatic compaction remembers between its attempts, in the process and from the log."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import define, frozen

from pod.compaction.plan import NOT_COUNTED, CompactionError
from pod.protocol.events import Trigger
from session_store import SessionState
from worker.items import Item

MOST_FAILURES = 3
"""Failures in a row after which automatic compaction is off for the session."""


@frozen
class FirstMeasurement:
    """A compaction whose effect the provider has not measured yet."""

    history_len: int
    """How long the new history was."""
    threshold: int
    """What the first measured prompt, less what was added since, must stay below."""


@define
class CompactionMemory:
    """The breaker, the pending first measurement, and what is not worth trying again."""

    failures: int = 0
    disabled: bool = False
    generation: int = 0
    pending: FirstMeasurement | None = None
    thrash_tokens: int | None = None
    """The size at which compacting was found not to help."""
    thrashed_now: bool = False
    """Whether that was found in the present run, which ends for it."""
    floor: tuple[int, int] | None = None
    """The floor and threshold of the last attempt that failed for its floor."""
    blocked_in_run: bool = False
    """Whether an attempt failed in the present run: no more by threshold until the next run."""

    def failed(self, error: CompactionError) -> None:
        """Count a failure; the third in a row switches automatic compaction off."""
        self.blocked_in_run = True
        if error.reason in NOT_COUNTED:
            return

        self.failures += 1
        self.disabled = self.failures >= MOST_FAILURES

    def committed(
        self, generation: int, pending: FirstMeasurement | None, *, by_digest: bool
    ) -> None:
        """Note a compaction that was committed. A summary closes the breaker; a digest does not."""
        self.generation = generation
        self.pending = pending
        self.floor = None
        if not by_digest:
            self.failures = 0
            self.disabled = False

    def measured(self, input_tokens: int, added_since: float) -> bool:
        """Judge the first measured request after a compaction; returns whether it thrashes."""
        if self.pending is None:
            return False

        pending, self.pending = self.pending, None
        if input_tokens - added_since > pending.threshold:
            self.thrash_tokens = input_tokens
            self.thrashed_now = True
            return True

        self.thrash_tokens = None
        return False

    def worth_trying(self, occupancy: int, threshold: int) -> bool:
        """Tell whether an automatic compaction at this size is sensible.

        Not while it is off, not before the last one was measured, and, after one that did not
        help, not before the prompt has grown by a quarter of the threshold.
        """
        if self.disabled or self.pending is not None:
            return False

        return self.thrash_tokens is None or occupancy >= self.thrash_tokens + threshold // 4

    def new_run(self) -> None:
        """Forget what concerned the last run only."""
        self.blocked_in_run = False
        self.thrashed_now = False


def remembered(
    state: SessionState,
    *,
    trigger: Trigger | None,
    items_after: int,
    threshold: Callable[[Trigger], int],
    weigh: Callable[[Item], float],
) -> CompactionMemory:
    """Return the memory that a session's log amounts to.

    Args:
        state: The restored session.
        trigger: What triggered the compaction that the session began with, if it did.
        items_after: How many items the session began with.
        threshold: The threshold of a trigger.
        weigh: Fitted tokens of an item.
    """
    memory = CompactionMemory(
        failures=state.consecutive_failures,
        disabled=state.compaction_disabled,
        generation=state.generation,
    )
    if trigger is None:
        return memory

    memory.pending = FirstMeasurement(items_after, threshold(trigger))
    if state.usage:
        first = state.usage[0]
        added = added_since(state.history, items_after, first.history_len, weigh)
        memory.measured(first.input_tokens, added)
        memory.thrashed_now = False

    return memory


def added_since(
    history: Sequence[Item], start: int, end: int, weigh: Callable[[Item], float]
) -> float:
    """Return the fitted tokens of `history[start:end]`."""
    return sum(map(weigh, history[start:end]))
