"""What was acknowledged is there, and what is there verifies, wherever the disk stops working."""

from __future__ import annotations

import errno
import os
import random
import resource
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from session_store import Disk, Durability, EntryRef, FileSessionStore, StorageFailed
from session_store.anchor import read_anchor
from tests.session_store.builders import a_store, a_turn, audit, begun, lines_of, told
from tests.session_store.faults import FailingDisk, PowerCut, PowerDisk
from worker.items import user_message

ERRORS = [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EROFS]


def work(store: FileSessionStore, acknowledged: list[EntryRef], session_id: str) -> None:
    """Open, append one by one and several at once, anchor, close."""
    with store.open(session_id) as session:
        acknowledged.append(session.head)
        acknowledged.append(session.append_items("user_input", [user_message("one")]))
        session.write_anchor()
        many = [("extension", {"domain": "d", "payload": n}) for n in range(3)]
        acknowledged += session.append_many(many)
        acknowledged.append(session.append("run_outcome", outcome="finished"))


def check_all_there(home: Path, acknowledged: list[EntryRef], session_id: str) -> None:
    store = a_store(home)
    with store.open(session_id):
        pass

    entries = audit(store.layout.log(session_id))
    for seq, digest in acknowledged:
        assert entries[seq]["hash"] == digest

    assert store.verify(session_id).ok


def every_failing_step(
    home: Path, tmp_path: Path, make_error: Callable[[], BaseException], *, torn: bool
) -> int:
    """Run `work` against a disk that fails at step 1, 2, … until none is left to fail."""
    session_id = told(a_store(home), 1)
    if torn:
        with a_store(home).layout.log(session_id).open("ab") as log:
            log.write(b'{"hash":"torn')

    for at in range(1, 100):
        copy = tmp_path / f"copy-{at}"
        shutil.copytree(home, copy)
        disk = FailingDisk(at, make_error())
        acknowledged: list[EntryRef] = []
        try:
            work(a_store(copy, disk=disk), acknowledged, session_id)
        except (StorageFailed, PowerCut):
            check_all_there(copy, acknowledged, session_id)
        else:
            assert not disk.struck, f"step {at} failed and nobody was told"
            return at

    raise AssertionError("it never came to an end")


@pytest.mark.parametrize("number", ERRORS, ids=errno.errorcode.get)
def test_an_error_of_any_operation_is_told_and_loses_nothing(
    home: Path, tmp_path: Path, number: int
) -> None:
    steps = every_failing_step(home, tmp_path, lambda: OSError(number, "no"), torn=True)
    assert steps > 20


def test_a_crash_at_any_operation_loses_nothing(home: Path, tmp_path: Path) -> None:
    assert every_failing_step(home, tmp_path, PowerCut, torn=True) > 20


def test_after_a_failure_a_session_writes_nothing_more(home: Path) -> None:
    session_id = told(a_store(home), 1)
    disk = FailingDisk(10**9, OSError(errno.EIO, "broken"))
    session = a_store(home, disk=disk).open(session_id)
    head = session.head
    disk.strike_in(10)  # a write takes half of what is left: nine of them, and then the sync
    size = session_size(home, session_id)
    with pytest.raises(StorageFailed, match=r"cannot write .*: broken"):
        session.append("extension", domain="d", payload="x" * 40)

    assert disk.struck
    grown = session_size(home, session_id)
    assert grown > size, "the line is there, and nobody knows whether for good"
    for _ in range(2):
        with pytest.raises(StorageFailed, match="an earlier write failed"):
            session.append("turn_end", turn=1)

    with pytest.raises(StorageFailed):
        session.write_anchor()

    assert session.head == head, "memory is never ahead of the disk"
    session.close()
    assert session_size(home, session_id) == grown
    anchor = read_anchor(Disk(), a_store(home).layout.anchor(session_id))
    assert anchor is not None
    assert anchor.ref == head
    with a_store(home).open(session_id) as again:
        again.append("turn_end", turn=1)

    assert a_store(home).verify(session_id).ok


def session_size(home: Path, session_id: str) -> int:
    return a_store(home).layout.log(session_id).stat().st_size


def test_short_writes_are_gone_on_with(home: Path) -> None:
    disk = FailingDisk(10**9, OSError())  # writes half of what it is given, each time
    session_id = told(a_store(home, disk=disk), 2)
    assert len(audit(a_store(home).layout.log(session_id))) == 17


def test_a_real_limit_on_the_size_of_files(home: Path) -> None:
    session_id = told(a_store(home), 1)
    store = a_store(home)
    session = store.open(session_id)
    before = lines_of(store, session_id)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (session_size(home, session_id) + 100, hard))
    try:
        with pytest.raises(StorageFailed, match="what was acknowledged is safe"):
            session.append("extension", domain="d", payload="x" * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)

    session.close()
    assert store.verify(session_id).torn_bytes == 100
    with store.open(session_id) as again:
        again.append("turn_end", turn=2)

    assert lines_of(store, session_id)[: len(before)] == before
    assert [e["kind"] for e in audit(store.layout.log(session_id))][-2:] == [
        "recovered",
        "turn_end",
    ]


def test_a_new_session_is_there_whole_or_not_at_all(home: Path) -> None:
    for at in range(1, 100):
        disk = FailingDisk(at, OSError(errno.ENOSPC, "full"))
        try:
            begun(a_store(home, disk=disk)).close()
        except StorageFailed:
            left = list((home / "sessions").iterdir()) if (home / "sessions").exists() else []
            assert left == [], f"step {at}"
        else:
            break

    assert disk.count < at
    assert at > 8


