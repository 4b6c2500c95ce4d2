from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from session_store import Durability, FileSessionStore, Session, SessionIndex, SessionInfo
from session_store.chain import START, Position, encode_entry
from worker.items import (
    AssistantMessage,
    Reasoning,
    SystemNote,
    Text,
    ToolCall,
    ToolResult,
    UserMessage,
    new_uid,
    user_message,
)
from worker.items_json import dump_item


@pytest.fixture
def clock() -> Iterator[Callable[[], int]]:
    ticks = count(1_800_000_000_000, 1_000)
    return lambda: next(ticks)  # type: ignore[return-value]  # a fixture's value is what it returns


@pytest.fixture
def store(home: Path, clock: Callable[[], int]) -> FileSessionStore:
    return FileSessionStore(home, durability=Durability.FLUSH, clock=clock)


@pytest.fixture
def notices() -> list[str]:
    return []


@pytest.fixture
def index(store: FileSessionStore, notices: list[str]) -> SessionIndex:
    return SessionIndex(store.layout.home, on_notice=notices.append)


def answer(text: str) -> AssistantMessage:
    return AssistantMessage(new_uid(), (Text(text),), "p", "m", "end_turn")


def usage(session: Session, tokens: int) -> None:
    session.append("usage", history_len=1, input_tokens=tokens, output_tokens=1, model="m")


def run(session: Session, said: str, replied: str = "fine", tokens: int = 100) -> None:
    session.append_items("user_input", [user_message(said)])
    session.append_items("assistant_items", [answer(replied)])
    usage(session, tokens)
    session.append("turn_end", turn=1)
    session.append("run_outcome", outcome="finished", interrupted=False)


def made(store: FileSessionStore, *prompts: str, pod: str = "probe") -> str:
    with store.create(pod=pod, system_prompt="S", config={}) as session:
        for prompt in prompts:
            run(session, prompt)
        return session.session_id


def go_on(store: FileSessionStore, session_id: str, *prompts: str) -> None:
    with store.open(session_id) as session:
        for prompt in prompts:
            run(session, prompt)


def log_of(store: FileSessionStore, session_id: str) -> Path:
    return store.layout.log(session_id)


def only(infos: list[SessionInfo]) -> SessionInfo:
    (info,) = infos
    return info


# --- what is listed -----------------------------------------------------------------------------


def test_a_session_is_listed_as_its_log_says(store: FileSessionStore, index: SessionIndex) -> None:
    with store.create(pod="probe", system_prompt="S", config={}) as session:
        session.append_items("user_input", [user_message("seen", origin="injected")])
        run(session, "\n  First line " + "x" * 100 + "\nsecond", tokens=10)
        run(session, "again", tokens=2_345)
        session_id = session.session_id

    info = only(index.sessions())
    state = store.restore(session_id)
    assert info == SessionInfo(
        session_id=session_id,
        pod="probe",
        title="First line " + "x" * 68 + "…",
        created=state.created,
        updated=state.updated,
        turns=2,
        items=5,
        tokens=2_345,
    )
    assert info.title == state.title
    assert info.items == len(state.history)


def test_tokens_are_estimated_until_something_was_measured(
    store: FileSessionStore, index: SessionIndex
) -> None:
    with store.create(pod="probe", system_prompt="S", config={}) as session:
        session.append_items("user_input", [user_message("x" * 4_000)])

    assert 1_000 < only(index.sessions()).tokens < 1_200


def test_the_newest_activity_comes_first(store: FileSessionStore, index: SessionIndex) -> None:
    first, second = made(store, "one"), made(store, "two")
    assert [info.session_id for info in index.sessions()] == [second, first]

    go_on(store, first, "more")
    assert [info.session_id for info in index.sessions()] == [first, second]


def test_listing_and_searching_leave_the_logs_as_they_are(
    store: FileSessionStore, index: SessionIndex
) -> None:
    made(store, "one")
    folder = store.layout.sessions
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}

    index.sessions()
    index.search("one")

    after = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}
    assert after == before


def test_a_log_that_did_not_change_is_not_read_again(
    store: FileSessionStore, index: SessionIndex
) -> None:
    path = log_of(store, made(store, "one"))
    before, stamp = index.sessions(), path.stat()

    with path.open("r+b") as file:
        file.write(b"\0" * stamp.st_size)
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))

    assert index.sessions() == before


