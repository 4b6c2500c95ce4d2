"""`agent.memory_provider`: the contract of memory providers, under the name Hermes gives it."""

from __future__ import annotations

from pod.memory.provider import (
    INDICATOR_GLYPH,
    PRE_COMPRESS_CHECKPOINT_API_VERSION,
    MemoryProvider,
    RecallStatus,
    is_trivial_prompt,
)

__all__ = [
    "INDICATOR_GLYPH",
    "PRE_COMPRESS_CHECKPOINT_API_VERSION",
    "MemoryProvider",
    "RecallStatus",
    "is_trivial_prompt",
]
