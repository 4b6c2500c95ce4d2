"""The numbers of events, as pure functions: what is next, what came already, what is missing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pod.client import Backoff, Position
from pod.client.cursor import Cursor

LAUNCH, OTHER = "one", "two"
chunks = st.lists(st.tuples(st.integers(0, 12), st.integers(1, 6)), max_size=30)


@given(begin=st.integers(1, 1_000), sent=chunks, joined=st.integers(1, 4))
def test_whatever_is_sent_again_each_event_is_taken_once_and_in_order(
    begin: int, sent: list[tuple[int, int]], joined: int
) -> None:
    """Each connection begins some events before where the last one ended, and brings some more."""
    cursor = Cursor()
    cursor.subscribed(LAUNCH, begin - 1, from_log=False)
    taken: list[int] = []
    end = begin
    for back, more in sent:
        start = max(begin, end - back)
        came = range(start, end + more)
        taken += [seq for seq in came if cursor.take(LAUNCH, seq) == "new"]
        end += more

    assert taken == list(range(begin, end))
    assert cursor.take(LAUNCH, end + joined - 1, end) == "new", "joined ones stand for several"
    assert cursor.position == Position(LAUNCH, end + joined)


@given(at=st.integers(1, 100), ahead=st.integers(1, 100))
def test_a_leap_is_a_gap_and_moves_nothing(at: int, ahead: int) -> None:
    cursor = Cursor(Position(LAUNCH, at))
    cursor.subscribed(LAUNCH, at - 1, from_log=False)
    assert cursor.take(LAUNCH, at + ahead) == "gap"
    assert cursor.take(LAUNCH, at + ahead, at + 1) == "gap"
    assert cursor.take(OTHER, 1) == "gap"
    assert cursor.position == Position(LAUNCH, at)
    assert cursor.take(LAUNCH, at) == "new"


@given(last=st.integers(10, 100))
def test_a_replay_from_the_log_may_leap_up_to_the_subscription_and_no_further(last: int) -> None:
    cursor = Cursor(Position(OTHER, 7))
    cursor.subscribed(LAUNCH, last, from_log=True)
    assert cursor.is_replaying
    assert cursor.take(OTHER, 9) == "new"
    assert cursor.take(OTHER, 8) == "again"
    assert cursor.take(LAUNCH, 3) == "new"
    assert cursor.take(LAUNCH, last) == "new"
    assert not cursor.is_replaying
    assert cursor.take(LAUNCH, last + 2) == "gap"
    assert cursor.take(LAUNCH, last + 1) == "new"


def test_a_heartbeat_says_what_is_missing_unless_not_all_was_asked_for() -> None:
    for is_filtered in (False, True):
        cursor = Cursor(Position(LAUNCH, 5), is_filtered=is_filtered)
        assert not cursor.is_behind(LAUNCH, 4)
        assert not cursor.is_behind(OTHER, 9)
        assert cursor.is_behind(LAUNCH, 5) is not is_filtered


@given(attempt=st.integers(1, 10_000), chance=st.floats(0, 1))
def test_waits_double_up_to_their_most_and_are_never_none(attempt: int, chance: float) -> None:
    wait_s = Backoff(first_s=0.1, most_s=2.0, chance=lambda: chance).wait_s(attempt)
    assert 0.05 <= wait_s <= 2.0
    whole = Backoff(first_s=0.1, most_s=2.0, chance=lambda: 0.0)
    assert whole.wait_s(attempt) == min(2.0, 0.1 * 2.0 ** min(attempt - 1, 30))
