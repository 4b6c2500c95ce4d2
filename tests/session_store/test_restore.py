"""What each kind of entry does to a session's state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from session_store import FileSessionStore, Session, SessionDamaged, SessionState, UsageRecord
from tests.session_store.builders import NOON_MS, a_store, a_turn, answer, begun, texts, told
from worker.items import SystemNote, Text, new_uid, user_message


@pytest.fixture
def store(home: Path) -> FileSessionStore:
    return a_store(home)


@pytest.fixture
def session(store: FileSessionStore) -> Any:
    with begun(store) as session:
        yield session


def state_of(store: FileSessionStore, session: Session) -> SessionState:
    return store.restore(session.session_id)


def test_a_finished_session(store: FileSessionStore) -> None:
    session_id = told(store, 2)
    state = store.restore(session_id)
    assert state.session_id == session_id
    assert len(state.history) == 8
    assert (state.pod, state.system_prompt, state.config) == ("probe", "Be brief.", {"model": "m"})
    assert (state.turns, state.last_outcome, state.interrupted, state.run_open) == (
        2,
        "finished",
        False,
        False,
    )
    assert state.title == "question 1"
    assert NOON_MS < state.created < state.updated
    assert state.head.seq == 16
    assert [record.input_tokens for record in state.usage] == [101, 121, 102, 122]
    assert state.totals.requests == 4
    assert state.totals.tokens == 101 + 121 + 102 + 122 + 20
    assert (state.forked_from, state.compacted_from, state.recovered_from) == (None, None, None)


def test_a_state_is_the_same_whether_restored_or_opened(store: FileSessionStore) -> None:
    session_id = told(store, 2)
    with store.open(session_id) as session:
        assert session.state == store.restore(session_id)
        a_turn(session, 3)
        assert session.state != store.restore(session_id), "as of opening"


def test_a_state_of_the_past(store: FileSessionStore) -> None:
    session_id = told(store, 3)
    for entry in store.entries(session_id):
        state = store.restore(session_id, entry.hash)
        assert state.head == entry.ref
        assert state.updated == entry.ts


@pytest.mark.parametrize("kind", ["user_input", "assistant_items", "tool_results"])
def test_a_run_without_an_outcome_is_interrupted(
    store: FileSessionStore, session: Session, kind: str
) -> None:
    assert not state_of(store, session).interrupted
    session.append_items(kind, [user_message("x")])
    assert state_of(store, session).interrupted
    assert state_of(store, session).run_open
    session.append("run_outcome", outcome="cancelled", interrupted=True)
    state = state_of(store, session)
    assert (state.interrupted, state.run_open, state.last_outcome) == (True, False, "cancelled")
    session.append_items(kind, [user_message("y")])
    session.append("run_outcome", outcome="finished", interrupted=False)
    assert not state_of(store, session).interrupted


def test_a_note_is_part_of_the_history_and_begins_no_run(
    store: FileSessionStore, session: Session
) -> None:
    session.append_items("system_item", [SystemNote(new_uid(), "remember", "hook")])
    state = state_of(store, session)
    assert texts(state.history) == ["remember"]
    assert not state.interrupted
    assert state.title == ""


def test_an_item_is_replaced_by_the_one_of_the_same_uid(
    store: FileSessionStore, session: Session
) -> None:
    partial = answer("par")
    session.append_items("assistant_items", [partial, answer("other")])
    session.append("item_amended", item=evolve(partial, parts=(Text("partial no more"),)))
    assert texts(state_of(store, session).history) == ["partial no more", "other"]
    session.append("item_amended", item=answer("of nobody"))
    with pytest.raises(SessionDamaged, match="entry 3 is no item_amended that can be read"):
        state_of(store, session)


def test_the_watermark_only_rises(store: FileSessionStore, session: Session) -> None:
    for upto, watermark in ((4, 4), (2, 4), (7, 7)):
        session.append("prune_advanced", upto_index=upto, upto_uid="x")
        assert state_of(store, session).watermark == watermark


def test_the_breaker_outlives_the_process(store: FileSessionStore, session: Session) -> None:
    session.append("compaction_started", trigger="threshold")
    assert state_of(store, session).compaction_open == "threshold"
    assert state_of(store, session).run_open is False
    session.append("compaction_failed", trigger="threshold", consecutive_failures=3, disabled=True)
    state = state_of(store, session)
    assert (state.compaction_open, state.consecutive_failures, state.compaction_disabled) == (
        None,
        3,
        True,
    )
    forked = store.restore(store.fork(session.session_id))
    assert (forked.consecutive_failures, forked.compaction_disabled) == (3, True)
    session.append("compaction_started", trigger="manual")
    assert state_of(store, session).compaction_open == "manual"
    assert store.restore(store.fork(session.session_id)).compaction_open is None, "not in its log"


def test_usage_approvals_extensions_config(store: FileSessionStore, session: Session) -> None:
    session.append("usage", history_len=1, input_tokens=10, cache_read=None, cost=0.25, model="a")
    session.append(
        "usage", history_len=2, input_tokens=20, output_tokens=3, cache_write=4, cost=0.5
    )
    session.append("approval", call_uid="c", decision="deny")
    session.append("extension", domain="a", payload=1)
    session.append("extension", domain="b", payload=None)
    session.append("extension", domain="a", payload=[2])
    session.append("config_changed", config={"only": "this"}, system_prompt="as it is now")
    session.append("turn_end", turn=1)
    state = state_of(store, session)
    assert state.usage[0] == UsageRecord(history_len=1, input_tokens=10, model="a", cost=0.25)
    assert state.usage[1].cost == 0.5
    assert (state.totals.cost, state.totals.cache_write, state.totals.output_tokens) == (0.75, 4, 3)
    assert [(a.call_uid, a.decision, a.scope, a.by) for a in state.approvals] == [
        ("c", "deny", "", "")
    ]
    assert state.extensions == {"a": [1, [2]], "b": [None]}
    assert state.config == {"only": "this"}
    assert state.system_prompt == "as it is now"
    assert state.turns == 1


def test_a_request_that_nobody_measured_is_counted_and_no_more(
    store: FileSessionStore, session: Session
) -> None:
    session.append("usage", history_len=1, input_tokens=None, output_tokens=None)
    state = state_of(store, session)
    assert state.usage == []
    assert (state.totals.requests, state.totals.tokens) == (1, 0)


def test_what_a_newer_version_wrote_is_skipped_and_kept(
    store: FileSessionStore, session: Session
) -> None:
    session.append("a_kind_of_tomorrow", items=[{"type": "hologram"}], x=1)
    session.append("turn_end", turn=1, extra={"a": [1]})
    before = store.layout.log(session.session_id).read_bytes()
    assert state_of(store, session).turns == 1
    session.append("turn_end", turn=2)
    assert store.layout.log(session.session_id).read_bytes().startswith(before)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("user_input", {"items": [{"type": "hologram"}]}),
        ("user_input", {}),
        ("usage", {"history_len": 1}),
        ("prune_advanced", {"upto_index": "many"}),
        ("config_changed", {"config": 5}),
        ("run_outcome", {}),
    ],
)
def test_an_entry_that_does_not_hold_what_its_kind_promises_is_damage(
    store: FileSessionStore, session: Session, kind: str, fields: dict[str, Any]
) -> None:
    session.append(kind, **fields)
    with pytest.raises(SessionDamaged, match=f"entry 1 is no {kind} that can be read"):
        state_of(store, session)


def test_a_title_is_the_first_line_that_a_person_said(
    store: FileSessionStore, session: Session
) -> None:
    session.append_items("user_input", [user_message("put there", origin="injected")])
    session.append_items("user_input", [user_message(" \n")])
    assert state_of(store, session).title == ""
    session.append_items("user_input", [user_message("\n  first\nsecond")])
    session.append_items("user_input", [user_message("later")])
    assert state_of(store, session).title == "first"


def test_states_share_nothing_that_changes(store: FileSessionStore) -> None:
    parent = told(store, 1)
    one, other = store.restore(parent), store.restore(parent)
    one.history.clear()
    one.config["model"] = "changed"
    assert len(other.history) == 4
    assert other.config == {"model": "m"}
