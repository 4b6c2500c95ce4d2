"""What a run has used so far, and how it ends."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from attrs import define, field, frozen

from .items import UserMessage
from .llm.types import Usage
from .output import OutputType

Outcome: TypeAlias = Literal["finished", "paused", "limit_reached", "yielded", "cancelled"]


@frozen(kw_only=True)
class RunLimits:
    """What one run may use; None is no limit. `cost` is in US dollars."""

    requests: int | None = None
    tokens: int | None = None
    cost: float | None = None
    seconds: float | None = None


@define
class RunProgress:
    """What a run has used so far; it lives on when the run yields and is resumed."""

    started_s: float
    prompt: UserMessage | None = None
    output: OutputType | None = None
    repaired: bool = False
    """Whether the model was told once that its answer does not fit `output`."""
    calls_never_ran: bool = False
    """Whether the calls without results, if there are any, were never started."""
    requests: int = 0
    usage: Usage = field(factory=Usage)
    cost: float | None = None
    """In US dollars; None as long as no request's cost was known."""

    def successor(self, now_s: float) -> RunProgress:
        """Return the progress of a run that takes up the same task: it counts anew."""
        return RunProgress(now_s, output=self.output, repaired=self.repaired)

    def add(self, usage: Usage, cost: float | None = None) -> None:
        """Add one request's tokens, and its cost in US dollars, to the run's sums."""
        self.usage += usage
        if cost is not None:
            self.cost = (self.cost or 0.0) + cost

    def limit_reached(self, now_s: float, limits: RunLimits) -> str:
        """Return which of the limits is reached, in words, or nothing."""
        if limits.requests is not None and self.requests >= limits.requests:
            return f"{self.requests} requests, the limit of one run"

        used = (self.usage.input_tokens or 0) + (self.usage.output_tokens or 0)
        if limits.tokens is not None and used >= limits.tokens:
            return f"{used:,} tokens used, the limit of one run is {limits.tokens:,}"

        if limits.cost is not None and (self.cost or 0.0) >= limits.cost:
            return f"${self.cost:.4f} spent, the limit of one run is ${limits.cost:g}"

        passed = now_s - self.started_s
        if limits.seconds is not None and passed >= limits.seconds:
            return f"{passed:.0f} s passed, the limit of one run is {limits.seconds:g} s"

        return ""


@frozen
class RunEnd:
    """How a run ended; `yielded_for` and `overflow` say why it yielded."""

    outcome: Outcome
    text: str = ""
    output: Any = None
    message: str = ""
    yielded_for: str = ""
    overflow: Exception | None = None
