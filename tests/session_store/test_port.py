"""The store port: the same sessions over any adapter, byte for byte; and who may write when."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from session_store import (
    EntryRef,
    Fenced,
    FileSessionStore,
    HeadMismatch,
    Session,
    SessionInUse,
    StorageFailed,
)
from session_store.ancestry import Family
from session_store.chain import Position, encode_entry
from session_store.disk import Disk
from session_store.files import FileLogs
from session_store.ids import uuid7
from session_store.opening import Opener
from session_store.port import Lease, Logs, Payloads
from session_store.publish import SessionMaker
from session_store.recovery import Sound
from session_store.tail import LogEnd
from tests.session_store.builders import NOON_MS, a_store, a_turn, audit, begun, ticking, told
from tests.session_store.faults import FailingDisk
from tests.session_store.memory_logs import MemoryLogs
from worker.items import Image, Text, UserMessage, new_uid, user_message

SESSION = "01a22e10-aaeb-7708-8b2f-e5eed8aadb69"
START_FIELDS = {"pod": "probe", "config": {}, "system_prompt": "", "history": []}


def cannot_go_on(error: HeadMismatch) -> tuple[EntryRef | None, Callable[[], Session]]:
    raise error


def opened(logs: MemoryLogs, session_id: str = SESSION) -> Session:
    family = Family(logs, logs)
    return Opener(logs, logs, family, ticking(), cannot_go_on).open(
        session_id, logs.claim(session_id)
    )


def made(logs: MemoryLogs, **start: object) -> MemoryLogs:
    SessionMaker(logs, logs, itertools.repeat(NOON_MS).__next__).publish(
        SESSION, {**START_FIELDS, **start}
    )
    return logs


def test_the_adapters_keep_to_the_protocols(home: Path) -> None:
    store = a_store(home)
    files, memory = FileLogs(store.disk, store.layout), MemoryLogs()
    all_logs: list[Logs] = [files, memory]
    payloads: Payloads = memory
    lease: Lease = memory.claim(SESSION)
    other: Lease = files.claim(SESSION)
    assert all_logs
    assert payloads.get(payloads.put(b"x")) == b"x"
    for each in (lease, other):
        assert (each.epoch, each.held) == (1, True)
        each.release()
        assert not each.held


def test_a_session_lives_in_any_adapter() -> None:
    logs = made(MemoryLogs())
    with opened(logs) as session:
        a_turn(session, 1)
        large = UserMessage(
            new_uid(), (Text("x" * (2 << 20)), Image("image/png", b"y" * (2 << 20)))
        )
        session.append_items("user_input", [large])
        head = session.head

    family = Family(logs, logs)
    state = family.state(SESSION)
    assert state.head == head
    assert state.history[-1] == large
    assert len(logs.payloads) == 2
    assert LogEnd(logs, SESSION).position().head == head
    assert family.fork_point(SESSION, None).hash == head.hash

    child = uuid7(NOON_MS)
    inherited = {"forked_from": [SESSION, head.hash], "history": None, "config": None}
    SessionMaker(logs, logs, ticking()).publish(child, inherited)
    with opened(logs, child) as fork:
        assert fork.state.history == state.history

    assert family.lineage(child) == [(SESSION, "root"), (child, "fork")]


def test_a_log_is_the_same_bytes_in_every_adapter(home: Path) -> None:
    """So a session can move from one to another, and its hashes hold."""
    store = a_store(home)
    session_id = told(store, 2)
    logs = MemoryLogs()
    logs.create(session_id, [store.layout.log(session_id).read_bytes()])
    with opened(logs, session_id) as session:
        assert session.state == store.restore(session_id)
        session.append("turn_end", turn=3)

    store.layout.log(session_id).write_bytes(logs.logs[session_id])
    assert store.verify(session_id).ok
    assert store.restore(session_id).head == session.head


def test_a_writer_that_was_taken_over_is_fenced_off() -> None:
    logs = made(MemoryLogs())
    old = opened(logs)
    new = opened(logs)
    new.append("turn_end", turn=1)
    before = logs.logs[SESSION]
    with pytest.raises(Fenced, match="written by somebody else, who has epoch 2: epoch 1 is over"):
        old.append("turn_end", turn=2)

    assert logs.logs[SESSION] == before
    new.append("turn_end", turn=2)


# --- over files ---------------------------------------------------------------------------------


@pytest.fixture
def store(home: Path) -> FileSessionStore:
    return a_store(home)


def line_after(after: Position) -> bytes:
    return encode_entry(after, 5, "note", {})[0]


def test_each_lease_on_a_session_has_a_greater_epoch(store: FileSessionStore) -> None:
    logs = FileLogs(store.disk, store.layout)
    session_id = told(store, 1)
    epochs = []
    for _ in range(4):
        lease = FileLogs(store.disk, store.layout).claim(session_id)
        epochs.append(lease.epoch)
        lease.release()

    first = epochs[0]
    assert epochs == [first, first + 1, first + 2, first + 3]
    lease = logs.claim(session_id)
    record = orjson.loads(store.layout.lock(session_id).read_bytes())
    assert record["epoch"] == lease.epoch == first + 4
    lease.release()
    assert store.holder(session_id) is None


@pytest.mark.parametrize("junk", [b"", b"{", b"[]", b'{"epoch":"x"}', b'{"epoch":-4}', b"\xff" * 9])
def test_a_lock_whose_record_is_of_no_use_is_a_lock_all_the_same(
    store: FileSessionStore, junk: bytes
) -> None:
    session_id = told(store, 1)
    store.layout.lock(session_id).write_bytes(junk)
    with store.open(session_id), pytest.raises(SessionInUse):
        store.open(session_id)

    assert orjson.loads(store.layout.lock(session_id).read_bytes()) == {"epoch": 1}


def test_files_refuse_who_has_no_right_or_another_head(store: FileSessionStore) -> None:
    session_id = told(store, 1)
    logs = FileLogs(store.disk, store.layout)
    after = LogEnd(logs, session_id).position()
    line = line_after(after)
    before = store.layout.log(session_id).read_bytes()
    with pytest.raises(Fenced):
        logs.append(session_id, after.head, 1, line)

    lease = logs.claim(session_id)
    with pytest.raises(Fenced):
        logs.append(session_id, after.head, lease.epoch, line)  # not begun

    assert lease.begin(Sound(), after) is None
    with pytest.raises(Fenced):
        logs.append(session_id, after.head, lease.epoch - 1, line)

    with pytest.raises(HeadMismatch) as caught:
        logs.append(session_id, EntryRef(after.seq - 2, "0" * 64), lease.epoch, line)

    assert caught.value.expected == (after.seq - 2, "0" * 64)
    with pytest.raises(HeadMismatch):
        caught.value.fork()  # an adapter has none to offer

    assert store.layout.log(session_id).read_bytes() == before
    assert logs.append(session_id, after.head, lease.epoch, line) == after.seq
    lease.release()
    with pytest.raises(Fenced):
        logs.append(session_id, after.head, lease.epoch, line)

    assert len(audit(store.layout.log(session_id))) == after.seq + 1


def test_a_lock_that_was_replaced_fences_its_holder_off(store: FileSessionStore) -> None:
    """Somebody clears lock files away while a writer is at work, and another writer begins."""
    first = begun(store)
    lock = store.layout.lock(first.session_id)
    lock.unlink()
    first.append("turn_end", turn=1)
    with store.open(first.session_id) as second:
        with pytest.raises(Fenced, match="pod sessions fork"):
            first.append("turn_end", turn=2)

        second.append("turn_end", turn=2)
        first.close()
        second.append("turn_end", turn=3)

    assert [entry.kind for entry in store.entries(first.session_id)].count("turn_end") == 3


def test_a_pointer_is_published_through_the_port(store: FileSessionStore) -> None:
    FileLogs(Disk(), store.layout).publish("probe", SESSION)
    assert store.pointer("probe") == SESSION


def test_appends_after_the_first_lines_are_chained(store: FileSessionStore) -> None:
    with begun(store) as session:
        refs = session.append_many(
            ("user_input", {"items": [user_message(str(number))]}) for number in range(3)
        )
        assert refs[-1] == session.head

    assert [entry["hash"] for entry in audit(store.layout.log(session.session_id))[1:]] == [
        ref.hash for ref in refs
    ]


def test_after_a_failure_an_epoch_writes_nothing_more(home: Path) -> None:
    session_id = told(a_store(home), 1)
    disk = FailingDisk(10**9, OSError(5, "broken"))
    logs = FileLogs(disk, a_store(home).layout)
    after = LogEnd(logs, session_id).position()
    lease = logs.claim(session_id)
    lease.begin(Sound(), after)
    disk.strike_in(1)
    for why in ("broken", "an earlier write failed"):
        with pytest.raises(StorageFailed, match=why):
            logs.append(session_id, after.head, lease.epoch, line_after(after))

    with pytest.raises(StorageFailed, match="an earlier write failed"):
        lease.note(after)

    lease.release()
    other = logs.claim(session_id)
    other.note(after)  # not begun: nothing was acknowledged by it


def test_a_lease_that_was_released_notes_nothing(store: FileSessionStore) -> None:
    session_id = told(store, 1)
    logs = FileLogs(store.disk, store.layout)
    after = LogEnd(logs, session_id).position()
    lease = logs.claim(session_id)
    lease.begin(Sound(), after)
    lease.release()
    with pytest.raises(StorageFailed, match="the session was closed"):
        lease.note(after)


def test_nothing_set_aside_is_ever_written_over(store: FileSessionStore) -> None:
    session_id = told(store, 1)
    size = store.layout.log(session_id).stat().st_size
    for number in range(1000):
        store.layout.sidecar(session_id, size, number).touch()

    with store.layout.log(session_id).open("ab") as log:
        log.write(b"torn")

    with pytest.raises(StorageFailed, match="too many sidecars"):
        store.open(session_id)

    assert store.verify(session_id).torn_bytes == 4
