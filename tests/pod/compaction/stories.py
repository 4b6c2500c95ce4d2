"""Hypothesis strategies for histories as pods have them: turns, calls, notes, summaries."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import strategies as st

from worker import (
    AssistantMessage,
    Item,
    Reasoning,
    SummaryMessage,
    SystemNote,
    Text,
    ToolCall,
    ToolResult,
    UserMessage,
    new_uid,
)
from worker.items import user_message

words = st.text("abc déf\n", min_size=1, max_size=40).filter(lambda text: text.strip() != "")


def a_result(call: ToolCall, content: str | None = "detail") -> ToolResult:
    return ToolResult(new_uid(), call.call_id, call.call_uid, "looked", content, is_error=False)


def an_answer(text: str, *calls: ToolCall, thought: str = "") -> AssistantMessage:
    thoughts = (Reasoning(thought, signature="s"),) if thought else ()
    parts = (*thoughts, Text(text), *calls)
    return AssistantMessage(new_uid(), parts, "p", "m", "tool_calls" if calls else "end")


def a_call(call_id: str = "c1", arguments: str = "{}") -> ToolCall:
    return ToolCall(call_id, "look", arguments, new_uid())


@st.composite
def exchanges(draw: st.DrawFn, *, may_stay_open: bool) -> list[Item]:
    """An answer, its calls (ids are used again and again) and their results in any order."""
    calls = [a_call(f"call_{n}") for n in range(draw(st.integers(0, 3)))]
    thought = draw(st.sampled_from(["", "hm"]))
    items: list[Item] = [an_answer(draw(words), *calls, thought=thought)]
    contents = st.none() | st.sampled_from(["detail", "x" * 3_000])
    results = [a_result(call, draw(contents)) for call in draw(st.permutations(calls))]
    if may_stay_open and results and draw(st.booleans()):
        results.pop()

    for result in results:
        items.append(result)
        if draw(st.integers(0, 5)) == 0:
            items.append(SystemNote(new_uid(), draw(words), "hook"))

    return items


@st.composite
def turns(draw: st.DrawFn, *, may_stay_open: bool) -> list[Item]:
    items: list[Item] = [user_message(draw(words))]
    if draw(st.booleans()):
        items.append(user_message(draw(words), origin="injected"))

    for _ in range(draw(st.integers(0, 3))):
        items += draw(exchanges(may_stay_open=may_stay_open))

    return items


@st.composite
def stories(draw: st.DrawFn, *, may_stay_open: bool = False) -> list[Item]:
    """A history: perhaps summaries first, then turns; with `may_stay_open`, results are lost."""
    items: list[Item] = [
        SummaryMessage(new_uid(), draw(words), None, n + 1) for n in range(draw(st.integers(0, 2)))
    ]
    for _ in range(draw(st.integers(0, 5))):
        items += draw(turns(may_stay_open=may_stay_open))

    return items


def newest_user(items: Iterable[Item]) -> UserMessage | None:
    said = [item for item in items if isinstance(item, UserMessage) and item.origin == "user"]
    return said[-1] if said else None
