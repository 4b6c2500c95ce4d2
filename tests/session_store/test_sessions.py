"""A session that is open for writing: what is appended, who may, and what others see."""

from __future__ import annotations

import itertools
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from session_store import (
    Disk,
    FileSessionStore,
    HeadMismatch,
    Position,
    SessionInUse,
    SessionNotFound,
    SessionStoreError,
    StorageFailed,
    UnsafePath,
)
from session_store.ids import uuid7
from tests.session_store.builders import a_call, a_store, a_turn, answer, audit, begun, texts, told
from worker.items import Image, UserMessage, new_uid, user_message

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def store(home: Path) -> FileSessionStore:
    return a_store(home)


def test_what_is_appended_is_there_when_the_call_returns(store: FileSessionStore) -> None:
    with begun(store, history=[user_message("from before")]) as session:
        path = store.layout.log(session.session_id)
        first = session.append_items("user_input", [user_message("hello")])
        assert audit(path)[-1]["hash"] == first.hash == session.head.hash
        refs = session.append_many([("turn_end", {"turn": 1}), ("own_kind", {"x": [None, 1.5]})])
        assert [ref.seq for ref in refs] == [2, 3]
        assert session.append_many([]) == []

    entries = audit(path)
    assert [entry["kind"] for entry in entries] == [
        *("session_start", "user_input", "turn_end", "own_kind")
    ]
    start = entries[0]
    assert start["session_id"] == path.stem
    assert start["format"] == 1
    assert (start["pod"], start["system_prompt"], start["config"]) == (
        "probe",
        "Be brief.",
        {"model": "m"},
    )
    assert start["history"][0]["parts"] == [{"type": "text", "text": "from before"}]


def test_time_never_goes_back(home: Path) -> None:
    clock = iter([1000, 1000, 1000, 900, 2000, 5, 5, 5, 5]).__next__
    with begun(a_store(home, clock=clock)) as session:
        session.append("turn_end", turn=1)
        session.append("turn_end", turn=2)
        session.append("turn_end", turn=3)
        path = a_store(home).layout.log(session.session_id)

    times = [entry["ts"] for entry in audit(path)]
    assert times == sorted(times)
    with a_store(home, clock=itertools.repeat(1).__next__).open(path.stem) as session:
        session.append("turn_end", turn=4)

    assert audit(path)[-1]["ts"] == times[-1]


def test_what_cannot_be_json_is_refused_before_anything_is_written(store: FileSessionStore) -> None:
    with begun(store) as session:
        with pytest.raises(TypeError):
            session.append_many([("turn_end", {"turn": 1}), ("bad", {"value": object()})])

        with pytest.raises(TypeError):
            session.append("bad", seq=1)

        session.append("turn_end", turn=1)

    assert len(audit(store.layout.log(session.session_id))) == 2


def test_lone_surrogates_do_not_stop_a_session(store: FileSessionStore) -> None:
    broken = [user_message("x\ud835y"), answer("\ud800", a_call("\udfff"))]
    with begun(store, system_prompt="\udc00") as session:
        session.append_items("user_input", broken)

    audit(store.layout.log(session.session_id))
    state = store.restore(session.session_id)
    assert texts(state.history) == ["x\ufffdy", "\ufffd"]
    assert state.system_prompt == "\ufffd"


def test_files_are_private_whatever_the_umask(home: Path) -> None:
    before = os.umask(0)
    try:
        store = a_store(home / "deep" / "er")
        session_id = told(store, 1)
        store.set_pointer("probe", session_id)
        big = UserMessage(new_uid(), (Image("image/png", bytes(2 << 20)),))
        with store.open(session_id) as session:
            session.append_items("user_input", [big])

        with store.layout.log(session_id).open("ab") as log:
            log.write(b"torn")

        store.open(session_id).close()
    finally:
        os.umask(before)

    made = [home / "deep", *(home / "deep").rglob("*")]
    assert {path.suffix for path in made if path.is_file()} >= {".jsonl", ".head", ".lock", ".json"}
    for path in made:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path


@pytest.mark.parametrize("name", ["log", "anchor", "lock"])
def test_a_symlink_in_the_store_is_refused(
    store: FileSessionStore, tmp_path: Path, name: str
) -> None:
    session_id = told(store, 1)
    path: Path = getattr(store.layout, name)(session_id)
    outside = tmp_path / "outside"
    path.rename(outside)
    path.symlink_to(outside)
    before = outside.read_bytes()
    with pytest.raises(UnsafePath, match="is a symbolic link: refused"):
        store.open(session_id)

    if name == "log":
        for use in (store.restore, store.fork, lambda text: list(store.entries(text))):
            with pytest.raises(UnsafePath):
                use(session_id)

        report = store.verify(session_id)
        assert not report.ok
        assert "symbolic link" in (report.reason or "")
        assert [report.ok for report in store.verify_all()] == [False]

    assert outside.read_bytes() == before


