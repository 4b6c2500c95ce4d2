"""Going back makes a new session that the pod goes on in; nothing is undone."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from session_store import (
    FileSessionStore,
    SessionNotFound,
    StorageFailed,
    UnknownEntry,
    Unsuitable,
)
from session_store.store import DEEPEST_CHAIN
from tests.session_store.builders import (
    a_call,
    a_store,
    a_turn,
    answer,
    audit,
    begun,
    lines_of,
    texts,
    told,
)
from tests.session_store.faults import FailingDisk, PowerCut
from worker.items import user_message


@pytest.fixture
def store(home: Path) -> FileSessionStore:
    return a_store(home)


def ends(store: FileSessionStore, session_id: str) -> list[str]:
    """The hash of each entry at which a run ended."""
    return [entry.hash for entry in store.entries(session_id) if entry.kind == "run_outcome"]


def said(store: FileSessionStore, session_id: str) -> list[str]:
    return [text for text in texts(store.restore(session_id).history) if "question" in text]


def test_the_session_goes_on_from_the_entry_and_the_old_one_stays(
    store: FileSessionStore,
) -> None:
    old = told(store, 3)
    store.set_pointer("probe", old)
    before = store.layout.log(old).read_bytes()
    at = ends(store, old)[0]

    new = store.rewind(old, to=at[:12])

    (start,) = audit(store.layout.log(new))
    assert start["forked_from"] == [old, at]
    assert start["rewound"] is True
    assert start["history"] is None
    assert store.layout.log(old).read_bytes() == before
    assert store.restore(new).history == store.restore(old, at=at).history
    assert store.pointer("probe") == new, "--continue goes on from here"
    assert store.may_be_pointed_at(new)
    assert store.lineage(new) == [(old, "root"), (new, "fork")]
    assert store.verify(new).ok


def test_a_fork_is_never_pointed_at_nor_what_is_rewound_below_it(store: FileSessionStore) -> None:
    root = told(store, 2)
    store.set_pointer("probe", root)
    fork = store.fork(root)
    with store.open(fork) as session:
        a_turn(session, 3)

    below = store.rewind(fork, to=store.restore(fork).head.hash)
    assert not store.may_be_pointed_at(fork)
    assert not store.may_be_pointed_at(below)
    assert store.pointer("probe") == root


def test_going_back_from_a_fork_into_its_parent_is_one_more_fork(store: FileSessionStore) -> None:
    root = told(store, 2)
    store.set_pointer("probe", root)
    new = store.rewind(store.fork(root), to=ends(store, root)[0])
    start = audit(store.layout.log(new))[0]
    assert start["forked_from"][0] == root
    assert "rewound" not in start
    assert not store.may_be_pointed_at(new)
    assert store.pointer("probe") == root


def test_one_can_go_back_again_and_further(store: FileSessionStore) -> None:
    root = told(store, 3)
    store.set_pointer("probe", root)
    first, second, _ = ends(store, root)
    once = store.rewind(root, to=second)
    with store.open(once) as session:
        a_turn(session, 30)

    twice = store.rewind(once, to=first)
    assert said(store, twice) == ["question 1"]
    assert audit(store.layout.log(twice))[0]["forked_from"] == [root, first]
    assert store.pointer("probe") == twice
    # And from there into what the first one that was gone back to had of its own.
    assert store.may_be_pointed_at(store.rewind(once, to=ends(store, once)[0]))
    assert store.pointer("probe") == twice, "the pod is not on it"


def test_what_came_after_the_place_gone_back_to_is_not_there(store: FileSessionStore) -> None:
    root = told(store, 3)
    first, second, _ = ends(store, root)
    once = store.rewind(root, to=first)
    with pytest.raises(UnknownEntry):
        store.rewind(once, to=second)

    assert store.ids() == [root, once]


def test_one_can_go_back_across_a_compaction(store: FileSessionStore) -> None:
    old = told(store, 3)
    new = store.save_compacted(old, [user_message("so far")])
    store.set_pointer("probe", new)
    back = store.rewind(new, to=ends(store, old)[1])
    assert said(store, back) == ["question 1", "question 2"]
    assert store.pointer("probe") == back
    assert store.may_be_pointed_at(back)


def test_a_pod_on_what_the_session_was_compacted_to_goes_back_with_it(
    store: FileSessionStore,
) -> None:
    old = told(store, 2)
    new = store.save_compacted(old, [user_message("so far")])
    store.set_pointer("probe", new)
    back = store.rewind(old, to=ends(store, old)[0])
    assert store.pointer("probe") == back


def test_a_pod_elsewhere_and_one_that_is_nowhere_stay(store: FileSessionStore) -> None:
    old, other = told(store, 2), told(store, 1)
    store.set_pointer("probe", other)
    (store.layout.pods / "broken.json").write_text("{", encoding="utf-8")
    store.rewind(old, to=ends(store, old)[0])
    assert store.pointer("probe") == other
    store.layout.pointer("probe").unlink()
    store.rewind(old, to=ends(store, old)[0])
    assert store.pointer("probe") is None


def test_going_back_into_a_call_goes_back_before_it(store: FileSessionStore) -> None:
    with begun(store) as session:
        asked = session.append_items("user_input", [user_message("question 1")])
        at = session.append_items("assistant_items", [answer("hm", a_call())])
        session_id = session.session_id

    point = store.rewind_point(session_id, at.hash)
    assert (point.session_id, point.hash, point.moved) == (session_id, asked.hash, True)
    assert texts(store.restore(store.rewind(session_id, to=at.hash)).history) == ["question 1"]


@pytest.mark.parametrize("to", ["00" * 32, "abc", "", "../x", "g" * 64])
def test_an_entry_that_is_not_there(store: FileSessionStore, to: str) -> None:
    old = told(store, 1)
    with pytest.raises(UnknownEntry):
        store.rewind(old, to=to)

    with pytest.raises(SessionNotFound):
        store.rewind("00000000-0000-7000-8000-000000000000", to=to)

    assert store.ids() == [old]


def test_going_back_often_never_makes_it_slower_or_loses_the_pointer(
    store: FileSessionStore,
) -> None:
    current = told(store, 1)
    store.set_pointer("probe", current)
    for number in range(2, 2 + DEEPEST_CHAIN + 3):
        current = store.rewind(current, to=store.restore(current).head.hash)
        with store.open(current) as session:
            a_turn(session, number)

    assert len(said(store, current)) == DEEPEST_CHAIN + 4
    assert any(audit(store.layout.log(each))[0]["history"] for each in store.ids())
    assert store.may_be_pointed_at(current)
    assert store.pointer("probe") == current


def test_stopped_anywhere_the_pod_is_on_the_old_or_the_new(home: Path) -> None:
    old = told(a_store(home), 2)
    to = ends(a_store(home), old)[0]
    outcomes = set()
    for at in range(1, 60):
        a_store(home).set_pointer("probe", old)
        disk = FailingDisk(at, PowerCut() if at % 2 else OSError(5, "broken"))
        with suppress(PowerCut, StorageFailed):
            a_store(home, disk=disk).rewind(old, to=to)

        store = a_store(home)
        pointed = store.pointer("probe")
        assert pointed in store.ids()
        outcomes.add(pointed == old)
        assert all(store.verify(each).ok for each in store.ids())

    assert outcomes == {True, False}


# --- uncompact -----------------------------------------------------------------------------------


def test_uncompacting_goes_back_to_what_was_compacted(store: FileSessionStore) -> None:
    old = told(store, 2)
    new = store.save_compacted(old, [user_message("so far")])
    store.set_pointer("probe", new)
    lines = lines_of(store, old), lines_of(store, new)
    assert store.uncompact(new) == old
    assert store.pointer("probe") == old
    assert (lines_of(store, old), lines_of(store, new)) == lines


def test_uncompacting_takes_a_pod_along_that_went_on_below(store: FileSessionStore) -> None:
    old = told(store, 2)
    new = store.save_compacted(old, [user_message("so far")])
    newest = store.save_compacted(new, [user_message("shorter still")])
    store.set_pointer("probe", newest)
    store.uncompact(new)
    assert store.pointer("probe") == old


def test_uncompacting_leaves_pods_elsewhere(store: FileSessionStore) -> None:
    old, other = told(store, 2), told(store, 1)
    new = store.save_compacted(old, [user_message("so far")])
    store.set_pointer("probe", other)
    store.uncompact(new)
    assert store.pointer("probe") == other


def test_what_was_not_compacted_cannot_be_uncompacted(store: FileSessionStore) -> None:
    old = told(store, 1)
    with pytest.raises(Unsuitable, match="was not compacted"):
        store.uncompact(store.fork(old))

    new = store.save_compacted(old, [user_message("so far")])
    store.remove(old, detach=True)
    with pytest.raises(SessionNotFound, match="was compacted from it"):
        store.uncompact(new)
