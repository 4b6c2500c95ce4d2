from __future__ import annotations

import threading
from pathlib import Path

import orjson
import pytest

from session_store import (
    Disk,
    FileSessionStore,
    SessionDamaged,
    StorageFailed,
    UnknownEntry,
    VerifyReport,
)
from session_store.chain import START, Position, encode_entry
from session_store.store import DEEPEST_CHAIN
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
from worker.items import user_message


@pytest.fixture
def store(home: Path) -> FileSessionStore:
    return a_store(home)


def test_a_fork_has_it_all_and_costs_nothing(store: FileSessionStore) -> None:
    parent = told(store, 3, system_prompt="long " * 2000, config={"keys": "x" * 9000})
    before = store.layout.log(parent).read_bytes()
    state = store.restore(parent)
    child = store.fork(parent)
    assert store.layout.log(child).stat().st_size < 600
    (start,) = audit(store.layout.log(child))
    assert start["forked_from"] == [parent, state.head.hash]
    assert (start["history"], start["system_prompt"], start["config"]) == (None, None, None)
    assert start["pod"] == "probe"
    assert start.get("compacted_from") is None

    forked = store.restore(child)
    for name in ("history", "system_prompt", "config", "pod", "usage", "totals", "turns", "title"):
        assert getattr(forked, name) == getattr(state, name), name

    with store.open(child) as session:
        a_turn(session, 4)

    assert store.layout.log(parent).read_bytes() == before
    assert len(store.restore(child).history) == 16
    assert len(store.restore(parent).history) == 12
    assert store.verify(child).ok


def test_forks_of_one_session_and_of_its_forks_are_all_whole(store: FileSessionStore) -> None:
    parent = told(store, 2)
    first, second = store.fork(parent), store.fork(parent)
    third = store.fork(first)
    histories = [store.restore(each).history for each in (parent, first, second, third)]
    assert all(history == histories[0] for history in histories)
    assert store.lineage(third) == [(parent, "root"), (first, "fork"), (third, "fork")]
    assert store.children(parent) == sorted([first, second])
    assert store.children(first) == [third]


@pytest.mark.parametrize("digits", [64, 20, 8])
def test_a_fork_at_an_entry_begins_as_the_session_was_there(
    store: FileSessionStore, digits: int
) -> None:
    parent = told(store, 3)
    at = audit(store.layout.log(parent))[8]["hash"]
    child = store.fork(parent, at=at[:digits].upper())
    assert texts(store.restore(child).history) == [
        *("question 1", "let me see 1", "looked", "answer 1")
    ]
    assert store.restore(child).history == store.restore(parent, at=at[:digits]).history
    assert audit(store.layout.log(child))[0]["forked_from"] == [parent, at]
    assert store.restore(child).turns == 1


@pytest.mark.parametrize("at", ["00" * 32, "0" * 8, "abc", "", "g" * 64, "../../etc", "a" * 65])
def test_an_entry_that_is_not_there(store: FileSessionStore, at: str) -> None:
    parent = told(store, 1)
    for use in (store.fork, store.restore, store.fork_point):
        with pytest.raises(UnknownEntry, match="has no entry"):
            use(parent, at)

    assert store.ids() == [parent]


def test_a_prefix_that_two_entries_share_names_neither(store: FileSessionStore) -> None:
    # Among these 5,651 entries, two happen to have hashes that begin alike; so found by trying.
    session_id, shared = "01a22e10-aaeb-7708-8b2f-e5eed8aadb69", "e63935d7"
    fields = {"session_id": session_id, "format": 1, "pod": "probe"}
    fields |= {"config": {}, "system_prompt": "", "history": []}
    line, digest = encode_entry(START, 1, "session_start", fields)
    lines = [line[:-1]]
    for seq in range(1, 5651):
        line, digest = encode_entry(Position(seq, digest, 0), 179, "note", {})
        lines.append(line[:-1])

    told(store, 1)
    put_lines(store, session_id, lines)
    with pytest.raises(UnknownEntry, match="begins the hashes of 2 entries"):
        store.restore(session_id, shared)

    for seq in (1022, 5650):
        entry = orjson.loads(lines[seq])
        assert entry["hash"].startswith(shared)
        assert store.restore(session_id, entry["hash"][:12]).head.seq == seq


def test_an_entry_of_the_parent_is_not_one_of_the_fork(store: FileSessionStore) -> None:
    parent = told(store, 1)
    at = audit(store.layout.log(parent))[3]["hash"]
    with pytest.raises(UnknownEntry):
        store.fork(store.fork(parent), at)


def test_a_fork_between_a_call_and_its_result_moves_before_the_call(
    store: FileSessionStore,
) -> None:
    calls = [a_call(), a_call()]
    with begun(store) as session:
        asked = session.append_items("user_input", [user_message("go")])
        called = session.append_items("assistant_items", [answer("looking", *calls)])
        measured = session.append("usage", history_len=1, input_tokens=9)
        second = session.append_items("tool_results", [result_of(calls[1])])
        running = store.fork(session.session_id)
        first = session.append_items("tool_results", [result_of(calls[0])])
        session_id = session.session_id

    for at in (called, measured, second):
        point = store.fork_point(session_id, at.hash)
        assert (point.hash, point.seq, point.moved) == (asked.hash, asked.seq, True)
        assert "between a tool call and its result" in point.reason
        child = store.restore(store.fork(session_id, at.hash))
        assert texts(child.history) == ["go"]
        assert child.interrupted

    assert store.restore(running).history == store.restore(session_id, asked.hash).history
    for at in (asked, first):
        point = store.fork_point(session_id, at.hash)
        assert (point.hash, point.moved, point.reason) == (at.hash, False, "")

    assert store.fork_point(session_id).hash == first.hash