def test_what_was_indexed_in_steps_is_what_is_indexed_at_once(
    store: FileSessionStore, index: SessionIndex
) -> None:
    session_id = made(store)
    for number in range(4):
        index.sessions()
        index.search("turn")
        go_on(store, session_id, f"turn {number}")
    in_steps, hits = index.sessions(), index.search("turn")

    (store.layout.home / "index.db").unlink()

    assert index.sessions() == in_steps
    assert index.search("turn") == hits
    assert len(hits) == 4


def test_a_removed_session_drops_out(store: FileSessionStore, index: SessionIndex) -> None:
    kept, removed = made(store, "kept"), made(store, "removed")
    assert len(index.sessions()) == 2
    assert index.search("removed")

    log_of(store, removed).unlink()

    assert [info.session_id for info in index.sessions()] == [kept]
    assert index.search("removed") == []


def test_a_replaced_log_is_read_from_its_beginning(
    store: FileSessionStore, index: SessionIndex, tmp_path: Path
) -> None:
    session_id = made(store, "before")
    assert index.search("before")
    other = FileSessionStore(tmp_path / "other", durability=Durability.FLUSH)
    path = log_of(store, session_id)
    replaced = log_of(other, made(other, "after"))
    text = replaced.read_bytes()

    path.with_suffix(".new").write_bytes(rewritten(text, session_id))
    path.with_suffix(".new").rename(path)
    store.layout.anchor(session_id).unlink()

    assert only(index.sessions()).title == "after"
    assert index.search("before") == []
    assert index.search("after")


def rewritten(text: bytes, session_id: str) -> bytes:
    """The same entries as the log of another session."""
    position, lines = START, []
    for line in text.split(b"\n")[:-1]:
        fields = json.loads(line)
        own = {key: fields.pop(key) for key in ("hash", "prev", "seq", "ts", "kind")}
        if "session_id" in fields:
            fields["session_id"] = session_id
        new, digest = encode_entry(position, own["ts"], own["kind"], fields)
        position = Position(position.seq + 1, digest, position.offset + len(new))
        lines.append(new)
    return b"".join(lines)


def test_files_that_are_no_logs_are_no_sessions(
    store: FileSessionStore, index: SessionIndex
) -> None:
    session_id = made(store, "one")
    folder = store.layout.sessions
    (folder / "notes.jsonl").write_text("{}")
    (folder / "README").write_text("x")
    (folder / f"{'0' * 8}-0000-7000-8000-{'0' * 12}.jsonl").write_text("")

    assert [info.session_id for info in index.sessions()] == [session_id]


def test_nothing_is_made_where_there_is_no_home(tmp_path: Path) -> None:
    home = tmp_path / "none"
    index = SessionIndex(home)

    assert index.sessions() == []
    assert index.search("x") == []
    assert not home.exists()


# --- forks and compactions ----------------------------------------------------------------------


def test_a_fork_is_listed_with_what_it_inherits(
    store: FileSessionStore, index: SessionIndex
) -> None:
    root = made(store, "the root", "second", "third")
    outcomes = [e.hash for e in store.entries(root) if e.kind == "run_outcome"]
    child = store.fork(root, at=outcomes[1])
    grandchild = store.fork(child)
    go_on(store, grandchild, "on the grandchild")

    by_id = {info.session_id: info for info in index.sessions()}
    for session_id, turns in ((root, 3), (child, 2), (grandchild, 3)):
        info, state = by_id[session_id], store.restore(session_id)
        assert (info.turns, info.items) == (turns, len(state.history))
        assert (info.pod, info.title) == ("probe", "the root")
        assert info.forked_from == state.forked_from
        assert info.tokens == 100


def test_a_parent_with_many_forks_and_a_late_parent(
    store: FileSessionStore, index: SessionIndex, tmp_path: Path
) -> None:
    root = made(store, "one", "two")
    hashes = [entry.hash for entry in store.entries(root) if entry.kind == "run_outcome"]
    forks = [store.fork(root, at=digest) for digest in hashes * 3]
    path = log_of(store, root)
    path.rename(tmp_path / "away")

    without = {info.session_id: info for info in index.sessions()}
    assert set(without) == set(forks)
    assert all(root in (info.damaged or "") for info in without.values())

    (tmp_path / "away").rename(path)
    within = {info.session_id: info for info in index.sessions()}
    assert [within[fork].turns for fork in forks] == [1, 2] * 3
    assert all(info.damaged is None for info in within.values())


