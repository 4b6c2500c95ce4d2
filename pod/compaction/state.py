"""What automatic compaction remembers between its attempts, in the process and from the log."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import define, field, frozen

from pod.compaction.plan import NOT_COUNTED, CompactionError
from session_store import SessionState
from worker.items import AssistantMessage, Item

MOST_FAILURES = 3
"""Failures in a row after which automatic compaction is off for the session."""
SAME_FLOOR = 0.1
"""By what part a floor may move and still be the one that was in the way."""


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
    thrash_threshold: int = 0
    """What that size should have stayed below."""
    thrashed_now: bool = False
    """Whether that was found in the present run, which ends for it."""
    floors: dict[int, int] = field(factory=dict)
    """By threshold: the floor at which compacting below it was found to be impossible."""
    blocked_in_run: bool = False
    """Whether an attempt failed in the present run: no more by threshold until the next run."""
    blocked_at_window: bool = False
    """Whether an attempt at a full window failed, though it may fall back on a digest."""
    unanswered_at: int | None = None
    """How long the history was that the last compaction made, until the model answered it."""

    def failed(self, error: CompactionError, *, at_window: bool = False) -> None:
        """Count a failure; the third in a row switches automatic compaction off."""
        self.blocked_in_run = True
        self.blocked_at_window = self.blocked_at_window or at_window
        self.failures, self.disabled = self.after(error)

    def after(self, error: CompactionError) -> tuple[int, bool]:
        """Return the failures in a row, and whether compaction is off, once `error` counted."""
        if error.reason in NOT_COUNTED:
            return self.failures, self.disabled

        failures = self.failures + 1
        return failures, self.disabled or failures >= MOST_FAILURES

    def committed(
        self,
        generation: int,
        history_len: int,
        *,
        threshold: int | None,
        failure: CompactionError | None = None,
    ) -> None:
        """Note a compaction that was committed.

        A summary closes the breaker. `failure` says why there is none: a digest counts. The next
        measurement is judged by `threshold`, where there is one.
        """
        self.generation = generation
        self.unanswered_at = history_len
        self.pending = None if threshold is None else FirstMeasurement(history_len, threshold)
        self.floors.clear()
        if failure is not None:
            self.failed(failure)
        else:
            self.failures = 0
            self.disabled = False

    def answered(self, history: Sequence[Item]) -> bool:
        """Tell whether the model has answered since the last compaction."""
        start = self.unanswered_at
        if start is not None and any(isinstance(i, AssistantMessage) for i in history[start:]):
            self.unanswered_at = None
            # It answered and nothing was measured: there is nothing to wait for.
            self.pending = None

        return self.unanswered_at is None

    def measured(self, input_tokens: int, added_since: float) -> bool:
        """Judge the first measured request after a compaction; returns whether it thrashes."""
        if self.pending is None:
            return False

        pending, self.pending = self.pending, None
        if input_tokens - added_since > pending.threshold:
            self.thrash_tokens, self.thrash_threshold = input_tokens, pending.threshold
            self.thrashed_now = True
            return True

        self.thrash_tokens = None
        return False

    def worth_trying(self, occupancy: int, threshold: int, floor: int) -> bool:
        """Tell whether an automatic compaction at this size is sensible.

        Not while it is off; not before the last one was answered; not where the floor was found to
        be in the way and is about the same still; and, after one that did not help, not before the
        prompt has grown by a quarter of the threshold.
        """
        if self.disabled or self.pending is not None or self._is_known_floor(floor, threshold):
            return False

        return self.thrash_tokens is None or occupancy >= self.thrash_tokens + threshold // 4

    def _is_known_floor(self, floor: int, threshold: int) -> bool:
        known = self.floors.get(threshold)
        # Every measurement fits the estimates anew: a floor that moved a little is the same floor.
        return known is not None and abs(floor - known) <= known * SAME_FLOOR

    def new_run(self) -> None:
        """Forget what concerned the last run only."""
        self.blocked_in_run = self.blocked_at_window = False
        self.thrashed_now = False


FLOOR_DOMAIN = "compaction.floors"
"""The domain of the log's extension entries that keep the floors over a restart."""


def floors_payload(memory: CompactionMemory) -> dict[str, object]:
    """Return what an extension entry has to say so that `remembered` knows the floors again."""
    return {
        "generation": memory.generation,
        "floors": {str(limit): floor for limit, floor in memory.floors.items()},
    }


def _floors(state: SessionState) -> dict[int, int]:
    payloads = state.extensions.get(FLOOR_DOMAIN)
    newest = payloads[-1] if payloads else None
    # A compaction takes extensions along; what was found before it holds no more.
    if not isinstance(newest, dict) or newest.get("generation") != state.generation:
        return {}

    return {int(limit): int(floor) for limit, floor in newest["floors"].items()}


def remembered(
    state: SessionState,
    *,
    began: FirstMeasurement | None,
    weigh: Callable[[Item], float],
) -> CompactionMemory:
    """Return the memory that a session's log amounts to.

    Args:
        state: The restored session.
        began: The compaction that the history begins with, if its effect is to be judged.
        weigh: Fitted tokens of an item.
    """
    memory = CompactionMemory(
        failures=state.consecutive_failures,
        disabled=state.compaction_disabled,
        generation=state.generation,
        floors=_floors(state),
    )
    if began is None:
        return memory

    memory.pending, memory.unanswered_at = began, began.history_len
    if state.usage:
        first = state.usage[0]
        added = added_since(state.history, began.history_len, first.history_len, weigh)
        memory.measured(first.input_tokens, added)
        memory.thrashed_now = False

    memory.answered(state.history)
    return memory


def added_since(
    history: Sequence[Item], start: int, end: int, weigh: Callable[[Item], float]
) -> float:
    """Return the fitted tokens of `history[start:end]`."""
    return sum(map(weigh, history[start:end]))
