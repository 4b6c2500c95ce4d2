"""The corners of the lock, the lease and the queue of writers that the stories do not come by."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from session_store import Disk, SessionInUse, SessionNotFound
from session_store.chain import START
from session_store.commit import CommitQueue, Ticket
from session_store.files import FileLogs
from session_store.ids import uuid7
from session_store.layout import Layout
from session_store.lock import SessionLock, _let_go_of_all, acquire, holder
from session_store.recovery import Sound
from tests.session_store.builders import a_store, begun

SESSION = uuid7(5)


def locked(folder: Path) -> tuple[SessionLock, Path]:
    path = folder / "x.lock"
    return acquire(Disk(), path, SESSION, 1), path


def test_letting_go_twice_is_letting_go_once(tmp_path: Path) -> None:
    lock, path = locked(tmp_path)
    lock.let_go()
    lock.let_go()
    assert not lock.held
    lock.release()
    assert holder(Disk(), path) is None


def test_where_no_lock_ever_was_nobody_holds_it(home: Path) -> None:
    assert a_store(home).holder(SESSION) is None


def test_what_a_forked_child_does_first_lets_go_of_every_lock(tmp_path: Path) -> None:
    """Called as a child calls it; real children, in the tests of sessions, are not measured."""
    lock, path = locked(tmp_path)
    _let_go_of_all()
    assert not lock.held
    assert json.loads(path.read_bytes())["pid"] == os.getpid(), (
        "the record is the parent's to write"
    )
    acquire(Disk(), path, SESSION, 1).release()


def test_without_the_files_of_linux_the_lock_is_a_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_such_file(*_: object, **__: object) -> str:
        raise FileNotFoundError

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_text", no_such_file)
        lock, path = locked(tmp_path)
        found = holder(Disk(), path)

    record = json.loads(path.read_bytes())
    assert (record["boot_id"], record["started"]) == ("", 0)
    assert found is not None
    assert found.pid == os.getpid()
    with pytest.raises(SessionInUse):
        acquire(Disk(), path, SESSION, 1)

    lock.release()


def test_a_log_that_is_gone_when_its_writer_comes_to_it(home: Path) -> None:
    """Removed between being read and being opened for writing."""
    layout = Layout(home, None)
    logs = FileLogs(Disk(), layout)
    with begun(a_store(home)) as session:
        known = session.session_id

    lease = logs.claim(known)
    layout.log(known).unlink()
    with pytest.raises(SessionNotFound):
        lease.begin(Sound(), START)

    lease.release()


class Turn:
    """A turn that somebody waits for, and what happens when they begin to."""

    def __init__(self, then: Callable[[], None]) -> None:
        self._then = then
        self._lock = threading.Lock()
        self._lock.acquire()
        self.release = self._lock.release

    def acquire(self) -> None:
        self._then()
        self._lock.acquire()


def ticket(then: Callable[[], None]) -> Ticket:
    return Ticket([], turn=cast("threading.Lock", Turn(then)))


def test_an_interrupt_of_one_who_is_being_served_keeps_nobody_waiting() -> None:
    """Another one leads and has taken its entries along: they are written, and it is not there."""
    first_writes, go_on = threading.Event(), threading.Event()
    second_waits, second_writes, finish = threading.Event(), threading.Event(), threading.Event()

    def write(tickets: list[Ticket]) -> None:
        is_first = unlucky not in tickets
        (first_writes if is_first else second_writes).set()
        assert (go_on if is_first else finish).wait(10)
        for one in tickets:
            one.settle()

    def interrupt() -> None:
        go_on.set()
        assert second_writes.wait(10)
        raise KeyboardInterrupt

    queue = CommitQueue(write)
    unlucky, second = ticket(interrupt), ticket(second_waits.set)
    threads = [
        threading.Thread(target=queue.serve, args=[one], daemon=True)
        for one in (Ticket([]), second)
    ]
    threads[0].start()
    assert first_writes.wait(10)
    threads[1].start()
    assert second_waits.wait(10)
    with pytest.raises(KeyboardInterrupt):
        queue.serve(unlucky)

    finish.set()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()

    assert unlucky.done
    queue.serve(last := Ticket([]))
    assert last.done
