"""Events as lines for a person, around one run's answer. Pure: an event in, text out."""

from __future__ import annotations

from collections.abc import Callable

from attrs import frozen

from pod import protocol
from pod.protocol import EventData, RunEnd
from pod.tui import wording

_ARGUMENTS_SHOWN = 160


@frozen
class Scene:
    """What an event does not say itself: where it happens."""

    turns: Callable[[], int]
    """How many turns the history has now."""
    retained_turns: int
    """How many a compaction keeps."""
    is_verbose: bool = False


def note(data: EventData, scene: Scene) -> str | None:
    """Return what a person should read when this happens, or None for what need not be told."""
    told = _told(data) or _compaction(data, scene)
    return told or (_detail(data) if scene.is_verbose else None)


def _told(data: EventData) -> str | None:
    match data:
        case protocol.ToolResult():
            return f"  {wording.tool_said(data.name, data.summary, is_error=data.is_error)}"
        case protocol.Retry():
            return f"  {wording.retrying(data)}"
        case protocol.EngineNotice() | protocol.Alert():
            return data.message
        case protocol.Error():
            return wording.with_hint(data.message, data.hint)
        case _:
            return None


def _compaction(data: EventData, scene: Scene) -> str | None:
    match data:
        case protocol.CompactionStart(message=""):
            return None  # The engine wants nothing said of it.
        case protocol.CompactionStart():
            return wording.compacting(data, scene.turns(), scene.retained_turns)
        case protocol.CompactionDone():
            return wording.compacted(data)
        case protocol.CompactionFailed():
            return wording.compaction_failed(data)
        case _:
            return None


def _detail(data: EventData) -> str | None:
    match data:
        case protocol.ToolCallDone():
            arguments = data.arguments
            if len(arguments) > _ARGUMENTS_SHOWN:
                arguments = arguments[: _ARGUMENTS_SHOWN - 1] + "…"
            return f"  {data.name} {arguments}"
        case protocol.RequestStart():
            return f"  {wording.requesting(data)}"
        case protocol.Usage():
            told = wording.tokens_in_and_out(data)
            return f"  {told}" if told else None
        case protocol.PruneApplied():
            return f"  {wording.pruned(data)}"
        case protocol.RunStart():
            return f"  session {data.session_id}"
        case _:
            return None


def closing(end: RunEnd, label: str, seconds: float) -> str:
    """Return the line under an answer: what it took."""
    parts = [label, *wording.taken(end), f"{seconds:.1f} s", f"session {end.session_id}"]
    return "  " + " · ".join(parts)
