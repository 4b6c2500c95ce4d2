"""Events as lines for a person. Pure: an event in, text out."""

from __future__ import annotations

from collections.abc import Callable

from attrs import frozen

from pod import protocol
from pod.protocol import EventData, RunEnd
from worker.llm.types import Usage as MeasuredUsage

from .listing import counted

_MOST_FAILURES_SHOWN = 3
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
            told = f"{data.name} failed: " if data.is_error else f"{data.name}: "
            return f"  {told}{data.summary.removeprefix(told)}"
        case protocol.Retry(delay_s=0):
            return f"  {data.reason}"  # it says what is done at once
        case protocol.Retry():
            return f"  {data.reason}; trying again in {data.delay_s:.1f} s (try {data.attempt + 1})"
        case protocol.EngineNotice() | protocol.Alert():
            return data.message
        case protocol.Error():
            return f"{data.message}\n  {data.hint}" if data.hint else data.message
        case _:
            return None


def _compaction(data: EventData, scene: Scene) -> str | None:
    match data:
        case protocol.CompactionStart():
            return compacting(data, scene)
        case protocol.CompactionDone():
            return compacted(data)
        case protocol.CompactionFailed():
            return compaction_failed(data)
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
            return f"  request {data.request}: about {data.input_tokens:,} tokens"
        case protocol.Usage():
            told = tokens_in_and_out(data)
            return f"  {told}" if told else None
        case protocol.PruneApplied():
            results = counted(data.items, "tool result")
            return f"  pruned {results}: about {data.est_savings:,} tokens less in every request"
        case protocol.RunStart():
            return f"  session {data.session_id}"
        case _:
            return None


def compacting(start: protocol.CompactionStart, scene: Scene) -> str:
    """Return the line that says what a compaction is about to do."""
    what = counted(scene.turns(), "turn")
    if start.engine == "compressor":
        what += f", keeping the last {scene.retained_turns}"

    return f"compacting {start.input_tokens:,} tokens ({what}) ▸ summarizing …"


def compacted(done: protocol.CompactionDone) -> str:
    """Return the line that says what a compaction came to."""
    how = " by a digest, as the summarizer failed" if done.method == "digest" else ""
    return (
        f"compacted{how}: {done.tokens_before:,} → {done.tokens_after:,} tokens, "
        f"new session {done.new_session_id} from {done.old_session_id} (pod sessions tree)"
    )


def compaction_failed(failed: protocol.CompactionFailed) -> str:
    """Return the lines that say why a compaction failed and what comes next."""
    if failed.reason == "cancelled":
        return "compaction cancelled; the history is unchanged"

    if failed.reason == "interrupted":
        return f"the last compaction did not end: {failed.message}"

    if failed.reason == "floor":
        return floor(failed.message)

    count = failed.consecutive_failures
    lines = [f"compaction failed ({count} of {_MOST_FAILURES_SHOWN}): {failed.message}"]
    if failed.trigger == "manual":
        lines.append("  the history is unchanged")
    elif not failed.disabled:
        lines.append("  the history is unchanged and the run goes on; next try after the next run")
    elif count == _MOST_FAILURES_SHOWN:
        lines.append(
            f"compaction is off for this session after {count} failures in a row; /compact tries "
            "by hand, and success turns it on again"
        )
    else:
        lines.append("  the history is unchanged; compaction by itself stays off for this session")

    return "\n".join(lines)


def floor(message: str) -> str:
    """Return a floor's message in three lines: that it cannot be, what is so large, what helps."""
    what, _, parts = message.removesuffix(")").partition(" (")
    return f"{what}\n  {parts}\n  raise compact_threshold, or shorten the largest of these"


def closing(end: RunEnd, label: str, seconds: float) -> str:
    """Return the line under an answer: what it took."""
    parts = [label, counted(end.requests, "request")]
    if end.usage is not None and (told := tokens_in_and_out(end.usage)):
        parts.append(told)

    if end.cost is not None:
        parts.append(f"${end.cost:.4f}")

    return "  " + " · ".join([*parts, f"{seconds:.1f} s", f"session {end.session_id}"])


def tokens_in_and_out(usage: protocol.Usage | MeasuredUsage) -> str:
    """Return the sizes that a provider measured; empty where it measured none."""
    given, taken = usage.input_tokens, usage.output_tokens
    if given is None:
        return "" if taken is None else f"{counted(taken, 'token')} out"

    cached = f" ({usage.cache_read:,} cached)" if usage.cache_read else ""
    answer = "" if taken is None else f", {taken:,} out"
    return f"{counted(given, 'token')} in{cached}{answer}"
