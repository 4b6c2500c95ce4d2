"""What a Worker needs of the outside, as small protocols: a journal, an audience, an intake.

The Worker knows nothing of files, sessions or sockets. Whoever builds it hands these in.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, TypeVar

from attrs import field, frozen

from .hooks import Action, Continue, ToolCallView
from .items import Item
from .llm.types import (
    LlmClient,
    ReasoningDelta,
    Retrying,
    TextDelta,
    ToolCallArgsDelta,
    ToolCallDone,
    ToolCallStart,
    Usage,
)

if TYPE_CHECKING:
    from .worker import Worker

NOBODY_TO_ASK = "nobody is there to ask"
"""Why a call that somebody would have to allow does not run, where nobody is."""

ItemsKind: TypeAlias = Literal["user_input", "assistant_items", "tool_results", "system_item"]
Ref: TypeAlias = object
"""Whatever a journal names its entries by; the Worker only passes it on to the audience."""


@frozen
class ItemsRecord:
    """Items about to join the history."""

    kind: ItemsKind
    items: tuple[Item, ...]


@frozen
class UsageRecord:
    """What the provider measured for a request over the first `history_len` items."""

    history_len: int
    usage: Usage
    model: str
    cost: float | None = None
    """In US dollars, where it is known."""


@frozen
class PruneRecord:
    """The watermark moved to `upto_index`, the item there having `upto_uid`."""

    upto_index: int
    upto_uid: str
    items: int
    est_savings: int
    reason: str


@frozen
class TurnEndRecord:
    """A turn ended; `turn` counts from 1."""

    turn: int


Record: TypeAlias = ItemsRecord | UsageRecord | PruneRecord | TurnEndRecord


class Journal(Protocol):
    """Where everything is written before it is true."""

    async def commit(self, *records: Record) -> Sequence[Ref]:
        """Write the records, in order and together, and return once they are durable.

        Returns one ref a record. Raises what the store raises; then nothing counts as written.
        """


class MemoryJournal:
    """A journal that keeps nothing, for workers whose history nobody needs again."""

    async def commit(self, *records: Record) -> Sequence[Ref]:
        """Return a ref a record and forget them."""
        return [None] * len(records)


@frozen
class TurnStart:
    """A turn began."""

    turn: int


@frozen
class TurnEnd:
    """A turn ended."""

    turn: int


@frozen
class RequestStart:
    """A request goes out; `request` counts from 1 within the run."""

    request: int
    input_tokens: int


@frozen
class TextDone:
    """The visible text of one answer, whole."""

    text: str


@frozen
class ToolResulted:
    """A call's result, which is in the journal already."""

    call_id: str
    name: str
    summary: str
    content: str | None
    is_error: bool


@frozen
class UsageMeasured:
    """What the provider measured for one request; `cost` is in US dollars, where it is known."""

    usage: Usage
    model: str
    cost: float | None = None


@frozen
class PruneApplied:
    """Old tool results stopped being sent in full."""

    upto_index: int
    items: int
    est_savings: int
    reason: str


@frozen
class Alert:
    """Something a person should know; the run goes on."""

    level: Literal["info", "warning", "error"]
    message: str


WorkerEvent: TypeAlias = (
    TurnStart
    | TurnEnd
    | RequestStart
    | TextDelta
    | ReasoningDelta
    | ToolCallStart
    | ToolCallArgsDelta
    | ToolCallDone
    | TextDone
    | ToolResulted
    | UsageMeasured
    | PruneApplied
    | Retrying
    | Alert
)
Emit: TypeAlias = Callable[[WorkerEvent, Ref], None]


def ignore_event(_event: WorkerEvent, _ref: Ref) -> None:
    """Take an event and do nothing: the audience of a worker that nobody watches."""


@frozen
class Selection:
    """What is sent instead of the projection; `system` replaces the system prompt where given."""

    items: list[Item]
    system: str | None = None


class RequestStage:
    """A step of ours before each request; public hooks look on, this may change what is sent.

    Stages run after the hooks, in order: first every `before_request`, then every `select`.
    """

    async def before_request(self, worker: Worker) -> Action:
        """Decide before the projection is made; it may move the watermark.

        Answers as a `PreLlmRequest` hook does: `Continue`, `ContinueWith`, `Cancel` or `Yield`.
        """
        return Continue()

    async def select(self, worker: Worker, items: list[Item]) -> Selection | None:
        """Return what to send instead of the projection `items`, or None to leave it.

        `items` is a list of its own: changing it changes nothing. What is returned is repaired
        (calls and results paired) before it is sent.
        """
        return None


ItemT = TypeVar("ItemT", bound=Item)


class Intake(Protocol):
    """What every item passes before it is journaled: cleaning, masking. Returns the same type."""

    def __call__(self, item: ItemT, /) -> ItemT:
        """Return the item as it may be stored and sent."""


class Price(Protocol):
    """Tells what a request cost."""

    def __call__(self, usage: Usage, client: LlmClient, answered_by: str, /) -> float | None:
        """Return US dollars, or None where that is not known.

        `client` was asked; `answered_by` is the model that the answer names.
        """


@frozen
class Ruling:
    """What was decided of a call that somebody was asked about; `why` says why it may not run."""

    allowed: bool
    why: str = ""


class Approver(Protocol):
    """Asks a person whether a call may run."""

    async def __call__(self, call: ToolCallView, reason: str, /) -> Ruling:
        """Return what was decided, once it is on record. Raises what the journal raises.

        `reason` is why somebody is asked, in the words of the hook that wants it; it may be empty.
        """


async def nobody_to_ask(_call: ToolCallView, _reason: str, /) -> Ruling:
    """Refuse: the approver of a worker that nobody attends to."""
    return Ruling(allowed=False, why=NOBODY_TO_ASK)


def unpriced(_usage: Usage, _client: LlmClient, _answered_by: str, /) -> None:
    """Know no prices: every cost is None."""


def unchanged(item: ItemT, /) -> ItemT:
    """Return the item as it is: the intake that masks nothing."""
    return item


@frozen
class Ports:
    """The outside, handed to a Worker. `intake` sees every item before it is journaled.

    `clock` counts seconds, for the time limit of a run.
    """

    journal: Journal = field(factory=MemoryJournal)
    emit: Emit = ignore_event
    intake: Intake = unchanged
    price: Price = unpriced
    approve: Approver = nobody_to_ask
    stages: tuple[RequestStage, ...] = ()
    clock: Callable[[], float] = time.monotonic
