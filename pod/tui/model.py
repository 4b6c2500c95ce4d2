"""From events to what is to be seen: a pure reducer. It knows nothing of drawing or of waiting.

`advance` takes a state and an event and returns the next state and what scrolls by because of it.
Events may come in any order, begin in the middle, or be of a kind that is not known here: whatever
comes, a view shows something sensible, and every answer's text once.
"""

from __future__ import annotations

from functools import singledispatch

from attrs import evolve, frozen

from pod import protocol
from pod.protocol import EventData

from . import wording
from .arguments import brief
from .blocks import Asked, Block, Called, Said, Thought, Told, Tone, Wanted
from .markdown_blocks import finished_blocks
from .state import Answering, Approval, Call, Progress, ViewState

_NOBODY = {"nobody": ", nobody is there to ask", "time": ", nobody answered in time"}
"""How it is said that nobody decided, by what the pod says then in the place of a name."""
_ARGUMENT_CELLS = 40
_TONES = {"info": Tone.INFO, "warning": Tone.WARNING, "error": Tone.ERROR}


@frozen
class Step:
    """What an event came to."""

    state: ViewState
    said: tuple[Block, ...] = ()


def advance(state: ViewState, data: EventData, now_ms: int) -> Step:
    """Return the state after an event that happened at `now_ms`, and what is to be said of it."""
    return _on(data, state, now_ms)


def connection_lost(state: ViewState, now_ms: int) -> Step:
    """Return the state while the pod is not reached; what it was doing is not known then."""
    if state.lost_ms is not None:
        return Step(state)

    told = Told(wording.CONNECTION_LOST, Tone.WARNING)
    return Step(evolve(state, lost_ms=now_ms), (told,))


def connection_back(state: ViewState, now_ms: int) -> Step:
    """Return the state once the pod is reached again. What was missed follows as events."""
    if state.lost_ms is None:
        return Step(state)

    told = Told(f"connected again after {wording.seconds(now_ms - state.lost_ms)}", Tone.GOOD)
    return Step(evolve(state, lost_ms=None), (told,))


@singledispatch
def _on(_data: EventData, state: ViewState, _now_ms: int) -> Step:
    """Events that change nothing that is seen, those of a later version among them."""
    return Step(state)


# ------------------------------------------------------------------ runs


@_on.register
def _(data: protocol.RunStart, state: ViewState, now_ms: int) -> Step:
    rest = _rest(state)
    if state.run_ms is not None:  # its end never came
        rest = (*rest, Told("the run before was cut off", Tone.WARNING))

    asked: tuple[Block, ...] = () if data.input is None else (Asked(data.input),)
    if data.input is None:
        asked = (Told("going on with the run", Tone.INFO),)

    started = evolve(
        _without_run(state),
        state="running",
        session_id=data.session_id,
        run_ms=now_ms,
        run_cost=None,
    )
    return Step(started, (*rest, *asked, Told(f"session {data.session_id}", Tone.DETAIL)))


@_on.register
def _(data: protocol.TurnStart, state: ViewState, _now_ms: int) -> Step:
    return Step(evolve(state, turns=data.turn))


@_on.register
def _(data: protocol.RequestStart, state: ViewState, now_ms: int) -> Step:
    asking = evolve(state, answering=Answering(), asked_ms=now_ms, retry=None)
    return Step(asking, (*_rest(state), Told(wording.requesting(data), Tone.DETAIL)))


@_on.register
def _(data: protocol.Retry, state: ViewState, now_ms: int) -> Step:
    text = wording.retrying(data)
    waiting = Progress(text, now_ms) if data.delay_s else None
    return Step(evolve(state, retry=waiting), (Told(text, Tone.WARNING),))


@_on.register
def _(data: protocol.Usage, state: ViewState, _now_ms: int) -> Step:
    told = wording.tokens_in_and_out(data)
    cost = state.run_cost
    if data.cost is not None:
        cost = (cost or 0.0) + data.cost

    return Step(evolve(state, run_cost=cost), (Told(told, Tone.DETAIL),) if told else ())


@_on.register
def _(data: protocol.RunEnd, state: ViewState, now_ms: int) -> Step:
    ended = evolve(
        _without_run(state),
        state="paused" if data.outcome == "paused" else "idle",
        session_id=data.session_id,
        run_cost=None,
        spent=state.spent.plus(data.requests, data.usage, data.cost),
    )
    took = wording.taken(data)
    if state.run_ms is not None:
        took.append(wording.seconds(now_ms - state.run_ms))

    closing = Told(" · ".join(took), Tone.DETAIL)
    return Step(ended, (*_rest(state), *_outcome(data), closing))


def _outcome(end: protocol.RunEnd) -> tuple[Told, ...]:
    match end.outcome:
        case "finished":
            return ()
        case "cancelled":
            why = f" ({end.message})" if end.message and end.message != "cancelled" else ""
            return (Told(f"stopped{why}; what was said so far is kept", Tone.WARNING),)
        case "error" if end.error is not None:
            return (Told(wording.with_hint(end.error.message, end.error.hint), Tone.ERROR),)
        case outcome:
            text = f"{outcome.replace('_', ' ')}: {end.message or 'no reason given'}"
            return (Told(text, Tone.WARNING),)


