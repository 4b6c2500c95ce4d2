"""Events of a made-up pod, short to write."""

from __future__ import annotations

from pod import protocol
from pod.protocol import EventData
from pod.status import PodStatus
from pod.tui.blocks import Block
from pod.tui.model import advance
from pod.tui.state import ViewState


def story(
    *events: EventData, state: ViewState | None = None, step_ms: int = 1_000
) -> tuple[ViewState, list[Block]]:
    """Return the state after the events, one a second, and all that scrolled by."""
    state, said = state or ViewState(), []
    for number, event in enumerate(events):
        step = advance(state, event, number * step_ms)
        state = step.state
        said += step.said

    return state, said


def run_start(text: str | None = "go") -> protocol.RunStart:
    return protocol.RunStart(session_id="s1", input=text)


def run_end(**fields: object) -> protocol.RunEnd:
    values = {"outcome": "finished", "session_id": "s1", **fields}
    return protocol.RunEnd.model_validate(values)


def text(piece: str) -> protocol.TextDelta:
    return protocol.TextDelta(text=piece)


def done(whole: str) -> protocol.TextDone:
    return protocol.TextDone(text=whole)


def called(call_id: str, name: str = "grep", arguments: str = "{}") -> protocol.ToolCallDone:
    return protocol.ToolCallDone(call_id=call_id, name=name, arguments=arguments)


def result(call_id: str, summary: str = "3 hits", **fields: object) -> protocol.ToolResult:
    values = {"call_id": call_id, "name": "grep", "summary": summary, "is_error": False, **fields}
    return protocol.ToolResult.model_validate(values)


def approval(uid: str, name: str = "bash", **fields: object) -> protocol.ApprovalRequest:
    values = {
        "call_id": f"c-{uid}",
        "call_uid": uid,
        "name": name,
        "arguments": '{"command": "ls"}',
        "timeout_s": 60,
        **fields,
    }
    return protocol.ApprovalRequest.model_validate(values)


def resolved(uid: str, decision: str = "allow", **fields: object) -> protocol.ApprovalResolved:
    values = {
        "call_id": f"c-{uid}",
        "call_uid": uid,
        "name": "bash",
        "decision": decision,
        "by": "ada",
        **fields,
    }
    return protocol.ApprovalResolved.model_validate(values)


def compaction_start(**fields: object) -> protocol.CompactionStart:
    values = {
        "session_id": "s1",
        "trigger": "threshold",
        "engine": "compressor",
        "input_tokens": 3_412,
        **fields,
    }
    return protocol.CompactionStart.model_validate(values)


def compaction_done(**fields: object) -> protocol.CompactionDone:
    values = {
        "old_session_id": "s1",
        "new_session_id": "s2",
        "compacted_from": ("s1", "h"),
        "trigger": "threshold",
        "engine": "compressor",
        "items_before": 12,
        "items_after": 5,
        "tokens_before": 3_412,
        "tokens_after": 1_120,
        "duration_ms": 4_200,
        "generation": 1,
        "method": "summary",
        **fields,
    }
    return protocol.CompactionDone.model_validate(values)


def status(occupancy: int, **changes: object) -> PodStatus:
    values: dict[str, object] = {
        "name": "p",
        "state": "idle",
        "session_id": "s",
        "provider": "p",
        "model": "m",
        "engine": "compressor",
        "history_len": 2,
        "turns": 1,
        "watermark": 0,
        "occupancy": occupancy,
        "occupancy_source": "measured",
        "window": 8_192,
        "compact_threshold": 3_000,
        "request_threshold": None,
        "compaction_failures": 0,
        "compaction_disabled": False,
        "generation": 0,
        "engine_status": {},
    }
    return PodStatus(**{**values, **changes})  # type: ignore[arg-type]  # values by name
