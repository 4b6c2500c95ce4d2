from __future__ import annotations

from typing import Literal

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from pod import protocol
from pod.protocol import EVENTS, EventData
from pod.tui.blocks import Asked, Called, Said, Thought, Told, Tone, Wanted, is_detail
from pod.tui.model import advance, connection_back, connection_lost
from pod.tui.state import Answering, ViewState
from tests.pod.tui.events import (
    approval,
    called,
    compaction_done,
    compaction_start,
    done,
    resolved,
    result,
    run_end,
    run_start,
    story,
    text,
)

KEPT = "what was said so far is kept"


def texts(said: list[object]) -> list[str]:
    return [block.text for block in said if isinstance(block, Said)]


def told(said: list[object]) -> list[str]:
    return [b.text for b in said if isinstance(b, Told) and not is_detail(b)]


# --- an answer ----------------------------------------------------------------------------------


def test_an_answer_is_said_block_by_block_and_its_open_end_is_kept() -> None:
    state, said = story(run_start(), text("One.\n\nTwo"), text(".\n"))
    assert said[0] == Asked("go")
    assert texts(said) == ["One.\n\n"]
    assert state.answering.open == "Two.\n"
    _, more = story(done("One.\n\nTwo.\n"), run_end(), state=state)
    assert more[0] == Said("Two.\n", begins=False)


def test_an_answer_that_came_in_one_piece_is_said_once() -> None:
    _, said = story(run_start(), done("All of it."), run_end())
    assert texts(said) == ["All of it."]


def test_what_an_answer_had_said_when_it_broke_off_stays() -> None:
    state, said = story(run_start(), text("Half a sen"), run_end(outcome="cancelled"))
    assert texts(said) == ["Half a sen"]
    assert told(said) == ["stopped; what was said so far is kept"]
    assert state.answering == Answering()


def test_who_comes_in_the_middle_of_an_answer_reads_it_whole_in_the_end() -> None:
    here = ViewState(state="running", answering=Answering(is_joined=True))
    state, said = story(text("second half"), state=here)
    assert texts(said) == []
    assert state.answering.open == "second half"
    _, said = story(done("first half and second half"), state=state)
    assert texts(said) == ["first half and second half"]


def test_where_pieces_are_missing_the_answer_is_said_whole() -> None:
    _, said = story(run_start(), text("abc"), text("ghi"), done("abcdefghi"))
    assert texts(said) == ["abcdefghi"]
    assert told(said) == ["not all of the answer came in pieces; all of it:"]


def test_a_thought_is_told_before_the_answer_and_only_to_who_wants_it() -> None:
    thinking = protocol.ReasoningDelta(text="hm")
    _, said = story(run_start(), thinking, thinking, text("Yes"), done("Yes"))
    thought = next(block for block in said if isinstance(block, Thought))
    assert thought.text == "hmhm"
    assert is_detail(thought)
    assert said.index(thought) < said.index(Said("Yes"))


# --- calls and approvals ------------------------------------------------------------------------


def test_parallel_calls_run_until_each_has_its_result() -> None:
    state, _ = story(run_start(), called("a", arguments='{"x": 1}'), called("b"))
    assert [call.call_id for call in state.calls] == ["a", "b"]
    state, said = story(result("b"), result("a", "no", is_error=True), state=state, step_ms=5_000)
    assert state.calls == ()
    assert [(b.arguments, b.is_error) for b in said if isinstance(b, Called)] == [
        ("{}", False),
        ('{"x": 1}', True),
    ]


def test_a_run_whose_end_never_came_is_said_to_be_cut_off() -> None:
    _, said = story(run_start("one"), run_end(), run_start("two"), run_start("three"))
    shown = [b.text for b in said if isinstance(b, Asked | Told) and not is_detail(b)]
    assert shown == ["one", "two", "the run before was cut off", "three"]


def test_a_call_grows_while_its_arguments_come() -> None:
    state, _ = story(
        protocol.ToolCallStart(call_id="a", name="grep"),
        protocol.ToolCallArgsDelta(call_id="a", text='{"x":'),
        protocol.ToolCallArgsDelta(call_id="b", text="lost"),
    )
    assert [(call.arguments, call.is_whole) for call in state.calls] == [('{"x":', False)]


