"""What a session's log amounts to: the values that a restore hands out."""

from __future__ import annotations

from typing import Any

from attrs import Factory, frozen

from worker.items import Item

from .chain import EntryRef


@frozen(kw_only=True)
class UsageRecord:
    """What the provider measured for one request."""

    history_len: int
    """How many items the history had when the request was made."""
    input_tokens: int
    """Occupancy: the whole prompt, cached parts included."""
    cache_read: int = 0
    cache_write: int = 0
    output_tokens: int = 0
    model: str = ""
    cost: float | None = None
    """In US dollars; None where no price is known."""


@frozen(kw_only=True)
class Totals:
    """What a session has used up, for its budgets. A fork goes on from its parent's."""

    requests: int = 0
    input_tokens: int = 0
    cache_read: int = 0
    cache_write: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    """In US dollars, of the requests whose price is known."""

    @property
    def tokens(self) -> int:
        """Tokens in, cached ones included, and tokens out."""
        return self.input_tokens + self.output_tokens


@frozen(kw_only=True)
class Approval:
    """A decision about a tool call, as it was made."""

    call_uid: str
    decision: str
    scope: str = ""
    by: str = ""


@frozen(kw_only=True)
class SessionState:
    """A session as its log says it is, up to `head`."""

    session_id: str
    head: EntryRef
    """The last entry that counted."""
    pod: str = ""
    """The pod's name."""
    system_prompt: str = ""
    config: dict[str, Any] = Factory(dict)
    title: str = ""
    """The first line of the first thing a person said."""
    created: int = 0
    """Milliseconds of Unix time, of the session's own first entry."""
    updated: int = 0
    """Milliseconds of Unix time, of the head."""

    history: list[Item] = Factory(list)
    watermark: int = 0
    """Items of the history before this index are sent without their content."""
    turns: int = 0
    """Turns that came to an end."""

    run_open: bool = False
    """Whether a run began that has no outcome."""
    interrupted: bool = False
    """Whether the last run has no outcome, or one that says so."""
    last_outcome: str | None = None

    usage: list[UsageRecord] = Factory(list)
    """Oldest first. A compaction begins a new series."""
    totals: Totals = Factory(Totals)
    approvals: list[Approval] = Factory(list)
    extensions: dict[str, list[Any]] = Factory(dict)
    """The payloads of each domain, oldest first."""

    generation: int = 0
    """How many compactions are behind the history."""
    fresh_compaction: bool = False
    """Whether the session began by compaction and nothing was measured since."""
    compaction_open: str | None = None
    """The trigger of a compaction that began in this log and did not fail in it."""
    consecutive_failures: int = 0
    """Compactions that failed in a row."""
    compaction_disabled: bool = False

    forked_from: tuple[str, str] | None = None
    """Parent's id and the hash of the entry forked at."""
    compacted_from: tuple[str, str] | None = None
    recovered_from: tuple[str, str] | None = None
    spawned_by: Any = None
    """What started the session for whom, as the one who did put it."""


@frozen(kw_only=True)
class VerifyReport:
    """What was found by going through a whole log: `ok`, or where and why not."""

    session_id: str
    ok: bool
    entries: int
    """How many entries verify, from the first."""
    first_bad_seq: int | None = None
    """The first entry that does not hold; of a log cut short, the last one there."""
    reason: str | None = None
    """What is wrong with it, as the end of a sentence that begins with `entry 7`."""
    head: EntryRef | None = None
    """The last entry that verifies."""
    torn_bytes: int = 0
    """Bytes of an unfinished last line. They are no damage: the next writer sets them aside."""


@frozen(kw_only=True)
class ForkPoint:
    """Where a fork is really made."""

    hash: str
    seq: int
    moved: bool
    """Whether it is earlier than what was asked for."""
    reason: str = ""
    """Why it was moved."""
