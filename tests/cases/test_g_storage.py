"""Cases G: files that are rewritten, opened, listed, old, full, locked; equal outputs."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from session_store import (
    Disk,
    Durability,
    FileSessionStore,
    SessionIndex,
    StorageFailed,
)
from session_store.chain import Position, encode_entry
from tests.cases.conversations import (
    calling,
    listed,
    state,
    talk,
    told,
)
from tests.fake_provider import serving
from tests.pod.desk import Desk
from tests.pod.pods import living, log_of, manifest
from tests.session_store.builders import a_store, a_turn, audit, begun
from worker.items import ToolResult, user_message
from worker.items_json import dump_item

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "session_store" / "golden"
TOOLS = '[tools]\npython = ["tests.cases.tools:{}"]\n'


# --- G08: rewriters at once ----------------------------------------------------------------------

REWRITE = """
import sys
from session_store import FileSessionStore, SessionIndex, SessionInUse
home, mine, other = sys.argv[1:]
store = FileSessionStore(home)
for number in range(60):
    store.set_pointer("probe", mine if number % 2 else other)
    SessionIndex(home, on_notice=lambda text: sys.exit(text)).sessions()
    try:
        with store.open(other) as session:
            session.append("turn_end", turn=number)
    except SessionInUse:
        pass
"""


@pytest.mark.timeout(60)  # two processes beside this one
def test_g08_rewriters_at_once_never_install_a_torn_file(home: Path) -> None:
    """G08: pointer, anchor and index, 60 times each in two processes, read all the while."""
    store = a_store(home, durability=Durability.FLUSH)
    ids = [begun(store) for _ in range(2)]
    for session in ids:
        session.close()

    one, other = (session.session_id for session in ids)
    store.set_pointer("probe", one)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    rewriters = [
        subprocess.Popen([sys.executable, "-c", REWRITE, str(home), mine, other], env=environment)
        for mine in (one, other)
    ]
    names: set[str] = set()
    while any(process.poll() is None for process in rewriters):
        assert store.pointer("probe") in (one, other)
        assert json.loads(store.layout.anchor(other).read_bytes())
        names |= {path.name for path in (home / "pods").iterdir()}

    assert [process.returncode for process in rewriters] == [0, 0]
    assert all(report.ok for report in store.verify_all())
    audit(store.layout.log(other))
    assert {path.name for path in (home / "pods").iterdir()} == {"probe.json"}
    temporary = names - {"probe.json"}
    assert all(name.startswith(".probe.json.") for name in temporary), temporary


class Watched(Disk):
    """A disk that notes what is made, synced and renamed, and where."""

    def __init__(self) -> None:
        self.done: list[tuple[str, str]] = []
        self._names: dict[int, str] = {}

    def open(self, path: Path, flags: int) -> int:
        fd = super().open(path, flags)
        self._names[fd] = path.name
        if flags & os.O_CREAT:
            self.done.append(("make", path.name))

        return fd

    def sync(self, fd: int) -> None:
        super().sync(fd)
        self.done.append(("sync", self._names.get(fd, "?")))

    def rename(self, source: Path, target: Path) -> None:
        super().rename(source, target)
        self.done.append(("rename", source.name))


def test_g08_temporary_names_are_unique_and_synced_before_they_are_renamed(home: Path) -> None:
    """G08: of the pointer, the anchor and a new session's log."""
    disk = Watched()
    store = FileSessionStore(home, disk=disk)
    for _ in range(5):
        with begun(store) as session:
            a_turn(session, 1)

        store.set_pointer("probe", session.session_id)

    renamed = [name for what, name in disk.done if what == "rename"]
    assert len(renamed) >= 20
    assert len(set(renamed)) == len(renamed)
    for place, (what, name) in enumerate(disk.done):
        if what == "rename":
            assert ("sync", name) in disk.done[:place], name


# --- G12: a long log ------------------------------------------------------------------------------

PEAK = """
import re, sys
from pathlib import Path
from pod.cli import main
noted = Path(sys.argv.pop(1))
try:
    main()
finally:
    found = re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())
    noted.write_text(found[1])
"""


