"""`agent.usage_pricing`: what an answer took, and what that costs."""

from __future__ import annotations

from pod.context.hermes.usage import (
    CanonicalUsage,
    CostResult,
    estimate_usage_cost,
    normalize_usage,
)

__all__ = ["CanonicalUsage", "CostResult", "estimate_usage_cost", "normalize_usage"]