def test_a_call_that_was_taken_back_holds_no_fork_up(store: FileSessionStore) -> None:
    cut = answer("looking", a_call())
    with begun(store) as session:
        session.append_items("assistant_items", [cut])
        whole = answer("never mind")
        object.__setattr__(whole, "uid", cut.uid)
        amended = session.append("item_amended", item=whole)
        assert store.fork_point(session.session_id).hash == amended.hash
        assert texts(store.restore(store.fork(session.session_id)).history) == ["never mind"]


def test_forking_while_the_parent_is_written(store: FileSessionStore) -> None:
    children: list[str] = []
    with begun(store) as session:
        parent = session.session_id

        def fork() -> None:
            children.extend(store.fork(parent) for _ in range(12))

        forking = threading.Thread(target=fork)
        forking.start()
        number = 0
        while forking.is_alive():
            number += 1
            a_turn(session, number)

        forking.join()

    assert len(children) == 12
    whole = store.restore(parent).history
    for child in children:
        assert store.verify(child).ok
        history = store.restore(child).history
        assert history == whole[: len(history)]


def test_what_a_fork_names_is_durable_before_it_is_named(home: Path) -> None:
    parent = told(a_store(home), 1)
    done: list[str] = []

    class Noting(Disk):
        def sync(self, fd: int) -> None:
            done.append(Path(f"/proc/self/fd/{fd}").readlink().suffix)
            super().sync(fd)

    a_store(home, disk=Noting()).fork(parent)
    assert done == [".jsonl", ".tmp", ".tmp"]

    class Broken(Disk):
        def sync(self, fd: int) -> None:
            raise OSError(5, "broken")

    with pytest.raises(StorageFailed):
        a_store(home, disk=Broken()).fork(parent)

    assert len(a_store(home).ids()) == 2


def test_a_long_chain_of_forks_stands_by_itself_in_the_end(store: FileSessionStore) -> None:
    with begun(store) as session:
        a_turn(session, 1)
        session.append("prune_advanced", upto_index=2, upto_uid="x", items=1, est_savings=9)
        session.append("approval", call_uid="c", decision="allow", scope="session", by="me")
        session.append("extension", domain="todo", payload={"n": 1})
        session.append(
            "compaction_failed", trigger="threshold", consecutive_failures=3, disabled=True
        )
        chain = [session.session_id]

    for number in range(DEEPEST_CHAIN + 2):
        child = store.fork(chain[-1])
        with store.open(child) as session:
            session.append_items("user_input", [user_message(f"on {number}")])
            session.append("run_outcome", outcome="finished")

        chain.append(child)

    own = [audit(store.layout.log(each))[0]["history"] is not None for each in chain]
    assert own == [True] + [False] * DEEPEST_CHAIN + [True, False]
    last, before = store.restore(chain[DEEPEST_CHAIN + 1]), store.restore(chain[DEEPEST_CHAIN])
    assert last.history[:-1] == before.history
    for name in (
        *("system_prompt", "config", "pod", "title", "watermark", "turns", "usage", "totals"),
        *("approvals", "extensions", "consecutive_failures", "compaction_disabled", "generation"),
    ):
        assert getattr(last, name) == getattr(before, name), name

    assert last.compaction_disabled
    assert last.forked_from == (chain[DEEPEST_CHAIN], before.head.hash)
    assert [each for each, _ in store.lineage(chain[-1])] == chain
    assert all(store.verify(each).ok for each in chain)


def test_a_fork_whose_parent_is_gone_or_changed_is_damaged(store: FileSessionStore) -> None:
    parent = told(store, 2)
    child = store.fork(parent, audit(store.layout.log(parent))[8]["hash"])
    grandchild = store.fork(child)
    lines = lines_of(store, parent)

    put_lines(store, parent, [*lines[:-1], lines[-1][:-5] + b"55555"])
    assert store.verify(child).ok, "what is damaged is after the fork"
    assert len(store.restore(child).history) == 4

    def check(why: str) -> None:
        for each in (child, grandchild):
            report: VerifyReport = store.verify(each)
            assert (report.ok, report.first_bad_seq) == (False, 0)
            assert why in (report.reason or "")
            for use in (store.restore, store.open):
                with pytest.raises(SessionDamaged, match=f"session {each} is damaged.*{parent}"):
                    use(each)

    put_lines(store, parent, [*lines[:4], lines[4][:-5] + b"55555", *lines[5:]])
    check("which is damaged: entry 4 there does not match its hash")
    put_lines(store, parent, lines[:4])
    check("is damaged: entry 3 there is the last one there")
    store.layout.anchor(parent).unlink()
    check("which has no entry")
    store.layout.log(parent).unlink()
    check("which is not there")
    assert store.lineage(grandchild) == [(parent, "root"), (child, "fork"), (grandchild, "fork")]


def test_a_session_that_inherits_from_itself_is_damaged(store: FileSessionStore) -> None:
    session_id = told(store, 1)
    with begun(store, forked_from=[session_id, "0" * 64]) as session:
        loop = session.session_id

    lines = lines_of(store, loop)
    assert b'"history":[]' in lines[0]
    fields = {"session_id": loop, "format": 1, "history": None, "forked_from": [loop, "0" * 64]}
    line, _ = encode_entry(START, 1, "session_start", fields)
    store.layout.anchor(loop).unlink()
    store.layout.log(loop).write_bytes(line)
    with pytest.raises(SessionDamaged, match="inherits from itself"):
        store.restore(loop)

    assert store.lineage(loop) == [(loop, "fork")]
    orphan, _ = encode_entry(START, 1, "session_start", {**fields, "forked_from": None})
    store.layout.log(loop).write_bytes(orphan)
    with pytest.raises(SessionDamaged, match="names no parent"):
        store.restore(loop)
