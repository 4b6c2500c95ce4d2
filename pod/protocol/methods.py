"""The methods: what each takes and what it answers, as models, by name.

A request is `{"id"?, "method", "params"?}`; its answer `{"id", "ok": …}`, where `…` is the answer's
model, or `{"id", "error": {code, message, hint?}}`. Parameters that a method does not have are
refused; fields of an answer that a reader does not know are for newer ones.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self, TypeAlias

from attrs import frozen
from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_serializer

from pod.protocol.events import ApprovalRequest, CompactionDone, State

HISTORY_PAGE = 200
"""How many items `get_history` gives where no `limit` is named."""
HISTORY_LIMIT = 1_000
"""The most items of one page."""
MAX_PATTERNS = 64
"""How many names and patterns of events a subscriber may give."""

Word: TypeAlias = Annotated[str, Field(max_length=100)]
"""A name, or something else that is short."""
Words: TypeAlias = Annotated[str, Field(max_length=65_536)]
"""A text that people write, other than a prompt. What is kept while it waits is bounded by it."""


class Params(BaseModel):
    """Base of every method's parameters: frozen, unknown ones refused, nothing converted."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True
    )


class Answer(BaseModel):
    """Base of every method's answer: frozen, with room for fields of newer versions."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)


class NoParams(Params):
    """Takes no parameters."""


class Done(Answer):
    """It was done; there is nothing else to say."""


class ImageParam(Params):
    """An image that goes with a prompt."""

    media_type: Word
    """Such as `image/png`."""
    data: str
    """The bytes, in base64."""


class RunParams(Params):
    """Run a prompt. Input that comes while history is compacted waits for the end of that."""

    input: str
    """The prompt."""
    images: Annotated[tuple[ImageParam, ...], Field(strict=False)] = ()
    """Images that go with it."""
    uid: Annotated[str, Field(pattern="^[0-9a-f]{32}$")] | None = None
    """The message's uid. Sent again with the same one, as after a lost connection, the prompt is
    run once: the answer is that of the first time."""
    output_schema: dict[str, JsonValue] | None = None
    """A JSON Schema: the answer's text is to be JSON that fits. That it is JSON is seen to."""


class Accepted(Answer):
    """The run is accepted; how it goes is told by events, up to `run_end`."""

    accepted: Literal[True] = True
    session_id: str
    """The session that the pod is on now; a compaction may come first."""
    seq: int
    """The last event before the run: `run_start` has a greater one."""


class CompactParams(Params):
    """Compact the history now, whatever its size; answered when that is done."""

    focus: Words | None = None
    """What the summary should keep most of."""


class CompactAnswer(Answer):
    """How the compaction ended."""

    done: CompactionDone | None = None
    """As the event `compaction_done`; null where there was nothing to cut."""

    @field_serializer("done")
    def _as_event(self, done: CompactionDone | None) -> dict[str, object] | None:
        return done.model_dump(exclude_none=True) if done is not None else None


class ForkParams(Params):
    """Make a new session that begins as this one is, or was at an entry; nothing else changes."""

    at: Word | None = None
    """An entry's hash, or its first 8 or more digits; default: the head."""


class RewindParams(Params):
    """Go on in a new session that begins as the history was at an entry."""

    to: Word
    """An entry's hash, or its first 8 or more digits."""


class SessionAnswer(Answer):
    """A session's id: the one that was made, or that the pod is on now."""

    session_id: str


class HistoryParams(Params):
    """Read items of the history, a page at a time; also of a session that the pod has left."""

    session_id: Word | None = None
    """Default: the session that the pod is on."""
    start: int = 0
    """The index of the first item wanted; negative ones count from the end."""
    limit: Annotated[int, Field(ge=1, le=HISTORY_LIMIT)] = HISTORY_PAGE
    """The most items to give. A page is shorter where its items are large."""


class HistoryAnswer(Answer):
    """A page of the history."""

    session_id: str
    items: tuple[dict[str, JsonValue], ...]
    """As in the session's log: each has a `type` and a `uid`."""
    start: int
    """The index of the first item given."""
    total: int
    """How many items the history has."""
    next: int | None = None
    """The `start` of the page after this one; null after the last."""
    seq: int
    """The last event before the page was made."""


class WaitingCall(Answer):
    """A tool call that waits for a decision."""

    call_id: str
    call_uid: str
    name: str
    arguments: str
    """The text as received."""
    reason: str | None = None
    """Why somebody is asked, if whoever wants it says."""
    until_ms: int | None = None
    """When it is denied by itself, in milliseconds since 1970, UTC."""

    @classmethod
    def of(cls, request: ApprovalRequest, asked_ms: int) -> Self:
        """Return a call as it waits that was asked about at `asked_ms`, since 1970."""
        fields = request.model_dump(exclude={"timeout_s"})
        return cls(**fields, until_ms=asked_ms + int(request.timeout_s * 1000))


