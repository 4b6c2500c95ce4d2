"""What every engine's plan must be before it is committed. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import evolve

from pod.compaction.plan import CompactionError, CompactionPlan
from worker.items import (
    AssistantMessage,
    Item,
    SummaryMessage,
    ToolCall,
    ToolResult,
    is_turn_start,
    new_uid,
)
from worker.projection import interrupted_result


def checked(
    plan: CompactionPlan,
    before: Sequence[Item],
    *,
    tokens_before: int,
    tokens_of: Callable[[CompactionPlan], int],
) -> CompactionPlan:
    """Return the plan, the newest real user message put back where it is missing.

    Calls that had no result in `before` already, as after a crash, get the one that says so, and
    results whose call was lost are left out: neither could be sent.

    Args:
        plan: What the engine made of `before`.
        before: The items that were to be compacted.
        tokens_before: The prompt's size now.
        tokens_of: A plan's prompt's size, by the same estimator.

    Raises:
        CompactionError: The new history is empty (`empty`), parts calls from results or repeats
            uids (`invalid_result`), or is not smaller than the old (`no_progress`).
    """
    if not plan.history:
        raise CompactionError("empty", "the engine returned an empty history")

    plan = _paired(_with_newest_user_message(plan, before), before)
    problem = pairing_problem(plan.history)
    if problem:
        raise CompactionError("invalid_result", f"the engine's history is not valid: {problem}")

    tokens_after = tokens_of(plan)
    if tokens_after >= tokens_before:
        message = (
            f"the result is not smaller: {tokens_before:,} tokens before, {tokens_after:,} after"
        )
        raise CompactionError("no_progress", message)

    return plan


def pairing_problem(items: Sequence[Item]) -> str:
    """Return what is wrong with a history's uids, calls and results, in words; empty if nothing.

    A result belongs to the nearest answer before it; notes may stand between the two.
    """
    if len({item.uid for item in items}) != len(items):
        return "two items share a uid"

    open_calls: set[str] = set()
    for item in items:
        if isinstance(item, ToolResult):
            if item.call_id not in open_calls:
                return f"a tool result without its call ({item.call_id})"

            open_calls.discard(item.call_id)
        elif isinstance(item, AssistantMessage):
            if open_calls:
                break

            open_calls = {call.call_id for call in item.tool_calls}

    return f"a call without its result ({min(open_calls)})" if open_calls else ""


def _paired(plan: CompactionPlan, before: Sequence[Item]) -> CompactionPlan:
    """Return the plan without the loose ends that `before` had already."""
    missing, lost = _loose_ends(plan.history)
    if not missing and not lost:
        return plan

    missing_before, lost_before = _loose_ends(before)
    known_calls = {call.call_uid for _, call in missing_before}
    known_lost = {before[index].uid for index in lost_before}
    history: list[Item] = []
    watermark = plan.watermark
    for index, item in enumerate(plan.history):
        if index in lost and item.uid in known_lost:
            watermark -= index < plan.watermark
            continue

        history.append(item)
        for end, call in missing:
            if end == index and call.call_uid in known_calls:
                history.append(interrupted_result(call, new_uid()))
                watermark += index < plan.watermark

    return evolve(plan, history=tuple(history), watermark=watermark)


def _loose_ends(items: Sequence[Item]) -> tuple[list[tuple[int, ToolCall]], set[int]]:
    """Return the calls without results, and the indices of results without calls.

    A call comes with the index of what its result is to stand behind.
    """
    missing: list[tuple[int, ToolCall]] = []
    lost: set[int] = set()
    waiting: dict[str, ToolCall] = {}
    end = -1
    for index, item in enumerate(items):
        if isinstance(item, AssistantMessage):
            missing += [(end, call) for call in waiting.values()]
            waiting, end = {call.call_id: call for call in item.tool_calls}, index
        elif isinstance(item, ToolResult):
            if waiting.pop(item.call_id, None) is None:
                lost.add(index)
            else:
                end = index

    missing += [(end, call) for call in waiting.values()]
    return missing, lost


def _with_newest_user_message(plan: CompactionPlan, before: Sequence[Item]) -> CompactionPlan:
    newest = next((item for item in reversed(before) if is_turn_start(item)), None)
    if newest is None or any(item.uid == newest.uid for item in plan.history):
        return plan

    # Engines put what they condensed first; the message goes right behind it.
    at = 0
    known = {item.uid for item in before}
    while at < len(plan.history) and (
        isinstance(plan.history[at], SummaryMessage) or plan.history[at].uid not in known
    ):
        at += 1

    while at < len(plan.history) and isinstance(plan.history[at], ToolResult):
        at += 1

    history = (*plan.history[:at], newest, *plan.history[at:])
    watermark = plan.watermark + 1 if plan.watermark > at else plan.watermark
    return evolve(plan, history=history, watermark=watermark)
