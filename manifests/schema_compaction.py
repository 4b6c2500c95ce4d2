"""`[compaction]` and `[context]`: when history is pruned or compacted, and by which engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import Field

from ._options import Options
from ._patterns import ENGINE_NAME
from ._section import MOST, Count, NonEmpty, Positive, Rule, Seconds, Section
from .schema_provider import ProviderSection

Fraction = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]


class CompactionSection(Section):
    """When the built-in compressor acts; sizes are in tokens.

    Manual compaction of a pod without this section uses `CompactionSection()`.
    """

    prune_protected_turns: Count = 3
    """The newest turns whose tool results are never pruned."""
    prune_min_savings: Count = 4096
    """Prune only when at least this much is saved at once."""
    compact_threshold: Positive | None = None
    """Compact when the prompt is larger than this after a run; absent: Prune only."""
    compact_retained_turns: Count = 2
    """The newest turns that are kept as they are."""
    prune_protected_tokens: Count | None = None
    """When set, the newest tokens are protected from pruning instead of the newest turns."""
    prune_policy: Literal["threshold", "break_even"] = "threshold"
    """`break_even` weighs the savings against the price of the broken prompt cache."""
    compact_request_threshold: Positive | None = None
    """Compact in the middle of a run when the next request would be larger than this; needs
    compact_threshold too."""
    compact_retained_tokens: Count = 8000
    """What is kept where whole turns are too large to keep."""
    compact_idle_seconds: Annotated[float, Field(ge=0, le=MOST, allow_inf_nan=False)] = 0
    """Compact after this long without input; 0: never."""
    model_thresholds: dict[NonEmpty, Fraction] = {}
    """Per model, a fraction of its window that replaces compact_threshold, for every engine. The
    longest key found in the model's name wins; "provider:part" narrows it."""
    provider: ProviderSection | None = None
    """Another model to write the summaries; default: the pod's own."""

    @classmethod
    def broken_rules(cls, given: Mapping[str, object]) -> Iterator[Rule]:
        """Yield thresholds that cannot work without another."""
        for_requests = given.get("compact_request_threshold") is not None
        if for_requests and given.get("compact_threshold") is None:
            yield "compact_request_threshold", "needs compact_threshold beside it"


class ContextSection(Section):
    """Which engine decides what is sent to the model."""

    engine: Annotated[str, Field(pattern=ENGINE_NAME, max_length=64)] = "compressor"
    """`compressor`, `lcm`, or the name of a plugin; naming it here is what activates it."""
    timeout_seconds: Seconds = 120
    """How long an engine's compress may go without a sign of life."""
    total_ceiling_seconds: Seconds = 600
    """How long it may take altogether; never less than `timeout_seconds`."""
    options: Options = {}
    """Handed to the engine: to its plugin's `register`, as keywords of its constructor, or as its
    attributes. What nobody takes is told; the built-in takes none."""