def test_a_fork_goes_on_describing_a_parent_that_grows(
    store: FileSessionStore, index: SessionIndex
) -> None:
    root = made(store, "one")
    child = store.fork(root)
    index.sessions()
    go_on(store, root, "two", "three")

    by_id = {info.session_id: info for info in index.sessions()}
    assert (by_id[root].turns, by_id[child].turns) == (3, 1)


def test_a_compacted_session_names_where_it_came_from(
    store: FileSessionStore, index: SessionIndex
) -> None:
    old = made(store, "the old days")
    head = store.restore(old).head.hash
    new = store.save_compacted(old, [user_message("kept"), answer("yes")])
    fork = store.fork(old)

    by_id = {info.session_id: info for info in index.sessions()}
    assert by_id[new].compacted_from == (old, head)
    assert by_id[new].forked_from is None
    assert (by_id[new].turns, by_id[new].items) == (1, 2)
    assert by_id[new].title == store.restore(new).title
    assert [(link.child, link.relation) for link in index.children(old)] == [
        (new, "compact"),
        (fork, "fork"),
    ]
    assert index.compacted_child_of(old, head) == new
    assert index.compacted_child_of(old, "0" * 64) is None
    assert index.children(new) == []


# --- states -------------------------------------------------------------------------------------


def test_a_run_without_an_outcome_is_interrupted_once_nobody_is_at_it(
    store: FileSessionStore, index: SessionIndex
) -> None:
    with store.create(pod="probe", system_prompt="S", config={}) as session:
        session.append_items("user_input", [user_message("one")])
        running = only(index.sessions())
        session_id = session.session_id
    after = only(index.sessions())

    assert running.interrupted is False
    assert running.writer is not None
    assert running.writer.pid == os.getpid()
    assert running.writer.since > 0
    assert after.interrupted is True
    assert after.writer is None
    assert after.interrupted == store.restore(session_id).interrupted

    fork = store.fork(session_id)
    by_id = {info.session_id: info for info in index.sessions()}
    assert by_id[fork].interrupted == store.restore(fork).interrupted

    go_on(store, session_id, "two")
    by_id = {info.session_id: info for info in index.sessions()}
    assert by_id[session_id].interrupted is False


def changed_letter(data: bytes) -> bytes:
    return data.replace(b"second", b"sEcond", 1)


def cut_at_a_line_end(data: bytes) -> bytes:
    return b"\n".join(data.split(b"\n")[:4]) + b"\n"


