"""A head that moved underneath its writer: nothing is written there, and a fork goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from session_store import (
    EntryRef,
    FileSessionStore,
    HeadMismatch,
    Session,
    SessionDamaged,
    SessionStoreError,
    StorageFailed,
)
from session_store.chain import Position, encode_entry
from session_store.store import DEEPEST_CHAIN
from tests.session_store.builders import a_store, a_turn, audit, begun, lines_of, texts, told
from tests.session_store.faults import FailingDisk
from worker.items import user_message


@pytest.fixture
def store(home: Path) -> FileSessionStore:
    return a_store(home)


def intruder(store: FileSessionStore, session: Session) -> EntryRef:
    """Something that minds no lock appends a good entry."""
    path = store.layout.log(session.session_id)
    after = Position(session.head.seq + 1, session.head.hash, path.stat().st_size)
    line, digest = encode_entry(after, 9_999_999_999_999, "note", {"by": "an intruder"})
    with path.open("ab") as log:
        log.write(line)

    return EntryRef(after.seq, digest)


def mismatch(session: Session) -> HeadMismatch:
    with pytest.raises(HeadMismatch) as caught:
        session.append_items("user_input", [user_message("lost?")])

    return caught.value


def test_the_writer_goes_on_in_a_fork_that_tells_of_both_heads(store: FileSessionStore) -> None:
    session = begun(store, spawned_by=None)
    a_turn(session, 1)
    theirs = intruder(store, session)
    before = store.layout.log(session.session_id).read_bytes()
    error = mismatch(session)
    assert (error.expected, error.found) == (session.head, theirs)

    with error.fork() as fork:
        assert session.closed
        assert error.fork() is fork
        assert fork.state.history == store.restore(session.session_id, session.head.hash).history
        fork.append_items("user_input", [user_message("not lost")])
        assert texts(store.restore(fork.session_id).history)[-1] == "not lost"

    start = audit(store.layout.log(fork.session_id))[0]
    assert start["forked_from"] == [session.session_id, session.head.hash]
    assert start["reason"] == "head_mismatch"
    assert start["head_mismatch"] == {
        "expected": {"seq": session.head.seq, "hash": session.head.hash},
        "found": {"seq": theirs.seq, "hash": theirs.hash},
    }
    assert store.lineage(fork.session_id) == [
        (session.session_id, "root"),
        (fork.session_id, "fork"),
    ]
    assert store.layout.log(session.session_id).read_bytes() == before
    assert all(report.ok for report in store.verify_all())
    store.open(session.session_id).close()  # free for whoever wants it


def test_what_they_wrote_may_be_anything(store: FileSessionStore) -> None:
    for junk in (b"x", b"x\n", b"\0" * 500, b'{"hash":"torn'):
        session = begun(store)
        a_turn(session, 1)
        with store.layout.log(session.session_id).open("ab") as log:
            log.write(junk)

        error = mismatch(session)
        assert error.expected == session.head
        assert error.found in (session.head, None)
        with error.fork() as fork:
            assert len(fork.state.history) == 4


def test_another_last_entry_of_the_same_length_is_noticed(store: FileSessionStore) -> None:
    session = begun(store)
    a_turn(session, 1)
    path = store.layout.log(session.session_id)
    lines = lines_of(store, session.session_id)
    body = lines[-1][75:].replace(b"finished", b"FINISHED")
    other = b'{"hash":"' + sha256(body).hexdigest().encode() + b'",' + body
    with path.open("r+b") as log:
        log.seek(-len(other) - 1, 2)
        log.write(other)

    error = mismatch(session)
    assert "its last entry is another one" in str(error)
    assert error.found is not None
    assert error.found.hash != session.head.hash
    with pytest.raises(SessionDamaged, match="was acknowledged and is gone"):
        error.fork()


@pytest.mark.parametrize("how", ["cut", "removed", "emptied", "replaced"])
def test_where_what_was_left_is_gone_there_is_no_going_on(
    store: FileSessionStore, how: str
) -> None:
    other = told(store, 1)
    session = begun(store)
    a_turn(session, 1)
    path = store.layout.log(session.session_id)
    whole = path.read_bytes()
    if how == "cut":
        path.write_bytes(b"".join(whole.splitlines(keepends=True)[:-2]))
    elif how == "emptied":
        path.write_bytes(b"")
    else:
        path.unlink()
        if how == "replaced":
            path.write_bytes(store.layout.log(other).read_bytes())

    ids = store.ids()
    with pytest.raises(SessionDamaged) as caught:
        mismatch(session).fork()

    assert caught.value.session_id == session.session_id
    assert store.ids() == ids, "nothing is left of the attempt"
    session.close()


def test_a_fork_that_cannot_be_written_may_be_asked_for_again(home: Path) -> None:
    disk = FailingDisk(10**9, OSError(28, "full"))
    store = a_store(home, disk=disk)
    session = begun(store)
    intruder(store, session)
    error = mismatch(session)
    disk.strike_in(6)
    with pytest.raises(StorageFailed):
        error.fork()

    assert not session.closed
    disk.mend()
    with error.fork() as fork:
        fork.append("turn_end", turn=1)

    assert store.ids() == [session.session_id, fork.session_id]


def test_the_old_session_takes_no_more(store: FileSessionStore) -> None:
    session = begun(store)
    intruder(store, session)
    fork = mismatch(session).fork()
    for use in (lambda: session.append("turn_end", turn=1), session.write_anchor):
        with pytest.raises(StorageFailed):
            use()

    session.close()
    fork.close()


def test_a_fork_from_deep_down_stands_by_itself(store: FileSessionStore) -> None:
    session_id = told(store, 1)
    for _ in range(DEEPEST_CHAIN):
        session_id = store.fork(session_id)

    session = store.open(session_id)
    intruder(store, session)
    with mismatch(session).fork() as fork:
        start = audit(store.layout.log(fork.session_id))[0]
        assert len(start["history"]) == 4
        assert start["reason"] == "head_mismatch"
        assert fork.state.history == session.state.history


def test_threads_that_meet_the_mismatch_go_on_in_one_fork(store: FileSessionStore) -> None:
    session = begun(store)
    intruder(store, session)
    forks: list[Session] = []
    others: list[SessionStoreError] = []

    def write(number: int) -> None:
        try:
            session.append("extension", domain="d", payload=number)
        except HeadMismatch as error:
            forks.append(error.fork())
        except StorageFailed as error:
            others.append(error)  # it came later: the session is closed to it

    run_all([lambda number=number: write(number) for number in range(8)])
    assert len(forks) + len(others) == 8
    assert len({id(fork) for fork in forks}) == 1
    forks[0].close()
    assert len(store.ids()) == 2


def run_all(actions: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=action) for action in actions]
    for thread in threads:
        thread.start()

    for thread in threads:
        thread.join()
