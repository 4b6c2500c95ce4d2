"""What the log and the event say of a compaction that is about to be committed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import asdict

from pod.compaction.plan import CompactionPlan
from pod.core import PodCore
from pod.protocol import Usage
from pod.protocol.events import Trigger
from worker.items import Item


def figures_of(
    core: PodCore,
    plan: CompactionPlan,
    history: Sequence[Item],
    *,
    trigger: Trigger,
    duration_s: float,
) -> dict[str, Any]:
    """Return what the log and the event say alike; `history` is the one that begins now."""
    return {
        "trigger": trigger,
        "engine": core.host.name,
        "items_before": len(core.worker.history),
        "items_after": len(history),
        "tokens_before": core.worker.meter.prompt_estimate(),
        "tokens_after": core.tokens_of(history, plan.watermark),
        "duration_ms": round(duration_s * 1000),
        "generation": plan.generation,
        "method": plan.method,
    }


def usage_of(core: PodCore, plan: CompactionPlan) -> Usage | None:
    """Return what the summary took, as the event tells it; None where no model was asked."""
    if plan.usage is None:
        return None

    return Usage(**asdict(plan.usage), model=plan.model or None, cost=_cost(core, plan))


def entry_of(core: PodCore, plan: CompactionPlan, *, in_run: bool) -> dict[str, Any]:
    """Return what the log alone says."""
    fields: dict[str, Any] = {
        "usage": asdict(plan.usage) if plan.usage else None,
        "cost": _cost(core, plan),
        "model": plan.model,
        "prompt_digest": plan.prompt_digest,
    }
    if in_run:
        fields["in_run"] = True

    if plan.failure is not None:
        failures, disabled = core.memory.after(plan.failure)
        fields |= {
            "reason": plan.failure.reason,
            "consecutive_failures": failures,
            "disabled": disabled,
        }

    return fields


def _cost(core: PodCore, plan: CompactionPlan) -> float | None:
    """Return what the summary cost, in US dollars, where that is known."""
    if plan.usage is None:
        return None

    return core.prices(plan.usage, core.summarizer.client(), plan.model)
