"""Events in words: what a person reads of compactions, retries and sizes. Pure."""

from __future__ import annotations

from pod import protocol
from pod.compaction.state import MOST_FAILURES
from pod.context.discovery import BUILT_IN
from worker.llm.types import Usage as MeasuredUsage

from .text import counted

CONNECTION_LOST = "connection lost, reconnecting …"


def compacting(start: protocol.CompactionStart, turns: int, retained_turns: int | None) -> str:
    """Return the line that says what a compaction is about to do.

    `retained_turns` is how many the built-in compressor keeps; None where that is not known. An
    engine that has a line of its own says that.
    """
    if start.message:
        return start.message

    what = counted(turns, "turn")
    if start.engine == BUILT_IN and retained_turns is not None:
        what += f", keeping the last {retained_turns}"

    return under_way(start.input_tokens, what, start.engine)


def under_way(tokens: int, turns: str, engine: str) -> str:
    """Return the line that says that a compaction goes on, and what is done."""
    # Whether another engine asks a model for a summary is not known here.
    step = " ▸ summarizing" if engine == BUILT_IN else ""
    return f"compacting {tokens:,} tokens ({turns}){step} …"


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
    lines = [f"compaction failed ({count} of {MOST_FAILURES}): {failed.message}"]
    if failed.trigger == "manual":
        lines.append("  the history is unchanged")
    elif not failed.disabled:
        lines.append("  the history is unchanged and the run goes on; next try after the next run")
    elif count == MOST_FAILURES:
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


def retrying(retry: protocol.Retry) -> str:
    """Return why a request is repeated, and when."""
    if retry.delay_s == 0:
        return retry.reason  # it says what is done at once

    return f"{retry.reason}; trying again in {retry.delay_s:.1f} s (try {retry.attempt + 1})"


def with_hint(message: str, hint: str | None) -> str:
    """Return what went wrong, and below it what can be done."""
    return "\n".join([message, *(f"  {line}" for line in (hint or "").split("\n") if line)])


def tool_said(name: str, summary: str, *, is_error: bool) -> str:
    """Return a tool's name and what came of its call; some summaries begin with the name."""
    told = f"{name} failed: " if is_error else f"{name}: "
    return f"{told}{summary.removeprefix(told)}"


def pruned(event: protocol.PruneApplied) -> str:
    """Return what a prune leaves out."""
    results = counted(event.items, "tool result")
    return f"pruned {results}: about {event.est_savings:,} tokens less in every request"


def tokens_in_and_out(usage: protocol.Usage | MeasuredUsage) -> str:
    """Return the sizes that a provider measured; empty where it measured none."""
    given, taken = usage.input_tokens, usage.output_tokens
    if given is None:
        return "" if taken is None else f"{counted(taken, 'token')} out"

    cached = f" ({usage.cache_read:,} cached)" if usage.cache_read else ""
    answer = "" if taken is None else f", {taken:,} out"
    return f"{counted(given, 'token')} in{cached}{answer}"


def requesting(start: protocol.RequestStart) -> str:
    """Return which request is sent, and about how large it is."""
    return f"request {start.request}: about {start.input_tokens:,} tokens"


def taken(end: protocol.RunEnd) -> list[str]:
    """Return what a run took, as far as it is known: requests, tokens, cost."""
    tokens = "" if end.usage is None else tokens_in_and_out(end.usage)
    cost = "" if end.cost is None else f"${end.cost:.4f}"
    return [counted(end.requests, "request"), *filter(None, (tokens, cost))]


def seconds(passed_ms: int) -> str:
    """Return how long something took: `0.4 s`, `3:05 min`."""
    passed_ms = max(0, passed_ms)
    if passed_ms < 100_000:
        return f"{passed_ms / 1000:.1f} s"

    minutes, left = divmod(passed_ms // 1000, 60)
    return f"{minutes}:{left:02} min"
