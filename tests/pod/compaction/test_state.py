"""What automatic compaction remembers, and when it is worth trying."""

from __future__ import annotations

from typing import get_args

import pytest

from pod.compaction.plan import CompactionError, FailureReason
from pod.compaction.state import (
    FLOOR_DOMAIN,
    CompactionMemory,
    FirstMeasurement,
    floors_payload,
    remembered,
)
from session_store import EntryRef, SessionState
from session_store.state import UsageRecord
from tests.pod.compaction.stories import an_answer
from worker import Item
from worker.items import user_message
from worker.tokens import item_tokens

COUNTED = sorted(set(get_args(FailureReason)) - {"floor", "cancelled", "interrupted"})


def error(reason: FailureReason = "empty") -> CompactionError:
    return CompactionError(reason, "why")


def memory_after(*reasons: FailureReason) -> CompactionMemory:
    memory = CompactionMemory()
    for reason in reasons:
        memory.failed(error(reason))

    return memory


@pytest.mark.parametrize("reason", COUNTED)
def test_the_third_failure_in_a_row_switches_it_off(reason: FailureReason) -> None:
    assert not memory_after(reason, reason).disabled
    memory = memory_after(reason, reason, reason)
    assert memory.disabled
    assert not memory.worth_trying(10**9, 1, 0)


@pytest.mark.parametrize("reason", ["floor", "cancelled", "interrupted"])
def test_what_says_nothing_against_the_summarizer_does_not_count(reason: FailureReason) -> None:
    memory = memory_after("empty", reason, reason, reason, reason)
    assert (memory.failures, memory.disabled) == (1, False)
    assert memory_after("empty", "empty", "empty", reason).disabled


def test_a_success_closes_the_breaker_and_a_digest_does_not() -> None:
    memory = memory_after("empty", "empty")
    memory.committed(1, 3, threshold=100, failure=error())
    assert (memory.failures, memory.disabled) == (3, True)
    memory.committed(2, 3, threshold=100)
    assert (memory.failures, memory.disabled) == (0, False)
    assert memory.generation == 2


def test_a_failure_blocks_the_rest_of_the_run_and_no_more() -> None:
    memory = memory_after("empty")
    assert memory.blocked_in_run
    assert not memory.blocked_at_window
    memory.failed(error(), at_window=True)
    assert memory.blocked_at_window
    memory.new_run()
    assert not memory.blocked_in_run
    assert not memory.blocked_at_window


def test_the_first_measurement_less_what_was_added_is_judged_once() -> None:
    memory = CompactionMemory()
    memory.committed(1, 3, threshold=1_000)
    assert not memory.worth_trying(5_000, 1_000, 0), "not before it was measured"
    assert not memory.measured(3_000, 2_000.0)
    assert memory.worth_trying(5_000, 1_000, 0)
    assert not memory.measured(9_000, 0.0), "only the first one counts"

    memory.committed(2, 3, threshold=1_000)
    assert memory.measured(1_201, 200.0)
    assert memory.thrashed_now
    assert memory.thrash_threshold == 1_000
    assert not memory.worth_trying(1_450, 1_000, 0)
    assert memory.worth_trying(1_451, 1_000, 0), "it grew by a quarter of the threshold"
    memory.new_run()
    assert not memory.thrashed_now
    assert not memory.worth_trying(1_450, 1_000, 0), "latched beyond the run"


def test_an_answer_that_nobody_measured_ends_the_waiting() -> None:
    memory = CompactionMemory()
    history: list[Item] = [user_message("kept")]
    memory.committed(1, 1, threshold=1_000)
    assert not memory.answered(history)
    history.append(user_message("more"))
    assert not memory.answered(history)
    history.append(an_answer("yes"))
    assert memory.answered(history)
    assert memory.pending is None


def test_an_engine_with_thresholds_of_its_own_waits_for_an_answer_too() -> None:
    memory = CompactionMemory()
    memory.committed(1, 1, threshold=None)
    assert memory.pending is None
    assert not memory.answered([user_message("kept")])
    assert memory.answered([user_message("kept"), an_answer("yes")])


def test_a_floor_is_known_by_its_threshold_until_it_moves() -> None:
    memory = CompactionMemory()
    memory.floors[1_000] = 2_000
    assert not memory.worth_trying(5_000, 1_000, 2_000)
    assert not memory.worth_trying(5_000, 1_000, 1_900), "estimates are fitted all the time"
    assert memory.worth_trying(5_000, 1_000, 1_500)
    assert memory.worth_trying(5_000, 1_000, 3_000)
    assert memory.worth_trying(5_000, 1_001, 2_000)
    memory.committed(1, 3, threshold=None)
    assert memory.worth_trying(5_000, 1_000, 2_000)


# --- from the log ---------------------------------------------------------------------------


def state(**given: object) -> SessionState:
    return SessionState(session_id="s", head=EntryRef(1, "h"), **given)  # type: ignore[arg-type]


def test_a_restart_remembers_breaker_and_generation() -> None:
    memory = remembered(
        state(consecutive_failures=2, compaction_disabled=False, generation=3),
        began=None,
        weigh=item_tokens,
    )
    assert (memory.failures, memory.disabled, memory.generation) == (2, False, 3)
    assert memory.pending is None


def test_a_restart_waits_for_the_first_measurement() -> None:
    began = FirstMeasurement(1, 1_000)
    kept: list[Item] = [user_message("kept")]
    memory = remembered(state(history=kept), began=began, weigh=item_tokens)
    assert memory.pending == began
    assert not memory.answered(kept)
    answered = remembered(state(history=[*kept, an_answer("yes")]), began=began, weigh=item_tokens)
    assert answered.pending is None, "nobody measured it, and it was answered"


@pytest.mark.parametrize(("measured", "thrashes"), [(1_300, True), (1_000, False)])
def test_a_restart_judges_the_first_measurement_again(measured: int, *, thrashes: bool) -> None:
    history: list[Item] = [user_message("kept"), user_message("a" * 350), an_answer("yes")]
    usage = [UsageRecord(history_len=2, input_tokens=measured)]
    memory = remembered(
        state(history=history, usage=usage), began=FirstMeasurement(1, 1_000), weigh=item_tokens
    )
    assert (memory.thrash_tokens is not None) is thrashes
    assert not memory.thrashed_now, "the run that found it is over"


def test_floors_are_kept_until_the_next_compaction() -> None:
    memory = CompactionMemory(generation=2)
    memory.floors[1_000] = 2_000
    extensions = {FLOOR_DOMAIN: [{"generation": 1, "floors": {}}, floors_payload(memory)]}
    same = remembered(state(generation=2, extensions=extensions), began=None, weigh=item_tokens)
    assert same.floors == {1_000: 2_000}
    later = remembered(state(generation=3, extensions=extensions), began=None, weigh=item_tokens)
    assert later.floors == {}