@pytest.mark.timeout(90)
def test_g12_a_log_of_150_megabytes_is_listed_and_verified_in_little_memory(
    desk: Desk, tmp_path: Path
) -> None:
    """G12: many entries, long and short; what a command needs beyond what it needs for a short."""
    _, log = talk(desk, 1)
    store = FileSessionStore(desk.home)

    def peak_mib(*args: str) -> tuple[int, str]:
        noted = tmp_path / "peak"
        done = subprocess.run(
            [sys.executable, "-c", PEAK, str(noted), *args],
            env=desk.environment(), capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return int(noted.read_text()) // 1024, done.stdout

    commands = [("list", "--json"), ("tree",), ("verify", log.stem)]
    short = [peak_mib("sessions", *args)[0] for args in commands]
    (desk.home / "index.db").unlink()
    store.layout.anchor(log.stem).unlink()
    position = next_of(store, log.stem)
    sizes = [200, 1_500, 900_000]
    with log.open("ab") as file:
        while position.offset < 150_000_000:
            result = ToolResult(
                "r", "c", "u", "read", "a line\n" * (sizes[position.seq % 3] // 7), False
            )
            fields = {"items": [dump_item(result)]}
            line, digest = encode_entry(position, 1_800_000_000_000, "tool_results", fields)
            position = Position(position.seq + 1, digest, position.offset + len(line))
            file.write(line)

    for args, before in zip(commands, short, strict=True):
        peak, shown = peak_mib("sessions", *args)
        assert peak - before < 50, args
        assert (f"{position.seq:,} entries" if args[0] == "verify" else "QUESTION-1") in shown


def next_of(store: FileSessionStore, session_id: str) -> Position:
    *_, last = store.entries(session_id)
    return last.next


# --- G14, G15: opening is no writing -------------------------------------------------------------


@pytest.mark.anyio
async def test_g14_g15_opening_a_session_without_a_turn_changes_nothing(home: Path) -> None:
    """G14, G15: by the store and by a pod, five times: bytes, times, order and number of logs."""
    with serving(calling()) as served:
        path = manifest(home, served.base_url)
        ids = []
        for _ in range(3):
            async with living(path, home) as story:
                await story.turns("one", "two")
                ids.append(story.pod.session_id)

        store = FileSessionStore(home)
        before, order = state(home), [info.session_id for info in store.sessions()]
        assert order == ids[::-1]
        for _ in range(5):
            store.open(ids[0]).close()
            async with living(path, home, resume=ids[0]) as again:
                assert again.pod.session_id == ids[0]
                assert len(again.pod.history) == 4

            store.verify(ids[0])
            store.restore(ids[0])
            assert SessionIndex(home).search("one")

        assert state(home) == before
        assert [info.session_id for info in store.sessions()] == order


def test_g14_only_what_is_said_moves_a_session_up(desk: Desk) -> None:
    """G14: not the file's time, as a copy or a backup changes it, nor looking at it or forking."""
    ids = [talk(desk, 1)[1].stem for _ in range(3)]
    assert [info["session_id"] for info in listed(desk)] == ids[::-1]
    for session_id in ids:
        os.utime(desk.home / "sessions" / f"{session_id}.jsonl")
        assert desk.pod("sessions", "show", session_id).exit_code == 0
        assert desk.pod("sessions", "verify", session_id).exit_code == 0
        assert desk.pod("sessions", "export", session_id).exit_code == 0

    fork = json.loads(desk.pod("sessions", "fork", ids[0], "--json").stdout)["session_id"]
    assert [info["session_id"] for info in listed(desk)] == [fork, *ids[::-1]]
    (desk.home / "index.db").unlink()
    assert [info["session_id"] for info in listed(desk)] == [fork, *ids[::-1]]
    assert desk.pod("run", "probe.toml", "more", "--resume", ids[0]).exit_code == 0
    assert [info["session_id"] for info in listed(desk)] == [ids[0], fork, *ids[:0:-1]]


def test_g15_resuming_goes_on_in_the_one_log(desk: Desk) -> None:
    """G15: five times by id, five by the pod: one log, a history that grows by what is said."""
    run, log = talk(desk, 1)
    for number in range(2, 12):
        way = ["--continue"] if number % 2 else ["--resume", log.stem]
        assert desk.pod("run", run, f"QUESTION-{number}", *way).exit_code == 0
        assert desk.logs() == [log]

    said = told(FileSessionStore(desk.home), log.stem)
    assert said[::2] == [f"QUESTION-{number}" for number in range(1, 12)]
    assert [entry["kind"] for entry in audit(log)].count("session_start") == 1


def test_g15_a_run_that_is_refused_leaves_no_log_of_nothing(desk: Desk) -> None:
    """G15: a manifest, prompt or session that is wrong makes no session."""
    run, log = talk(desk, 1)
    nobody = "0" * 8 + "-0000-7000-8000-" + "0" * 12
    for args in ([run, ""], [run, "x", "--resume", nobody], [run, "x", "--fork", nobody],
                 ["nothing.toml", "x"], [run, "x", "--resume", "../x"]):  # fmt: skip
        assert desk.pod("run", *args).exit_code == 2
        assert desk.logs() == [log]


# --- G16: old and new side by side ---------------------------------------------------------------


def test_g16_sessions_of_every_format_are_listed_and_go_on_side_by_side(desk: Desk) -> None:
    """G16: of old formats, of this one, as they come from a backup, imported from elsewhere."""
    run, log = talk(desk, 1)
    old: set[str] = set()
    for folder in GOLDEN.glob("format-*"):
        shutil.copytree(folder / "sessions", desk.home / "sessions", dirs_exist_ok=True)
        shutil.copytree(folder / "blobs", desk.home / "blobs", dirs_exist_ok=True)
        old |= {path.stem for path in folder.glob("sessions/*.jsonl")}

    # Without what is derived or kept beside it, as from a backup of the logs alone.
    copied = FileSessionStore(desk.home)
    fork = copied.fork(log.stem)
    copied.layout.anchor(fork).unlink()
    desk.write("chat.json", json.dumps([{"role": "user", "content": "from elsewhere"}]))
    imported = json.loads(desk.pod("sessions", "import", "chat.json", "--json").stdout)
    everyone = {log.stem, fork, *old, *(one["session_id"] for one in imported)}

    assert {info["session_id"] for info in listed(desk)} == everyone
    assert desk.pod("sessions", "verify", "--all").exit_code == 0
    for session_id in everyone:
        before = copied.restore(session_id)
        done = desk.pod("run", run, "and now?", "--resume", session_id)
        assert done.exit_code == 0, done.output
        after = copied.restore(session_id)
        assert after.session_id == session_id, "in its own log"
        assert len(after.history) > len(before.history)


# --- G18: a full disk ----------------------------------------------------------------------------


class Filling(Disk):
    """A disk that has no room, at a moment, and takes a part of what is written before."""

    full = False
    takes = 0

    def write(self, fd: int, data: bytes | memoryview) -> int:
        if not self.full:
            return super().write(fd, data)

        if self.takes:
            taken = super().write(fd, data[: self.takes])
            self.takes = 0
            return taken

        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("takes", [0, 1, 80, 200])
def test_g18_a_full_disk_is_told_and_costs_nothing_that_was_there(home: Path, takes: int) -> None:
    """G18: at once, or after a part of a line; once there is room, the next append succeeds.

    A file system that is really full: `test_a_file_system_that_is_really_full`; a run that meets
    one: `tests/pod/test_journal.py`.
    """
    disk = Filling()
    store = a_store(home, disk=disk)
    session = begun(store)
    a_turn(session, 1)
    before = told(store, session.session_id)
    disk.full, disk.takes = True, takes
    with pytest.raises(StorageFailed, match="No space left"):
        session.append_items("user_input", [user_message("lost " * 100)])

    with pytest.raises(StorageFailed):
        session.append_items("user_input", [user_message("no more on this one")])

    session.close()
    assert told(store, session.session_id) == before
    disk.full = False
    with store.open(session.session_id) as again:
        again.append_items("user_input", [user_message("there is room")])

    assert told(store, session.session_id) == [*before, "there is room"]
    assert store.verify(session.session_id).ok
    audit(store.layout.log(session.session_id))


# --- G19: an index that cannot be used -----------------------------------------------------------


def locked(path: Path) -> Callable[[], None]:
    held = sqlite3.connect(path, isolation_level=None)
    held.execute("BEGIN EXCLUSIVE")
    return held.close


def a_folder(path: Path) -> Callable[[], None]:
    kept = path.with_name("kept")
    path.rename(kept)
    path.mkdir()

    def undo() -> None:
        path.rmdir()
        kept.rename(path)

    return undo


def of_another_program(path: Path) -> Callable[[], None]:
    kept = path.with_name("kept")
    path.rename(kept)
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE theirs(a)")
    other.commit()
    other.close()

    def undo() -> None:
        kept.replace(path)

    return undo


@pytest.mark.parametrize("hold", [locked, a_folder, of_another_program])
def test_g19_an_index_that_cannot_be_used_is_told_and_holds_nothing_up(
    desk: Desk, hold: Callable[[Path], Callable[[], None]]
) -> None:
    """G19: the run goes on, the listing says so and is right, and later the index is the logs'."""
    run, log = talk(desk, 1)
    first = listed(desk)
    path = desk.home / "index.db"
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)

    release = hold(path)
    done = desk.pod("run", run, "QUESTION-2", "--continue")
    assert done.exit_code == 0, done.output
    while_held = desk.pod("sessions", "list", "--json")
    found = desk.pod("sessions", "search", "QUESTION-2", "--json")
    release()

    for answer in (while_held, found):
        assert answer.exit_code == 0
        assert "the index" in answer.stderr
        assert "cannot be used" in answer.stderr

    assert [hit["session_id"] for hit in json.loads(found.stdout)] == [log.stem]
    afterwards = desk.pod("sessions", "list", "--json")
    assert afterwards.stderr == ""
    assert json.loads(afterwards.stdout) == json.loads(while_held.stdout) != first
    path.unlink()
    assert listed(desk) == json.loads(afterwards.stdout)


# --- G22: equal outputs at one time --------------------------------------------------------------


@pytest.mark.anyio
async def test_g22_equal_results_within_one_second_are_all_kept(home: Path, tmp_path: Path) -> None:
    """G22: 50 of them, from one answer: each stored, sent, found and exported with its own uid."""
    calls = tuple(("status", json.dumps({"n": n})) for n in range(50))
    with serving(calling(*calls)) as served:
        async with living(manifest(home, served.base_url, TOOLS.format("status")), home) as story:
            await story.turns("go")
            session_id = story.pod.session_id
            live = [item for item in story.pod.history if isinstance(item, ToolResult)]

        sent = [m for m in served.asked[1].body["messages"] if m["role"] == "tool"]

    assert {item.summary for item in live} == {'{"status":"ok"}'}
    assert len({item.uid for item in live}) == len({item.call_uid for item in live}) == 50
    assert len(sent) == 50
    stored = [e for e in log_of(home, session_id) if e["kind"] == "tool_results"]
    assert [i["uid"] for e in stored for i in e["items"]] == [item.uid for item in live]
    index = SessionIndex(home)
    assert len(index.search('{"status":"ok"}', limit=100)) == 50
    assert sum(row.role == "tool" for row in index.messages(session_id)) == 50


def test_g22_equal_messages_at_one_time_are_as_many_as_were_said(home: Path) -> None:
    """G22: of a person and of a model, with a clock that stands still."""
    store = a_store(home, clock=lambda: 7, durability=Durability.FLUSH)
    with begun(store) as session:
        for _ in range(50):
            session.append_items("user_input", [user_message("ok")])

    history = store.restore(session.session_id).history
    assert [getattr(item, "text", "") for item in history] == ["ok"] * 50
    assert len({item.uid for item in history}) == 50
    fork = store.fork(session.session_id)
    compacted = store.save_compacted(fork, history)
    assert store.restore(compacted).history == history
    assert len(SessionIndex(home).search("ok", limit=100)) == 50
