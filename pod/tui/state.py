"""What a view has to know of a pod at one moment, as frozen values. Pure."""

from __future__ import annotations

from attrs import field, frozen

from pod import protocol
from pod.protocol.events import State
from worker.llm.types import Usage


@frozen
class Call:
    """A tool call without its result."""

    call_id: str
    name: str
    arguments: str = ""
    since_ms: int | None = 0
    """Since when it runs; None where that was before we came."""
    is_whole: bool = False
    """Whether its arguments have all come: then it runs, or waits for approval."""


@frozen
class Approval:
    """A call that somebody has to decide about."""

    call_id: str
    call_uid: str
    name: str
    arguments: str
    reason: str | None
    until_ms: int | None = None
    """When it is denied by itself; None where that is not known."""


@frozen
class Progress:
    """Something that takes a while, in words, and since when."""

    text: str
    since_ms: int


@frozen
class Spent:
    """What requests came to, as far as it was seen."""

    requests: int = 0
    tokens: Usage = field(factory=Usage)
    """What providers measured; None where none of them did."""
    cost: float | None = None
    """US dollars; None where no price is known."""

    def plus(self, requests: int, usage: protocol.Usage | None, cost: float | None) -> Spent:
        """Return the sum with requests that were made, and what is known of them."""
        tokens = self.tokens
        if usage is not None:
            tokens += Usage(usage.input_tokens, usage.output_tokens)

        total = self.cost if cost is None else (self.cost or 0.0) + cost
        return Spent(self.requests + requests, tokens, total)


@frozen
class Answering:
    """The answer that is coming."""

    text: str = ""
    """All of it so far."""
    open: str = ""
    """Its end, which is not finished Markdown yet."""
    thought: str = ""
    is_joined: bool = False
    """Whether it had begun before we came: what we have of it lacks the beginning."""


@frozen
class ViewState:
    """A pod as a view knows it. Times are milliseconds since 1970."""

    state: State = "idle"
    session_id: str = ""
    turns: int = 0
    retained_turns: int | None = None
    """How many turns a compaction keeps; None where that is not known."""
    answering: Answering = field(factory=Answering)
    calls: tuple[Call, ...] = ()
    approvals: tuple[Approval, ...] = ()
    asked_ms: int | None = None
    """Since when a request has been waiting for the first word of its answer."""
    run_ms: int | None = None
    """Since when a run has been going on."""
    retry: Progress | None = None
    compaction: Progress | None = None
    pruned_tokens: int = 0
    """About how much of the history is left out of requests."""
    spent: Spent = field(factory=Spent)
    run_cost: float | None = None
    """What the run that goes on has cost so far."""
    lost_ms: int | None = None
    """Since when the pod has not been reached; None while it is."""

    @property
    def is_busy(self) -> bool:
        """Whether a run or a compaction is going on."""
        return self.state in {"running", "compacting"} or self.compaction is not None

    @property
    def cost(self) -> float | None:
        """All that was seen to be spent, the present run's part included."""
        if self.run_cost is None:
            return self.spent.cost

        return (self.spent.cost or 0.0) + self.run_cost
