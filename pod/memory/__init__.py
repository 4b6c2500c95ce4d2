"""Memory: what a pod remembers beyond one session, kept by a provider that the manifest names."""

from __future__ import annotations

from .provider import MemoryProvider, RecallStatus, is_trivial_prompt

__all__ = ["MemoryProvider", "RecallStatus", "is_trivial_prompt"]
