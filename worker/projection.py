"""From history to what one request holds: pruned, capped, paired. Derived every time, never stored.

The history may be anything that ever happened: calls without results after a crash, results whose
calls were compacted away, empty answers. What leaves here is what providers accept: every call is
followed by exactly one result, in call order, and nothing is empty. Work is done once an item.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from attrs import define, evolve, field

from .items import (
    AssistantMessage,
    Image,
    Item,
    Reasoning,
    SummaryMessage,
    SystemNote,
    Text,
    ToolCall,
    ToolResult,
    UserMessage,
)
from .prune import pruned_result
from .text import NO_OUTPUT, cut_middle, is_blank

INTERRUPTED_SUMMARY = (
    "interrupted: no result was recorded for this call; it may or may not have run"
)

AnswerPart: TypeAlias = Text | Reasoning | ToolCall
Part: TypeAlias = AnswerPart | Image


def interrupted_result(
    call: ToolCall, uid: str = "", summary: str = INTERRUPTED_SUMMARY
) -> ToolResult:
    """Return the error result that stands for a call whose own result never came."""
    return ToolResult(uid, call.call_id, call.call_uid, summary, None, is_error=True)


@define
class Repair:
    """A fold over items that pairs calls with results. Feed it in order; read `items()` any time.

    A result belongs to the nearest answer before it, where that names its call id; anything else
    is an orphan and is left out. What stands between a call and its result moves behind the
    results. Of calls that share an id within one answer, the first stays.
    """

    done: list[Item] = field(factory=list)
    left_out: int = 0
    _open: AssistantMessage | None = None
    _results: dict[str, ToolResult] = field(factory=dict)
    _waiting: list[Item] = field(factory=list)

    def feed(self, item: Item) -> None:
        """Take the next item."""
        if isinstance(item, ToolResult):
            self._take_result(item)
            return

        sendable = _sendable(item)
        if sendable is None:
            self.left_out += 1
            return

        if isinstance(sendable, AssistantMessage):
            self._close_group()
            if sendable.tool_calls:
                self._open = sendable
                return

        (self.done if self._open is None else self._waiting).append(sendable)

    def items(self) -> list[Item]:
        """Return the repaired items so far; calls still open get an `interrupted` result."""
        return [*self.done, *self._group()]

    def _take_result(self, result: ToolResult) -> None:
        calls = self._open.tool_calls if self._open else ()
        if result.call_id in self._results or all(c.call_id != result.call_id for c in calls):
            self.left_out += 1
            return

        self._results[result.call_id] = _never_empty(result)
        if len(self._results) == len(calls):
            self._close_group()

    def _group(self) -> list[Item]:
        if self._open is None:
            return []

        results = (
            self._results.get(call.call_id) or interrupted_result(call)
            for call in self._open.tool_calls
        )
        return [self._open, *results, *self._waiting]

    def _close_group(self) -> None:
        self.done.extend(self._group())
        self._open = None
        self._results = {}
        self._waiting = []


def repair(items: Sequence[Item]) -> list[Item]:
    """Return `items` with calls and results paired and nothing empty; see `Repair`."""
    fold = Repair()
    for item in items:
        fold.feed(item)

    return fold.items()


def _sendable(item: UserMessage | AssistantMessage | SummaryMessage | SystemNote) -> Item | None:
    """Return the item without its empty parts, or None where nothing is left to send."""
    match item:
        case UserMessage():
            said = tuple(part for part in item.parts if has_substance(part))
            if not said:
                return None

            return item if len(said) == len(item.parts) else evolve(item, parts=said)
        case AssistantMessage():
            kept = _first_of_each_call(part for part in item.parts if has_substance(part))
            if all(isinstance(part, Reasoning) for part in kept):
                return None  # Reasoning without what it led to is refused by its own provider.

            return item if len(kept) == len(item.parts) else evolve(item, parts=kept)
        case SummaryMessage() | SystemNote():
            return None if is_blank(item.text) else item


def has_substance(part: Part) -> bool:
    """Tell whether there is anything in a part: only text can be there and show nothing."""
    return not (isinstance(part, Text) and is_blank(part.text))


def _first_of_each_call(parts: Iterable[AnswerPart]) -> tuple[AnswerPart, ...]:
    seen: set[str] = set()
    kept: list[AnswerPart] = []
    for part in parts:
        if isinstance(part, ToolCall):
            if part.call_id in seen:
                continue

            seen.add(part.call_id)
        kept.append(part)

    return tuple(kept)


def _never_empty(result: ToolResult) -> ToolResult:
    if result.content or result.attachments or not is_blank(result.summary):
        return result

    return evolve(result, summary=NO_OUTPUT)


@define
class Projector:
    """Projects one growing history again and again, looking at each item once.

    `content_max_bytes` caps what one tool result brings into a request; the full text stays in
    the history and the log.
    """

    content_max_bytes: int | None = None
    _repair: Repair = field(factory=Repair, init=False)
    _seen: int = field(default=0, init=False)
    _watermark: int = field(default=0, init=False)

    def reset(self) -> None:
        """Forget what was seen: the history was replaced."""
        self._repair = Repair()
        self._seen = 0

    def project(self, history: Sequence[Item], watermark: int = 0) -> list[Item]:
        """Return the items of a request over `history`, pruned before `watermark`.

        `history` must extend the one of the last call, unless `reset` was called in between.
        """
        if watermark != self._watermark:
            self.reset()
            self._watermark = watermark

        for index in range(self._seen, len(history)):
            item = history[index]
            self._repair.feed(self._capped(pruned_result(item) if index < watermark else item))

        self._seen = len(history)
        return self._repair.items()

    def _capped(self, item: Item) -> Item:
        cap = self.content_max_bytes
        if cap is None or not isinstance(item, ToolResult):
            return item

        note = f"; the session log holds all of it, uid {item.uid}"
        summary = cut_middle(item.summary, cap, note=note)
        content = item.content and cut_middle(item.content, cap, note=note)
        if summary is item.summary and content is item.content:
            return item

        return evolve(item, summary=summary, content=content)
