"""Items out of an engine's rows: new versions of known ones, and those it made itself. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from attrs import evolve, frozen

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
)
from worker.text import SUMMARY_LABEL
from worker.tools import render_output

from .rows import Row, RowCall, wire_text

NOTE_KIND = "engine"


@frozen
class Makings:
    """What is known beside a row when its item is made."""

    mint: Callable[[Row], str]
    """Gives an identity to what has none."""
    origin: Literal["user", "injected"]
    """Who is taken to have said what is new."""
    by_uid: Mapping[str, Item]
    call_uids: Mapping[str, str]
    """The identity of each call that was ever named, by its id."""

    def item(self, row: Row, known: Item | None, open_calls: Mapping[str, str]) -> Item:
        """Return the item for `row`, which changed `known`, or is new where that is None.

        `open_calls` are the calls that a result at this place may belong to.
        """
        uid = (known.uid if known else row.uid) or self.mint(row)
        match row.role:
            case "system":
                return SystemNote(uid, row.text, NOTE_KIND)
            case "user":
                return self._said(row, known, uid)
            case "assistant":
                answer = known if isinstance(known, AssistantMessage) else None
                return self._answer(row, answer, uid)
            case "tool":
                result = known if isinstance(known, ToolResult) else None
                return _result(row, result, uid, open_calls)

    def _said(self, row: Row, known: Item | None, uid: str) -> Item:
        match known:
            case UserMessage():
                origin = self._origin(row, known.origin)
                absorbed = self._absorbed(row, known)
                return evolve(known, parts=row.parts, origin=origin, absorbed_uids=absorbed)
            case SummaryMessage():
                text = _unlabelled(row.text, wire_text(known), known.text)
                return evolve(known, text=text, absorbed_uids=self._absorbed(row, known))
            case SystemNote():
                return evolve(known, text=_unlabelled(row.text, wire_text(known), known.text))
            case _ if row.is_summary:
                text = row.text.removeprefix(SUMMARY_LABEL).lstrip("\n")
                return SummaryMessage(uid, text, None, 0, self._absorbed(row, None))
            case _:
                origin = self._origin(row, self.origin)
                return UserMessage(uid, row.parts, origin, self._absorbed(row, None))

    def _absorbed(self, row: Row, known: Item | None) -> tuple[str, ...]:
        return absorbed_by(row, known, self.by_uid)

    def _origin(self, row: Row, own: Literal["user", "injected"]) -> Literal["user", "injected"]:
        # What a person said stays said by a person, whichever message it was merged into.
        merged = (self.by_uid.get(uid) for uid in row.absorbed)
        has_person = any(isinstance(item, UserMessage) and item.origin == "user" for item in merged)
        return "user" if has_person else own

    def _answer(self, row: Row, known: AssistantMessage | None, uid: str) -> AssistantMessage:
        text = (Text(row.text),) if row.text else ()
        if known is not None and row.calls and row.calls == _calls_of(known):
            # Reasoning belongs to the calls it led to: some providers refuse one without the other.
            return evolve(
                known, parts=_with_text(known, row.text), absorbed_uids=self._absorbed(row, known)
            )

        parts = (*text, *self._calls(row, known))
        if known is not None:
            return evolve(known, parts=parts, absorbed_uids=self._absorbed(row, known))

        stop_reason = "tool_calls" if row.calls else "end"
        return AssistantMessage(uid, parts, "", "", stop_reason, self._absorbed(row, None))

    def _calls(self, row: Row, known: AssistantMessage | None) -> list[ToolCall]:
        own = {call.call_id: call.call_uid for call in known.tool_calls} if known else {}
        given: dict[str, str] = {}
        calls = []
        for place, call in enumerate(row.calls):
            uid = (
                _named_uid(row, place)
                or own.get(call.call_id)
                or given.get(call.call_id)
                or self.call_uids.get(call.call_id)
                or self.mint(row)
            )
            given[call.call_id] = uid
            calls.append(ToolCall(call.call_id, call.name, call.arguments, uid))

        return calls


def absorbed_by(row: Row, known: Item | None, by_uid: Mapping[str, Item]) -> tuple[str, ...]:
    """Return the identities that went into `row`: those it names, then those known before.

    What one of them had absorbed itself follows it; the row's own is never among them.
    """
    uids = [part for uid in row.absorbed for part in (uid, *_absorbed(by_uid.get(uid)))]
    own = known.uid if known is not None else row.uid
    return tuple(uid for uid in dict.fromkeys((*uids, *_absorbed(known))) if uid != own)


def _absorbed(item: Item | None) -> tuple[str, ...]:
    return getattr(item, "absorbed_uids", ())


def _named_uid(row: Row, place: int) -> str | None:
    if isinstance(row.call_uids, tuple):
        return row.call_uids[place] if place < len(row.call_uids) else None

    return row.call_uids.get(row.calls[place].call_id)


def _calls_of(item: AssistantMessage) -> tuple[RowCall, ...]:
    return tuple(RowCall(call.call_id, call.name, call.arguments) for call in item.tool_calls)


def _with_text(item: AssistantMessage, text: str) -> tuple[Text | Reasoning | ToolCall, ...]:
    """Return the parts of `item` with `text` as its one text, where the first one was."""
    kept = [part for part in item.parts if not isinstance(part, Text)]
    first = next((n for n, part in enumerate(item.parts) if isinstance(part, Text | ToolCall)), 0)
    return (*kept[:first], *((Text(text),) if text else ()), *kept[first:])


def _result(
    row: Row, known: ToolResult | None, uid: str, open_calls: Mapping[str, str]
) -> ToolResult:
    call_uid = row.call_uid or (known.call_uid if known else "") or open_calls.get(row.call_id, "")
    if known is not None and known.summary:
        summary = known.summary
        if row.text == summary:
            return evolve(known, call_id=row.call_id, content=None, attachments=())
        if row.text.startswith(f"{summary}\n"):
            content = row.text[len(summary) + 1 :] or None
            return evolve(known, call_id=row.call_id, content=content)

    output = render_output(row.text)
    is_error = known.is_error if known else False
    return ToolResult(uid, row.call_id, call_uid, output.summary, output.content, is_error)


def _unlabelled(text: str, labelled: str, plain: str) -> str:
    """Return `text` without the label that `plain` is sent under as `labelled`."""
    return text.removeprefix(labelled[: len(labelled) - len(plain)])
