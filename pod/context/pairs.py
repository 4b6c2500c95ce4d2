"""Calls and results that an engine parted, in the messages that it returns. Pure.

Hermes leaves out what has lost its other half before each request, and engines written for it count
on that: many cut at a row's number, wherever a tool's results lie. Here it is left out once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from attrs import frozen

from worker.items import AssistantMessage, Item, ToolResult

from .engine import Message


@frozen
class Mended:
    """Messages whose calls and results belong together."""

    messages: list[object]
    results: int
    """How many results were left out, whose calls were not there any more."""
    calls: int
    """How many calls were left out, whose results were not there any more."""

    @property
    def told(self) -> str:
        """What to say of it; empty where nothing was left out."""
        if not self.results and not self.calls:
            return ""

        return (
            "compress parted calls from results; what lost its other half was left out "
            f"(results: {self.results}, calls: {self.calls})"
        )


def mended(messages: Sequence[object], given: Sequence[Item]) -> Mended:
    """Return `messages` without the halves of pairs that were whole among the items `given`.

    What is no message, and what had no other half before, stays as it is.
    """
    return _mended(messages, _whole(given))


def _mended(messages: Sequence[object], whole: Collection[str]) -> Mended:
    """Return `messages` without halves of the pairs that are `whole` somewhere."""
    answered, lost = _matched(messages)
    out: list[object] = []
    results = calls = 0
    for place, message in enumerate(messages):
        if place in lost and isinstance(message, dict) and message.get("tool_call_id") in whole:
            results += 1
            continue

        kept, dropped = _with_answered(message, answered.get(place, ()), whole)
        calls += dropped
        out += kept

    return Mended(out, results, calls)


def without_loose_ends(messages: Sequence[object]) -> list[object]:
    """Return `messages` without any call or result that lacks its other half."""
    ids = {
        call_id
        for message in messages
        if isinstance(message, dict)
        for call_id in (*_call_ids(message), message.get("tool_call_id"))
        if isinstance(call_id, str)
    }
    return _mended(messages, ids).messages


def _whole(given: Sequence[Item]) -> set[str]:
    """Return the ids of the calls that have their results."""
    called = {
        call.call_id
        for item in given
        if isinstance(item, AssistantMessage)
        for call in item.tool_calls
    }
    return called & {item.call_id for item in given if isinstance(item, ToolResult)}


def _matched(messages: Sequence[object]) -> tuple[dict[int, set[str]], set[int]]:
    """Return the answered call ids by the place of their message, and the places of lost results.

    A result belongs to the nearest message before it that has calls.
    """
    answered: dict[int, set[str]] = {}
    lost: set[int] = set()
    caller, open_ids = -1, set[str]()
    for place, message in enumerate(messages):
        row: Message = message if isinstance(message, dict) else {}
        role = row.get("role")
        if role == "assistant":
            caller, open_ids = place, set(_call_ids(message))
        elif role == "tool":
            call_id = row.get("tool_call_id")
            if call_id in open_ids:
                open_ids.discard(call_id)
                answered.setdefault(caller, set()).add(call_id)
            else:
                lost.add(place)
        elif role == "user":
            caller, open_ids = -1, set()

    return answered, lost


def _with_answered(
    message: object, answered: Collection[str], whole: Collection[str]
) -> tuple[list[object], int]:
    """Return a message without its unanswered calls, if anything is left, and how many it were."""
    if not isinstance(message, dict) or not _call_ids(message):
        return [message], 0

    calls = message["tool_calls"]
    kept = [call for call in calls if _id(call) in answered or _id(call) not in whole]
    if len(kept) == len(calls):
        return [message], 0

    rest: Message = {key: value for key, value in message.items() if key != "tool_calls"}
    if kept:
        rest["tool_calls"] = kept

    has_text = bool(rest.get("content"))
    return ([rest] if kept or has_text else []), len(calls) - len(kept)


def _call_ids(message: object) -> list[str]:
    calls = message.get("tool_calls") if isinstance(message, dict) else None
    ids = [_id(call) for call in calls] if isinstance(calls, list) else []
    return [call_id for call_id in ids if call_id is not None]


def _id(call: object) -> str | None:
    call_id = call.get("id") if isinstance(call, dict) else None
    return call_id if isinstance(call_id, str) else None
