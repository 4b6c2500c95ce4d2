"""The events' data. A model's name in snake_case is the event's name on the wire.

Fields that are None say "not known" and are left out on the wire. Readers ignore what they do not
know, so that fields can be added.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

State = Literal["idle", "running", "paused", "compacting"]
Trigger = Literal[
    "threshold", "request_threshold", "overflow", "manual", "engine", "model_switch", "idle"
]
Method = Literal["summary", "digest", "engine"]
Outcome = Literal["finished", "paused", "limit_reached", "yielded", "cancelled", "error"]


class EventData(BaseModel):
    """Base of every event's data: frozen, unknown fields ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)


class ErrorInfo(EventData):
    """What went wrong, in words for a person and a code for a program."""

    code: str
    """One word, such as `refused`, `unreachable`, `overflow`, `storage`, `thrash`."""
    message: str
    """What happened and why, on one line."""
    hint: str | None = None
    """What can be done."""


class RunStart(EventData):
    """A run began."""

    session_id: str
    input: str | None = None
    """The text submitted; None for a resumed run."""


class TurnStart(EventData):
    """A turn began: a real user message joined the history."""

    turn: int


class RequestStart(EventData):
    """A request goes to the model."""

    request: int
    """Counts from 1 within the run."""
    input_tokens: int
    """The expected size of its prompt."""


class TextDelta(EventData):
    """More visible text."""

    text: str


class TextDone(EventData):
    """The visible text of one answer, whole."""

    text: str


class ReasoningDelta(EventData):
    """More of the model's reasoning."""

    text: str


class ToolCallStart(EventData):
    """The model began a tool call."""

    call_id: str
    name: str


class ToolCallArgsDelta(EventData):
    """More of a call's arguments."""

    call_id: str
    text: str


class ToolCallDone(EventData):
    """A call is complete and in the log; `arguments` is the text as received."""

    call_id: str
    name: str
    arguments: str


class ToolResult(EventData):
    """A call's result, in the log."""

    call_id: str
    name: str
    summary: str
    content: str | None = None
    is_error: bool


class ApprovalRequest(EventData):
    """A tool call waits for somebody's decision."""

    call_id: str
    call_uid: str
    name: str
    arguments: str
    """The text as received."""
    reason: str | None = None
    """Why somebody is asked, if whoever wants it says."""
    timeout_s: float
    """After how many seconds it is denied."""


class ApprovalResolved(EventData):
    """A tool call waits no more."""

    call_id: str
    call_uid: str
    name: str
    decision: Literal["allow", "deny", "withdrawn"]
    """`withdrawn`: the run ended first."""
    scope: Literal["once", "session"] | None = None
    """`session`: the tool is not asked about again in this session."""
    by: str


class Usage(EventData):
    """What the provider measured for one request of the pod's own."""

    input_tokens: int | None = None
    """The whole prompt, the cached part included."""
    output_tokens: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    cost: float | None = None
    """US dollars."""
    model: str | None = None


class Retry(EventData):
    """A request failed before any content and will be repeated."""

    attempt: int
    delay_s: float
    reason: str


class PruneApplied(EventData):
    """Old tool results are sent as their summaries from now on."""

    upto_index: int
    """Results before this index of the history are sent without content."""
    items: int
    """How many results that newly concerns."""
    est_savings: int
    """Estimated tokens saved in every request."""
    reason: str


class CompactionStart(EventData):
    """A compaction began."""

    session_id: str
    trigger: Trigger
    engine: str
    input_tokens: int
    """The occupancy that triggered it."""
    threshold: int | None = None
    """The trigger's own threshold; None where an engine decided by itself."""
    focus: str | None = None
    message: str | None = None
    """What the engine wants said of it in place of the usual line; empty: nothing."""


class CompactionDone(EventData):
    """A compaction was committed: the pod continues in a new session."""

    old_session_id: str
    new_session_id: str
    compacted_from: tuple[str, str]
    """The old session's id and the hash of its head."""
    trigger: Trigger
    engine: str
    items_before: int
    items_after: int
    tokens_before: int
    """The whole prompt, by the same estimator as `tokens_after`."""
    tokens_after: int
    duration_ms: int
    usage: Usage | None = None
    """What the summarizer used, all its requests together."""
    generation: int
    """How many compactions lie behind the new session."""
    method: Method


class CompactionFailed(EventData):
    """A compaction failed; the history is unchanged."""

    session_id: str
    trigger: Trigger
    reason: str
    """One word, such as `floor`, `no_progress`, `refusal`, `timeout`, `cancelled`."""
    message: str
    consecutive_failures: int
    disabled: bool
    """Whether automatic compaction is off for this session now."""


class EngineNotice(EventData):
    """Something about the context engine that a person should know."""

    engine: str
    message: str


class SessionChanged(EventData):
    """The pod continues in another session."""

    old_session_id: str
    new_session_id: str
    reason: Literal["compaction", "new", "rewind", "head_mismatch"]
    """`head_mismatch`: the log was changed underneath, and the pod goes on in a fork."""


class Status(EventData):
    """What the pod is doing."""

    state: State


class Alert(EventData):
    """Something a person should know; the run goes on."""

    level: Literal["info", "warning", "error"]
    message: str


class TurnEnd(EventData):
    """A turn ended."""

    turn: int


class RunEnd(EventData):
    """A run ended."""

    outcome: Outcome
    session_id: str
    text: str | None = None
    """The last answer's visible text."""
    error: ErrorInfo | None = None
    message: str | None = None
    """Why, for outcomes other than `finished`."""
    requests: int = 0
    usage: Usage | None = None
    """All requests of the run together."""
    cost: float | None = None


class Error(EventData):
    """Something failed outside of any run."""

    code: str
    message: str
    hint: str | None = None


class Snapshot(EventData):
    """Where the pod stands, for a subscriber who cannot be given all he missed."""

    session_id: str
    state: State
    history_len: int
    occupancy: int


class Lagged(EventData):
    """The subscriber was too slow and is cut off here; it can subscribe again from `next_seq`."""

    next_seq: int
