"""A session never loses what it begins from to somebody who removes that at the same moment."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from session_store import (
    Disk,
    FileSessionStore,
    SessionNotFound,
    SessionStoreError,
    StillNeeded,
    StorageFailed,
)
from session_store.family_lock import joining, leaving
from tests.session_store.builders import a_store, a_turn, told
from worker.items import user_message

ROOT = Path(__file__).resolve().parents[2]
BEGIN: dict[str, Callable[[FileSessionStore, str], str]] = {
    "fork": lambda store, known: store.fork(known),
    "rewind": lambda store, known: store.rewind(known, store.restore(known).head.hash),
    "compact": lambda store, known: store.save_compacted(known, [user_message("so far")]),
}


class Meanwhile(Disk):
    """A disk that starts something else, once, in the middle of an operation."""

    def __init__(self, operation: str, suffix: str) -> None:
        self.operation = operation
        self.suffix = suffix
        self.other: Callable[[], object] = lambda: None
        self.outcome: list[object] = []
        self.thread: threading.Thread | None = None

    def rename(self, source: Path, target: Path) -> None:
        self._strike("rename", target)
        super().rename(source, target)

    def unlink(self, path: Path) -> None:
        self._strike("unlink", path)
        super().unlink(path)

    def _strike(self, operation: str, path: Path) -> None:
        is_it = operation == self.operation and path.suffix == self.suffix
        if is_it and self.thread is None:
            self.thread = threading.Thread(target=self._run)
            self.thread.start()
            # As long as it would take, if nothing kept it waiting.
            self.thread.join(0.5)

    def _run(self) -> None:
        try:
            self.outcome.append(self.other())
        except SessionStoreError as error:
            self.outcome.append(error)

    def joined(self) -> object:
        assert self.thread is not None, "it came to no such operation"
        self.thread.join()
        (outcome,) = self.outcome
        return outcome


@pytest.mark.parametrize("way", BEGIN)
def test_what_is_being_removed_cannot_be_begun_from(home: Path, way: str) -> None:
    parent = told(a_store(home), 2)
    disk = Meanwhile("unlink", ".head")
    disk.other = lambda: BEGIN[way](a_store(home), parent)
    a_store(home, disk=disk).remove(parent)
    assert isinstance(disk.joined(), SessionNotFound)
    assert a_store(home).ids() == []


@pytest.mark.parametrize("way", BEGIN)
def test_what_is_being_begun_from_cannot_be_removed(home: Path, way: str) -> None:
    parent = told(a_store(home), 2)
    disk = Meanwhile("rename", ".jsonl")
    disk.other = lambda: a_store(home).remove(parent)
    child = BEGIN[way](a_store(home, disk=disk), parent)
    outcome = disk.joined()
    assert isinstance(outcome, StillNeeded)
    assert [known for known, _ in outcome.by] == [child]
    assert all(report.ok for report in a_store(home).verify_all())


def test_what_is_begun_meanwhile_is_detached_too(home: Path) -> None:
    parent = told(a_store(home), 2)
    disk = Meanwhile("rename", ".jsonl")
    disk.other = lambda: a_store(home).remove(parent, detach=True)
    store = a_store(home, disk=disk)
    history = store.restore(parent).history
    child = store.fork(parent)
    disk.joined()
    assert store.ids() == [child]
    assert store.restore(child).history == history


def test_a_removed_parent_is_begun_from_no_further_than_it_was_kept(home: Path) -> None:
    """Whoever looked an entry up before the removal comes too late for it."""
    store = a_store(home)
    parent = told(store, 1)
    store.fork(parent)
    with store.open(parent) as session:
        a_turn(session, 2)

    head = store.restore(parent).head.hash
    disk = Meanwhile("unlink", ".head")
    disk.other = lambda: store.fork(parent, head)
    a_store(home, disk=disk).remove(parent, detach=True)
    assert isinstance(disk.joined(), SessionNotFound)
    assert all(report.ok for report in store.verify_all())


def test_a_salvaged_fork_keeps_its_parent(home: Path) -> None:
    """Its damaged log does not, where its first line is not the first: it refers to nothing."""
    store = a_store(home)
    parent = told(store, 1)
    fork = store.fork(parent)
    path = store.layout.log(fork)
    path.write_bytes(b"\0\n" + path.read_bytes())
    assert store.needed_by(parent) == []
    disk = Meanwhile("rename", ".jsonl")
    disk.other = lambda: a_store(home).remove(parent)
    new = a_store(home, disk=disk).salvage(fork).new_session_id
    assert isinstance(disk.joined(), StillNeeded)
    assert store.verify(new).ok


def test_many_begin_at_once(home: Path) -> None:
    store = a_store(home)
    parent = told(store, 1)
    with joining(store.layout), joining(store.layout, 0.0):
        assert store.verify(store.fork(parent)).ok


@contextmanager
def held(layout_folder: Path, kind: int) -> Iterator[None]:
    fd = os.open(layout_folder, os.O_RDONLY)
    fcntl.flock(fd, kind)
    yield
    os.close(fd)


def test_nobody_waits_for_ever(home: Path) -> None:
    """A process that was stopped while it removed something, or while it forked."""
    store = a_store(home)
    parent = told(store, 1)
    with (
        held(store.layout.sessions, fcntl.LOCK_EX),
        pytest.raises(StorageFailed, match="others have been removing"),
        joining(store.layout, 0.05),
    ):
        raise AssertionError

    with held(store.layout.sessions, fcntl.LOCK_SH):
        with pytest.raises(StorageFailed, match="remove a session"), leaving(store.layout, 0.05):
            raise AssertionError

        store.fork(parent)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_holds_nothing_up(home: Path) -> None:
    store = a_store(home)
    parent = told(store, 1)
    with joining(store.layout):
        child = os.fork()
        if child == 0:
            threading.Event().wait(30)
            os._exit(0)

    try:
        store.remove(parent)
        assert store.sessions() == []
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


RACE = """
import sys
from session_store import FileSessionStore, SessionNotFound, StillNeeded, UnknownEntry, SessionInUse
home, kind = sys.argv[1:]
store = FileSessionStore(home)
for line in sys.stdin:
    parent = line.strip()
    try:
        print(store.fork(parent) if kind == "fork" else store.remove(parent).session_id, flush=True)
    except (SessionNotFound, StillNeeded) as error:
        print(type(error).__name__, flush=True)
"""


@pytest.mark.timeout(60)
def test_one_of_the_two_wins_each_time(home: Path) -> None:
    """100 sessions, each forked by one process while another removes it."""
    store = a_store(home)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", RACE, str(home), kind],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for kind in ("fork", "remove")
    ]
    won = {"fork": 0, "remove": 0}
    for number in range(100):
        parent = told(store, 1)
        order = processes if number % 2 else processes[::-1]
        for process in order:
            assert process.stdin is not None
            process.stdin.write(parent + "\n")
            process.stdin.flush()

        said = []
        for process in processes:
            assert process.stdout is not None
            said.append(process.stdout.readline().strip())

        forked, removed = said
        if removed == parent:
            won["remove"] += 1
            assert forked == "SessionNotFound"
        else:
            won["fork"] += 1
            assert removed == "StillNeeded"
            assert store.verify(forked).ok
            with suppress(SessionNotFound):
                store.remove(forked)

    for process in processes:
        process.communicate()

    assert won["fork"] > 0
    assert won["remove"] > 0
