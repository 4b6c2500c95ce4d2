from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from session_store import FileSessionStore, InvalidHistory, SessionInUse, StorageFailed
from tests.session_store.builders import (
    a_call,
    a_store,
    a_turn,
    answer,
    audit,
    begun,
    lines_of,
    result_of,
    texts,
    told,
)
from tests.session_store.faults import FailingDisk, PowerCut
from worker.items import Item, SummaryMessage, new_uid, user_message

FIELDS = {"trigger": "threshold", "engine": "compressor", "method": "summary", "duration_ms": 5}


@pytest.fixture
def store(home: Path) -> FileSessionStore:
    return a_store(home)


def summary() -> SummaryMessage:
    return SummaryMessage(new_uid(), "## Original Task", None, 1)


def test_any_history_can_be_saved_as_what_a_session_was_compacted_to(
    store: FileSessionStore,
) -> None:
    old = told(store, 3)
    before = store.layout.log(old).read_bytes()
    state = store.restore(old)
    new = store.save_compacted(old, state.history[-4:])
    start, compaction = audit(store.layout.log(new))
    assert start["compacted_from"] == [old, state.head.hash]
    assert start.get("forked_from") is None
    told_of = {k: compaction[k] for k in ("kind", "old", "trigger", "engine", "generation")}
    assert told_of == {
        "kind": "compaction",
        "old": old,
        "trigger": "manual",
        "engine": "external",
        "generation": 1,
    }
    assert (compaction["items_before"], compaction["items_after"]) == (12, 4)

    saved = store.restore(new)
    assert saved.history == state.history[-4:]
    assert (saved.system_prompt, saved.config, saved.pod) == ("Be brief.", {"model": "m"}, "probe")
    assert saved.compacted_from == (old, state.head.hash)
    assert (saved.generation, saved.fresh_compaction, saved.usage) == (1, True, [])
    assert saved.title == "question 1"
    assert store.lineage(new) == [(old, "root"), (new, "compact")]
    assert store.children(old) == [new]
    assert store.layout.log(old).read_bytes() == before
    assert store.verify(new).ok
    assert store.restore(store.save_compacted(new, [])).generation == 2


def test_what_was_sent_without_content_stays_so(store: FileSessionStore) -> None:
    with begun(store) as session:
        for number in (1, 2, 3):
            a_turn(session, number)

        session.append("prune_advanced", upto_index=8, upto_uid="x", items=2, est_savings=9)
        old = session.session_id

    history = store.restore(old).history
    for kept, watermark in [
        ([summary(), *history[4:]], 5),
        ([summary(), *history[8:]], 0),
        ([*history[8:], *history[4:8]], 0),
        (history, 8),
    ]:
        assert store.restore(store.save_compacted(old, kept)).watermark == watermark


@pytest.mark.parametrize("wrong", ["uid twice", "result first", "result alone", "call alone"])
def test_what_is_no_history_is_refused(store: FileSessionStore, wrong: str) -> None:
    old = told(store, 1)
    call, user = a_call(), user_message("u")
    asking, result = answer("let me see", call), result_of(call)
    items: list[Item] = {
        "uid twice": [user, answer("x"), user],
        "result first": [result, asking],
        "result alone": [user, result],
        "call alone": [user, asking],
    }[wrong]
    with pytest.raises(InvalidHistory, match="not a valid history"):
        store.save_compacted(old, items)

    with store.open(old) as session, pytest.raises(InvalidHistory):
        store.publish_compacted(session, history=items, watermark=0, compaction=FIELDS)

    assert store.ids() == [old]


def test_a_session_takes_the_place_of_the_one_it_was_compacted_from(
    store: FileSessionStore,
) -> None:
    old = begun(store, spawned_by=["parent", "call"])
    for number in (1, 2):
        a_turn(old, number)

    old.append("config_changed", config={"model": "other"})
    old.append_many([("extension", {"domain": "todo", "payload": n}) for n in (1, 2)])
    before = store.layout.log(old.session_id).read_bytes()
    kept = store.restore(old.session_id).history[4:]
    new = store.publish_compacted(
        old, history=[summary(), *kept], watermark=3, compaction={**FIELDS, "in_run": True}
    )
    assert store.layout.log(old.session_id).read_bytes() == before, "nothing is written to the old"
    anchor = store.layout.anchor(old.session_id).read_bytes()
    assert old.head.hash.encode() in anchor
    assert not old.closed
    with pytest.raises(SessionInUse):
        store.open(new.session_id)

    assert [entry["kind"] for entry in audit(store.layout.log(new.session_id))] == [
        *("session_start", "compaction", "prune_advanced", "extension")
    ]
    state = new.state
    assert state == store.restore(new.session_id)
    assert state.compacted_from == (old.session_id, old.head.hash)
    assert texts(state.history)[0] == "## Original Task"
    assert state.config == {"model": "other"}
    assert state.extensions == {"todo": [2]}
    assert state.watermark == 3
    assert state.run_open
    assert state.interrupted, "in a run, until the run has its own outcome"
    assert state.spawned_by == ["parent", "call"]
    new.append("run_outcome", outcome="finished")
    for session in (old, new):
        session.close()

    assert not store.restore(new.session_id).interrupted
    assert store.verify(new.session_id).ok


def test_the_start_of_the_new_session_may_differ(store: FileSessionStore) -> None:
    with begun(store) as old:
        old.append("extension", domain="todo", payload=1)
        with store.publish_compacted(
            old,
            history=[user_message("only")],
            watermark=0,
            compaction={**FIELDS, "consecutive_failures": 2, "totals": {"requests": 7}},
            start={"system_prompt": "Be long.", "config": {}},
            carry_extensions=False,
        ) as new:
            state = new.state

    assert (state.system_prompt, state.config, state.pod) == ("Be long.", {}, "probe")
    assert state.extensions == {}
    assert state.watermark == 0
    assert state.consecutive_failures == 2
    assert state.totals.requests == 7


@pytest.mark.parametrize("crash", [False, True], ids=["error", "crash"])
def test_a_compaction_that_stops_anywhere_leaves_the_old_or_the_new(
    home: Path, tmp_path: Path, crash: bool
) -> None:
    old_id = told(a_store(home), 2)
    kept = a_store(home).restore(old_id).history[4:]
    lines = lines_of(a_store(home), old_id)
    for at in range(1, 100):
        copy = tmp_path / f"copy-{at}"
        shutil.copytree(home, copy)
        disk = FailingDisk(10**9, PowerCut() if crash else OSError(28, "full"))
        store = a_store(copy, disk=disk)
        old = store.open(old_id)
        disk.strike_in(at)
        new = None
        try:
            new = store.publish_compacted(
                old, history=[summary(), *kept], watermark=0, compaction=FIELDS
            )
        except (PowerCut, StorageFailed):
            assert disk.struck
        else:
            if not disk.struck:
                break

        after = a_store(copy)
        assert lines_of(after, old_id) == lines
        others = [each for each in after.ids() if each != old_id]
        assert len(others) <= (1 if crash else 0), "after an error there is no trace of it"
        for other in others:
            assert after.verify(other).ok
            assert len(after.restore(other).history) == 5
            assert [entry.kind for entry in after.entries(other)] == ["session_start", "compaction"]

        assert after.verify(old_id).ok
        for session in (old, new):
            if session is not None:
                disk.mend()
                session.close()

    assert at > 15
    assert new is not None
    new.close()
    old.close()
