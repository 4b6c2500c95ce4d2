"""Where a history is cut in two: what is summarized, and the tail that stays as it is. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import frozen

from pod.compaction.plan import Sizes
from worker.items import (
    AssistantMessage,
    Item,
    ToolResult,
    UserMessage,
    is_turn_start,
)


@frozen
class Cut:
    """`items[:index]` is summarized, but for the user message at `keep`, which stays verbatim."""

    index: int
    keep: int | None = None

    def covered(self, items: Sequence[Item]) -> list[Item]:
        """Return what the summary will stand for."""
        covered = list(items[: self.index])
        if self.keep is not None:
            del covered[self.keep]

        return covered

    def retained(self, items: Sequence[Item]) -> list[Item]:
        """Return what stays, in order."""
        kept = [items[self.keep]] if self.keep is not None else []
        return [*kept, *items[self.index :]]

    def new_watermark(self, watermark: int) -> int:
        """Return the watermark among `[summary, *retained]`: what was sent pruned stays so."""
        if watermark <= self.index:
            return 0

        return 1 + (self.keep is not None) + watermark - self.index


def choose_cut(
    items: Sequence[Item],
    *,
    retained_turns: int,
    retained_tokens: int,
    threshold: int,
    weigh: Callable[[Item], float],
) -> Cut | None:
    """Return where to cut, or None where there is nothing to summarize.

    The tail is the last `retained_turns` turns. Where that leaves nothing to summarize, or the
    tail alone takes over half of `threshold`, the tail is instead what fits `retained_tokens`,
    at most half of `threshold`. Calls and results are never parted, and the newest real user
    message is kept, wherever it lies. `weigh` gives the tokens of an item as it is sent.
    """
    index = _to_pair_boundary(items, _cut_by_turns(items, retained_turns))
    tail = sum(map(weigh, items[index:]))
    if not _has_substance(items[:index]) or tail > threshold / 2:
        index = _cut_by_tokens(items, min(retained_tokens, threshold / 2), weigh)

    cut = Cut(index, _newest_user_before(items, index))
    return cut if _has_substance(cut.covered(items)) else None


def tail_threshold(threshold: int, sizes: Sizes, summary_tokens: int) -> int:
    """Return the threshold that the tail is measured by: half of it is the most that may stay.

    It is the real one, unless system prompt and tools leave less than that half beside a summary
    of the largest size: a tail that ends up over the threshold again would be of no use.
    """
    room = threshold - sizes.fixed - summary_tokens
    return max(0, min(threshold, 2 * room))


def _cut_by_turns(items: Sequence[Item], retained_turns: int) -> int:
    if retained_turns == 0:
        return len(items)

    seen = 0
    for index in range(len(items) - 1, -1, -1):
        if is_turn_start(items[index]):
            seen += 1
            if seen == retained_turns:
                return index

    return 0


def _cut_by_tokens(items: Sequence[Item], budget: float, weigh: Callable[[Item], float]) -> int:
    index, tokens = len(items), 0.0
    while index > 0:
        tokens += weigh(items[index - 1])
        if tokens > budget:
            break

        index -= 1

    return _to_pair_boundary(items, index)


def _to_pair_boundary(items: Sequence[Item], index: int) -> int:
    """Move a cut that would part a call from its result: forward, so that the tail stays small."""
    before = (n for n in range(index - 1, -1, -1) if isinstance(items[n], AssistantMessage))
    answer = next(before, None)
    return index if answer is None else max(index, _end_of_results(items, answer))


def _end_of_results(items: Sequence[Item], answer: int) -> int:
    """Return the index after the last result of an answer's calls; notes may stand in between.

    Results still to come belong to that answer too, and part nothing.
    """
    message, end = items[answer], answer + 1
    calls = message.tool_calls if isinstance(message, AssistantMessage) else ()
    waiting = {call.call_id for call in calls}
    for index in range(answer + 1, len(items)):
        item = items[index]
        if not waiting or isinstance(item, AssistantMessage):
            break

        if isinstance(item, ToolResult) and item.call_id in waiting:
            waiting.discard(item.call_id)
            end = index + 1

    return end


def _newest_user_before(items: Sequence[Item], index: int) -> int | None:
    """Return the index of the newest real user message if the cut leaves it behind."""
    for position in range(len(items) - 1, -1, -1):
        if is_turn_start(items[position]):
            return position if position < index else None

    return None


def _has_substance(items: Sequence[Item]) -> bool:
    """Tell whether there is something worth a summary: more than notes and an earlier summary."""
    return any(isinstance(item, AssistantMessage | UserMessage | ToolResult) for item in items)
