"""What is found when a log is opened again: torn, cut, changed, glued; and what is then done."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from session_store import FileSessionStore, SessionDamaged, SessionNotFound
from session_store.ids import uuid7
from tests.session_store.builders import (
    a_store,
    a_turn,
    audit,
    begun,
    lines_of,
    put_lines,
    texts,
    told,
)
from worker.items import user_message

Lines = list[bytes]


@pytest.fixture
def store(home: Path) -> FileSessionStore:
    return a_store(home)


def unanchored(store: FileSessionStore) -> str:
    """A session whose last run was killed: acknowledged entries, an anchor from before them."""
    session_id = told(store, 1)
    with store.open(session_id) as session:
        a_turn(session, 2)
        log = store.layout.log(session_id).read_bytes()

    store.layout.anchor(session_id).unlink()
    assert store.layout.log(session_id).read_bytes() == log
    return session_id


def files_of(store: FileSessionStore) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in store.layout.sessions.iterdir()}


@pytest.mark.parametrize(
    "tail",
    [b'{"type":"msg","te', b'{"hash":"' + b"a" * 64 + b'","text":"\xe4\xbd', b"\0" * 700, b"\r"],
)
def test_a_torn_tail_is_set_aside_and_the_session_goes_on(
    store: FileSessionStore, tail: bytes
) -> None:
    session_id = told(store, 2)
    path = store.layout.log(session_id)
    good = path.read_bytes()
    path.write_bytes(good + tail)
    assert store.verify(session_id).ok
    assert store.verify(session_id).torn_bytes == len(tail)
    before = store.restore(session_id)
    assert path.read_bytes() == good + tail, "readers change nothing"

    with store.open(session_id) as session:
        assert session.state.history == before.history
        session.append_items("user_input", [user_message("after the tear")])

    entries = audit(path)
    assert path.read_bytes().startswith(good)
    recovered = entries[17]
    assert recovered["kind"] == "recovered"
    assert recovered["offset"] == len(good)
    assert recovered["bytes"] == len(tail)
    assert recovered["sidecar"] == f"{session_id}.torn-{len(good)}"
    assert (store.layout.sessions / recovered["sidecar"]).read_bytes() == tail
    assert texts(store.restore(session_id).history)[-1] == "after the tear"
    assert [path.stem for path in store.layout.sessions.glob("*.jsonl")] == [session_id]


def test_a_line_torn_at_any_byte_costs_that_line_only(store: FileSessionStore) -> None:
    session_id = unanchored(store)
    path = store.layout.log(session_id)
    whole = path.read_bytes()
    last = whole[:-1].rindex(b"\n") + 1
    for size in range(last, len(whole) + 1):
        path.write_bytes(whole[:size])
        store.layout.anchor(session_id).unlink(missing_ok=True)
        with store.open(session_id) as session:
            session.append("turn_end", turn=3)

        kinds = [entry["kind"] for entry in audit(path)]
        if size == last:
            assert kinds[-2:] == ["turn_end", "turn_end"]
        elif size < len(whole) - 1:
            assert kinds[-3:] == ["turn_end", "recovered", "turn_end"], size
        else:
            assert kinds[-2:] == ["run_outcome", "turn_end"], "whole but for its newline: kept"


def test_sidecars_are_never_written_over(store: FileSessionStore) -> None:
    session_id = unanchored(store)
    path = store.layout.log(session_id)
    good = path.read_bytes()
    for number in range(3):
        path.write_bytes(good + b"torn %d" % number)
        store.layout.anchor(session_id).unlink(missing_ok=True)
        store.open(session_id).close()

    found = sorted(store.layout.sessions.glob("*.torn-*"))
    assert [path.read_bytes() for path in found] == [b"torn 0", b"torn 1", b"torn 2"]


def test_a_last_line_with_holes_is_torn_where_nobody_was_told_of_it(
    store: FileSessionStore,
) -> None:
    session_id = unanchored(store)
    lines = lines_of(store, session_id)
    put_lines(store, session_id, [*lines[:-1], lines[-1][:90] + b"\0" * (len(lines[-1]) - 90)])
    assert store.verify(session_id).ok
    with store.open(session_id):
        pass

    assert [entry["kind"] for entry in audit(store.layout.log(session_id))][-1] == "recovered"


DAMAGE: dict[str, tuple[Callable[[Lines], Lines], int]] = {
    "a changed letter": (
        lambda lines: [*lines[:9], lines[9].replace(b"que", b"QUE"), *lines[10:]],
        9,
    ),
    "a dropped line": (lambda lines: lines[:3] + lines[4:], 3),
    "two lines swapped": (lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]], 2),
    "a line twice": (lambda lines: lines[:6] + lines[5:], 6),
    "a line of NULs": (lambda lines: [*lines[:3], b"\0" * 300, *lines[3:]], 3),
    "an empty line": (lambda lines: [*lines[:3], b"", *lines[3:]], 3),
    "a line cut short": (lambda lines: [*lines[:5], lines[5][:-40], *lines[6:]], 5),
    "two lines glued": (lambda lines: [*lines[:4], lines[4] + lines[5], *lines[6:]], 4),
    "cut short at a line end": (lambda lines: lines[:4], 3),
    "a torn line that was acknowledged": (lambda lines: [*lines[:16], lines[16][:50]], 16),
    "the first line gone": (lambda lines: lines[1:], 0),
    "a carriage return": (lambda lines: [line + b"\r" for line in lines], 0),
    "a byte order mark": (lambda lines: [b"\xef\xbb\xbf" + lines[0], *lines[1:]], 0),
    "nothing left": (lambda _: [], 0),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_is_named_and_refused_and_left_as_it_is(store: FileSessionStore, what: str) -> None:
    change, seq = DAMAGE[what]
    session_id = told(store, 2)
    put_lines(store, session_id, change(lines_of(store, session_id)))
    before = files_of(store)

    report = store.verify(session_id)
    assert not report.ok
    assert report.first_bad_seq == seq
    assert report.entries == (4 if what == "cut short at a line end" else seq)
    for use in (store.open, store.restore):
        with pytest.raises(SessionDamaged) as caught:
            use(session_id)

        error = caught.value
        assert (error.session_id, error.seq, error.reason) == (session_id, seq, report.reason)
        assert re.match(rf"session {session_id} is damaged: entry {seq} ", error.message)
        assert f"pod sessions salvage {session_id}" in error.hint

    assert {k: v for k, v in files_of(store).items() if not k.endswith(".lock")} == {
        k: v for k, v in before.items() if not k.endswith(".lock")
    }


def test_a_line_that_was_acknowledged_is_never_taken_for_torn(store: FileSessionStore) -> None:
    session_id = told(store, 1)
    path = store.layout.log(session_id)
    good = path.read_bytes()
    for cut in (2, 30, len(lines_of(store, session_id)[-1])):
        path.write_bytes(good[:-cut])
        report = store.verify(session_id)
        assert (report.ok, report.first_bad_seq) == (False, 8)
        with pytest.raises(SessionDamaged):
            store.open(session_id)

        assert path.read_bytes() == good[:-cut]


def test_what_verifies_is_counted_in_the_words_of_the_message(store: FileSessionStore) -> None:
    session_id = told(store, 2)
    lines = lines_of(store, session_id)
    for seq, counted in (
        (0, "no entry before it verifies"),
        (1, "entry 0 verifies"),
        (5, "entries 0–4 verify"),
    ):
        put_lines(store, session_id, [*lines[:seq], lines[seq][:-9] + b"x" * 9, *lines[seq + 1 :]])
        with pytest.raises(SessionDamaged, match=f"entry {seq} does not match its hash") as caught:
            store.restore(session_id)

        assert counted in str(caught.value)


@pytest.mark.parametrize("part", range(8))
def test_every_flip_of_a_byte_is_noticed(store: FileSessionStore, part: int) -> None:
    with begun(store) as session:
        session_id = session.session_id
        for number in range(39):
            session.append("extension", domain="d", payload=number)

    path = store.layout.log(session_id)
    good = path.read_bytes()
    assert good.count(b"\n") == 40
    for offset in range(part, len(good), 8):
        flipped = bytearray(good)
        flipped[offset] ^= 1 << offset % 8
        path.write_bytes(flipped)
        report = store.verify(session_id)
        assert not report.ok, f"byte {offset}"
        assert report.first_bad_seq == good.count(b"\n", 0, offset), f"byte {offset}"

    path.write_bytes(good)
    assert store.verify(session_id).ok


def test_an_end_that_was_made_up_anew_is_noticed_by_the_anchor(home: Path) -> None:
    store = a_store(home)
    session_id = told(store, 2)
    path, anchor = store.layout.log(session_id), store.layout.anchor(session_id)
    kept = anchor.read_bytes()
    put_lines(store, session_id, lines_of(store, session_id)[:-1])
    anchor.unlink()
    with store.open(session_id) as session:
        session.append("run_outcome", outcome="cancelled", interrupted=True)

    audit(path)
    anchor.write_bytes(kept)
    report = store.verify(session_id)
    assert report.first_bad_seq == 16
    assert report.reason == "is not the one that was acknowledged"


def test_an_anchor_that_cannot_be_read_is_no_licence(store: FileSessionStore) -> None:
    session_id = told(store, 1)
    for junk in (b"", b"{", b'{"seq":-1,"hash":"x"}', b"[]"):
        store.layout.anchor(session_id).write_bytes(junk)
        report = store.verify(session_id)
        assert not report.ok
        assert "anchor" in (report.reason or "")
        with pytest.raises(SessionDamaged):
            store.open(session_id)


def test_a_log_under_another_sessions_name_is_damage(store: FileSessionStore) -> None:
    session_id, other = told(store, 1), uuid7(5)
    store.layout.log(other).write_bytes(store.layout.log(session_id).read_bytes())
    report = store.verify(other)
    assert report.first_bad_seq == 0
    assert session_id in (report.reason or "")
    with pytest.raises(SessionDamaged):
        store.open(other)


@pytest.mark.parametrize("rest", [b"", b'{"hash":"12'])
def test_a_creation_that_was_never_finished_is_no_session(
    store: FileSessionStore, rest: bytes
) -> None:
    told(store, 1)
    session_id = uuid7(7)
    path = store.layout.log(session_id)
    path.write_bytes(rest)
    path.chmod(0o600)
    assert store.verify(session_id).ok
    with pytest.raises(SessionNotFound, match="never finished"):
        store.restore(session_id)

    assert path.exists(), "readers change nothing"
    with pytest.raises(SessionNotFound, match="never finished"):
        store.open(session_id)

    assert not path.exists()
    with pytest.raises(SessionNotFound):
        store.open(session_id)

    kept = [path.read_bytes() for path in store.layout.sessions.glob("*.torn-*")]
    assert kept == ([rest] if rest else [])


def test_opening_and_closing_changes_nothing(store: FileSessionStore) -> None:
    session_id = told(store, 1)
    stats = [(p.stat().st_mtime_ns, p.stat().st_ino) for p in _log_and_anchor(store, session_id)]
    before = files_of(store)
    for _ in range(5):
        store.open(session_id).close()

    # Only that the lock was held five times more is noted, in the lock.
    lock = store.layout.lock(session_id).name
    assert {**files_of(store), lock: b""} == {**before, lock: b""}
    assert stats == [
        (p.stat().st_mtime_ns, p.stat().st_ino) for p in _log_and_anchor(store, session_id)
    ]
    assert store.ids() == [session_id]


def _log_and_anchor(store: FileSessionStore, session_id: str) -> list[Path]:
    return [store.layout.log(session_id), store.layout.anchor(session_id)]


def test_a_session_is_durable_before_it_is_announced(store: FileSessionStore) -> None:
    session = begun(store)
    # As after a kill -9: nothing is closed, and another process looks.
    assert store.restore(session.session_id).pod == "probe"
    assert store.verify(session.session_id).entries == 1
    session.close()
