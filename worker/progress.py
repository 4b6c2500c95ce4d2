"""What a run has used so far, and how it ends."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from attrs import define, field, frozen

from .items import UserMessage
from .llm.types import Usage
from .output import OutputType

Outcome: TypeAlias = Literal["finished", "paused", "limit_reached", "yielded", "cancelled"]


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
    usage: Usage = field(factory=lambda: Usage(0, 0, 0, 0))

    def successor(self, now_s: float) -> RunProgress:
        """Return the progress of a run that takes up the same task: it counts anew."""
        return RunProgress(now_s, output=self.output, repaired=self.repaired)

    def add(self, usage: Usage) -> None:
        """Add one request's tokens to the run's sum."""
        self.usage += usage

    def limit_reached(
        self, now_s: float, *, requests: int | None, tokens: int | None, seconds: float | None
    ) -> str:
        """Return which of the limits is reached, in words, or nothing."""
        if requests is not None and self.requests >= requests:
            return f"{self.requests} requests, the limit of one run"

        used = (self.usage.input_tokens or 0) + (self.usage.output_tokens or 0)
        if tokens is not None and used >= tokens:
            return f"{used:,} tokens used, the limit of one run is {tokens:,}"

        passed = now_s - self.started_s
        if seconds is not None and passed >= seconds:
            return f"{passed:.0f} s passed, the limit of one run is {seconds:g} s"

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