def test_approvals_wait_in_order_and_go_when_somebody_decided() -> None:
    state, said = story(approval("1", reason="writes"), approval("2"))
    assert [a.call_uid for a in state.approvals] == ["1", "2"]
    assert state.approvals[1].until_ms == 61_000
    assert said[0] == Wanted("bash", '{"command": "ls"}', "writes")
    state, said = story(resolved("1", scope="session"), resolved("2", "withdrawn"), state=state)
    assert state.approvals == ()
    assert told(said) == ['bash allowed for this session by ada: command="ls"']


def test_the_seconds_of_a_call_count_from_when_it_was_allowed() -> None:
    _, said = story(called("c-1"), approval("1"), resolved("1"), result("c-1"))
    assert next(block.took_ms for block in said if isinstance(block, Called)) == 1_000


def test_calls_count_from_when_the_last_of_them_was_decided() -> None:
    """Until then none of them runs, and some may not have been asked about at all."""
    calls = (called("c-1"), called("c-2"), called("c-3"))
    asked = (approval("1"), approval("2"))
    _, said = story(
        *calls, *asked, resolved("1"), resolved("2"), result("c-1"), result("c-2"), result("c-3")
    )
    took = [block.took_ms for block in said if isinstance(block, Called)]
    assert took == [1_000, 2_000, 3_000]


def test_a_decision_says_which_of_several_calls_it_was_about() -> None:
    _, said = story(
        called("c-1", "rm", '{"path": "a"}'),
        called("c-2", "rm", '{"path": "b"}'),
        approval("1", "rm", arguments='{"path": "a"}'),
        approval("2", "rm", arguments='{"path": "b"}'),
        resolved("2", "deny", name="rm"),
        resolved("1", name="rm"),
    )
    assert told(said) == ['rm denied by ada: path="b"', 'rm allowed by ada: path="a"']


def test_where_nobody_decided_it_says_why() -> None:
    _, said = story(
        approval("1"), resolved("1", "deny", by="time"), resolved("2", "deny", by="nobody")
    )
    assert told(said) == [
        'bash denied, nobody answered in time: command="ls"',
        "bash denied, nobody is there to ask",
    ]


def test_an_approval_goes_with_its_result_and_with_its_run() -> None:
    state, _ = story(approval("1"), approval("2"), result("c-1"))
    assert [a.call_uid for a in state.approvals] == ["2"]
    state, _ = story(run_end(), state=state)
    assert state.approvals == ()


# --- context ------------------------------------------------------------------------------------


def test_a_compaction_is_in_progress_until_it_is_done() -> None:
    here = ViewState(turns=6, retained_turns=2)
    state, said = story(compaction_start(), state=here)
    assert state.compaction is not None
    assert state.is_busy
    expected = "compacting 3,412 tokens (6 turns, keeping the last 2) ▸ summarizing …"
    assert state.compaction.text == expected
    state, said = story(compaction_done(), state=state)
    assert state.compaction is None
    assert state.session_id == "s2"
    assert told(said) == [
        "compacted: 3,412 → 1,120 tokens, new session s2 from s1 (pod sessions tree)"
    ]


def test_what_a_pod_does_not_say_of_its_compactions_is_left_out() -> None:
    state, _ = story(compaction_start(), state=ViewState(turns=1))
    assert state.compaction is not None
    assert state.compaction.text == "compacting 3,412 tokens (1 turn) ▸ summarizing …"


def test_of_another_engine_it_is_not_said_that_it_summarizes() -> None:
    start = compaction_start(engine="brief")
    state, _ = story(start, state=ViewState(turns=1, retained_turns=2))
    assert state.compaction is not None
    assert state.compaction.text == "compacting 3,412 tokens (1 turn) …"


def test_of_a_compaction_that_was_missed_only_its_size_is_said() -> None:
    snapshot = protocol.Snapshot(
        session_id="s1", state="compacting", history_len=4, occupancy=3_412
    )
    state, _ = story(snapshot)
    assert state.compaction is not None
    assert state.compaction.text == "compacting 3,412 tokens …"


