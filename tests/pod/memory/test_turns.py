"""Runs on their way to a provider: in order, joined where too many wait, bounded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pod.memory.turns import JOINED_MAX_BYTES, MOST_WAITING, Turn, TurnQueue
from worker.items import Item, user_message


def turn(n: int, session_id: str = "s", history: tuple[Item, ...] = ()) -> Turn:
    return Turn(f"u{n}", f"a{n}", session_id, history)


def drained(queue: TurnQueue) -> list[Turn]:
    taken = []
    while (one := queue.take()) is not None:
        taken.append(one)

    return taken


@given(st.lists(st.booleans(), max_size=60))
def test_whatever_waits_comes_out_once_and_in_order(takes: list[bool]) -> None:
    queue, out, n = TurnQueue(), [], 0
    jobs = 0
    for is_take in takes:
        if is_take:
            out += [one] if (one := queue.take()) else []
        else:
            jobs += queue.put(turn(n))
            n += 1
        assert len(queue) <= MOST_WAITING

    out += drained(queue)
    assert [part for one in out for part in one.user.split("\n\n")] == [f"u{k}" for k in range(n)]
    assert [part for one in out for part in one.assistant.split("\n\n")] == [
        f"a{k}" for k in range(n)
    ]
    # A job is posted for each that waits by itself: none is left behind, and no job finds nothing.
    assert jobs == len(out)


def test_joined_runs_have_the_newest_history() -> None:
    queue = TurnQueue()
    newest: tuple[Item, ...] = (user_message("x"),)
    for n in range(MOST_WAITING + 3):
        queue.put(turn(n, history=newest if n == MOST_WAITING + 2 else ()))

    assert drained(queue)[-1].history == newest


def test_runs_of_different_sessions_are_not_joined() -> None:
    queue = TurnQueue()
    for n in range(MOST_WAITING):
        queue.put(turn(n, "old"))

    assert queue.put(turn(99, "new"))
    assert [one.session_id for one in drained(queue)] == ["old"] * MOST_WAITING + ["new"]


def test_joined_texts_do_not_grow_without_end() -> None:
    queue = TurnQueue()
    for _ in range(MOST_WAITING + 40):
        queue.put(Turn("u" * 20_000, "東" * 20_000, "s", ()))

    last = drained(queue)[-1]
    assert 20_000 < len(last.user.encode()) <= JOINED_MAX_BYTES
    assert 60_000 < len(last.assistant.encode()) <= JOINED_MAX_BYTES
