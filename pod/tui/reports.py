"""What a view says of a pod when it is asked: at the beginning, by `/status`, by `/cost`. Pure."""

from __future__ import annotations

from pod.status import PodStatus

from .state import Spent
from .text import counted
from .wording import tokens_in_and_out


def header(status: PodStatus) -> str:
    """Return the line that a conversation begins with."""
    parts = [status.name, f"{status.provider}/{status.model}"]
    if status.window is not None:
        parts.append(f"window {status.window:,}")

    if status.compact_threshold is not None:
        parts.append(f"compact at {status.compact_threshold:,}")

    return " · ".join([*parts, "/help"])


def status_lines(status: PodStatus) -> list[str]:
    """Return what `/status` says."""
    window = "not known" if status.window is None else f"{status.window:,} tokens"
    context = f"{status.occupancy:,} tokens ({status.occupancy_source})"
    history = f"{counted(status.history_len, 'item')}, {counted(status.turns, 'turn')}"
    lines = [
        f"session     {status.session_id}",
        f"model       {status.provider}/{status.model}",
        f"window      {window}",
        f"context     {context}, {history}",
        f"engine      {status.engine}",
        f"compaction  {_compaction(status)}",
    ]
    if status.watermark:
        lines.append(f"pruned      tool results before item {status.watermark}")

    return lines


def _compaction(status: PodStatus) -> str:
    if status.compaction_disabled:
        return f"off after {status.compaction_failures} failures in a row; /compact tries by hand"

    done = f"; {status.generation} so far" if status.generation else ""
    if status.compact_threshold is None:
        return f"by hand only (/compact){done}"

    return f"at {status.compact_threshold:,} tokens{done}"


def cost_lines(spent: Spent) -> list[str]:
    """Return what `/cost` says."""
    told = tokens_in_and_out(spent.tokens) or "how many tokens is not known"
    price = "no price is known for this model" if spent.cost is None else f"${spent.cost:.4f}"
    return [f"{counted(spent.requests, 'request')} · {told}", price]
