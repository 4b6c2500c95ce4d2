"""Token accounting: how much of the window the prompt takes, from what providers measured.

There is no tokenizer here. The last measured request is the anchor; what was added since is
estimated from bytes, by a ratio that depends on the kind of text and is fitted to every
measurement. The starting ratios are low on purpose: undercounting is the worse error.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias

import orjson
from attrs import define, field, frozen

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
from .llm.types import ToolSpec
from .prune import IMAGE_TOKENS
from .text import utf8_len

DATA_BYTES_PER_TOKEN = 2.5
"""Tool results and JSON: measured medians are 3.4 and 2.3 for hashes and listings."""
PROSE_BYTES_PER_TOKEN = 3.5
OTHER_SCRIPTS_BYTES_PER_TOKEN = 3.0
"""Mostly non-ASCII text: CJK characters take three bytes and about one token each."""
MESSAGE_OVERHEAD_TOKENS = 5.0
"""Role markers and separators around one message."""
FIT_PRIOR_TOKENS = 1_000
"""How many tokens a measurement must have to weigh as much as the starting ratios do."""
FIT_BOUNDS = (0.2, 5.0)

Source: TypeAlias = Literal["measured", "interpolated", "guessed"]


@frozen
class Occupancy:
    """Tokens the whole prompt takes, and how that is known.

    `measured`: as the provider reported. `interpolated`: a measurement plus an estimate of what
    was added since. `guessed`: estimated alone, system prompt and tool schemas included.
    """

    tokens: int
    source: Source


def text_tokens(text: str) -> float:
    """Return the unfitted estimate for prose in any script; above 0 for any text."""
    if text.isascii():
        return len(text) / PROSE_BYTES_PER_TOKEN

    size = utf8_len(text)
    mostly_ascii = len(text) * 1.5 > size
    return size / (PROSE_BYTES_PER_TOKEN if mostly_ascii else OTHER_SCRIPTS_BYTES_PER_TOKEN)


def data_tokens(text: str) -> float:
    """Return the unfitted estimate for machine output: tool results, JSON, listings."""
    return utf8_len(text) / DATA_BYTES_PER_TOKEN


def item_tokens(item: Item, *, content_max_bytes: int | None = None) -> float:
    """Return the unfitted estimate for one item as it is sent; identity fields weigh nothing.

    `content_max_bytes` is the cap under which a tool result's content is sent.
    """
    tokens = MESSAGE_OVERHEAD_TOKENS
    match item:
        case ToolResult():
            tokens += data_tokens(item.summary) + len(item.attachments) * IMAGE_TOKENS
            if item.content:
                size = utf8_len(item.content)
                if content_max_bytes is not None:
                    size = min(size, content_max_bytes)
                tokens += size / DATA_BYTES_PER_TOKEN
        case AssistantMessage() | UserMessage():
            tokens += sum(_part_tokens(part) for part in item.parts)
        case SummaryMessage() | SystemNote():
            tokens += text_tokens(item.text)

    return tokens


def _part_tokens(part: Text | Image | Reasoning | ToolCall) -> float:
    match part:
        case Text():
            return text_tokens(part.text)
        case Image():
            return IMAGE_TOKENS
        case ToolCall():
            return MESSAGE_OVERHEAD_TOKENS + data_tokens(part.name) + data_tokens(part.arguments)
        case Reasoning():
            # Reasoning goes back to the provider only with its proof.
            proof = part.signature or part.blob
            return text_tokens(part.text) + data_tokens(proof) if proof else 0.0


def fixed_tokens(system_prompt: str, tools: Iterable[ToolSpec]) -> float:
    """Return the unfitted estimate for what every request carries: system prompt and tools."""
    tokens = text_tokens(system_prompt)
    return tokens + sum(tool_tokens(tool) for tool in tools)


def tool_tokens(tool: ToolSpec) -> float:
    """Return the unfitted estimate for one tool's schema."""
    schema = orjson.dumps(tool.parameters).decode()
    return MESSAGE_OVERHEAD_TOKENS + text_tokens(tool.description) + data_tokens(schema)


@define
class _Change:
    """What a prompt gained and lost since some request, unfitted."""

    added: float = 0.0
    removed: float = 0.0


