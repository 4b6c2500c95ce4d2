"""A compaction as a value: what is asked for, what is planned, how it failed."""

from __future__ import annotations

from typing import Literal, TypeAlias

from attrs import field, frozen

from pod.protocol.events import Method, Trigger
from worker.items import Item
from worker.llm.types import Usage

FailureReason: TypeAlias = Literal[
    "floor",
    "no_progress",
    "empty",
    "missing_section",
    "refusal",
    "tool_markup",
    "error_text",
    "truncated",
    "provider_error",
    "engine_error",
    "invalid_result",
    "timeout",
    "busy",
    "storage",
    "cancelled",
    "interrupted",
]
NOT_COUNTED: frozenset[FailureReason] = frozenset({"floor", "cancelled", "interrupted"})
"""Reasons that say nothing against the summarizer: they do not count towards switching it off."""


class CompactionError(Exception):
    """A compaction did not come about; the history is unchanged."""

    def __init__(self, reason: FailureReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


@frozen
class CompactionRequest:
    """What an engine is asked to compact, and within which numbers. All sizes are tokens."""

    session_id: str
    head_hash: str
    items: tuple[Item, ...]
    watermark: int
    trigger: Trigger
    threshold: int
    """The size to come below; for manual, overflow and model switch as DESIGN has it."""
    occupancy: int
    generation: int
    focus: str | None = None
    would_overflow: bool = False
    """Whether the next request cannot be made as it is: then a digest is better than nothing."""
    memory_context: str = ""
    """What a memory provider has to say to a summary, sanitized; data, never an instruction."""


@frozen
class CompactionPlan:
    """The history that is to replace the first `base_len` items, and how it was come by."""

    history: tuple[Item, ...]
    base_len: int
    watermark: int
    """Index into `history` before which results stay without content, as they were sent."""
    method: Method
    generation: int
    usage: Usage | None = None
    model: str = ""
    prompt_digest: str = ""
    failure: CompactionError | None = field(default=None, eq=False)
    """Why the summarizer failed, where a digest took the summary's place."""


@frozen
class Sizes:
    """What a prompt is made of, in fitted tokens."""

    system: int
    tools: tuple[tuple[str, int], ...]
    newest_message: int

    @property
    def fixed(self) -> int:
        """What every request carries: system prompt and tools."""
        return self.system + sum(size for _, size in self.tools)

    @property
    def floor(self) -> int:
        """What no compaction can go below."""
        return self.fixed + self.newest_message

    def floor_problem(self, threshold: int) -> str:
        """Return what to say where the floor is over the threshold."""
        return (
            f"cannot compact below {threshold:,} tokens: "
            f"what must stay is {self.floor:,} ({self.describe()})"
        )

    def describe(self) -> str:
        """Return the parts, largest first, as one line."""
        parts = [("system prompt", self.system), ("newest message", self.newest_message)]
        if self.tools:
            largest = sorted(self.tools, key=lambda tool: -tool[1])
            named = ", ".join(f"{name} {size:,}" for name, size in largest[:3])
            total = sum(size for _, size in self.tools)
            parts.append((f"tools ({named})", total))

        parts.sort(key=lambda part: -part[1])
        return " · ".join(f"{name} {size:,}" for name, size in parts)