# --- the loss of power --------------------------------------------------------------------------


def lives(home: Path, tmp_path: Path, disk_type: type[PowerDisk], seed: int) -> str:
    """Three lives of one session, each ended by a loss of power; what went wrong, or nothing."""
    chance = random.Random(seed)  # noqa: S311  # a repeatable choice, no secret
    acknowledged: list[EntryRef] = []
    session_id = ""
    for life in range(3):
        disk = disk_type(chance.randint(1, 40), home.resolve() / "sessions")
        store = a_store(home, disk=disk)
        try:
            with store.open(session_id) if session_id else begun(store) as session:
                session_id = session.session_id
                acknowledged.append(session.head)
                for number in range(20):
                    payload = "x" * chance.choice((1, 600, 5000))
                    acknowledged.append(session.append("extension", domain="d", payload=payload))
                    if number % 4 == 3:
                        session.write_anchor()
        except PowerCut:
            pass

        if not session_id:
            return ""  # nobody was told of a session

        after = tmp_path / f"{seed}-{life}"
        disk.leave(store.layout.sessions, after / "sessions", chance)
        home = after
        why = what_is_lost(after, session_id, acknowledged)
        if why:
            return why

    return ""


def what_is_lost(home: Path, session_id: str, acknowledged: list[EntryRef]) -> str:
    store = a_store(home)
    if session_id not in store.ids():
        return "the session is gone"

    report = store.verify(session_id)
    if not report.ok:
        return f"refused: {report.reason}"

    there = {entry.ref for entry in store.entries(session_id)}
    return "" if there >= set(acknowledged) else "an acknowledged entry is gone"


@pytest.mark.parametrize("block", range(4))
def test_a_loss_of_power_loses_nothing_that_was_acknowledged(
    home: Path, tmp_path: Path, block: int
) -> None:
    for seed in range(block * 60, block * 60 + 60):
        assert lives(home, tmp_path, PowerDisk, seed) == "", f"seed {seed}"
        shutil.rmtree(home)
        home.mkdir()


class NeverSyncs(PowerDisk):
    def sync(self, fd: int) -> None:
        self._step()


class NeverSyncsFolders(PowerDisk):
    def sync_folder(self, path: Path) -> None:
        self._step()


@pytest.mark.parametrize("mutant", [NeverSyncs, NeverSyncsFolders])
def test_the_simulation_notices_a_missing_sync(
    home: Path, tmp_path: Path, mutant: type[PowerDisk]
) -> None:
    """Without this the tests above might pass for a store that never syncs."""
    assert any(lives(home, tmp_path, mutant, seed) for seed in range(40))


def test_flush_does_without_the_medium_but_never_lets_the_anchor_run_ahead(home: Path) -> None:
    synced: list[str] = []

    class Noting(Disk):
        def sync(self, fd: int) -> None:
            synced.append(Path(f"/proc/self/fd/{fd}").readlink().suffix)
            super().sync(fd)

    session_id = told(a_store(home), 1)
    session = a_store(home, durability=Durability.FLUSH, disk=Noting()).open(session_id)
    a_turn(session, 2)
    assert synced == []
    session.close()
    assert synced == [".jsonl", ".tmp"]


# --- what a crash leaves ------------------------------------------------------------------------


def aged(path: Path, hours: float) -> Path:
    path.write_bytes(b"half of it")
    then = time.time() - hours * 3600
    os.utime(path, (then, then))
    return path


@pytest.mark.parametrize("folder", ["sessions", "pods"])
def test_what_a_crash_left_is_swept_up_later(home: Path, folder: str) -> None:
    session_id = told(a_store(home), 1)
    a_store(home).set_pointer("probe", session_id)
    at = home / folder
    mark = "0123456789abcdef" * 2
    old = aged(at / f".{session_id}.jsonl.{mark}.tmp", 25)
    kept = [
        aged(at / f".{session_id}.jsonl.{mark[::-1]}.tmp", 23),  # a writer may be at it
        aged(at / f".notes.{mark[1:]}.tmp", 900),
        aged(at / "notes.tmp", 900),
        aged(at / f".mine.{mark}.txt", 900),
    ]
    link = at / f".link.{mark}.tmp"
    link.symlink_to(old)
    os.utime(link, (0, 0), follow_symlinks=False)
    assert a_store(home).restore(session_id).head.seq == 8
    assert old.exists(), "readers change nothing"
    store = a_store(home)
    store.set_pointer("probe", store.fork(session_id))
    assert not old.exists()
    assert all(path.exists() for path in kept)
    assert link.is_symlink()
    assert all(report.ok for report in store.verify_all())


def test_a_crash_leaves_something_and_what_cannot_be_swept_stays(home: Path) -> None:
    session_id = told(a_store(home), 1)
    with pytest.raises(PowerCut):
        a_store(home, disk=FailingDisk(5, PowerCut())).fork(session_id)

    (left,) = (home / "sessions").glob(".*.tmp")
    then = time.time() - 90_000
    os.utime(left, (then, then))

    class Sticky(Disk):
        def unlink(self, path: Path) -> None:
            raise OSError(errno.EPERM, "not yours")

    a_store(home, disk=Sticky()).fork(session_id)
    assert left.exists()
    a_store(home).fork(session_id)
    assert list((home / "sessions").glob(".*.tmp")) == []
