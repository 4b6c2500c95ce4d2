"""What makes a list of items a history, and where a history may be cut. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from worker.items import AssistantMessage, Item, ToolResult

from .chain import Entry, EntryRef
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


def safe_fork_point(entries: Iterable[Entry], at: EntryRef | None) -> ForkPoint:
    """Return the last entry up to `at` (None: all of them) after which no call lacks its result.

    `at` is one of the entries, and there is at least one.
    """
    calls = _OpenCalls()
    safe = last = EntryRef(-1, "")
    for entry in entries:
        last = entry.ref
        calls.take(entry.data)
        if not calls.any_open or last.seq == 0:
            safe = last

        if at is not None and last.hash == at.hash:
            break

    moved = safe != last
    reason = f"entry {last.seq} comes between a tool call and its result" if moved else ""
    return ForkPoint(hash=safe.hash, seq=safe.seq, moved=moved, reason=reason)


class _OpenCalls:
    """Which calls have no result yet, by the entries as they are stored."""

    def __init__(self) -> None:
        self._open: dict[str, str] = {}
        self._answered: set[str] = set()

    @property
    def any_open(self) -> bool:
        return bool(self._open)

    def take(self, data: dict[str, Any]) -> None:
        items = data.get("items")
        for item in items if isinstance(items, list) else ():  # a number in `prune_advanced`
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
