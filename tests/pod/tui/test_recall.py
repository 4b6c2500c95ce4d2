from __future__ import annotations

from pod import protocol
from pod.protocol.methods import WaitingCall
from pod.tui.blocks import Asked, Called, Said, Thought, Told, Tone, Wanted
from pod.tui.model import advance
from pod.tui.recall import arrived, last_turn, missed, open_calls, pruned_tokens
from pod.tui.state import Approval, Call
from tests.pod.tui.events import status
from worker.items import (
    AssistantMessage,
    Item,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    user_message,
)

CALL = ToolCall("c1", "grep", '{"x": 1}', "u1")
OTHER = ToolCall("c2", "fetch", "{}", "u2")


def answer(uid: str, *parts: Text | Reasoning | ToolCall) -> AssistantMessage:
    return AssistantMessage(uid, parts, "p", "m", "end")


def result(call: ToolCall, content: str | None = None) -> ToolResult:
    return ToolResult(f"r-{call.call_id}", call.call_id, call.call_uid, "3 hits", content, False)


HISTORY: tuple[Item, ...] = (
    user_message("first"),
    answer("a1", Text("One.")),
    user_message("second"),
    answer("a2", Reasoning("hm", None, "p", "m"), Text("I look."), CALL, OTHER),
    result(CALL, "x" * 400),
)


def test_who_comes_sees_the_last_turn_and_what_runs() -> None:
    step = arrived(status(10, state="running", turns=2), HISTORY, 5_000)
    assert step.said == (
        Told("session s, 2 turns so far"),
        Asked("second"),
        Thought("hm"),
        Said("I look."),
        Called("grep", '{"x": 1}', "3 hits", is_error=False),
    )
    assert step.state.calls == (Call("c2", "fetch", "{}", None, is_whole=True),)
    assert step.state.answering.is_joined
    assert step.state.run_ms == 5_000


def test_who_comes_to_an_idle_pod_sees_nothing_run() -> None:
    step = arrived(status(10, turns=2), HISTORY, 5_000, retained_turns=2)
    assert (step.state.calls, step.state.run_ms, step.state.retained_turns) == ((), None, 2)
    assert not step.state.answering.is_joined


def test_who_comes_after_a_run_that_was_stopped_is_told_how_to_go_on() -> None:
    for history in (HISTORY[:1], HISTORY[:3], HISTORY):
        *_, last = arrived(status(10, turns=2), history, 5_000).said
        assert last == Told("that run was not finished; /resume goes on with it", Tone.WARNING)

    *_, last = arrived(status(10, turns=1), HISTORY[:2], 5_000).said
    assert last == Said("One.")


def test_how_long_a_call_took_that_was_there_before_is_not_known() -> None:
    state = arrived(status(10, state="running", turns=2), HISTORY, 5_000).state
    event = protocol.ToolResult(call_id="c2", name="fetch", summary="it", is_error=False)
    assert advance(state, event, 9_000).said == (Called("fetch", "{}", "it", is_error=False),)


def test_who_comes_to_a_new_pod_is_told_nothing() -> None:
    assert arrived(status(0), (), 0).said == ()


def test_who_comes_to_a_compaction_sees_it() -> None:
    step = arrived(status(3_412, state="compacting", turns=6), HISTORY, 5_000)
    assert step.state.compaction is not None
    assert step.state.compaction.text == "compacting 3,412 tokens (6 turns) ▸ summarizing …"


def test_who_comes_to_a_compaction_by_another_engine_is_not_told_that_it_summarizes() -> None:
    step = arrived(status(3_412, state="compacting", turns=6, engine="brief"), HISTORY, 5_000)
    assert step.state.compaction is not None
    assert step.state.compaction.text == "compacting 3,412 tokens (6 turns) …"


def test_who_comes_is_asked_about_what_waits() -> None:
    view = WaitingCall(
        call_id="c2",
        call_uid="u2",
        name="fetch",
        arguments='{"url": "x"}',
        reason="it leaves the house",
        until_ms=70_000,
    )
    step = arrived(status(10, state="running"), HISTORY, 0, waiting=[view])
    reason = "it leaves the house"
    assert step.said[-1] == Wanted("fetch", '{"url": "x"}', reason)
    asked = Approval("c2", "u2", "fetch", '{"url": "x"}', reason, until_ms=70_000)
    assert step.state.approvals == (asked,)


def test_what_was_missed_is_what_came_after_the_last_that_was_seen() -> None:
    assert missed(HISTORY, "a2") == (Called("tool", "", "3 hits", is_error=False),)
    assert missed(HISTORY, HISTORY[-1].uid) == ()
    elsewhere = missed(HISTORY, "gone")
    assert elsewhere[0] == Told("the history has moved on since; its last turn:")
    assert elsewhere[1] == Asked("second")
    assert missed((), None) == ()


def test_parts_of_a_history() -> None:
    assert last_turn(HISTORY) == HISTORY[2:]
    assert last_turn(HISTORY[1:2]) == HISTORY[1:2]
    assert [call.call_id for call in open_calls(HISTORY)] == ["c2"]
    assert pruned_tokens(HISTORY, 5) == 100
    assert pruned_tokens(HISTORY, 4) == 0
