"""A new session from what verifies, and nothing of the damaged one is changed."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from session_store import (
    FileSessionStore,
    SessionDamaged,
    SessionInUse,
    SessionNotFound,
    StorageFailed,
    Unsuitable,
)
from session_store.salvage import Lost
from tests.session_store.builders import (
    a_call,
    a_store,
    a_turn,
    answer,
    audit,
    begun,
    lines_of,
    put_lines,
    result_of,
    texts,
    told,
)
from tests.session_store.faults import FailingDisk, PowerCut
from worker.items import Image, Text, UserMessage, new_uid, user_message


@pytest.fixture
def store(home: Path) -> FileSessionStore:
    return a_store(home)


def kinds(store: FileSessionStore, session_id: str) -> list[tuple[str, int]]:
    return [(entry.kind, entry.ts) for entry in store.entries(session_id)]


def flipped(line: bytes) -> bytes:
    return line[:-3] + bytes([line[-3] ^ 1]) + line[-2:]


def test_what_verifies_up_to_the_first_bad_entry_goes_on_in_a_new_session(
    store: FileSessionStore,
) -> None:
    session_id = told(store, 2)
    whole, times = store.restore(session_id), kinds(store, session_id)
    lines = lines_of(store, session_id)
    put_lines(store, session_id, [*lines[:5], lines[5][:40], *lines[6:]])
    damaged = store.layout.log(session_id).read_bytes()

    report = store.salvage(session_id)

    assert (report.first_bad_seq, report.entries_kept) == (5, 5)
    assert report.reason == store.verify(session_id).reason
    assert report.lost == (
        Lost(first_seq=5, last_seq=5, bytes=41, reason=report.reason),
        Lost(
            first_seq=6,
            last_seq=16,
            bytes=sum(len(line) + 1 for line in lines[6:]),
            reason="follows what is lost",
        ),
    )
    assert store.layout.log(session_id).read_bytes() == damaged
    new = report.new_session_id
    assert store.verify(new).ok
    start, *_ = audit(store.layout.log(new))
    last_good = audit_of(lines[:5])[-1]
    assert start["recovered_from"] == [session_id, last_good]
    assert kinds(store, new) == times[:5], "each entry keeps its time"
    assert store.restore(new).history == whole.history[:3]
    assert store.lineage(new) == [(session_id, "root"), (new, "salvage")]
    assert store.children(session_id) == [new]


def audit_of(lines: list[bytes]) -> list[str]:
    return [line[9:73].decode() for line in lines]


def test_the_salvaged_session_goes_on(store: FileSessionStore) -> None:
    session_id = told(store, 2)
    lines = lines_of(store, session_id)
    put_lines(store, session_id, [*lines[:-1], flipped(lines[-1])])
    new = store.salvage(session_id).new_session_id
    with store.open(new) as session:
        assert session.state.interrupted, "the run's end is what was lost"
        a_turn(session, 3)

    assert texts(store.restore(new).history)[-1] == "answer 3"


def test_a_call_left_open_is_there_to_be_closed(store: FileSessionStore) -> None:
    with begun(store) as session:
        call = a_call()
        session.append_items("user_input", [user_message("go")])
        session.append_items("assistant_items", [answer("hm", call)])
        session.append_items("tool_results", [result_of(call)])
        session_id = session.session_id

    lines = lines_of(store, session_id)
    put_lines(store, session_id, [*lines[:3], flipped(lines[3])])
    state = store.restore(store.salvage(session_id).new_session_id)
    assert texts(state.history) == ["go", "hm"]
    assert state.interrupted


@pytest.mark.parametrize("glued", [2, 3])
def test_entries_glued_on_one_line_are_all_recovered(store: FileSessionStore, glued: int) -> None:
    session_id = told(store, 2)
    history = store.restore(session_id).history
    lines = lines_of(store, session_id)
    put_lines(store, session_id, [*lines[:4], b"".join(lines[4 : 4 + glued]), *lines[4 + glued :]])

    assert store.verify(session_id).first_bad_seq == 4
    report = store.salvage(session_id)

    assert (report.first_bad_seq, report.entries_kept, report.lost) == (4, 17, ())
    assert store.restore(report.new_session_id).history == history


@pytest.mark.parametrize("spoiled", [4, 5])
def test_of_glued_entries_none_counts_unless_all_match(
    store: FileSessionStore, spoiled: int
) -> None:
    session_id = told(store, 2)
    lines = lines_of(store, session_id)
    both = [flipped(line) if seq == spoiled else line for seq, line in enumerate(lines)][4:6]
    put_lines(store, session_id, [*lines[:4], b"".join(both), *lines[6:]])
    report = store.salvage(session_id)
    assert (report.first_bad_seq, report.entries_kept) == (4, 4)
    assert [(one.first_seq, one.last_seq) for one in report.lost] == [(4, 4), (5, 5), (6, 16)]
    assert report.lost[1].reason == "is not there"


def test_what_only_looks_like_two_entries_in_an_answer_is_one(store: FileSessionStore) -> None:
    with begun(store) as session:
        session.append_items("user_input", [user_message('x}{"hash":"y')])
        session.append_items("assistant_items", [answer("ok")])
        session_id = session.session_id

    lines = lines_of(store, session_id)
    put_lines(store, session_id, [*lines[:2], flipped(lines[2])])
    report = store.salvage(session_id)
    assert texts(store.restore(report.new_session_id).history) == ['x}{"hash":"y']


DISORDER: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "a line of NULs": lambda lines: [*lines[:3], b"\x00" * 300, *lines[3:]],
    "two lines swapped": lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]],
    "a line twice": lambda lines: [*lines[:4], lines[3], *lines[4:]],
    "empty lines": lambda lines: [*lines[:2], b"", b"", *lines[2:]],
}


@pytest.mark.parametrize("what", DISORDER)
def test_where_nothing_is_missing_nothing_is_lost(store: FileSessionStore, what: str) -> None:
    session_id = told(store, 2)
    history = store.restore(session_id).history
    put_lines(store, session_id, DISORDER[what](lines_of(store, session_id)))
    assert not store.verify(session_id).ok
    report = store.salvage(session_id)
    assert report.entries_kept == 17
    assert store.restore(report.new_session_id).history == history
    assert all(
        one.first_seq is None or one.reason.startswith("there a second") for one in report.lost
    )


def test_the_end_that_was_cut_off_is_named(store: FileSessionStore) -> None:
    session_id = told(store, 2)
    put_lines(store, session_id, lines_of(store, session_id)[:9])
    report = store.salvage(session_id)
    assert (report.entries_kept, report.first_bad_seq) == (9, 8)
    assert report.lost == (Lost(first_seq=9, last_seq=16, bytes=0, reason="is not there"),)


def test_an_entry_in_the_place_of_one_that_was_acknowledged_is_not_kept(
    store: FileSessionStore,
) -> None:
    one = begun(store)
    one.append("turn_end", turn=1)
    session_id = one.session_id
    ours = lines_of(store, session_id)
    one.append("turn_end", turn=2)
    one.close()
    put_lines(store, session_id, ours)
    store.layout.anchor(session_id).unlink()
    with store.open(session_id) as other:
        other.append("turn_end", turn=777)
        anchor = store.layout.anchor(session_id)

    # The log says 777; what was acknowledged was something else.
    text = anchor.read_text().replace(lines_of(store, session_id)[2][9:73].decode(), "ab" * 32)
    anchor.write_text(text)
    report = store.salvage(session_id)
    assert report.entries_kept == 2


def test_a_lost_blob_ends_it(store: FileSessionStore) -> None:
    with begun(store) as session:
        session.append_items("user_input", [user_message("small")])
        image = Image("image/png", b"\x01" * (2 << 20))
        session.append_items("user_input", [UserMessage(new_uid(), (Text("large"), image))])
        session.append_items("user_input", [user_message("after")])
        session_id = session.session_id

    (blob,) = [path for path in store.layout.blobs.iterdir() if len(path.name) == 64]
    blob.unlink()
    report = store.salvage(session_id)
    assert (report.first_bad_seq, report.entries_kept) == (2, 2)
    assert "has lost its blob" in report.lost[0].reason
    assert texts(store.restore(report.new_session_id).history) == ["small"]


def test_a_damaged_fork_still_inherits(store: FileSessionStore) -> None:
    parent = told(store, 2)
    fork = store.fork(parent)
    with store.open(fork) as session:
        a_turn(session, 3)

    lines = lines_of(store, fork)
    put_lines(store, fork, [*lines[:-1], flipped(lines[-1])])
    new = store.salvage(fork).new_session_id
    assert store.verify(new).ok
    assert len(store.restore(new).history) == 12
    assert store.layout.log(new).stat().st_size < 4_000, "what is inherited is not copied"
    assert not store.may_be_pointed_at(new), "what came of a fork is no place for a pod's pointer"


def test_a_compacted_session_stays_one(store: FileSessionStore) -> None:
    old = told(store, 1)
    new = store.save_compacted(old, [user_message("all of it")])
    with store.open(new) as session:
        a_turn(session, 2)

    lines = lines_of(store, new)
    put_lines(store, new, [*lines[:-1], flipped(lines[-1])])
    state = store.restore(store.salvage(new).new_session_id)
    assert state.compacted_from is not None
    assert state.compacted_from[0] == old
    assert state.generation == 1
    assert state.recovered_from is not None
    assert store.may_be_pointed_at(state.session_id)


def test_unknown_kinds_and_fields_are_kept(store: FileSessionStore) -> None:
    with begun(store) as session:
        session.append("of_the_future", items=3, what={"a": [1, None]})
        session.append("turn_end", turn=1, extra="kept")
        session.append("turn_end", turn=2)
        session_id = session.session_id

    lines = lines_of(store, session_id)
    put_lines(store, session_id, [*lines[:3], flipped(lines[3])])
    new = store.salvage(session_id).new_session_id
    _, future, turn = (entry.data for entry in store.entries(new))
    assert (future["items"], future["what"]) == (3, {"a": [1, None]})
    assert turn["extra"] == "kept"


def test_pods_that_were_on_it_go_on_with_the_new_one(store: FileSessionStore) -> None:
    session_id, other = told(store, 1), told(store, 1)
    store.set_pointer("probe", session_id)
    store.set_pointer("else", other)
    lines = lines_of(store, session_id)
    put_lines(store, session_id, [*lines[:-1], flipped(lines[-1])])
    report = store.salvage(session_id)
    assert report.pods == ("probe",)
    assert store.pointer("probe") == report.new_session_id
    assert store.pointer("else") == other


def test_what_is_not_damaged_or_not_there_is_refused(store: FileSessionStore) -> None:
    session_id = told(store, 1)
    with store.layout.log(session_id).open("ab") as log:
        log.write(b'{"hash":"torn')

    with pytest.raises(Unsuitable, match="nothing to salvage"):
        store.salvage(session_id)

    with pytest.raises(SessionNotFound):
        store.salvage("00000000-0000-7000-8000-000000000000")

    assert store.ids() == [session_id]
    assert not store.layout.lock("00000000-0000-7000-8000-000000000000").exists()


def test_one_that_is_written_is_left_alone(store: FileSessionStore) -> None:
    with begun(store) as session, pytest.raises(SessionInUse):
        store.salvage(session.session_id)


@pytest.mark.parametrize("what", ["first line", "whole log", "another's log"])
def test_where_nothing_verifies_there_is_nothing_to_make(
    store: FileSessionStore, what: str
) -> None:
    session_id, other = told(store, 1), told(store, 1)
    lines = lines_of(store, session_id)
    data = {
        "first line": [flipped(lines[0]), *lines[1:]],
        "whole log": [b"\x00" * 400],
        "another's log": lines_of(store, other),
    }[what]
    put_lines(store, session_id, data)
    with pytest.raises(SessionDamaged, match="nothing of it can be salvaged"):
        store.salvage(session_id)

    assert store.ids() == sorted([session_id, other])


def test_a_fork_of_what_is_gone_is_not_made_up(store: FileSessionStore) -> None:
    parent = told(store, 1)
    fork = store.fork(parent)
    store.layout.log(parent).unlink()
    with pytest.raises(SessionDamaged, match="which is not there"):
        store.salvage(fork)

    assert store.ids() == [fork]


def test_stopped_anywhere_it_is_there_whole_or_not_at_all(home: Path) -> None:
    session_id = told(a_store(home), 1)
    lines = lines_of(a_store(home), session_id)
    put_lines(a_store(home), session_id, [*lines[:-1], flipped(lines[-1])])
    a_store(home).set_pointer("probe", session_id)
    before = a_store(home).layout.log(session_id).read_bytes()
    for error, at in itertools.product((PowerCut(), OSError(28, "full")), range(1, 60)):
        store = a_store(home, disk=FailingDisk(at, error))
        with suppress(PowerCut, StorageFailed):
            store.salvage(session_id)

        check = a_store(home)
        assert check.layout.log(session_id).read_bytes() == before
        for other in check.ids():
            if other != session_id:
                assert check.verify(other).ok
                assert len(check.restore(other).history) == 4
                assert check.pointer("probe") in (session_id, other)
                check.layout.log(other).unlink()

        check.set_pointer("probe", session_id)


def test_any_damage_is_salvaged_to_what_comes_before_it(store: FileSessionStore) -> None:
    session_id = told(store, 2)
    whole = [(entry.kind, entry.ts) for entry in store.entries(session_id)]
    data = store.layout.log(session_id).read_bytes()
    ends = list(itertools.accumulate(len(line) + 1 for line in lines_of(store, session_id)))
    chance = random.Random(7)  # noqa: S311  # a repeatable choice, no secret
    for _ in range(60):
        at = chance.randrange(ends[0], len(data) - 1)
        spoiled = data[:at] + bytes([data[at] ^ chance.randint(1, 255)]) + data[at + 1 :]
        store.layout.log(session_id).write_bytes(spoiled)
        bad = sum(end <= at for end in ends)
        report = store.salvage(session_id)
        assert report.entries_kept == bad
        assert kinds(store, report.new_session_id) == whole[:bad]