def test_a_folder_of_the_store_that_is_a_symlink_is_refused(home: Path, tmp_path: Path) -> None:
    for name in ("sessions", "pods"):
        outside = tmp_path / f"outside-{name}"
        outside.mkdir()
        (home / name).symlink_to(outside)

    with pytest.raises(UnsafePath):
        begun(a_store(home))

    (home / "sessions").unlink()
    store = a_store(home)
    session_id = told(store, 1)
    with pytest.raises(UnsafePath):
        store.set_pointer("probe", session_id)

    assert list(tmp_path.glob("outside-*/*")) == []


def test_the_home_and_a_folder_that_is_named_may_be_links(home: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(home)
    logs = tmp_path / "logs"
    store = FileSessionStore(str(link), sessions=logs)
    session_id = told(store, 1)
    assert (logs / f"{session_id}.jsonl").exists()
    assert not (home / "sessions").exists()


def test_what_is_no_regular_file_is_refused_at_once(store: FileSessionStore) -> None:
    told(store, 1)
    session_id = uuid7(5)
    os.mkfifo(store.layout.log(session_id))
    with pytest.raises(UnsafePath):
        store.restore(session_id)


def test_a_session_that_is_not_there(store: FileSessionStore, home: Path) -> None:
    session_id = uuid7(5)
    for use in (store.open, store.restore, store.fork, store.verify, store.lineage):
        with pytest.raises(SessionNotFound, match=f"no session {session_id}"):
            use(session_id)

    assert store.ids() == []
    assert list(store.verify_all()) == []
    assert list(home.iterdir()) == [], "looking makes nothing"


# --- one writer ---------------------------------------------------------------------------------


def test_a_second_writer_is_told_who_holds_the_session(store: FileSessionStore) -> None:
    with begun(store) as session:
        session_id = session.session_id
        with pytest.raises(SessionInUse) as caught:
            store.open(session_id)

        assert caught.value.holder.pid == os.getpid()
        assert caught.value.holder.here
        assert f"is in use by pid {os.getpid()} on this machine since " in caught.value.message
        assert f"pod sessions fork {session_id}" in caught.value.hint
        assert store.holder(session_id) == caught.value.holder
        assert store.restore(session_id).session_id == session_id, "readers never wait"

    assert store.holder(session_id) is None
    store.open(session_id).close()


HOLD = """
import sys, time
from session_store import FileSessionStore
session = FileSessionStore(sys.argv[1]).open(sys.argv[2])
print("held", flush=True)
time.sleep(60)
"""


def held_by_another(home: Path, session_id: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(home), session_id],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_the_lock_dies_with_its_process(store: FileSessionStore, home: Path) -> None:
    session_id = told(store, 1)
    process = held_by_another(home, session_id)
    with process:
        with pytest.raises(SessionInUse, match=f"pid {process.pid}"):
            store.open(session_id)

        process.send_signal(signal.SIGKILL)

    assert store.holder(session_id) is None
    store.open(session_id).close()


def test_other_programs_do_not_inherit_the_lock(store: FileSessionStore) -> None:
    session = begun(store)
    with subprocess.Popen(["sleep", "60"], close_fds=False) as child:
        session.close()
        with store.open(session.session_id) as again:
            assert again.head == session.head

        child.kill()


FORK = """
import os, signal, sys
from session_store import FileSessionStore, SessionInUse, StorageFailed
store = FileSessionStore(sys.argv[1])
session = store.open(sys.argv[2])
reading, writing = os.pipe()
child = os.fork()
if child == 0:
    try:
        session.append("turn_end", turn=1)
    except StorageFailed as error:
        session.close()
        os.write(writing, error.message.encode())

    signal.pause()

print("child:", os.read(reading, 1000).decode())
try:
    store.open(sys.argv[2])
except SessionInUse:
    print("still held")

session.append("turn_end", turn=1)
session.close()
store.open(sys.argv[2]).close()
print("free, and the child lives:", os.waitpid(child, os.WNOHANG) == (0, 0))
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
"""


def test_a_forked_child_lets_go_of_the_lock(store: FileSessionStore, home: Path) -> None:
    session_id = told(store, 1)
    command = [sys.executable, "-c", FORK, str(home), session_id]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.split("\n")[:-1] == [
        f"child: cannot write session {session_id}: it was closed",
        "still held",
        "free, and the child lives: True",
    ]
    assert len(audit(store.layout.log(session_id))) == 10


@pytest.mark.parametrize("record", [b"", b"{", b'{"pid":"x"}', b"[]", b"\xff" * 5000])
def test_a_record_that_cannot_be_read_hides_only_the_name(
    store: FileSessionStore, record: bytes
) -> None:
    with begun(store) as session:
        store.layout.lock(session.session_id).write_bytes(record)
        with pytest.raises(SessionInUse, match="in use by another process"):
            store.open(session.session_id)


def test_looking_who_writes_never_keeps_a_writer_out(store: FileSessionStore) -> None:
    session_id = told(store, 1)
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            store.holder(session_id)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        for _ in range(60):
            with store.open(session_id) as session:
                assert session.head.seq == 8
    finally:
        stop.set()
        looking.join()


def test_a_lock_that_was_removed_before_it_was_held_is_none(home: Path) -> None:
    """Somebody removes the session between our opening its lock file and our locking it."""
    session_id = told(a_store(home), 1)

    class Removing(Disk):
        left = 1

        def open(self, path: Path, flags: int) -> int:
            fd = super().open(path, flags)
            if path.suffix == ".lock" and self.left:
                self.left -= 1
                path.unlink()

            return fd

    with a_store(home, disk=Removing()).open(session_id), pytest.raises(SessionInUse):
        a_store(home).open(session_id)

    always = Removing()
    always.left = 100
    with pytest.raises(SessionInUse):
        a_store(home, disk=always).open(session_id)


def test_a_log_that_changed_underneath_is_not_written(store: FileSessionStore) -> None:
    session = begun(store)
    path = store.layout.log(session.session_id)
    with path.open("ab") as log:
        log.write(b"somebody else\n")

    before = path.read_bytes()
    with pytest.raises(HeadMismatch, match="changed underneath its writer: it has"):
        session.append("turn_end", turn=1)

    with pytest.raises(StorageFailed):
        session.append("turn_end", turn=1)

    session.close()
    assert path.read_bytes() == before


def test_a_log_that_was_removed_is_not_written(store: FileSessionStore) -> None:
    session = begun(store)
    store.layout.log(session.session_id).unlink()
    with pytest.raises(HeadMismatch, match="it was removed"):
        session.append("turn_end", turn=1)

    session.close()


def test_a_closed_session_writes_nothing(store: FileSessionStore) -> None:
    session = begun(store)
    assert not session.closed
    session.close()
    session.close()
    assert session.closed
    for use in (lambda: session.append("turn_end", turn=1), session.write_anchor):
        with pytest.raises(StorageFailed, match="it was closed"):
            use()


def test_threads_share_a_session(store: FileSessionStore) -> None:
    with begun(store) as session:
        threads = [
            threading.Thread(
                target=lambda: [
                    session.append("extension", domain="d", payload=n) for n in range(25)
                ]
            )
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()

        for thread in threads:
            thread.join()

    assert len(audit(store.layout.log(session.session_id))) == 101


def test_writers_take_turns_and_never_mix(store: FileSessionStore) -> None:
    session_id = told(store, 1)
    written: list[str] = []

    def write() -> None:
        done = 0
        while done < 15:
            try:
                with store.open(session_id) as session:
                    written.append(session.append("extension", domain="d", payload=done).hash)
                    done += 1
            except SessionInUse:
                continue

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()

    for thread in threads:
        thread.join()

    hashes = [entry["hash"] for entry in audit(store.layout.log(session_id))]
    assert len(written) == 60
    assert sorted(hashes[9:]) == sorted(written)


# --- readers ------------------------------------------------------------------------------------


def test_a_reader_sees_whole_entries_while_a_writer_writes(store: FileSessionStore) -> None:
    failures: list[SessionStoreError] = []
    counts: list[int] = []
    done = threading.Event()
    with begun(store) as session:

        def read() -> None:
            while not done.is_set():
                try:
                    counts.append(sum(1 for _ in store.entries(session.session_id)))
                except SessionStoreError as error:
                    failures.append(error)

        reader = threading.Thread(target=read)
        reader.start()
        for number in range(150):
            session.append("extension", domain="d", payload="x" * (number * 211 % 9000))

        done.set()
        reader.join()

    assert failures == []
    assert counts == sorted(counts)
    assert counts[-1] > counts[0]


def test_reading_goes_on_where_it_stopped(store: FileSessionStore) -> None:
    with begun(store) as session:
        a_turn(session, 1)
        *_, last = store.entries(session.session_id)
        assert list(store.entries(session.session_id, last.next)) == []
        a_turn(session, 2)
        rest = list(store.entries(session.session_id, last.next))

    assert [entry.seq for entry in rest] == list(range(9, 17))
    assert list(store.entries(session.session_id, Position()))[9:] == rest


def test_a_tail_that_is_mended_under_a_readers_eyes_is_no_damage(
    store: FileSessionStore, home: Path, tmp_path: Path
) -> None:
    """The reader has read a torn tail; a writer cuts it off and goes on; the reader reads on."""
    session_id = told(store, 2)
    stale = tmp_path / "stale"
    lines = store.layout.log(session_id).read_bytes().split(b"\n")
    stale.write_bytes(b"\n".join([*lines[:9], b"torn" + lines[9], *lines[10:]]))

    class Stale(Disk):
        left = 1

        def open(self, path: Path, flags: int) -> int:
            if path.suffix == ".jsonl" and self.left:
                self.left -= 1
                return super().open(stale, flags)

            return super().open(path, flags)

    seen = list(a_store(home, disk=Stale()).entries(session_id))
    assert seen == list(store.entries(session_id))
    assert a_store(home, disk=Stale()).verify(session_id).ok
