"""What makes a list of items a history, and where a history may be cut. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from worker.items import AssistantMessage, Item, ToolResult

from .chain import Entry
from .errors import InvalidHistory
from .state import ForkPoint


def check_history(items: Sequence[Item]) -> None:
    """Return if each uid is there once, each result follows its call, and each call has a result.

    Raises:
        InvalidHistory: It is not so; the text names the first item that is wrong.
    """
    seen: set[str] = set()
    calls: dict[str, str] = {}
    answered: set[str] = set()
    for item in items:
        if item.uid in seen:
            raise InvalidHistory(f"two items have the uid {item.uid}")

        seen.add(item.uid)
        if isinstance(item, AssistantMessage):
            calls |= {call.call_uid: call.name for call in item.tool_calls}
        elif isinstance(item, ToolResult):
            if item.call_uid not in calls:
                raise InvalidHistory(f"result {item.uid} comes without a call before it")

            answered.add(item.call_uid)

    for call_uid, name in calls.items():
        if call_uid not in answered:
            raise InvalidHistory(f"call {call_uid} of the tool {name!r} has no result")


def safe_fork_point(entries: Iterable[Entry]) -> ForkPoint:
    """Return the last entry after which no call lacks its result.

    `entries` are the one at which a fork is wanted and those before it, the newest first; at least
    one. No more of them are taken than is needed to tell.
    """
    group = _newest_group(entries)
    calls = _OpenCalls()
    safe = group[-1].ref
    for entry in reversed(group[:-1]):
        calls.take(entry.data)
        safe = safe if calls.any_open else entry.ref

    asked = group[0].ref
    moved = safe != asked
    reason = f"entry {asked.seq} comes between a tool call and its result" if moved else ""
    return ForkPoint(hash=safe.hash, seq=safe.seq, moved=moved, reason=reason)


def _newest_group(entries: Iterable[Entry]) -> list[Entry]:
    """Return the newest answer and all after it, newest first; last an entry before the answer.

    A request is made only when every call before it has its result, so at that last entry none is
    open: it has the results that the answer was asked for with, or what a person said.
    """
    group: list[Entry] = []
    amended: set[str] = set()  # answers that were changed, and are further back
    answered = False
    for entry in entries:
        group.append(entry)
        items = _items_of(entry.data)
        answers = {item["uid"] for item in items if item.get("type") == "assistant_message"}
        if entry.seq == 0 or (answered and not amended and items and not answers):
            break

        change = entry.data.get("item") or {}
        amended |= {change["uid"]} if change.get("type") == "assistant_message" else set()
        amended -= answers
        answered = answered or bool(answers)

    return group


def _items_of(data: dict[str, Any]) -> list[dict[str, Any]]:
    items = data.get("items")
    return items if isinstance(items, list) else []  # a number in `prune_advanced`


class _OpenCalls:
    """Which calls have no result yet, by the entries as they are stored."""

    def __init__(self) -> None:
        self._open: dict[str, str] = {}
        self._answered: set[str] = set()

    @property
    def any_open(self) -> bool:
        return bool(self._open)

    def take(self, data: dict[str, Any]) -> None:
        for item in _items_of(data):
            self._take_item(item)

        amended = data.get("item")
        if amended and amended.get("type") == "assistant_message":
            # A message that lost a call when it was amended waits for that call no more.
            uid = amended.get("uid")
            self._open = {call: owner for call, owner in self._open.items() if owner != uid}
            self._take_item(amended)

    def _take_item(self, item: dict[str, Any]) -> None:
        if item.get("type") == "tool_result":
            self._answered.add(item["call_uid"])
            self._open.pop(item["call_uid"], None)
        elif item.get("type") == "assistant_message":
            for part in item["parts"]:
                if part["type"] == "tool_call" and part["call_uid"] not in self._answered:
                    self._open[part["call_uid"]] = item["uid"]
