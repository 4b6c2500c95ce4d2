"""Several entries written at once: torn in any way they are no damage; anything else still is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from session_store import FileSessionStore, SessionDamaged
from tests.session_store.builders import a_store, audit, begun

Change = Callable[[list[bytes]], list[bytes]]


def hollow(line: bytes) -> bytes:
    """The line as it is where what was written last of all never came to the medium."""
    return line[:20] + bytes(len(line) - 40) + line[-20:]


def batch(home: Path) -> tuple[FileSessionStore, str, bytes, list[bytes]]:
    """A session of three entries, and four more, written at once, that no anchor is about."""
    store = a_store(home)
    with begun(store) as session:
        session.append("turn_end", turn=1)
        session.append("turn_end", turn=2)
        session.write_anchor()
        session_id = session.session_id
        anchor = store.layout.anchor(session_id).read_bytes()
        session.append_many([("extension", {"domain": "d", "payload": n}) for n in range(4)])

    store.layout.anchor(session_id).write_bytes(anchor)
    data = store.layout.log(session_id).read_bytes()
    lines = data.split(b"\n")[:-1]
    return store, session_id, b"".join(line + b"\n" for line in lines[:3]), lines[3:]


def cut(line: bytes, size: int) -> bytes:
    """The beginning of a line; nothing came after it."""
    return CUT + line[:size]


CUT = b"cut:"


def found(store: FileSessionStore, session_id: str, head: bytes, lines: list[bytes]) -> Path:
    log = store.layout.log(session_id)
    ends = b"" if lines[-1].startswith(CUT) else b"\n"
    log.write_bytes(head + b"\n".join(lines).replace(CUT, b"") + ends)
    return log


def test_entries_written_at_once_say_where_they_begin(home: Path) -> None:
    store, session_id, _, _ = batch(home)
    entries = audit(store.layout.log(session_id))
    assert [entry.get("batch") for entry in entries] == [None, None, None, 3, 3, 3, 3]
    assert store.restore(session_id).extensions == {"d": [0, 1, 2, 3]}
    with store.open(session_id) as session, pytest.raises(TypeError, match="batch"):
        session.append("extension", domain="d", payload=1, batch=1)


@pytest.mark.parametrize(
    "tear",
    [
        lambda lines: [hollow(lines[0]), *lines[1:]],
        lambda lines: [lines[0], hollow(lines[1]), *lines[2:]],
        lambda lines: [hollow(line) for line in lines],
        lambda lines: [hollow(lines[0]), cut(lines[1], 9)],
        lambda lines: [hollow(lines[0]), lines[1], hollow(lines[2]), cut(lines[3], 150)],
        lambda lines: [lines[0], b"\0" * 300, lines[2], lines[3]],
    ],
    ids=["the first", "a later one", "all", "and cut", "several and cut", "zeros"],
)
def test_what_was_never_acknowledged_may_be_torn_anywhere(home: Path, tear: Change) -> None:
    store, session_id, head, lines = batch(home)
    torn = tear(lines)
    log = found(store, session_id, head, torn)
    bad = log.stat().st_size - len(head) - (len(torn[0]) + 1 if torn[0] == lines[0] else 0)
    report = store.verify(session_id)
    assert (report.ok, report.torn_bytes) == (True, bad)
    with store.open(session_id) as session:
        session.append("turn_end", turn=3)

    kept = 4 if torn[0] == lines[0] else 3
    kinds = [entry["kind"] for entry in audit(log)]
    assert kinds[kept:] == ["recovered", "turn_end"]
    (sidecar,) = store.layout.sessions.glob("*.torn-*")
    assert sidecar.stat().st_size == bad


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: [lines[0].replace(b'"payload":0', b'"payload":7'), *lines[1:]],
        lambda lines: [lines[0], lines[2], lines[1], lines[3]],
        lambda lines: [hollow(lines[0]), b"what is no line", lines[3]],
        lambda lines: [hollow(lines[0]), lines[1], cut(b"what ends", 6)],
        lambda lines: [*lines[1:]],
    ],
    ids=["changed", "swapped", "no line", "no beginning of a line", "left out"],
)
def test_whatever_no_loss_of_power_leaves_is_damage(home: Path, change: Change) -> None:
    store, session_id, head, lines = batch(home)
    found(store, session_id, head, change(lines))
    assert not store.verify(session_id).ok
    with pytest.raises(SessionDamaged):
        store.open(session_id)


def test_what_was_acknowledged_is_damage_where_it_is_zeros(home: Path) -> None:
    store, session_id, head, lines = batch(home)
    log = store.layout.log(session_id)
    with store.open(session_id) as session:  # whoever comes next has it on the medium before
        session.append("turn_end", turn=3)
        anchor = store.layout.anchor(session_id)
        anchor.unlink()

    later = log.read_bytes().split(b"\n")[7]
    anchor.unlink()
    found(store, session_id, head, [hollow(lines[0]), *lines[1:], later])
    report = store.verify(session_id)
    assert (report.ok, report.first_bad_seq) == (False, 3)


def test_what_the_anchor_names_is_damage_where_it_is_zeros(home: Path) -> None:
    store, session_id, head, lines = batch(home)
    store.open(session_id).close()
    found(store, session_id, head, [lines[0], hollow(lines[1]), *lines[2:]])
    report = store.verify(session_id)
    assert (report.ok, report.first_bad_seq) == (False, 4)
