"""Prune: which old tool results stop being sent in full. Pure; neither history nor log is touched.

The result of pruning is a *watermark*, an index into the history: every tool result before it is
sent as its summary alone, from then on. It only ever moves forward.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import evolve, field, frozen
from attrs.validators import ge, optional

from .items import AssistantMessage, Item, ToolResult, is_turn_start
from .text import is_blank, utf8_len

BYTES_PER_TOKEN = 4
IMAGE_TOKENS = 1_600
PRUNED_SUMMARY = "(an old result, no longer shown)"
"""What is sent for a pruned result that has no summary."""


@frozen
class PruneConfig:
    """When to prune; `protected_tokens`, where set, takes the place of `protected_turns`."""

    protected_turns: int = field(default=3, validator=ge(0))
    min_savings: int = field(default=4_096, validator=ge(0))
    protected_tokens: int | None = field(default=None, validator=optional(ge(0)))


@frozen
class PrunePlan:
    """A prune that pays: the new watermark, the results newly covered, tokens saved a request."""

    watermark: int
    items: int
    est_savings: int


def plan_prune(
    items: Sequence[Item],
    config: PruneConfig,
    watermark: int = 0,
    *,
    weigh: Callable[[Item], float] | None = None,
) -> PrunePlan | None:
    """Return the prune that is due, or None.

    Savings are estimated as UTF-8 bytes of content // 4 and counted from `watermark` on: what is
    pruned already saves nothing new. Below `config.min_savings` nothing happens, so that the
    prompt's prefix, which providers cache, is not given up for little.

    Args:
        items: The whole history.
        config: When to prune.
        watermark: The watermark in force.
        weigh: Tokens of one item; needed only with `config.protected_tokens`.
    """
    boundary = prune_boundary(items, config, weigh=weigh)
    return plan_between(items, watermark, boundary, config.min_savings)


def plan_between(
    items: Sequence[Item], watermark: int, boundary: int, min_savings: int
) -> PrunePlan | None:
    """Return the plan for moving the watermark up to `boundary`, or None where it does not pay."""
    count = saved_bytes = images = 0
    for item in items[watermark:boundary]:
        if isinstance(item, ToolResult) and (item.content or item.attachments):
            count += 1
            images += len(item.attachments)
            if item.content:
                saved_bytes += utf8_len(item.content)

    savings = saved_bytes // BYTES_PER_TOKEN + images * IMAGE_TOKENS
    if not count or savings < min_savings:
        return None

    return PrunePlan(boundary, count, savings)


def prune_boundary(
    items: Sequence[Item], config: PruneConfig, *, weigh: Callable[[Item], float] | None = None
) -> int:
    """Return the index before which results may be pruned; 0 where everything is protected.

    Results that no request has held yet are protected whatever the config says: the model asked
    for them and has not seen them.
    """
    return min(_boundary(items, config, weigh), first_unseen(items))


def first_unseen(items: Sequence[Item]) -> int:
    """Return the index of the first result that no request has held: no later answer follows it."""
    for index in range(len(items) - 1, -1, -1):
        item = items[index]
        if isinstance(item, AssistantMessage):
            return index + 1 if item.tool_calls else len(items)

    return len(items)


def _boundary(
    items: Sequence[Item], config: PruneConfig, weigh: Callable[[Item], float] | None
) -> int:
    if config.protected_tokens is not None:
        if weigh is None:
            message = "protected_tokens needs weigh, the tokens of one item"
            raise ValueError(message)

        return _boundary_by_tokens(items, config.protected_tokens, weigh)

    return _boundary_by_turns(items, config.protected_turns)


def _boundary_by_turns(items: Sequence[Item], protected_turns: int) -> int:
    if protected_turns == 0:
        return len(items)

    boundary = seen = 0
    for index in range(len(items) - 1, -1, -1):
        if is_turn_start(items[index]):
            if seen == protected_turns:
                return boundary  # An older turn exists: what lies before the boundary may go.

            boundary, seen = index, seen + 1

    return 0


def _boundary_by_tokens(
    items: Sequence[Item], protected_tokens: int, weigh: Callable[[Item], float]
) -> int:
    tokens = 0.0
    for index in range(len(items) - 1, -1, -1):
        if tokens >= protected_tokens:
            return index + 1

        tokens += weigh(items[index])

    return 0


def apply_prune(items: Sequence[Item], watermark: int) -> list[Item]:
    """Return a new list in which every tool result before `watermark` has lost its detail.

    The items themselves are untouched; applying it again changes nothing.
    """
    pruned = [pruned_result(item) for item in items[:watermark]]
    pruned.extend(items[watermark:])
    return pruned


def pruned_result(item: Item) -> Item:
    """Return `item` as it is sent behind the watermark: a tool result keeps its summary alone."""
    if isinstance(item, ToolResult) and (item.content is not None or item.attachments):
        summary = PRUNED_SUMMARY if is_blank(item.summary) else item.summary
        return evolve(item, summary=summary, content=None, attachments=())

    return item
