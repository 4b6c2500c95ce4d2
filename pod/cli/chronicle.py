"""What a served pod prints of its life: a line for each run, compaction and complaint."""

from __future__ import annotations

import time
from collections.abc import Callable

from attrs import define

from pod.protocol import (
    Alert,
    ApprovalRequest,
    ApprovalResolved,
    CompactionDone,
    CompactionFailed,
    CompactionStart,
    EngineNotice,
    Envelope,
    Error,
    EventData,
    RunEnd,
    RunStart,
    SessionChanged,
)
from pod.tui.text import counted

from .listing import say


@define
class Chronicle:
    """Prints on stderr, with the time. What was said in a conversation is not in it."""

    name: str
    clock: Callable[[], float] = time.time

    def __call__(self, envelope: Envelope) -> None:
        """Print an event, where it is one to be told."""
        text = told(envelope.data)
        if text:
            self.say(text)

    def say(self, text: str) -> None:
        """Print a line."""
        now = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.clock()))
        say(f"{now} {text}", err=True)


def told(data: EventData) -> str:
    """Return an event in words; empty for those that only matter to whoever looks on."""
    match data:
        case RunStart():
            return f"run in session {data.session_id}"
        case RunEnd():
            why = data.error.message if data.error else data.message
            end = f"run ended: {data.outcome}, {counted(data.requests, 'request')}"
            return f"{end}: {why}" if why else end
        case CompactionStart() | CompactionDone() | CompactionFailed():
            return _compaction(data)
        case SessionChanged():
            return f"session {data.new_session_id} from {data.old_session_id} ({data.reason})"
        case ApprovalRequest():
            return f"{data.name} ({data.call_id}) waits for a decision, {data.timeout_s:g} s"
        case ApprovalResolved():
            return f"{data.name} ({data.call_id}): {data.decision} by {data.by}"
        case Alert():
            return f"{data.level}: {data.message}"
        case EngineNotice():
            return f"engine {data.engine}: {data.message}"
        case Error():
            return f"error: {data.message}"
        case _:
            return ""


def _compaction(data: CompactionStart | CompactionDone | CompactionFailed) -> str:
    match data:
        case CompactionStart():
            return f"compacting {data.input_tokens:,} tokens ({data.trigger}, {data.engine})"
        case CompactionDone():
            seconds = data.duration_ms / 1000
            size = f"{data.tokens_before:,} to {data.tokens_after:,} tokens"
            return f"compacted: {size}, {seconds:.1f} s, {data.method}"
        case CompactionFailed():
            return f"compaction failed ({data.reason}): {data.message}"
