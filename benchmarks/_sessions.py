"""The same history as items of ours, and as sessions on disk."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from _history import messages

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from session_store import FileSessionStore
    from worker import Item

_AT_ONCE = 2_000


def items(count: int) -> list[Item]:
    """Return `count` items: `_history.messages` as ours."""
    return list(_as_items(messages(count)))


def one_long_turn(count: int) -> list[Item]:
    """Return `count` items of one question and many tool calls: how an agent at work looks."""
    from worker import UserMessage

    made = items(count * 2)
    later = (item for item in made[1:] if not isinstance(item, UserMessage) and not _said(item))
    return [made[0], *islice(later, count - 1)]


def a_store(home: Path) -> FileSessionStore:
    """Return a store that does not wait for the disk with each append: for sessions to measure."""
    from session_store import Durability, FileSessionStore

    return FileSessionStore(home, durability=Durability.FLUSH)


def a_session(home: Path, history: Iterable[Item]) -> str:
    """Write a session of these items, an entry each, and return its id. It is closed, durable."""
    store = a_store(home)
    entries = ((_kind(item), {"items": [item]}) for item in history)
    with store.create(pod="bench", system_prompt="Be brief.", config={"model": "m"}) as session:
        while some := list(islice(entries, _AT_ONCE)):
            session.append_many(some)

        session.append("run_outcome", outcome="finished", interrupted=False)
        return session.session_id


def _kind(item: Item) -> str:
    from worker import AssistantMessage, ToolResult

    if isinstance(item, ToolResult):
        return "tool_results"

    return "assistant_items" if isinstance(item, AssistantMessage) else "user_input"


def _said(item: Item) -> bool:
    from worker import AssistantMessage

    return isinstance(item, AssistantMessage) and not item.tool_calls


def _as_items(given: Iterable[dict[str, Any]]) -> Iterator[Item]:
    from worker import AssistantMessage, Text, ToolCall, ToolResult, new_uid, user_message

    call_uid = ""
    for message in given:
        if message["role"] == "user":
            yield user_message(message["content"])
        elif message["role"] == "tool":
            call_id, content = message["tool_call_id"], message["content"]
            summary = f"read {len(content):,} characters"
            yield ToolResult(new_uid(), call_id, call_uid, summary, content, is_error=False)
        elif "tool_calls" in message:
            call_uid = new_uid()
            (call,) = message["tool_calls"]
            name, arguments = call["function"]["name"], call["function"]["arguments"]
            part = ToolCall(call["id"], name, arguments, call_uid)
            yield AssistantMessage(new_uid(), (part,), "scripted", "m", "tool_calls")
        else:
            yield AssistantMessage(new_uid(), (Text(message["content"]),), "scripted", "m", "end")