def test_a_failed_compaction_says_what_comes_next() -> None:
    failed = protocol.CompactionFailed(
        session_id="s1",
        trigger="threshold",
        reason="refusal",
        message="no",
        consecutive_failures=1,
        disabled=False,
    )
    state, said = story(compaction_start(), failed)
    assert state.compaction is None
    assert told(said)[0].startswith("compaction failed (1 of 3): no\n")


def test_costs_and_prunes_add_up() -> None:
    usage = protocol.Usage(input_tokens=10, output_tokens=2, cost=0.5)
    prune = protocol.PruneApplied(upto_index=3, items=2, est_savings=400, reason="threshold")
    state, _ = story(run_start(), usage, prune, prune)
    assert state.cost == 0.5
    assert state.pruned_tokens == 800
    state, _ = story(run_end(requests=1, usage=usage, cost=0.5), compaction_done(), state=state)
    assert state.cost == 0.5
    assert state.spent.requests == 1
    assert state.pruned_tokens == 0


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("compaction", []),
        ("new", ["new session s9"]),
        ("rewind", ["went back: session s9 from s1"]),
        ("head_mismatch", ["the log was changed underneath; going on in session s9"]),
    ],
)
def test_another_session_is_told_once(
    reason: Literal["compaction", "new", "rewind", "head_mismatch"], said: list[str]
) -> None:
    changed = protocol.SessionChanged(old_session_id="s1", new_session_id="s9", reason=reason)
    state, blocks = story(changed)
    assert state.session_id == "s9"
    assert told(blocks) == said


# --- the rest -----------------------------------------------------------------------------------


def test_waiting_for_the_model_ends_with_the_first_word() -> None:
    request = protocol.RequestStart(request=1, input_tokens=10)
    state, _ = story(run_start(), request)
    assert state.asked_ms == 1_000
    state, said = story(protocol.Retry(attempt=1, delay_s=2, reason="busy"), state=state)
    assert told(said) == ["busy; trying again in 2.0 s (try 2)"]
    assert state.retry is not None
    state, _ = story(text("a"), state=state)
    assert (state.asked_ms, state.retry) == (None, None)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"outcome": "finished"}, []),
        (
            {"outcome": "cancelled", "message": "cancelled"},
            ["stopped; what was said so far is kept"],
        ),
        ({"outcome": "cancelled", "message": "no"}, ["stopped (no); what was said so far is kept"]),
        ({"outcome": "limit_reached", "message": "200"}, ["limit reached: 200"]),
        ({"outcome": "paused"}, ["paused: no reason given"]),
        (
            {"outcome": "error", "error": {"code": "c", "message": "bad key", "hint": "set it"}},
            ["bad key\n  set it"],
        ),
    ],
)
def test_a_run_ends_with_what_a_person_should_know(
    fields: dict[str, object], said: list[str]
) -> None:
    state, blocks = story(run_start(), run_end(**fields))
    assert told(blocks) == said
    assert not state.is_busy


def test_a_snapshot_says_where_it_is_and_what_was_in_the_air_is_gone() -> None:
    state, _ = story(run_start(), text("old"), called("a"), approval("1"))
    here = protocol.Snapshot(session_id="s5", state="running", history_len=3, occupancy=10)
    state, _ = story(here, state=state)
    assert (state.calls, state.approvals, state.session_id) == ((), (), "s5")
    assert state.answering == Answering(is_joined=True)
    compacting = protocol.Snapshot(session_id="s5", state="compacting", history_len=3, occupancy=10)
    state, _ = story(compacting, state=state)
    assert state.compaction is not None
    state, _ = story(protocol.Status(state="idle"), state=state)
    assert state.compaction is None


def test_a_lost_connection_is_told_once_and_so_is_its_return() -> None:
    lost = connection_lost(ViewState(), 1_000)
    assert lost.state.lost_ms == 1_000
    assert connection_lost(lost.state, 2_000).said == ()
    back = connection_back(lost.state, 4_000)
    assert back.said == (Told("connected again after 3.0 s", Tone.GOOD),)
    assert back.state == ViewState()
    assert connection_back(back.state, 5_000).said == ()