@define
class TokenMeter:
    """Keeps the occupancy of one growing prompt, at a constant cost an item.

    All raw figures are unfitted estimates; `scale` is what the provider's measurements made of
    them. The Worker tells the meter of every item, prune and measurement.
    """

    content_max_bytes: int | None = None
    fixed_raw: float = 0.0
    items_raw: float = 0.0
    scale: float = 1.0
    _measured: int | None = field(default=None, init=False)
    _measured_raw: float = field(default=0.0, init=False)
    _sent_raw: float | None = field(default=None, init=False)
    # Since the last measured request, and since the last one that was sent: a request that fails
    # measures nothing, and what was added before it must still count.
    _since_measured: _Change = field(factory=_Change, init=False)
    _since_sent: _Change = field(factory=_Change, init=False)

    def weigh_raw(self, item: Item) -> float:
        """Return the unfitted tokens of one item."""
        return item_tokens(item, content_max_bytes=self.content_max_bytes)

    def weigh(self, item: Item) -> float:
        """Return the fitted tokens of one item."""
        return self.weigh_raw(item) * self.scale

    def estimate(self, items: Iterable[Item], *, fixed: bool = True) -> int:
        """Return the fitted tokens of a whole prompt of `items`, or of the items alone."""
        raw = sum(map(self.weigh_raw, items)) + (self.fixed_raw if fixed else 0.0)
        return round(raw * self.scale)

    def reset(self, projected: Sequence[Item]) -> None:
        """Start again from another history, as it would be sent. Measurements go, the fit stays."""
        self.items_raw = sum(map(self.weigh_raw, projected))
        self._measured = self._sent_raw = None
        self._since_measured, self._since_sent = _Change(), _Change()

    def restore(self, sent: Iterable[Item], now: Iterable[Item], input_tokens: int) -> None:
        """Take up an earlier measurement, of a request that held `sent`; next goes out `now`."""
        self.items_raw = sum(map(self.weigh_raw, sent))
        self.request_sent()
        self.measured(input_tokens)
        change = sum(map(self.weigh_raw, now)) - self.items_raw
        self._change(added=max(0.0, change), removed=max(0.0, -change))

    def add(self, item: Item) -> None:
        """Count an item that joined the history."""
        self._change(added=self.weigh_raw(item))

    def remove_raw(self, raw: float) -> None:
        """Count off what is no longer sent: pruned content."""
        self._change(removed=raw)

    def _change(self, *, added: float = 0.0, removed: float = 0.0) -> None:
        self.items_raw += added - removed
        for change in (self._since_measured, self._since_sent):
            change.added += added
            change.removed += removed

    def request_sent(self, raw: float | None = None) -> None:
        """Note that a request goes out now; `raw` where it is not the history as projected."""
        self._sent_raw = self.fixed_raw + self.items_raw if raw is None else raw
        self._since_sent = _Change()

    def measured(self, input_tokens: int) -> None:
        """Take the provider's count for the request that was sent last, and fit the ratio to it.

        A count of zero or less is a broken report and is ignored.
        """
        if input_tokens <= 0 or self._sent_raw is None:
            return

        fitted = (input_tokens + FIT_PRIOR_TOKENS) / (self._sent_raw + FIT_PRIOR_TOKENS)
        low, high = FIT_BOUNDS
        self.scale = min(high, max(low, fitted))
        self._measured, self._measured_raw = input_tokens, self._sent_raw
        self._since_measured = _Change(self._since_sent.added, self._since_sent.removed)

    def prompt_estimate(self) -> int:
        """Return what `estimate` does for the history as it stands, without going through it."""
        return round((self.fixed_raw + self.items_raw) * self.scale)

    def occupancy(self) -> Occupancy:
        """Return the tokens that the prompt would take now."""
        if self._measured is None:
            return Occupancy(self.prompt_estimate(), "guessed")

        change = self._since_measured
        if not change.added and not change.removed:
            return Occupancy(self._measured, "measured")

        # What was removed was part of what was measured, and takes its share of it along: the
        # ratio of this one prompt, not the fitted one, or little could come to less than nothing.
        left = max(0.0, 1 - change.removed / self._measured_raw) if self._measured_raw else 1.0
        tokens = self._measured * left + change.added * self.scale
        return Occupancy(round(tokens), "interpolated")