class StatusAnswer(Answer):
    """Where the pod stands. Sizes are tokens."""

    model_config = ConfigDict(frozen=True, extra="allow", use_attribute_docstrings=True)

    name: str
    state: State
    session_id: str
    provider: str
    model: str
    engine: str
    history_len: int
    turns: int
    watermark: int
    """Items before this index are sent without content."""
    occupancy: int
    """Tokens that the whole prompt takes."""
    occupancy_source: str
    """How that is known: `measured`, `interpolated` or `guessed`."""
    window: int | None = None
    compact_threshold: int | None = None
    request_threshold: int | None = None
    compaction_failures: int = 0
    compaction_disabled: bool = False
    generation: int = 0
    """How many compactions are behind the history."""
    engine_status: dict[str, JsonValue] = Field(default_factory=dict)
    """What the engine says of itself."""
    launch: str
    seq: int
    """The last event of this launch."""
    pid: int
    since_ms: int
    """When the pod was launched, in milliseconds since 1970, UTC."""
    manifest: str
    approvals: tuple[WaitingCall, ...] = ()
    """The tool calls that wait for a decision, oldest first."""
    subscribers: int = 0
    """How many connections are subscribed now."""

    @field_serializer("approvals")
    def _without_nulls(self, calls: tuple[WaitingCall, ...]) -> list[dict[str, object]]:
        return [call.model_dump(exclude_none=True) for call in calls]


class SubscribeParams(Params):
    """Have events sent on this connection, from now on or from one that was published before."""

    from_seq: Annotated[int, Field(ge=1)] | None = None
    """The first event wanted, inclusive; default: those from now on."""
    launch: Word | None = None
    """The launch that `from_seq` is of; default: the present one."""
    events: Annotated[tuple[Word, ...], Field(max_length=MAX_PATTERNS, strict=False)] | None = None
    """Names, or patterns such as `compaction_*`; default: all. What is not wanted is not held."""
    observe: bool = False
    """Only watch: the subscriber does not count as somebody who could answer an approval."""


Replay = Literal["none", "memory", "log", "snapshot"]


class SubscribeAnswer(Answer):
    """From where the events come. They follow this answer on the same connection."""

    launch: str
    """The present launch."""
    seq: int
    """The last event published before the answer."""
    replay: Replay = "none"
    """What comes before the live events: nothing; what is held in memory, whole; durable events
    reconstructed from the log; or a `snapshot`, for there is no way to tell what was missed."""
    reason: Literal["too_old", "other_launch"] | None = None
    """Why not everything that was published is replayed: it is no longer held, or it belongs to
    an earlier launch."""


class UnsubscribeAnswer(Answer):
    """The subscription has ended."""

    launch: str
    """The launch that `next_seq` is of: an earlier one while that is still being told."""
    next_seq: int
    """The first event that was not sent."""


class ApproveParams(Params):
    """Decide about a tool call that waits."""

    call_id: Annotated[str, Field(max_length=1_000)]
    """The call's `call_uid`, which names that call alone, or its `call_id`, which a model may use
    again: where several calls of that id wait, it is refused."""
    decision: Literal["allow", "deny"]
    scope: Literal["once", "session"] = "once"
    """Whether that holds for this call, or for all of the same tool in this session."""
    by: Word = ""
    """Who decided, as it is logged; default: the user and process at the other end."""


class CommandsAnswer(Answer):
    """The slash commands of the context engine."""

    commands: dict[str, str]
    """By name, without the slash: what each does."""
    hints: dict[str, str] = {}
    """By name: how its arguments are written, of those that say so."""


class CommandParams(Params):
    """Run a slash command of the context engine."""

    name: Word
    args: Words = ""


class TextAnswer(Answer):
    """What it had to say."""

    text: str


class ShutdownParams(Params):
    """End the pod: what runs is cancelled, subscribers get the rest, all connections close."""

    wait: bool = False
    """Let the run and the compaction that are going on come to their end first."""


class PingAnswer(Answer):
    """The pod is there."""

    launch: str
    seq: int
    """The last event of this launch."""
    ts: int
    """Milliseconds since 1970, UTC."""


@frozen
class Method:
    """What a method takes and what it answers."""

    params: type[Params]
    answer: type[Answer]
    summary: str


METHODS: dict[str, Method] = {
    "run": Method(RunParams, Accepted, "Run a prompt; answered when it is accepted."),
    "resume": Method(
        NoParams, Accepted, "Go on with a run that stopped; answered when it is accepted."
    ),
    "cancel": Method(NoParams, Done, "Stop the run or the compaction that is going on."),
    "pause": Method(NoParams, Done, "Stop the run before its next request."),
    "new": Method(NoParams, SessionAnswer, "Begin a fresh session."),
    "compact": Method(CompactParams, CompactAnswer, "Compact the history now."),
    "fork": Method(ForkParams, SessionAnswer, "Make a copy of the session, to be run by itself."),
    "rewind": Method(RewindParams, SessionAnswer, "Go back to an entry, in a new session."),
    "get_history": Method(HistoryParams, HistoryAnswer, "Read the history, a page at a time."),
    "status": Method(NoParams, StatusAnswer, "Tell where the pod stands."),
    "subscribe": Method(SubscribeParams, SubscribeAnswer, "Have events sent on this connection."),
    "unsubscribe": Method(NoParams, UnsubscribeAnswer, "Have no more events sent."),
    "approve": Method(ApproveParams, Done, "Allow or deny a tool call that waits."),
    "engine_commands": Method(
        NoParams, CommandsAnswer, "List the context engine's own slash commands."
    ),
    "engine_command": Method(CommandParams, TextAnswer, "Run one of them."),
    "idle": Method(NoParams, Done, "Answered when no run and no compaction is going on."),
    "ping": Method(NoParams, PingAnswer, "Tell that the pod is there."),
    "shutdown": Method(ShutdownParams, Done, "End the pod."),
}
"""Every method, by its name on the wire."""