def _without_run(state: ViewState) -> ViewState:
    """Return the state with nothing of a run going on."""
    return evolve(
        state,
        answering=Answering(),
        calls=(),
        approvals=(),
        asked_ms=None,
        run_ms=None,
        retry=None,
    )


# ------------------------------------------------------------------ an answer


@_on.register
def _(data: protocol.ReasoningDelta, state: ViewState, _now_ms: int) -> Step:
    answering = evolve(state.answering, thought=state.answering.thought + data.text)
    return Step(evolve(state, answering=answering, asked_ms=None, retry=None))


@_on.register
def _(data: protocol.TextDelta, state: ViewState, _now_ms: int) -> Step:
    now = state.answering
    if now.is_joined:  # it is said whole when it is done
        answering = evolve(now, text=now.text + data.text, open=now.open + data.text)
        return Step(evolve(state, answering=answering, asked_ms=None, retry=None))

    done, rest = finished_blocks(now.open + data.text)
    begins = now.text == now.open
    said = tuple(Said(block, begins=begins and n == 0) for n, block in enumerate(done))
    answering = Answering(now.text + data.text, rest)
    grown = evolve(state, answering=answering, asked_ms=None, retry=None)
    return Step(grown, (*_thought(now), *said))


@_on.register
def _(data: protocol.TextDone, state: ViewState, _now_ms: int) -> Step:
    now, whole = state.answering, data.text
    said: tuple[Block, ...]
    if now.is_joined or not now.text:
        said = (Said(whole),)
    elif whole.startswith(now.text):
        said = _last(now.open + whole[len(now.text) :], begins=now.text == now.open)
    elif whole.strip() == now.text.strip():
        said = _last(now.open, begins=now.text == now.open)
    else:  # pieces are missing: what was shown is not the answer
        said = (Told("not all of the answer came in pieces; all of it:"), Said(whole))

    done = evolve(state, answering=Answering(), asked_ms=None, retry=None)
    return Step(done, (*_thought(now), *said))


def _last(text: str, *, begins: bool) -> tuple[Block, ...]:
    return (Said(text, begins=begins),) if text.strip() else ()


def _thought(now: Answering) -> tuple[Block, ...]:
    return (Thought(now.thought),) if now.thought.strip() else ()


def _rest(state: ViewState) -> tuple[Block, ...]:
    """Return what was shown as coming and now comes no further: it stays as it is."""
    now = state.answering
    return (*_thought(now), *_last(now.open, begins=now.text == now.open))


# ------------------------------------------------------------------ tool calls


@_on.register
def _(data: protocol.ToolCallStart, state: ViewState, now_ms: int) -> Step:
    call = Call(data.call_id, data.name, since_ms=now_ms)
    return Step(evolve(state, calls=_put(state.calls, call), asked_ms=None, retry=None))


@_on.register
def _(data: protocol.ToolCallArgsDelta, state: ViewState, _now_ms: int) -> Step:
    calls = tuple(
        evolve(call, arguments=call.arguments + data.text)
        if call.call_id == data.call_id and not call.is_whole
        else call
        for call in state.calls
    )
    return Step(evolve(state, calls=calls))


@_on.register
def _(data: protocol.ToolCallDone, state: ViewState, now_ms: int) -> Step:
    call = Call(data.call_id, data.name, data.arguments, now_ms, is_whole=True)
    return Step(evolve(state, calls=_put(state.calls, call), asked_ms=None))


@_on.register
def _(data: protocol.ToolResult, state: ViewState, now_ms: int) -> Step:
    call = next((call for call in state.calls if call.call_id == data.call_id), None)
    called = Called(
        data.name,
        call.arguments if call else "",
        data.summary,
        data.is_error,
        _took(call, now_ms) if call else None,
    )
    left = evolve(
        state,
        calls=tuple(other for other in state.calls if other is not call),
        approvals=tuple(a for a in state.approvals if a.call_id != data.call_id),
    )
    return Step(left, (called,))


def _took(call: Call, now_ms: int) -> int | None:
    """Return how long a call ran, where its beginning was seen."""
    return now_ms - call.since_ms if call.is_whole and call.since_ms is not None else None


def _put(calls: tuple[Call, ...], call: Call) -> tuple[Call, ...]:
    if any(other.call_id == call.call_id for other in calls):
        return tuple(call if other.call_id == call.call_id else other for other in calls)

    return (*calls, call)


# ------------------------------------------------------------------ approvals


@_on.register
def _(data: protocol.ApprovalRequest, state: ViewState, now_ms: int) -> Step:
    approval = Approval(
        data.call_id,
        data.call_uid,
        data.name,
        data.arguments,
        data.reason,
        now_ms + int(data.timeout_s * 1000),
    )
    others = tuple(a for a in state.approvals if a.call_uid != data.call_uid)
    wanted = Wanted(data.name, data.arguments, data.reason)
    return Step(evolve(state, approvals=(*others, approval)), (wanted,))