def test_an_event_of_a_later_version_changes_nothing() -> None:
    class Unheard(EventData):
        what: str = "?"

    state, _ = story(run_start(), text("a"))
    step = advance(state, Unheard(), 5)
    assert (step.state, step.said) == (state, ())


# --- whatever comes -----------------------------------------------------------------------------

_POOL: tuple[EventData, ...] = (
    run_start(),
    run_start(None),
    run_end(),
    run_end(outcome="error", error={"code": "c", "message": "m"}),
    protocol.TurnStart(turn=2),
    protocol.TurnEnd(turn=2),
    protocol.RequestStart(request=1, input_tokens=10),
    text("one\n\ntwo\n"),
    text("three"),
    done("one\n\ntwo\nthree"),
    done("something else"),
    protocol.ReasoningDelta(text="hm"),
    protocol.ToolCallStart(call_id="a", name="grep"),
    protocol.ToolCallArgsDelta(call_id="a", text="{"),
    called("a"),
    called("b"),
    result("a"),
    result("c"),
    approval("1"),
    approval("2"),
    resolved("1"),
    resolved("3", "deny"),
    protocol.Usage(cost=0.1),
    protocol.Retry(attempt=1, delay_s=0, reason="r"),
    protocol.PruneApplied(upto_index=1, items=1, est_savings=4, reason="r"),
    compaction_start(),
    compaction_done(),
    protocol.CompactionFailed(
        session_id="s",
        trigger="manual",
        reason="floor",
        message="m (a)",
        consecutive_failures=3,
        disabled=True,
    ),
    protocol.EngineNotice(engine="e", message="m"),
    protocol.SessionChanged(old_session_id="a", new_session_id="b", reason="new"),
    protocol.Status(state="running"),
    protocol.Status(state="idle"),
    protocol.Alert(level="info", message="m"),
    protocol.Error(code="c", message="m"),
    protocol.Snapshot(session_id="s", state="running", history_len=1, occupancy=1),
    protocol.Lagged(next_seq=9),
)


def test_the_pool_has_every_event() -> None:
    assert {type(event) for event in _POOL} == set(EVENTS.values())


@given(st.lists(st.sampled_from(_POOL), max_size=60))
def test_whatever_comes_in_whatever_order_the_view_can_show(events: list[EventData]) -> None:
    state, _ = story(*events)
    assert len({a.call_uid for a in state.approvals}) == len(state.approvals)
    assert len({c.call_id for c in state.calls}) == len(state.calls)
    assert state.answering.text.endswith(state.answering.open)
    # A run's end, and the pod's word that it is idle, leave nothing in the air.
    for last in (run_end(), protocol.Status(state="idle")):
        ended, _ = story(last, state=state)
        assert (ended.calls, ended.approvals, ended.answering) == ((), (), Answering())
        assert (ended.run_ms, ended.asked_ms, ended.retry) == (None, None, None)


_PIECES = st.lists(
    st.sampled_from(["a", "\n", "\n\n", "- b\n", "```\n", "c d", "# e\n"]), max_size=30
)


@given(_PIECES, st.integers(0, 30))
def test_every_answer_is_said_once_whatever_was_missed_of_its_pieces(
    pieces: list[str], joined_at: int
) -> None:
    whole = "".join(pieces)
    deltas = [text(piece) for piece in pieces]
    _, said = story(run_start(), *deltas, done(whole), run_end())
    assert "".join(texts(said)) == whole or not whole.strip()

    # Who comes in the middle: the pieces before are lost, the whole text is not.
    here = ViewState(state="running", answering=Answering(is_joined=True))
    _, said = story(*deltas[joined_at:], done(whole), state=here)
    assert texts(said) == [whole]


@given(st.lists(st.sampled_from(_POOL), max_size=30), st.integers(0, 30))
def test_what_was_said_does_not_depend_on_how_events_are_grouped(
    events: list[EventData], at: int
) -> None:
    state, said = story(*events)
    middle, first = story(*events[:at])
    last, second = ViewState(), []
    last = middle
    for number, event in enumerate(events[at:], start=len(events[:at])):
        step = advance(last, event, number * 1_000)
        last = step.state
        second += step.said

    assert (last, first + second) == (state, said)
    assert evolve(last) == last
