"""`pod sessions` mends, goes back, removes and counts; it says what it did, and exits so."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pod.cli.sessions import sessions
from session_store import Durability, FileSessionStore, Session
from worker.items import AssistantMessage, Text, new_uid, user_message

NOBODY = "00000000-0000-7000-8000-000000000000"
SECRET = "correct-horse-battery"


@pytest.fixture
def store(home: Path) -> FileSessionStore:
    return FileSessionStore(home, durability=Durability.FLUSH)


def pod(*args: str, stdin: str = "", **env: str) -> Result:
    runner = CliRunner(env={"COLUMNS": "", **env})
    return runner.invoke(sessions, args, prog_name="pod sessions", input=stdin)


def said(*args: str, **env: str) -> Any:
    done = pod(*args, "--json", **env)
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def run(session: Session, text: str) -> None:
    session.append_items("user_input", [user_message(text)])
    session.append_items(
        "assistant_items", [AssistantMessage(new_uid(), (Text(f"of {text}"),), "p", "m", "end")]
    )
    session.append("turn_end", turn=1)
    session.append("run_outcome", outcome="finished", interrupted=False)


def made(store: FileSessionStore, *prompts: str) -> str:
    with store.create(pod="probe", system_prompt="S", config={}) as session:
        for prompt in prompts:
            run(session, prompt)
        return session.session_id


def ends(store: FileSessionStore, session_id: str) -> list[str]:
    return [entry.hash for entry in store.entries(session_id) if entry.kind == "run_outcome"]


def spoil(store: FileSessionStore, session_id: str, seq: int) -> None:
    path = store.layout.log(session_id)
    lines = path.read_bytes().split(b"\n")
    lines[seq] = lines[seq][:-3] + b"###"
    path.write_bytes(b"\n".join(lines))


def questions(store: FileSessionStore, session_id: str) -> list[str]:
    history = store.restore(session_id).history
    return [item.text for item in history if not item.text.startswith("of ")]


# --- salvage --------------------------------------------------------------------------------------


def test_salvage_says_what_was_kept_and_what_was_lost(store: FileSessionStore) -> None:
    old = made(store, "one", "two")
    store.set_pointer("probe", old)
    spoil(store, old, 5)
    refused = pod("show", old)
    assert refused.exit_code == 3
    assert f"pod sessions salvage {old}" in refused.stderr

    done = pod("salvage", old[:18])

    assert done.exit_code == 0, done.stderr
    new = store.pointer("probe")
    lines = done.stdout.splitlines()
    assert lines[0] == f"session {new}, salvaged from {old}: 5 entries kept"
    assert lines[1] == "not in it:"
    assert lines[2].startswith("  entry 5 (")
    assert lines[2].endswith("bytes): does not match its hash")
    assert lines[3].startswith("  entries 6–8 (")
    assert lines[3].endswith("bytes): follows what is lost")
    assert lines[4] == f"{old} was not changed"
    assert lines[5] == f"pod probe is on {new} now: --continue goes on there"
    assert questions(store, str(new)) == ["one"]
    assert f"salvaged ▸ {new}" in pod("tree").stdout


def test_salvage_tells_a_program_the_same(store: FileSessionStore) -> None:
    old = made(store, "one", "two")
    path = store.layout.log(old)
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([*lines[:4], lines[4] + lines[5], *lines[6:]]))
    told = said("salvage", old)
    assert (told["damaged"], told["entries_kept"], told["first_bad_seq"]) == (old, 9, 4)
    assert told["lost"] == []
    assert questions(store, told["session_id"]) == ["one", "two"]


def test_salvage_of_what_is_sound_or_beyond_it(store: FileSessionStore) -> None:
    old = made(store, "one")
    sound = pod("salvage", old)
    assert sound.exit_code == 2
    assert "nothing to salvage" in sound.stderr
    spoil(store, old, 0)
    lost = pod("salvage", old)
    assert lost.exit_code == 3
    assert "nothing of it can be salvaged" in lost.stderr
    assert pod("salvage", NOBODY).exit_code == 2
    assert pod("salvage", "../../etc").exit_code == 2


# --- rewind and uncompact -------------------------------------------------------------------------


def test_rewind_goes_back_and_takes_the_pod_along(store: FileSessionStore) -> None:
    old = made(store, "one", "two", "three")
    store.set_pointer("probe", old)
    to = ends(store, old)[0]
    done = pod("rewind", old, "--to", to[:8])
    assert done.exit_code == 0, done.stderr
    new = str(store.pointer("probe"))
    assert done.stdout.splitlines() == [
        f"session {new}, gone back to entry 4 of {old}",
        f"pod probe is on {new} now: --continue goes on there",
    ]
    assert questions(store, new) == ["one"]
    assert questions(store, old) == ["one", "two", "three"]
    assert f"forked at 1 ▸ {new}" in pod("tree").stdout


def test_rewind_of_what_no_pod_is_on_says_so(store: FileSessionStore) -> None:
    old = made(store, "one", "two")
    told = said("rewind", old, "--to", ends(store, old)[0])
    assert told["forked_from"] == [old, ends(store, old)[0]]
    assert (told["moved"], told["reason"], told["pods"]) == (False, None, [])
    done = pod("rewind", old, "--to", ends(store, old)[0])
    assert "no pod is on it" in done.stderr


@pytest.mark.parametrize("to", ["00" * 32, "xyz", "abc"])
def test_rewind_to_nowhere(store: FileSessionStore, to: str) -> None:
    old = made(store, "one")
    done = pod("rewind", old, "--to", to)
    assert done.exit_code == 2
    assert "has no entry" in done.stderr
    assert store.ids() == [old]


def test_what_a_pod_is_at_work_on_is_not_taken_from_under_it(store: FileSessionStore) -> None:
    old = made(store, "one")
    new = store.save_compacted(old, [user_message("all")])
    commands = (
        ("rewind", "--to", ends(store, old)[0]),
        ("uncompact",),
        ("rm",),
        ("salvage",),
        ("redact", "--pattern", "correct-[a-z]+"),
    )
    with store.open(new):
        for name, *rest in commands:
            done = pod(name, new, *rest)
            assert done.exit_code == 1, name
            assert f"in use by pid {os.getpid()}" in done.stderr, name

    assert store.ids() == [old, new]


def test_uncompact_goes_back_to_the_long_one(store: FileSessionStore) -> None:
    old = made(store, "one", "two")
    new = store.save_compacted(old, [user_message("all")])
    store.set_pointer("probe", new)
    done = pod("uncompact", new)
    assert done.stdout.splitlines() == [
        f"session {old}, before it was compacted to {new}",
        f"pod probe is on {old} now: --continue goes on there",
    ]
    assert store.pointer("probe") == old
    assert said("uncompact", new) == {"session_id": old, "compacted": new, "pods": []}
    wrong = pod("uncompact", old)
    assert wrong.exit_code == 2
    assert "was not compacted from another" in wrong.stderr


# --- detach and rm --------------------------------------------------------------------------------


def test_detach_lets_the_parent_go(store: FileSessionStore) -> None:
    parent = made(store, "one")
    child = store.fork(parent)
    refused = pod("rm", parent)
    assert refused.exit_code == 1
    assert f"still referred to by {child} (forked from it)" in refused.stderr
    assert f"pod sessions rm {parent} --detach" in refused.stderr

    done = pod("detach", child)
    assert done.stdout.startswith(f"session {child} stands alone: ")
    assert done.stdout.endswith(f"bytes kept of {parent}\n")
    assert pod("rm", parent).exit_code == 0
    assert questions(store, child) == ["one"]
    assert pod("verify", "--all").exit_code == 0
    shown = pod("show", child)
    assert shown.exit_code == 0
    assert "one" in shown.stdout
    assert "inherits nothing" in pod("detach", made(store, "alone")).stdout


def test_rm_says_what_it_did(store: FileSessionStore) -> None:
    parent = made(store, "one")
    child = store.fork(parent)
    store.set_pointer("probe", parent)
    done = pod("rm", parent, "--detach", "--yes")
    assert done.exit_code == 0, done.stderr
    first, *rest = done.stdout.splitlines()
    assert first.startswith(f"removed {parent}: ")
    assert first.endswith(" freed")
    assert rest == [
        f"  {child} stands alone now",
        "  pod probe was on it: --continue begins a new session",
    ]
    assert pod("list").stdout.startswith(child)
    assert pod("rm", parent).exit_code == 2


def test_rm_of_several_takes_the_younger_ones_first(store: FileSessionStore) -> None:
    parent = made(store, "one")
    child = store.fork(parent)
    done = said("rm", parent, child)
    assert [one["session_id"] for one in done] == [child, parent]
    assert store.ids() == []


def test_rm_of_several_goes_on_after_one_that_cannot_be(store: FileSessionStore) -> None:
    needed, free = made(store, "one"), made(store, "two")
    store.fork(needed)
    done = pod("rm", needed, free)
    assert done.exit_code == 1
    assert free not in store.ids()
    assert needed in store.ids()


def test_rm_only_says_what_it_would_do(store: FileSessionStore) -> None:
    parent = made(store, "one")
    child = store.fork(parent)
    alone = pod("rm", parent, "--dry-run")
    assert alone.exit_code == 1
    assert alone.stdout.startswith(f"would not remove {parent}: ")
    assert alone.stdout.endswith(f"needed by {child}\n")
    both = pod("rm", parent, child, "--dry-run")
    assert both.exit_code == 0
    assert len(both.stdout.splitlines()) == 2
    assert said("rm", parent, "--detach", "--dry-run")[0]["needed_by"] == [child]
    assert store.ids() == [parent, child]


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("ID", "--older-than", "30d"),
        ("--older-than", "30d", "--detach"),
        ("--older-than", "thirty"),
        ("--older-than", "-3d"),
        ("--keep-bytes", "many"),
        ("--keep-bytes", "1.5.2G"),
        (NOBODY,),
        ("../x",),
    ],
)
def test_rm_that_is_not_understood(store: FileSessionStore, args: tuple[str, ...]) -> None:
    session_id = made(store, "one")
    done = pod("rm", *(session_id if arg == "ID" else arg for arg in args))
    assert done.exit_code == 2
    assert store.ids() == [session_id]


def test_rm_by_limits(store: FileSessionStore, home: Path) -> None:
    long_ago = FileSessionStore(home, clock=lambda: 1_000_000_000_000)
    old, current = made(long_ago, "one"), made(long_ago, "two")
    store.set_pointer("probe", current)
    new = made(store, "three")
    dry = pod("rm", "--older-than", "30d", "--dry-run")
    assert dry.exit_code == 0
    lines = dry.stdout.splitlines()
    assert lines[0].startswith(f"would remove {old}: ")
    assert lines[0].endswith("2001-09-09")
    assert lines[1] == f"kept {current}: pod probe is on it"
    assert lines[2].startswith("1 session of ")
    plan = said("rm", "--older-than", "30d", "--dry-run")
    assert [one["session_id"] for one in plan["remove"]] == [old]
    assert plan["kept"] == [{"session_id": current, "why": "pod probe is on it"}]
    assert store.ids() == sorted([old, current, new])

    done = pod("rm", "--older-than", "30d", "--keep-bytes", "1GiB")
    assert done.exit_code == 0
    assert done.stdout.startswith(f"removed {old}: ")
    assert store.ids() == sorted([current, new])
    assert "nothing to remove" in pod("rm", "--older-than", "2w").stderr
    assert [one["session_id"] for one in said("rm", "--keep-bytes", "0")] == [new]
    assert store.ids() == [current]


def test_du_adds_up(store: FileSessionStore) -> None:
    first, second = made(store, "one", "two", "three"), made(store, "x")
    told = said("du")
    assert [one["session_id"] for one in told["sessions"]] == [first, second]
    own = sum(one["bytes"] for one in told["sessions"])
    rest = sum(told[key] for key in ("shared_blobs", "unused_blobs", "kept", "index"))
    assert told["bytes"] == own + rest
    lines = pod("du").stdout.splitlines()
    assert lines[0].endswith(f"kB  {first}")
    assert lines[-1].endswith("in all, 2 sessions")


# --- redact ---------------------------------------------------------------------------------------


def test_redact_writes_it_anew_and_never_says_the_secret(store: FileSessionStore) -> None:
    old = made(store, f"my password is {SECRET}", "two")
    fork = store.fork(old)
    store.set_pointer("probe", old)
    done = pod("redact", old, "--secret-env", "DB_PASSWORD", DB_PASSWORD=SECRET)
    assert done.exit_code == 0, done.stderr
    assert SECRET not in done.output
    new = str(store.pointer("probe"))
    assert done.stdout.splitlines()[:3] == [
        f"session {new}, redacted from {old}: 2 entries changed",
        f"pod probe is on {new} now: --continue goes on there",
        "what still has it:",
    ]
    assert f"  {old}  its log" in done.stdout
    assert f"  {fork}  begins in {old}" in done.stdout
    assert f"pod sessions rm {old}" in done.stdout
    assert questions(store, new)[0] == "my password is [masked: DB_PASSWORD]"
    assert f"redacted ▸ {new}" in pod("tree").stdout


def test_redact_takes_a_secret_from_a_file_or_stdin(
    store: FileSessionStore, tmp_path: Path
) -> None:
    key = tmp_path / "key.txt"
    key.write_text(f"{SECRET}\n")
    old = made(store, f"it is {SECRET}")
    told = said("redact", old, "--secret-file", str(key))
    assert told["entries_changed"] == 2
    assert "[masked: key.txt]" in questions(store, told["new_session_id"])[0]
    done = pod("redact", old, "--secret-file", "-", "--json", stdin=f"{SECRET}\n")
    new = json.loads(done.stdout)["new_session_id"]
    assert questions(store, new) == ["it is [masked: stdin]"]
    by_pattern = said("redact", old, "--pattern", "correct-[a-z]+")
    assert questions(store, by_pattern["new_session_id"]) == ["it is [masked: pattern]-battery"]


def test_redact_of_what_has_no_secret_makes_nothing(store: FileSessionStore) -> None:
    old = made(store, "nothing here")
    done = pod("redact", old, "--secret-env", "KEY", KEY=SECRET)
    assert done.exit_code == 0
    assert done.stdout.startswith(f"session {old} has nothing of it; no session was made")
    assert store.ids() == [old]


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ((), "say what is secret"),
        (("--secret-env", "NOT_SET"), "the variable NOT_SET is not set"),
        (("--secret-file", "/nowhere/at-all"), "cannot be read"),
        (("--pattern", "a("), "no regular expression"),
        (("--pattern", "one"), "shorter than 6 characters"),
    ],
)
def test_redact_that_is_not_understood(
    store: FileSessionStore, args: tuple[str, ...], why: str
) -> None:
    old = made(store, "one")
    done = pod("redact", old, *args)
    assert done.exit_code == 2
    assert why in done.stderr
    assert store.ids() == [old]
