from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pod.cli.sessions import sessions
from session_store import Durability, FileSessionStore
from tests.pod.full_disk import files_no_larger_than
from tests.session_store.exchange.sources import claude, got, lines, text, use

ROOT = Path(__file__).resolve().parents[2]
SESSION = lines(
    {"type": "file-history-snapshot", "snapshot": {}},
    claude(1, "user", "Look around"),
    claude(2, "assistant", [use("c1"), use("c2")]),
    claude(3, "user", [got("c1", "x" * 20_000)]),
    claude(4, "assistant", [text("Looked.")]),
)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "7f3c.jsonl"
    path.write_bytes(SESSION)
    return path


@pytest.fixture
def store(home: Path) -> FileSessionStore:
    return FileSessionStore(home, durability=Durability.FLUSH)


def pod(*args: str | Path) -> Result:
    return CliRunner().invoke(sessions, [str(arg) for arg in args], prog_name="pod sessions")


def said(*args: str | Path) -> Any:
    done = pod(*args, "--json")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def test_what_was_imported_is_told_and_what_was_not(store: FileSessionStore, source: Path) -> None:
    done = pod("import", source)

    (session_id,) = store.ids()
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        (
            f"imported 5 records as session {session_id}: 2 tool calls (1 with results), 1 turn, "
            "about 8,100 tokens"
        ),
        "without a result: 1 call; an error result that says so stands in for each",
        "not carried over: 1 file snapshot (kept as extension entries)",
    ]
    assert store.restore(session_id).pod == "imported"
    assert store.pointer("imported") is None, "an import moves no pod"


def test_json_says_the_same(store: FileSessionStore, source: Path) -> None:
    (row,) = said("import", source, "--pod", "old")

    state = store.restore(row["session_id"])
    assert (row["format"], row["file"], row["title"]) == ("claude-code", str(source), "Look around")
    assert (row["turns"], row["items"], row["tool_calls"], row["unanswered"]) == (1, 5, 2, 1)
    assert (row["kept"], row["bad_lines"], row["earlier"]) == ({"file snapshot": 1}, [], [])
    assert (state.pod, len(state.history)) == ("old", 5)
    assert [info["session_id"] for info in said("list", "--pod", "old")] == [row["session_id"]]


def test_a_file_of_many_conversations_lists_its_sessions(
    store: FileSessionStore, tmp_path: Path
) -> None:
    path = tmp_path / "many.jsonl"
    chat = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]}
    path.write_bytes(lines(chat, chat) + b"{\n")
    done = pod("import", path)

    first, *listed, last = done.stdout.splitlines()
    assert first == "imported 4 records as 2 sessions"
    assert [line.split()[0] for line in listed] == store.ids()
    assert all(line.endswith('"Hi"  1 turn, about 11 tokens') for line in listed)
    assert last.startswith("not readable: 1 line (line 3: not JSON")


def test_a_file_that_is_none_of_these_costs_no_other(
    store: FileSessionStore, source: Path, tmp_path: Path
) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("remember the milk\n")
    done = pod("import", notes, source)

    assert done.exit_code == 2
    assert "notes.txt is in no format that is known here" in done.stderr
    assert "--format" in done.stderr
    assert len(store.ids()) == 1
    assert pod("import", source, "--format", "word").exit_code == 2
    assert pod("import", tmp_path / "nowhere").exit_code == 2
    assert pod("import", source, "--pod", "../up").exit_code == 2


def test_a_full_disk_is_no_wrong_use(store: FileSessionStore, source: Path) -> None:
    with files_no_larger_than(100):
        done = pod("import", source)

    assert done.exit_code == 1
    assert "cannot write session" in done.stderr
    assert pod("import", source).exit_code == 0


def test_a_pipe_can_be_imported(store: FileSessionStore, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(SESSION))
    writer.start()
    (row,) = said("import", pipe)
    writer.join()

    assert row["records"] == 5
    note = store.restore(row["session_id"]).extensions["import"][0]
    assert note["source"]["file"] == "pipe"


def test_an_export_is_written_whole_private_and_can_be_imported(
    store: FileSessionStore, source: Path, tmp_path: Path
) -> None:
    (row,) = said("import", source)
    path = tmp_path / "out.jsonl"
    path.write_text("what was there")
    assert pod("export", row["session_id"], "-o", path).exit_code == 0

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.name for one in tmp_path.iterdir() if "tmp" in one.name] == []
    (again,) = said("import", path)
    old, new = store.restore(row["session_id"]), store.restore(again["session_id"])
    assert new.history == old.history
    assert pod("export", row["session_id"]).stdout_bytes == path.read_bytes()


def test_exports_for_others(source: Path) -> None:
    (row,) = said("import", source)

    chat = json.loads(pod("export", row["session_id"][:13], "--format", "openai-chat").stdout)
    assert [message["role"] for message in chat] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
    ]
    assert pod("export", row["session_id"], "--format", "markdown").stdout.startswith(
        "# Look around"
    )


def test_an_export_that_cannot_be_made_leaves_nothing(source: Path, tmp_path: Path) -> None:
    (row,) = said("import", source)
    out = tmp_path / "out"
    for args, code in (
        ((row["session_id"], "--format", "word", "-o", out), 2),
        (("01a22e3e-0000-7000-8000-000000000000", "-o", out), 2),
        ((row["session_id"], "-o", tmp_path / "no" / "folder"), 1),
    ):
        done = pod("export", *args)
        assert done.exit_code == code, done.stderr
        assert "Traceback" not in done.stderr

    assert not out.exists()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".out")] == []


def test_what_was_imported_can_be_forked_at_a_turn(store: FileSessionStore, tmp_path: Path) -> None:
    path = tmp_path / "two.jsonl"
    path.write_bytes(
        lines(
            claude(1, "user", "First"),
            claude(2, "assistant", [text("One.")]),
            claude(3, "user", "Second"),
            claude(4, "assistant", [text("Two.")]),
        )
    )
    (row,) = said("import", path)
    ends = [e.hash for e in store.entries(row["session_id"]) if e.kind == "run_outcome"]

    forked = said("fork", row["session_id"], "--at", ends[0])
    assert len(store.restore(forked["session_id"]).history) == 2
    assert said("search", "Second")[0]["session_id"] == row["session_id"]


def test_the_database_library_loads_for_databases_only(home: Path, source: Path) -> None:
    probe = (
        "import sys; from pod.cli import main\n"
        "try: main(['sessions', 'import', sys.argv[1]])\n"
        "except SystemExit as end: assert not end.code\n"
        "assert not {'sqlite3', 'pydantic', 'httpx'} & set(sys.modules), sorted(sys.modules)"
    )
    command = [sys.executable, "-c", probe, str(source)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
