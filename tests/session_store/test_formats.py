"""Logs of every format there was are read as they were written; those of the future are refused."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pod.cli.failures import exit_code
from session_store import (
    FileSessionStore,
    NewerFormat,
    SessionDamaged,
    SessionStoreError,
    Unsuitable,
)
from session_store.chain import FORMAT, START, Position, encode_entry
from session_store.index import SessionIndex
from tests.session_store.builders import a_store, audit, told
from tests.session_store.golden.make import as_json, expected_of
from worker.items import user_message

GOLDEN = Path(__file__).resolve().parent / "golden"
FORMATS = range(1, FORMAT + 1)


def expected(number: int) -> dict[str, Any]:
    text = (GOLDEN / f"format-{number}" / "expected.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


CASES = [(number, name) for number in FORMATS for name in expected(number)]


def copy_of(number: int, home: Path) -> FileSessionStore:
    shutil.copytree(GOLDEN / f"format-{number}", home, dirs_exist_ok=True)
    return a_store(home)


def test_each_format_has_its_golden_logs() -> None:
    """Whoever makes a new format makes these for it, and keeps the old ones."""
    assert {path.name for path in GOLDEN.glob("format-*")} == {f"format-{n}" for n in FORMATS}


@pytest.mark.parametrize(("number", "name"), CASES)
def test_a_golden_log_is_read_as_it_was_written(home: Path, number: int, name: str) -> None:
    store, known = copy_of(number, home), expected(number)[name]
    session_id = known["session_id"]
    assert store.verify(session_id).ok
    assert expected_of(store, session_id) == known
    assert {info.session_id for info in SessionIndex(home).sessions()} == set(store.ids())
    first = json.loads(store.layout.log(session_id).read_bytes().split(b"\n")[0])
    assert first["format"] == number


@pytest.mark.parametrize(("number", "name"), CASES)
def test_a_golden_session_goes_on(home: Path, number: int, name: str) -> None:
    store, known = copy_of(number, home), expected(number)[name]
    session_id, history = known["session_id"], known["state"]["history"]
    before = store.layout.log(session_id).read_bytes()
    with store.open(session_id) as session:
        session.append_items("user_input", [user_message("and now?")])

    data = store.layout.log(session_id).read_bytes()
    whole = before[: before.rfind(b"\n") + 1] if name == "torn" else before
    assert data.startswith(whole), "what was there is there, byte for byte"
    audit(store.layout.log(session_id))
    state = store.restore(session_id)
    assert as_json(state)["history"][:-1] == history
    fork, compacted = store.fork(session_id), store.save_compacted(session_id, state.history[-1:])
    assert store.restore(fork).history == state.history
    assert store.restore(compacted).history == state.history[-1:]
    assert all(found.ok for found in store.verify_all())


def test_what_no_version_knows_yet_is_kept_byte_for_byte(home: Path) -> None:
    store = copy_of(1, home)
    session_id = expected(1)["from the future"]["session_id"]
    *_, kind, fields = before = list(store.entries(session_id))
    assert (kind.kind, kind.data["thought"]) == ("telepathy", {"deep": [1, None]})
    assert fields.data["weather"] == "fine"
    assert b'"mood":"bright"' in fields.raw
    with store.open(session_id) as session:
        session.append("turn_end", turn=1)

    assert [entry.raw for entry in store.entries(session_id)][:-1] == [e.raw for e in before]


# --- the future ---------------------------------------------------------------------------------


def with_format(store: FileSessionStore, session_id: str, value: object) -> bytes:
    """Write the session anew, hashes and all, as one of another format."""
    path, made, position = store.layout.log(session_id), b"", START
    for entry in audit(path):
        fields = {k: v for k, v in entry.items() if k not in {"hash", "prev", "seq", "ts", "kind"}}
        if position == START:
            fields["format"] = value

        line, digest = encode_entry(position, entry["ts"], entry["kind"], fields)
        made += line
        position = Position(position.seq + 1, digest, len(made))

    path.write_bytes(made)
    store.layout.anchor(session_id).unlink()
    return made


@pytest.mark.parametrize(
    "use",
    [
        lambda store, known: store.open(known),
        lambda store, known: store.restore(known),
        lambda store, known: list(store.entries(known)),
        lambda store, known: store.fork(known),
        lambda store, known: store.save_compacted(known, []),
        lambda store, known: store.rewind(known, "0" * 64),
        lambda store, known: store.lineage(known),
        lambda store, known: store.detach(known),
    ],
    ids=["open", "restore", "entries", "fork", "compact", "rewind", "lineage", "detach"],
)
def test_a_log_of_a_newer_format_is_refused_and_left_alone(
    home: Path, use: Callable[[FileSessionStore, str], object]
) -> None:
    store = a_store(home)
    session_id = told(store, 1)
    data = with_format(store, session_id, FORMAT + 1)
    with pytest.raises(NewerFormat) as caught:
        use(store, session_id)

    error = caught.value
    assert (error.session_id, error.format) == (session_id, FORMAT + 1)
    assert error.message == (
        f"session {session_id} is of format {FORMAT + 1}: this version reads up to format {FORMAT}"
    )
    assert "a newer one" in error.hint
    assert exit_code(error) == 3
    assert store.layout.log(session_id).read_bytes() == data
    assert store.ids() == [session_id]


def test_nothing_is_made_of_a_newer_format_as_if_it_were_damaged(home: Path) -> None:
    store = a_store(home)
    session_id = told(store, 1)
    with_format(store, session_id, FORMAT + 1)
    report = store.verify(session_id)
    assert (report.ok, report.first_bad_seq) == (False, 0)
    assert re.search(rf"format {FORMAT + 1}, and this version reads up to", report.reason or "")
    for use in (store.salvage, lambda known: store.redact(known, {"KEY": "question 1"})):
        with pytest.raises(SessionDamaged, match=f"of format {FORMAT + 1}"):
            use(session_id)

    assert store.ids() == [session_id]
    (info,) = SessionIndex(home).sessions()
    assert info.damaged


def test_a_fork_of_a_newer_format_says_why_it_cannot_be_read(home: Path) -> None:
    store = a_store(home)
    session_id = told(store, 1)
    fork = store.fork(session_id)
    with_format(store, session_id, FORMAT + 1)
    with pytest.raises(SessionDamaged, match=f"of format {FORMAT + 1}"):
        store.restore(fork)


@pytest.mark.parametrize("value", [0, -1, "1", 1.0, True, None, []])
def test_what_is_no_format_is_damage(home: Path, value: object) -> None:
    store = a_store(home)
    session_id = told(store, 1)
    with_format(store, session_id, value)
    with pytest.raises(SessionDamaged, match="is of no format that there is") as caught:
        store.open(session_id)

    assert not isinstance(caught.value, NewerFormat)
    with pytest.raises((Unsuitable, SessionStoreError)):
        store.salvage(session_id)
