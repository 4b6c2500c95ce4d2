"""Threads that append to one session at the same time share a write and a sync; nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from session_store import (
    Disk,
    EntryRef,
    Fenced,
    FileSessionStore,
    Session,
    SessionStoreError,
    StorageFailed,
)
from session_store.commit import CommitQueue, Ticket
from tests.session_store.builders import a_store, audit, begun

THREADS = 24


class Gated(Disk):
    """A disk whose next sync of a log waits for a sign, and which counts what it does to logs."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.free.set()
        self.reached = threading.Event()
        self.steps: list[str] = []
        self.failing = 0
        self.durable = 0

    def write(self, fd: int, data: bytes | memoryview) -> int:
        if is_log(fd):
            self.steps.append("write")

        return super().write(fd, data)

    def sync(self, fd: int) -> None:
        if is_log(fd):
            self.steps.append("sync")
            self.reached.set()
            assert self.free.wait(10)
            if self.steps.count("sync") == self.failing:
                raise OSError(5, "broken")

        super().sync(fd)
        if is_log(fd):
            self.durable = Path(f"/proc/self/fd/{fd}").stat().st_size


def is_log(fd: int) -> bool:
    return Path(f"/proc/self/fd/{fd}").readlink().suffix == ".jsonl"


@pytest.fixture
def disk() -> Gated:
    return Gated()


@pytest.fixture
def store(home: Path, disk: Gated) -> FileSessionStore:
    return a_store(home, disk=disk)


def started(action: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=action)
    thread.start()
    return thread


@pytest.fixture
def busy(store: FileSessionStore, disk: Gated) -> Iterator[tuple[Session, threading.Thread]]:
    """A session that is in the middle of a sync, and the thread that waits for it."""
    session = begun(store)
    disk.steps.clear()
    disk.reached.clear()
    disk.free.clear()
    first = started(lambda: suppressed(lambda: session.append("note", by="first")))
    assert disk.reached.wait(10)
    yield session, first
    disk.free.set()
    first.join()
    session.close()


def suppressed(action: Callable[[], object]) -> SessionStoreError | None:
    try:
        action()
    except SessionStoreError as error:
        return error

    return None


def waiting(session: Session, count: int) -> None:
    """Return once so many calls wait for the one that is being served."""
    deadline = threading.Event()
    for _ in range(2000):
        if len(session._queue._waiting) >= count:  # noqa: SLF001  # nothing public tells
            return

        deadline.wait(0.005)

    raise AssertionError("they never came")


def test_all_who_wait_share_one_write_and_one_sync(
    busy: tuple[Session, threading.Thread], disk: Gated, store: FileSessionStore
) -> None:
    session, first = busy
    refs: list[list[EntryRef]] = []
    lock = threading.Lock()

    def append(number: int) -> None:
        made = session.append_many(("note", {"by": number, "n": n}) for n in range(number % 3 + 1))
        with lock:
            refs.append(made)

    threads = [started(lambda number=number: append(number)) for number in range(THREADS)]
    waiting(session, THREADS)
    assert refs == [], "nobody is told before the sync"
    disk.free.set()
    for thread in [first, *threads]:
        thread.join()

    assert disk.steps == ["write", "sync", "write", "sync"]
    entries = audit(store.layout.log(session.session_id))
    assert len(entries) == 2 + sum(n % 3 + 1 for n in range(THREADS))
    for made in refs:
        seqs = [ref.seq for ref in made]
        assert seqs == list(range(seqs[0], seqs[0] + len(seqs))), "what came together stays so"
        own = [entries[seq] for seq in seqs]
        assert [(entry["hash"], entry["n"]) for entry in own] == [
            (ref.hash, n) for n, ref in enumerate(made)
        ]
        assert len({entry["by"] for entry in own}) == 1

    assert session.head == (entries[-1]["seq"], entries[-1]["hash"])


def test_they_are_served_in_the_order_they_came(
    busy: tuple[Session, threading.Thread], disk: Gated, store: FileSessionStore
) -> None:
    session, first = busy
    threads = []
    for number in range(10):
        threads.append(started(lambda number=number: session.append("note", by=number)))
        waiting(session, number + 1)

    disk.free.set()
    for thread in [first, *threads]:
        thread.join()

    entries = audit(store.layout.log(session.session_id))
    assert [entry["by"] for entry in entries[1:]] == ["first", *range(10)]


@pytest.mark.parametrize("n", [1, 2, 5])
def test_every_acknowledged_entry_is_durable(store: FileSessionStore, disk: Gated, n: int) -> None:
    late: list[EntryRef] = []
    with begun(store) as session:
        path = store.layout.log(session.session_id)

        def work() -> None:
            for number in range(30):
                refs = session.append_many(("note", {"n": number}) for _ in range(n))
                on_the_medium = path.read_bytes()[: disk.durable]
                late.extend(ref for ref in refs if ref.hash.encode() not in on_the_medium)

        for thread in [started(work) for _ in range(6)]:
            thread.join()

    assert late == []
    assert len(audit(path)) == 1 + 6 * 30 * n


