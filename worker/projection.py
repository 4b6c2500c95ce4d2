"""From history to what one request holds: pruned, capped, paired. Derived every time, never stored.

The history may be anything that ever happened: calls without results after a crash, results whose
calls were compacted away, empty answers. What leaves here is what providers accept: every call is
followed by exactly one result, in call order, and nothing is empty. Work is done once an item.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import define, evolve, field

from worker.items import (
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
from worker.prune import pruned_result
from worker.text import cut_middle, is_blank

INTERRUPTED_SUMMARY = (
    "interrupted: no result was recorded for this call; it may or may not have run"
)


def interrupted_result(
    call: ToolCall, uid: str = "", summary: str = INTERRUPTED_SUMMARY
) -> ToolResult:
    """Return the error result that stands for a call whose own result never came."""
    return ToolResult(uid, call.call_id, call.call_uid, summary, None, is_error=True)


@define
class Repair:
    """A fold over items that pairs calls with results. Feed it in order; read `items()` any time.

    A result belongs to the nearest assistant message before it that names its call id, with no
    user message in between; anything else is an orphan and is left out.
    """

    done: list[Item] = field(factory=list)
    left_out: int = 0
    _open: AssistantMessage | None = None
    _results: dict[str, ToolResult] = field(factory=dict)

    def feed(self, item: Item) -> None:
        """Take the next item."""
        if isinstance(item, ToolResult):
            self._take_result(item)
            return

        self._close_group()
        sendable = _sendable(item)
        if sendable is None:
            self.left_out += 1
        elif isinstance(sendable, AssistantMessage) and sendable.tool_calls:
            self._open = sendable
        else:
            self.done.append(sendable)

    def items(self) -> list[Item]:
        """Return the repaired items so far; calls still open get an `interrupted` result."""
        return [*self.done, *self._group()]

    def _take_result(self, result: ToolResult) -> None:
        calls = self._open.tool_calls if self._open else ()
        if result.call_id in self._results or all(c.call_id != result.call_id for c in calls):
            self.left_out += 1
            return

        self._results[result.call_id] = result
        if len(self._results) == len({call.call_id for call in calls}):
            self._close_group()

    def _group(self) -> list[Item]:
        if self._open is None:
            return []

        results = {
            call.call_id: self._results.get(call.call_id) or interrupted_result(call)
            for call in self._open.tool_calls
        }
        return [self._open, *results.values()]

    def _close_group(self) -> None:
        self.done.extend(self._group())
        self._open = None
        self._results = {}


def repair(items: Sequence[Item]) -> list[Item]:
    """Return `items` with calls and results paired and nothing empty; see `Repair`."""
    fold = Repair()
    for item in items:
        fold.feed(item)

    return fold.items()


def _sendable(item: Item) -> Item | None:
    """Return the item without its empty parts, or None where nothing is left to send."""
    match item:
        case UserMessage():
            parts = tuple(part for part in item.parts if _has_substance(part))
            return item if parts == item.parts else evolve(item, parts=parts) if parts else None
        case AssistantMessage():
            kept = tuple(part for part in item.parts if _has_substance(part))
            if all(isinstance(part, Reasoning) for part in kept):
                return None  # Reasoning without what it led to is refused by its own provider.

            return item if kept == item.parts else evolve(item, parts=kept)
        case SummaryMessage() | SystemNote():
            return None if is_blank(item.text) else item
        case ToolResult():
            return item


def _has_substance(part: Text | Image | Reasoning | ToolCall) -> bool:
    return not (isinstance(part, Text) and is_blank(part.text))


@define
class Projector:
    """Projects one growing history again and again, looking at each item once.

    `content_max_bytes` caps what one tool result brings into a request; the full text stays in
    the history and the log.
    """

    content_max_bytes: int | None = None
    _repair: Repair = field(factory=Repair)
    _seen: int = 0
    _watermark: int = 0

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
            self._repair.feed(pruned_result(item) if index < watermark else self._capped(item))

        self._seen = len(history)
        return self._repair.items()

    def _capped(self, item: Item) -> Item:
        if self.content_max_bytes is None or not isinstance(item, ToolResult) or not item.content:
            return item

        content = cut_middle(
            item.content,
            self.content_max_bytes,
            note=f"; the session log holds all of it, uid {item.uid}",
        )
        return item if content is item.content else evolve(item, content=content)