def nuls(data: bytes) -> bytes:
    return data[: len(data) // 2] + b"\0" * 400 + data[len(data) // 2 :]


def all_nuls(data: bytes) -> bytes:
    return b"\0" * len(data) + b"\n"


@pytest.mark.parametrize("damage", [changed_letter, cut_at_a_line_end, nuls, all_nuls])
@pytest.mark.parametrize("seen_before", [True, False])
def test_a_damaged_log_is_listed_as_such_and_the_others_as_ever(
    store: FileSessionStore,
    index: SessionIndex,
    damage: Callable[[bytes], bytes],
    *,
    seen_before: bool,
) -> None:
    bad, good = made(store, "first", "second", "third"), made(store, "good")
    if seen_before:
        index.sessions()
    path = log_of(store, bad)
    intact = path.read_bytes()
    path.write_bytes(damage(intact))

    for _ in range(2):
        by_id = {info.session_id: info for info in index.sessions()}
        assert by_id[good].damaged is None
        said = by_id[bad].damaged
        report = store.verify(bad)
        assert said == f"entry {report.first_bad_seq} {report.reason}"
        assert by_id[bad].created > 0

    path.write_bytes(intact)
    assert all(info.damaged is None for info in index.sessions())


def test_a_torn_tail_is_no_damage(store: FileSessionStore, index: SessionIndex) -> None:
    session_id = made(store, "one")
    with log_of(store, session_id).open("ab") as file:
        file.write(b'{"hash":"' + b"a" * 30)

    info = only(index.sessions())
    assert (info.damaged, info.turns) == (None, 1)

    go_on(store, session_id, "two")
    assert only(index.sessions()).turns == 2


def test_an_entry_that_verifies_and_makes_no_sense_breaks_no_listing(
    store: FileSessionStore, index: SessionIndex
) -> None:
    session_id = made(store, "one")
    store.layout.anchor(session_id).unlink()
    path = log_of(store, session_id)
    entries = list(store.entries(session_id))
    position = Position(len(entries), entries[-1].hash, path.stat().st_size)
    nonsense: list[tuple[str, dict[str, object]]] = [
        ("user_input", {"items": None}),
        ("user_input", {"items": [1, {"type": "user_message", "parts": 3}, {"type": []}]}),
        ("tool_results", {"items": {"a": 1}}),
        ("usage", {"input_tokens": "many"}),
        ("run_outcome", {}),
        ("item_amended", {"item": [[]]}),
        ("compaction", {"tokens_after": None}),
    ]
    with path.open("ab") as file:
        for kind, fields in nonsense:
            line, digest = encode_entry(position, 1_900_000_000_000, kind, fields)
            position = Position(position.seq + 1, digest, position.offset + len(line))
            file.write(line)

    info = only(index.sessions())
    assert (info.title, info.tokens, info.updated) == ("one", 100, 1_900_000_000_000)
    assert index.search("one")


def test_a_link_in_the_folder_is_not_followed(
    store: FileSessionStore, index: SessionIndex, tmp_path: Path
) -> None:
    session_id = made(store, "one")
    path = log_of(store, session_id)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")

    info = only(index.sessions())
    assert info.damaged is not None
    assert "symbolic link" in info.damaged
    assert info.title == ""


# --- the index itself ---------------------------------------------------------------------------


def index_path(store: FileSessionStore) -> Path:
    return store.layout.home / "index.db"


def test_the_index_is_private(store: FileSessionStore, index: SessionIndex) -> None:
    made(store, "one")
    index.search("one")
    with sqlite3.connect(index_path(store)) as held:
        held.execute("SELECT count(*) FROM sessions").fetchone()
        files = list(store.layout.home.glob("index.db*"))
        assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
        assert held.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    held.close()


def test_a_folder_of_its_own_has_an_index_of_its_own(home: Path, tmp_path: Path) -> None:
    standard = FileSessionStore(home, durability=Durability.FLUSH)
    folder = tmp_path / "elsewhere"
    elsewhere = FileSessionStore(home, sessions=folder, durability=Durability.FLUSH)
    one, two = made(standard, "one"), made(elsewhere, "two")

    for _ in range(2):
        assert [info.session_id for info in SessionIndex(home).sessions()] == [one]
        assert [info.session_id for info in SessionIndex(home, sessions=folder).sessions()] == [two]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_bytes(b"no database " * 1_000),
        lambda path: path.write_bytes(path.read_bytes()[:5_000]),
        lambda path: path.write_bytes(path.read_bytes()[:4_096] + b"\xff" * 60_000),
        lambda path: altered(path, "DROP TABLE links"),
        lambda path: altered(path, "UPDATE sessions SET summary = '{}', inherited = '[]'"),
        lambda path: altered(path, "PRAGMA user_version = 0"),
    ],
    ids=["no database", "cut", "garbage", "a table gone", "rows wrong", "an older version"],
)
def test_a_spoilt_index_is_made_anew(
    store: FileSessionStore,
    index: SessionIndex,
    notices: list[str],
    spoil: Callable[[Path], object],
) -> None:
    made(store, "one", "two")
    before, hits = index.sessions(), index.search("two")
    spoil(index_path(store))

    assert index.sessions() == before
    assert index.search("two") == hits
    assert len(notices) == 1
    assert "made anew" in notices[0]


def altered(path: Path, statement: str) -> None:
    db = sqlite3.connect(path)
    db.execute(statement)
    db.commit()
    db.close()


