"""`agent.conversation_loop`: how a host asks an engine around a request, as its tests call it."""

from __future__ import annotations

from pod.context.hermes.host_calls import apply_selection as _apply_context_engine_selection
from pod.context.hermes.host_calls import (
    notify_turn_complete as _notify_context_engine_turn_complete,
)

__all__ = ["_apply_context_engine_selection", "_notify_context_engine_turn_complete"]
