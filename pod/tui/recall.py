"""What a view shows when it comes to a pod that has a history: where it is. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from attrs import evolve

from pod.protocol.methods import WaitingCall
from worker.items import (
    AssistantMessage,
    Item,
    Reasoning,
    SummaryMessage,
    SystemNote,
    Text,
    ToolCall,
    ToolResult,
    UserMessage,
    is_turn_start,
)
from worker.text import utf8_len

from . import wording
from .blocks import Asked, Block, Called, Said, Thought, Told, Tone, Wanted
from .model import Step
from .state import Answering, Approval, Call, Progress, ViewState
from .text import counted

if TYPE_CHECKING:
    from pod.status import PodStatus

_UNFINISHED = Told("that run was not finished; /resume goes on with it", Tone.WARNING)
_BYTES_A_TOKEN = 4
"""As prune counts what it saves."""


def arrived(
    status: PodStatus,
    history: Sequence[Item],
    now_ms: int,
    *,
    waiting: Sequence[WaitingCall] = (),
    retained_turns: int | None = None,
) -> Step:
    """Return the state of a pod that is come to now, and its last turn, so that one can go on.

    Args:
        status: Where the pod stands.
        history: Its items.
        now_ms: When that is, since 1970.
        waiting: The calls that somebody is asked about.
        retained_turns: How many turns the pod's compactions keep, where that is known.
    """
    state = ViewState(
        state=status.state,
        session_id=status.session_id,
        turns=status.turns,
        retained_turns=retained_turns,
        pruned_tokens=pruned_tokens(history, status.watermark),
    )
    if status.state == "running":
        joined = Answering(is_joined=True)
        state = evolve(state, answering=joined, run_ms=now_ms, calls=open_calls(history))
    elif status.state == "compacting":
        turns = counted(status.turns, "turn")
        text = wording.under_way(status.occupancy, turns, status.engine)
        state = evolve(state, compaction=Progress(text, now_ms))

    wanted = tuple(Wanted(call.name, call.arguments, call.reason) for call in waiting)
    state = evolve(state, approvals=tuple(map(_approval, waiting)))
    if not history:
        return Step(state, wanted)

    so_far = f"session {status.session_id}, {counted(status.turns, 'turn')} so far"
    unfinished = not state.is_busy and has_unfinished_run(history)
    rest = (_UNFINISHED,) if unfinished else wanted
    return Step(state, (Told(so_far), *retold(last_turn(history)), *rest))


def missed(history: Sequence[Item], last_uid: str | None) -> tuple[Block, ...]:
    """Return what joined a history after the item that was seen last.

    Where that is not there any more, as after a compaction, it is the last turn.
    """
    place = next((n for n, item in enumerate(history) if item.uid == last_uid), None)
    if place is not None:
        return tuple(retold(history[place + 1 :]))

    told = Told("the history has moved on since; its last turn:")
    return (told, *retold(last_turn(history))) if history else ()


def last_turn(history: Sequence[Item]) -> Sequence[Item]:
    """Return the items from the last real user message on."""
    starts = [n for n, item in enumerate(history) if is_turn_start(item)]
    return history[starts[-1] :] if starts else history[-1:]


def retold(items: Iterable[Item]) -> Iterator[Block]:
    """Yield what the items said when they were new."""
    calls: dict[str, ToolCall] = {}
    for item in items:
        match item:
            case UserMessage(origin="user"):
                yield Asked(item.text)
            case AssistantMessage():
                calls |= {call.call_uid: call for call in item.tool_calls}
                yield from _answered(item)
            case ToolResult():
                call = calls.get(item.call_uid)
                name, arguments = (call.name, call.arguments) if call else ("tool", "")
                yield Called(name, arguments, item.summary, item.is_error)
            case SummaryMessage():
                yield Told(f"(a summary of what came before, generation {item.generation})")
            case SystemNote():
                yield Told(item.text, Tone.DETAIL)
            case UserMessage():
                yield Told(item.text, Tone.DETAIL)


def open_calls(history: Sequence[Item]) -> tuple[Call, ...]:
    """Return the calls of the last answer that have no result."""
    done = {item.call_uid for item in history if isinstance(item, ToolResult)}
    answers = [item for item in history if isinstance(item, AssistantMessage)]
    return tuple(
        Call(call.call_id, call.name, call.arguments, since_ms=None, is_whole=True)
        for answer in answers[-1:]
        for call in answer.tool_calls
        if call.call_uid not in done
    )


def has_unfinished_run(history: Sequence[Item]) -> bool:
    """Tell whether the last thing that happened still wants an answer."""
    last = next((item for item in reversed(history) if not isinstance(item, SystemNote)), None)
    return isinstance(last, UserMessage | ToolResult) or bool(open_calls(history))


def pruned_tokens(history: Sequence[Item], watermark: int) -> int:
    """Return about how many tokens of tool results are left out of requests."""
    contents = (
        item.content
        for item in history[:watermark]
        if isinstance(item, ToolResult) and item.content is not None
    )
    return sum(utf8_len(content) // _BYTES_A_TOKEN for content in contents)


def _approval(call: WaitingCall) -> Approval:
    return Approval(
        call.call_id, call.call_uid, call.name, call.arguments, call.reason, call.until_ms
    )


def _answered(message: AssistantMessage) -> Iterator[Block]:
    thought = "".join(part.text for part in message.parts if isinstance(part, Reasoning))
    if thought.strip():
        yield Thought(thought)

    text = "".join(part.text for part in message.parts if isinstance(part, Text))
    if text.strip():
        yield Said(text)
