"""What concerns a store as a whole: pointers, listings, the facade, and that it keeps up."""

from __future__ import annotations

import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import orjson
import pytest

import session_store
from session_store import Durability, FileSessionStore, InvalidSessionId, StorageFailed
from tests.session_store.builders import (
    a_store,
    a_turn,
    begun,
    bytes_read,
    calls_in,
    lines_of,
    put_lines,
    told,
)
from tests.session_store.faults import FailingDisk

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def store(home: Path) -> FileSessionStore:
    return a_store(home)


def test_making_a_store_makes_nothing(home: Path) -> None:
    store = FileSessionStore(str(home / "not" / "there"))
    assert store.ids() == []
    assert store.pointer("probe") is None
    assert list(home.iterdir()) == []


def test_a_pointer_moves(store: FileSessionStore, home: Path) -> None:
    first, second = told(store, 1), told(store, 1)
    assert store.pointer("probe") is None
    for session_id in (first, second):
        store.set_pointer("probe", session_id)
        assert store.pointer("probe") == session_id

    assert orjson.loads((home / "pods" / "probe.json").read_bytes()) == {"session_id": second}
    assert store.pointer("other") is None


@pytest.mark.parametrize("junk", [b"", b"{", b"[]", b'{"session_id":"../../x"}', b"\xff"])
def test_a_pointer_that_names_no_session_is_told(
    store: FileSessionStore, home: Path, junk: bytes
) -> None:
    store.set_pointer("probe", told(store, 1))
    (home / "pods" / "probe.json").write_bytes(junk)
    with pytest.raises(InvalidSessionId):
        store.pointer("probe")


def test_a_pointer_is_the_old_or_the_new_wherever_it_stops(home: Path) -> None:
    first, second = told(a_store(home), 1), told(a_store(home), 1)
    a_store(home).set_pointer("probe", first)
    for at in range(1, 20):
        disk = FailingDisk(at, OSError(28, "full"))
        try:
            a_store(home, disk=disk).set_pointer("probe", second)
        except StorageFailed:
            assert a_store(home).pointer("probe") in {first, second}
        else:
            break

    assert at > 5
    assert a_store(home).pointer("probe") == second
    assert [path.name for path in (home / "pods").iterdir()] == ["probe.json"]


def test_two_that_move_a_pointer_never_mix(store: FileSessionStore, home: Path) -> None:
    ids = [told(store, 1), told(store, 1)]
    threads = [
        threading.Thread(
            target=lambda each=each: [store.set_pointer("probe", each) for _ in range(60)]
        )
        for each in ids
    ]
    for thread in threads:
        thread.start()

    while any(thread.is_alive() for thread in threads):
        assert store.pointer("probe") in {None, *ids}

    for thread in threads:
        thread.join()

    assert [path.name for path in (home / "pods").iterdir()] == ["probe.json"]


def test_all_are_verified_and_each_is_reported(store: FileSessionStore) -> None:
    ids = [told(store, 1) for _ in range(3)]
    put_lines(store, ids[1], lines_of(store, ids[1])[:2])
    (store.layout.sessions / "notes.jsonl").write_text("mine")
    reports = list(store.verify_all())
    assert [(report.session_id, report.ok) for report in reports] == [
        *((ids[0], True), (ids[1], False), (ids[2], True))
    ]
    assert reports[0].entries == 9
    assert reports[0].head == store.restore(ids[0]).head


def test_a_listing_has_every_session(store: FileSessionStore) -> None:
    parent = told(store, 1)
    child = store.fork(parent)
    assert {info.session_id for info in store.sessions()} == {parent, child}


def test_an_unknown_provenance_is_refused(store: FileSessionStore) -> None:
    with pytest.raises(TypeError, match="forked_form"):
        begun(store, forked_form=["a", "b"])

    assert store.ids() == []


def test_logs_may_live_elsewhere_and_wait_for_the_system_only(home: Path, tmp_path: Path) -> None:
    store = a_store(home, sessions=tmp_path / "logs", durability=Durability("flush"))
    session_id = told(store, 2)
    assert store.verify(session_id).ok
    assert sorted(path.suffix for path in (tmp_path / "logs").iterdir()) == [
        ".head",
        ".jsonl",
        ".lock",
    ]


def test_the_facade_says_what_there_is_and_costs_little() -> None:
    assert sorted(session_store.__all__) == sorted(set(session_store.__all__))
    for name in session_store.__all__:
        assert getattr(session_store, name).__name__ == name
        assert name in dir(session_store)

    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = session_store.nothing

    probe = "import sys, session_store; print(*[m for m in sys.modules if 'session_store.' in m])"
    done = subprocess.run(
        [sys.executable, "-c", probe], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []


def test_a_restore_does_little_more_than_parse(home: Path) -> None:
    """So many calls an entry, however long the log is; `benchmarks/restore.py` has the times."""
    store = a_store(home, durability=Durability.FLUSH)
    counts = []
    for turns in (25, 200):
        session_id = told(store, turns)
        entries = len(lines_of(store, session_id))
        counts.append(calls_in(partial(store.restore, session_id)) / entries)

    short, long = counts
    assert long <= short
    assert long < 45


def test_many_turns_do_not_slow_an_append_down(home: Path) -> None:
    """An append calls and reads as much at the end of a long log as at its beginning."""
    with begun(a_store(home, durability=Durability.FLUSH)) as session:

        def work_of_one() -> tuple[int, int]:
            before = bytes_read()
            calls = calls_in(lambda: a_turn(session, 7))
            return calls, bytes_read() - before

        work_of_one()  # what is done once only is done
        calls, read = work_of_one()
        for number in range(800):
            a_turn(session, number)

        calls_then, read_then = work_of_one()
        assert calls_then == calls
        assert abs(read_then - read) < 100  # the count itself is read, and has more digits