@_on.register
def _(data: protocol.ApprovalResolved, state: ViewState, now_ms: int) -> Step:
    left = tuple(a for a in state.approvals if a.call_uid != data.call_uid)
    # None of them runs before all are decided; how long that took is no matter of the tools'.
    calls = tuple(evolve(call, since_ms=now_ms) for call in state.calls)
    resolved = evolve(state, approvals=left, calls=calls)
    if data.decision == "withdrawn":
        return Step(resolved)

    how = "allowed" if data.decision == "allow" else "denied"
    more = " for this session" if data.scope == "session" and data.decision == "allow" else ""
    tone = Tone.INFO if data.decision == "allow" else Tone.WARNING
    which = _arguments_of(data, state)
    who = _NOBODY.get(data.by, f" by {data.by}")
    text = f"{data.name} {how}{more}{who}" + (f": {which}" if which else "")
    return Step(resolved, (Told(text, tone),))


def _arguments_of(data: protocol.ApprovalResolved, state: ViewState) -> str:
    """Return which of several calls of a tool it is, as far as that is known."""
    asked = [a.arguments for a in state.approvals if a.call_uid == data.call_uid]
    known = asked or [call.arguments for call in state.calls if call.call_id == data.call_id]
    return brief(known[0], _ARGUMENT_CELLS) if known else ""


# ------------------------------------------------------------------ context


@_on.register
def _(data: protocol.PruneApplied, state: ViewState, _now_ms: int) -> Step:
    more = evolve(state, pruned_tokens=state.pruned_tokens + max(0, data.est_savings))
    return Step(more, (Told(wording.pruned(data), Tone.DETAIL),))


@_on.register
def _(data: protocol.CompactionStart, state: ViewState, now_ms: int) -> Step:
    text = wording.compacting(data, state.turns, state.retained_turns)
    return Step(evolve(state, compaction=Progress(text, now_ms)))


@_on.register
def _(data: protocol.CompactionDone, state: ViewState, _now_ms: int) -> Step:
    cost = data.usage.cost if data.usage is not None else None
    done = evolve(
        state,
        compaction=None,
        session_id=data.new_session_id,
        pruned_tokens=0,
        spent=state.spent.plus(0, data.usage, cost),
    )
    return Step(done, (Told(wording.compacted(data), Tone.GOOD),))


@_on.register
def _(data: protocol.CompactionFailed, state: ViewState, _now_ms: int) -> Step:
    failed = evolve(state, compaction=None)
    return Step(failed, (Told(wording.compaction_failed(data), Tone.WARNING),))


@_on.register
def _(data: protocol.SessionChanged, state: ViewState, _now_ms: int) -> Step:
    moved = evolve(state, session_id=data.new_session_id, pruned_tokens=0)
    match data.reason:
        case "compaction":  # its own event says so
            return Step(moved)
        case "new":
            return Step(evolve(moved, turns=0), (Told(f"new session {data.new_session_id}"),))
        case "rewind":
            text = f"went back: session {data.new_session_id} from {data.old_session_id}"
            return Step(moved, (Told(text),))
        case "head_mismatch":
            text = f"the log was changed underneath; going on in session {data.new_session_id}"
            return Step(moved, (Told(text, Tone.WARNING),))


# ------------------------------------------------------------------ the rest


@_on.register
def _(data: protocol.Status, state: ViewState, _now_ms: int) -> Step:
    changed = evolve(state, state=data.state)
    if data.state == "idle":  # also where the run's end was among what was missed
        changed = evolve(_without_run(changed), compaction=None)

    return Step(changed, _rest(state) if data.state == "idle" else ())


@_on.register
def _(data: protocol.EngineNotice, state: ViewState, _now_ms: int) -> Step:
    return Step(state, (Told(data.message, Tone.WARNING),))


@_on.register
def _(data: protocol.Alert, state: ViewState, _now_ms: int) -> Step:
    return Step(state, (Told(data.message, _TONES[data.level]),))


@_on.register
def _(data: protocol.Error, state: ViewState, _now_ms: int) -> Step:
    return Step(state, (Told(wording.with_hint(data.message, data.hint), Tone.ERROR),))


@_on.register
def _(_data: protocol.Lagged, state: ViewState, _now_ms: int) -> Step:
    text = "this view could not keep up with the pod; it reads on from where it was cut off"
    return Step(state, (Told(text, Tone.WARNING),))


@_on.register
def _(data: protocol.Snapshot, state: ViewState, now_ms: int) -> Step:
    """Take what is told of now; the answer that may be coming has lost its beginning."""
    is_running = data.state == "running"
    here = evolve(
        _without_run(state),
        state=data.state,
        session_id=data.session_id,
        answering=Answering(is_joined=is_running),
        run_ms=now_ms if is_running else None,
        compaction=state.compaction if data.state == "compacting" else None,
    )
    if data.state == "compacting" and here.compaction is None:
        text = f"compacting {data.occupancy:,} tokens …"
        here = evolve(here, compaction=Progress(text, now_ms))

    return Step(here)
