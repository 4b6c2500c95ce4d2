"""Where a pod stands, in numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from pod.protocol.events import State

if TYPE_CHECKING:
    from pod.core import PodCore


@frozen
class PodStatus:
    """Where a pod stands. Sizes are tokens; `occupancy_source` says how that number is known."""

    name: str
    state: State
    session_id: str
    provider: str
    model: str
    engine: str
    history_len: int
    turns: int
    watermark: int
    occupancy: int
    occupancy_source: str
    window: int | None
    compact_threshold: int | None
    request_threshold: int | None
    compaction_failures: int
    compaction_disabled: bool
    generation: int
    engine_status: dict[str, object]
    """What the engine last said of itself, at most a response old."""


def status_of(core: PodCore) -> PodStatus:
    """Return where the pod of these parts stands."""
    occupancy = core.worker.occupancy()
    return PodStatus(
        name=core.name,
        state=core.state,
        session_id=core.session.session_id,
        provider=core.worker.client.provider,
        model=core.worker.client.model,
        engine=core.host.name,
        history_len=len(core.worker.history),
        turns=core.worker.turns,
        watermark=core.worker.watermark,
        occupancy=occupancy.tokens,
        occupancy_source=occupancy.source,
        window=core.thresholds.window,
        compact_threshold=core.thresholds.compact,
        request_threshold=core.thresholds.request,
        compaction_failures=core.memory.failures,
        compaction_disabled=core.memory.disabled,
        generation=core.memory.generation,
        engine_status=core.host.status,
    )