@pytest.mark.parametrize("failing", [1, 2], ids=["the one before", "their own"])
def test_a_failed_sync_is_told_to_all_of_them(
    busy: tuple[Session, threading.Thread],
    disk: Gated,
    home: Path,
    failing: int,
) -> None:
    session, first = busy
    failures: list[SessionStoreError | None] = []
    threads = [
        started(lambda: failures.append(suppressed(lambda: session.append("note"))))
        for _ in range(THREADS)
    ]
    waiting(session, THREADS)
    disk.failing = failing
    disk.free.set()
    for thread in [first, *threads]:
        thread.join()

    assert len(failures) == THREADS
    assert all(isinstance(failure, StorageFailed) for failure in failures)
    assert session.head.seq == failing - 1, "memory is never ahead of the disk"
    assert disk.steps.count("sync") == failing, "nothing is tried twice"
    disk.failing = 0
    with pytest.raises(StorageFailed, match="an earlier write failed"):
        session.append("note")

    session.close()
    with a_store(home).open(session.session_id) as again:
        assert again.head.seq >= failing - 1


def test_one_that_cannot_be_written_fails_alone(
    busy: tuple[Session, threading.Thread], disk: Gated, store: FileSessionStore
) -> None:
    session, first = busy
    told: list[type[Exception]] = []

    def append(payload: object) -> None:
        try:
            session.append("note", payload=payload)
        except TypeError as error:
            told.append(type(error))

    payloads: list[object] = [1, object(), 2, {3}, 4]
    threads = [started(lambda payload=payload: append(payload)) for payload in payloads]
    waiting(session, len(payloads))
    disk.free.set()
    for thread in [first, *threads]:
        thread.join()

    assert told == [TypeError, TypeError]
    entries = audit(store.layout.log(session.session_id))
    assert sorted(entry["payload"] for entry in entries[2:]) == [1, 2, 4]


def test_closing_lets_what_came_before_go_in_and_refuses_the_rest(
    busy: tuple[Session, threading.Thread], disk: Gated, store: FileSessionStore
) -> None:
    session, first = busy
    failures: list[SessionStoreError | None] = []
    threads = [
        started(lambda: failures.append(suppressed(lambda: session.append("note"))))
        for _ in range(6)
    ]
    waiting(session, 6)
    closing = started(session.close)
    disk.free.set()
    for thread in [first, closing, *threads]:
        thread.join()

    written = len(audit(store.layout.log(session.session_id))) - 2
    assert failures.count(None) == written
    assert all(failure is None or isinstance(failure, StorageFailed) for failure in failures)


def test_one_that_was_taken_over_tells_all_who_wait(
    busy: tuple[Session, threading.Thread], disk: Gated, store: FileSessionStore
) -> None:
    session, first = busy
    store.layout.lock(session.session_id).unlink()
    disk.free.set()
    first.join()
    with store.open(session.session_id), pytest.raises(Fenced):
        session.append("note")


# --- the queue by itself: what no disk can be made to do ----------------------------------------


def test_an_interrupt_of_the_leader_leaves_nobody_waiting() -> None:
    begun_to_write, go_on = threading.Event(), threading.Event()
    batches: list[int] = []

    def write(tickets: list[Ticket]) -> None:
        batches.append(len(tickets))
        try:
            if len(batches) == 1:
                begun_to_write.set()
                assert go_on.wait(10)
                raise KeyboardInterrupt
        finally:
            for ticket in tickets:
                ticket.settle(StorageFailed("write", "interrupted"))

    queue = CommitQueue(write)

    def lead() -> None:
        with pytest.raises(KeyboardInterrupt):
            queue.serve(Ticket([]))

    leader = started(lead)
    assert begun_to_write.wait(10)
    others = [started(lambda: queue.serve(Ticket([]))) for _ in range(5)]
    while len(queue._waiting) < 5:  # noqa: SLF001  # nothing public tells
        pass

    go_on.set()
    for thread in [leader, *others]:
        thread.join(10)
        assert not thread.is_alive()

    assert sum(batches) == 6
    queue.serve(Ticket([]))
    assert sum(batches) == 7


class Interrupting:
    """A wait that is broken off by Ctrl-C, before or after the thread was given the lead."""

    def __init__(self, before: Callable[[], None]) -> None:
        self._before = before

    def acquire(self) -> bool:
        self._before()
        raise KeyboardInterrupt

    def release(self) -> None:
        pass


@pytest.mark.parametrize("when", ["while it waits", "when it was given the lead"])
def test_an_interrupt_of_one_who_waits_leaves_nobody_else_waiting(when: str) -> None:
    writing, go_on = threading.Event(), threading.Event()
    served: list[Ticket] = []

    def write(tickets: list[Ticket]) -> None:
        writing.set()
        assert go_on.wait(10)
        served.extend(tickets)
        for ticket in tickets:
            ticket.settle()

    queue = CommitQueue(write)
    leader = started(lambda: queue.serve(Ticket([])))
    assert writing.wait(10)
    others: list[threading.Thread] = []

    def interrupt() -> None:
        if when == "when it was given the lead":
            others.append(started(lambda: queue.serve(Ticket([]))))
            go_on.set()
            leader.join()
            while not unlucky.leads:
                pass

    unlucky = Ticket([], turn=cast("threading.Lock", Interrupting(interrupt)))
    with pytest.raises(KeyboardInterrupt):
        queue.serve(unlucky)

    go_on.set()
    others.append(started(lambda: queue.serve(Ticket([]))))
    for thread in [leader, *others]:
        thread.join(10)
        assert not thread.is_alive()

    assert unlucky not in served
    assert len(served) == 1 + len(others)
