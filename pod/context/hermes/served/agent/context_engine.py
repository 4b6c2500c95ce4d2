"""`agent.context_engine`: the contract of context engines, under the name Hermes gives it."""

from __future__ import annotations

from pod.context.engine import (
    MEMORY_CONTEXT_MAX_CHARS,
    ContextEngine,
    automatic_compaction_status_message,
    sanitize_memory_context,
)
from pod.context.signature import (
    end_context_engine_session,
    start_context_engine_session,
    update_context_engine_model,
)

__all__ = [
    "MEMORY_CONTEXT_MAX_CHARS",
    "ContextEngine",
    "automatic_compaction_status_message",
    "end_context_engine_session",
    "sanitize_memory_context",
    "start_context_engine_session",
    "update_context_engine_model",
]
