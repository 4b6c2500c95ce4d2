"""What concerns a store as a whole: pointers, listings, the facade, and that it keeps up."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import orjson
import pytest

import session_store
from session_store import Durability, FileSessionStore, InvalidSessionId, StorageFailed
from tests.session_store.builders import (
    a_call,
    a_store,
    a_turn,
    answer,
    begun,
    lines_of,
    put_lines,
    result_of,
    told,
)
from tests.session_store.faults import FailingDisk
from worker.items import Item, user_message

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


def test_a_restore_keeps_up_with_the_parser(home: Path) -> None:
    """A log of 8,000 entries is restored within a small multiple of parsing its lines alone."""
    store = a_store(home, durability=Durability.FLUSH)
    with begun(store) as session:
        for number in range(100):
            batch: list[tuple[str, dict[str, list[Item]]]] = []
            for _ in range(20):
                call = a_call()
                batch += [
                    ("user_input", {"items": [user_message(f"question {number} " * 12)]}),
                    ("assistant_items", {"items": [answer("let me see " * 12, call)]}),
                    ("tool_results", {"items": [result_of(call, "x = 1\n" * 60)]}),
                    ("assistant_items", {"items": [answer("done " * 40)]}),
                ]
            session.append_many(batch)

    lines = lines_of(store, session.session_id)

    def seconds_of(what: object) -> float:
        best = 9.0
        for _ in range(3):
            begin = time.perf_counter()
            kept = what()  # type: ignore[operator]  # any callable
            best = min(best, time.perf_counter() - begin)
            del kept

        return best

    parsing = seconds_of(lambda: [orjson.loads(line) for line in lines])
    restoring = seconds_of(lambda: store.restore(session.session_id))
    assert len(store.restore(session.session_id).history) == 8000
    # Four times is what is meant; the rest is for a machine that does other things meanwhile.
    assert restoring < 12 * parsing, f"{restoring / parsing:.1f} times"


def test_many_turns_do_not_slow_an_append_down(home: Path) -> None:
    """An append costs the same at the end of a long log as at its beginning."""
    with begun(a_store(home, durability=Durability.FLUSH)) as session:

        def seconds() -> float:
            begin = time.perf_counter()
            for number in range(20):
                a_turn(session, number)

            return time.perf_counter() - begin

        first = min(seconds() for _ in range(3))
        for _ in range(40):
            last = seconds()

        assert min(last, seconds(), seconds()) < 3 * first
