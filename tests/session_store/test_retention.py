"""Retention: what is old or too much goes, and never what something that stays needs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from session_store import FileSessionStore
from session_store.retention import Candidate, RetentionPlan, plan_retention
from tests.session_store.builders import NOON_MS, a_store, begun, lines_of, put_lines, ticking, told
from worker.items import Image, Text, UserMessage, new_uid, user_message

DAY_MS = 86_400_000


def one(name: str, age: int, size: int = 10, *parents: str, why: str = "") -> Candidate:
    return Candidate(
        session_id=name, updated=1_000 - age, bytes=size, parents=parents, kept_because=why
    )


def removed(plan: RetentionPlan) -> list[str]:
    return [candidate.session_id for candidate in plan.remove]


def plan(
    *candidates: Candidate, older: int | None = None, keep: int | None = None
) -> RetentionPlan:
    return plan_retention(candidates, now_ms=1_000, older_than_ms=older, keep_bytes=keep)


def test_what_is_older_goes_the_oldest_first() -> None:
    found = plan(one("b", 60), one("a", 90), one("c", 50), older=50)
    assert removed(found) == ["a", "b"]
    assert (found.bytes_before, found.bytes_after) == (30, 10)


def test_the_oldest_go_until_the_rest_fits() -> None:
    candidates = [one("a", 90, 50), one("b", 60, 30), one("c", 10, 20)]
    assert removed(plan(*candidates, keep=50)) == ["a"]
    assert removed(plan(*candidates, keep=49)) == ["a", "b"]
    assert removed(plan(*candidates, keep=100)) == []
    assert removed(plan(*candidates, keep=0)) == ["a", "b", "c"]


def test_both_limits_hold() -> None:
    candidates = [one("a", 90, 50), one("b", 60, 30), one("c", 10, 20)]
    assert removed(plan(*candidates, older=80, keep=20)) == ["a", "b"]
    assert removed(plan(*candidates, older=5, keep=1_000)) == ["a", "b", "c"]


def test_what_stays_keeps_all_that_it_came_from() -> None:
    found = plan(one("a", 90), one("b", 80, 10, "a"), one("c", 5, 10, "b"), older=50)
    assert removed(found) == []
    assert found.kept == (("a", "others came from it"), ("b", "others came from it"))


def test_what_goes_goes_before_what_it_came_from() -> None:
    found = plan(one("a", 90), one("b", 80, 10, "a"), one("c", 70, 10, "a", "b"), older=50)
    assert removed(found) == ["c", "b", "a"]


def test_what_is_in_use_stays_and_is_told() -> None:
    found = plan(one("a", 90, why="in use by pid 7"), one("b", 80), older=50)
    assert removed(found) == ["b"]
    assert found.kept == (("a", "in use by pid 7"),)


@given(st.data())
def test_a_plan_never_leaves_anything_without_what_it_came_from(data: st.DataObject) -> None:
    count = data.draw(st.integers(0, 12))
    candidates = []
    for number in range(count):
        parents = data.draw(st.sets(st.integers(0, number - 1), max_size=2)) if number else set()
        candidates.append(
            one(
                str(number),
                data.draw(st.integers(0, 100)),
                data.draw(st.integers(0, 50)),
                *map(str, parents),
                why=data.draw(st.sampled_from(["", "", "kept"])),
            )
        )

    older = data.draw(st.none() | st.integers(0, 100))
    keep = data.draw(st.none() | st.integers(0, 300))
    found = plan(*candidates, older=older, keep=keep)
    gone: set[str] = set()
    for candidate in found.remove:
        others = [c for c in candidates if c.session_id not in gone]
        assert all(candidate.session_id not in c.parents for c in others)
        assert not candidate.kept_because
        gone.add(candidate.session_id)

    assert found.bytes_after == sum(c.bytes for c in candidates if c.session_id not in gone)
    # Whatever could still go and is due was taken.
    for c in candidates:
        if c.session_id not in gone and not c.kept_because:
            needed = any(c.session_id in o.parents for o in candidates if o.session_id not in gone)
            is_old = older is not None and 1_000 - c.updated > older
            is_much = keep is not None and found.bytes_after > keep
            assert needed or not (is_old or is_much)


# --- over a store -------------------------------------------------------------------------------


@pytest.fixture
def aged(home: Path) -> tuple[FileSessionStore, list[str]]:
    """A store with three sessions: 40, 20 and 0 days old."""
    ids = [told(a_store(home, clock=ticking(NOON_MS - days * DAY_MS)), 1) for days in (40, 20, 0)]
    return a_store(home), ids


def test_a_store_plans_by_last_activity(aged: tuple[FileSessionStore, list[str]]) -> None:
    store, (old, middle, new) = aged
    assert removed(store.retention_plan(older_than_ms=30 * DAY_MS)) == [old]
    assert removed(store.retention_plan(older_than_ms=10 * DAY_MS)) == [old, middle]
    assert removed(store.retention_plan(keep_bytes=0)) == [old, middle, new]
    with store.open(old) as session:
        session.append("turn_end", turn=2)

    assert removed(store.retention_plan(older_than_ms=10 * DAY_MS)) == [middle]


def test_a_store_keeps_what_is_current_in_use_damaged_or_needed(
    aged: tuple[FileSessionStore, list[str]],
) -> None:
    store, (old, middle, new) = aged
    store.set_pointer("probe", old)
    lines = lines_of(store, middle)
    put_lines(store, middle, [*lines[:3], lines[3][:-4] + b"xxxx", *lines[4:]])
    fork = store.fork(new)
    with store.open(fork):
        found = store.retention_plan(keep_bytes=0)

    assert removed(found) == []
    why = dict(found.kept)
    assert why[old] == "pod probe is on it"
    assert why[middle].startswith("damaged")
    assert why[new] == "others came from it"
    assert why[fork].startswith("in use by pid")
    assert removed(store.retention_plan(keep_bytes=0)) == [fork, new]


def test_what_a_plan_says_can_be_removed_in_that_order(
    aged: tuple[FileSessionStore, list[str]],
) -> None:
    store, (old, _, _) = aged
    store.rewind(store.fork(store.save_compacted(old, [user_message("so far")])), to=head_of(store))
    for candidate in store.retention_plan(keep_bytes=0).remove:
        store.remove(candidate.session_id)

    assert store.ids() == []
    assert list(store.layout.sessions.iterdir()) == []


def head_of(store: FileSessionStore) -> str:
    return store.restore(store.ids()[-1]).head.hash


# --- the room that they take --------------------------------------------------------------------


def test_the_room_is_told_session_by_session_and_adds_up(home: Path) -> None:
    store = a_store(home)
    assert store.usage_on_disk().bytes == 0
    small = told(store, 1)

    def with_images(*bytes_of: int) -> str:
        images = [Image("image/png", bytes([byte]) * (2 << 20)) for byte in bytes_of]
        with begun(store) as session:
            session.append_items("user_input", [UserMessage(new_uid(), (Text("x"), *images))])
            return session.session_id

    both, other = with_images(1, 2), with_images(2)
    used = store.usage_on_disk()
    assert [one.session_id for one in used.sessions] == [both, other, small] or [
        one.session_id for one in used.sessions
    ] == [both, small, other]
    by_id = {one.session_id: one for one in used.sessions}
    assert (by_id[both].blobs, by_id[both].shared_blobs) == (2 << 20, 2 << 20)
    assert (by_id[other].blobs, by_id[other].shared_blobs) == (0, 2 << 20)
    assert by_id[small].log == store.layout.log(small).stat().st_size
    assert by_id[small].sidecars == store.layout.anchor(small).stat().st_size + (
        store.layout.lock(small).stat().st_size
    )
    assert (used.shared_blobs, used.unused_blobs, used.kept) == (2 << 20, 0, 0)
    store.sessions()
    assert store.usage_on_disk().index > 0
    every = sum(path.stat().st_size for path in home.rglob("*") if path.is_file())
    assert store.usage_on_disk().bytes == every


def test_unused_blobs_are_swept_once_they_have_been_there_for_a_while(home: Path) -> None:
    store = a_store(home)
    told(store, 1)
    used = store.usage_on_disk().bytes
    name = "ab" * 32
    store.layout.blobs.mkdir()
    (store.layout.blobs / name).write_bytes(b"x" * 100)
    assert store.usage_on_disk().unused_blobs == 100
    assert store.sweep_blobs() == 0
    os.utime(store.layout.blobs / name, (1, 1))
    assert store.sweep_blobs() == 100
    assert store.usage_on_disk().bytes == used