def test_a_locked_index_is_said_and_the_logs_answer(
    store: FileSessionStore, index: SessionIndex, notices: list[str]
) -> None:
    made(store, "one")
    index.sessions()
    holder = sqlite3.connect(index_path(store), isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")

    newer = made(store, "two")
    listed, found = index.sessions(), index.search("two")

    assert [info.title for info in listed] == ["two", "one"]
    assert [hit.session_id for hit in found] == [newer]
    assert len(notices) == 2
    assert all("locked" in notice for notice in notices)
    holder.execute("ROLLBACK")
    holder.close()
    assert index.sessions() == listed
    assert index.search("two") == found
    assert len(notices) == 2


def test_nothing_is_written_where_nothing_is_new(
    store: FileSessionStore, index: SessionIndex, notices: list[str]
) -> None:
    made(store, "one")
    listed, found = index.sessions(), index.search("one")
    holder = sqlite3.connect(index_path(store), isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")

    assert index.sessions() == listed
    assert index.search("one") == found
    assert notices == []
    holder.close()


def test_the_index_of_another_program_is_left_alone(
    store: FileSessionStore, index: SessionIndex, notices: list[str]
) -> None:
    made(store, "one")
    altered(index_path(store), "CREATE TABLE theirs(a)")
    before = index_path(store).read_bytes()

    assert len(index.sessions()) == 1
    assert index_path(store).read_bytes() == before
    assert "another program" in notices[0]


def test_the_index_of_a_newer_version_is_left_alone(
    store: FileSessionStore, index: SessionIndex, notices: list[str]
) -> None:
    made(store, "one")
    index.sessions()
    altered(index_path(store), "PRAGMA user_version = 99")

    assert len(index.sessions()) == 1
    assert "newer version" in notices[0]
    db = sqlite3.connect(index_path(store))
    assert db.execute("PRAGMA user_version").fetchone() == (99,)
    db.close()


def test_an_index_that_is_no_file_is_left_alone(
    store: FileSessionStore, index: SessionIndex, notices: list[str], tmp_path: Path
) -> None:
    made(store, "one")
    (tmp_path / "theirs").write_text("precious")
    index_path(store).symlink_to(tmp_path / "theirs")

    assert len(index.sessions()) == 1
    assert (tmp_path / "theirs").read_text() == "precious"
    assert "not a file of our own" in notices[0]


def test_notices_are_logged_where_nobody_asks_for_them(
    store: FileSessionStore, caplog: pytest.LogCaptureFixture
) -> None:
    made(store, "one")
    index_path(store).write_bytes(b"no database" * 100)

    assert len(store.sessions()) == 1
    assert "made anew" in caplog.text


def test_several_threads_and_a_writer_at_once(store: FileSessionStore, index: SessionIndex) -> None:
    session_id = made(store, "one")
    seen: list[int] = []

    def look() -> None:
        for _ in range(10):
            seen.append(only(index.sessions()).turns)
            index.search("turn")

    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    go_on(store, session_id, *[f"turn {number}" for number in range(20)])
    for thread in threads:
        thread.join()

    assert len(seen) == 30
    assert only(index.sessions()).turns == 21
    assert len(index.search("turn", limit=100)) == 20


BIG = r"""
import re, sys
from pathlib import Path
from session_store import SessionIndex

def peak_kib():
    # Not `getrusage`: that begins with the peak of whoever started this process.
    return int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1])

index = SessionIndex(sys.argv[1])
index.sessions()
Path(sys.argv[2]).rename(sys.argv[3])
before = peak_kib()
(info,) = index.sessions()
print(info.title, info.items, info.damaged, (peak_kib() - before) // 1024)
"""


def test_a_log_of_150_megabytes_is_listed_in_little_memory(
    store: FileSessionStore, home: Path, tmp_path: Path
) -> None:
    """G12; `tests/cases/test_g_storage.py` has it for the commands."""
    session_id = made(store, "the big one")
    path = log_of(store, session_id)
    entries = list(store.entries(session_id))
    position = Position(len(entries), entries[-1].hash, path.stat().st_size)
    result = dump_item(
        ToolResult("r", "c", "u", "read", "lines of text\n" * 60_000, is_error=False)
    )
    with path.open("ab") as file:
        while position.offset < 150_000_000:
            line, digest = encode_entry(
                position, 1_800_000_000_000, "tool_results", {"items": [result]}
            )
            position = Position(position.seq + 1, digest, position.offset + len(line))
            file.write(line)
    path.rename(tmp_path / "away")

    done = subprocess.run(
        [sys.executable, "-c", BIG, home, tmp_path / "away", path],
        capture_output=True, text=True, check=True,
    )  # fmt: skip

    *words, megabytes = done.stdout.split()
    assert words == ["the", "big", "one", str(position.seq - len(entries) + 2), "None"]
    assert int(megabytes) < 50


# --- search -------------------------------------------------------------------------------------


@pytest.fixture
def library(store: FileSessionStore) -> str:
    call = ToolCall("c", "read", '{"path": "src/quux.py"}', new_uid())
    with store.create(pod="probe", system_prompt="S", config={}) as session:
        session.append_items("user_input", [user_message("Find the zebra-42 ticket")])
        session.append_items(
            "assistant_items",
            [
                AssistantMessage(
                    new_uid(),
                    (
                        Reasoning("a hidden thought"),
                        Text("了解しました。移行計画を確認します"),
                        call,
                    ),
                    "p",
                    "m",
                    "tool_use",
                )
            ],
        )
        result = ToolResult(new_uid(), "c", call.call_uid, "read 9 lines", "def plover(): …", False)
        session.append_items("tool_results", [result])
        session.append_items("system_item", [SystemNote(new_uid(), "Пожалуйста, кратко", "hook")])
        return session.session_id


@pytest.mark.parametrize(
    ("query", "role"),
    [
        ("zebra-42", "user"),
        ("ZEBRA-42", "user"),
        ("ebra", "user"),
        ("ticket zebra", "user"),
        ("移行計画", "assistant"),
        ("計画", "assistant"),
        ("画", "assistant"),
        ("quux", "assistant"),
        ("plover", "tool"),
        ("9 lines", "tool"),
        ("ПОЖАЛУЙСТА", "note"),
        ("…", "tool"),
        ('"path":', "assistant"),
    ],
)
@pytest.mark.parametrize("with_trigrams", [True, False])
def test_words_are_found_in_any_script(
    store: FileSessionStore,
    index: SessionIndex,
    library: str,
    query: str,
    role: str,
    *,
    with_trigrams: bool,
) -> None:
    if not with_trigrams:
        index.sync()
        # As an SQLite without them would have made it.
        for statement in ("TRIGGER messages_in", "TRIGGER messages_out", "TABLE words"):
            altered(index_path(store), f"DROP {statement}")

    (hit,) = index.search(query)

    assert (hit.session_id, hit.role) == (library, role)
    assert "\n" not in hit.snippet
    assert any(word.casefold() in hit.snippet.casefold() for word in query.split())


@pytest.mark.parametrize(
    "query",
    ['"quo"te AND (', "zebra AND", "zebra* OR", "NEAR(zebra)", "text:zebra", '""', "'; DROP TABLE",
     "%", "_____", "zebra\0x", "hidden", "", "   ", "\ud800", "zebra -ticket", "\\"],
)  # fmt: skip
def test_what_is_not_there_is_not_found_whatever_it_looks_like(
    index: SessionIndex, library: str, notices: list[str], query: str
) -> None:
    assert index.search(query) == []
    assert notices == []


def test_a_message_shared_by_sessions_is_found_once_in_the_newest(
    store: FileSessionStore, index: SessionIndex
) -> None:
    said = user_message("the shared one")
    with store.create(pod="probe", system_prompt="S", config={}) as session:
        session.append_items("user_input", [said])
        old = session.session_id
    new = store.save_compacted(old, [said])
    store.fork(old)

    (hit,) = index.search("shared")

    assert (hit.session_id, hit.uid) == (new, said.uid)


def test_an_amended_message_is_found_by_its_new_words_only(
    store: FileSessionStore, index: SessionIndex
) -> None:
    said = user_message("the former words")
    with store.create(pod="probe", system_prompt="S", config={}) as session:
        session.append_items("user_input", [said])
        assert index.search("former")
        session.append("item_amended", item=UserMessage(said.uid, (Text("the latter words"),)))

    assert index.search("former") == []
    assert [hit.uid for hit in index.search("latter")] == [said.uid]


def test_the_newest_session_comes_first_and_the_limit_holds(
    store: FileSessionStore, index: SessionIndex
) -> None:
    ids = [made(store, "needle") for _ in range(5)]

    assert [hit.session_id for hit in index.search("needle", limit=3)] == ids[:1:-1]


def test_a_snippet_shows_the_place(store: FileSessionStore, index: SessionIndex) -> None:
    made(store, "lead " * 100 + "the\nneedle\tis here " + "tail " * 100)

    (hit,) = index.search("needle")

    assert hit.snippet.startswith("…")
    assert hit.snippet.endswith("…")
    assert "the needle is here" in hit.snippet
    assert len(hit.snippet) <= 122
