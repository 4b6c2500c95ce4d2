"""What can go wrong between a pod and its memory provider. Imports nothing."""

from __future__ import annotations


class MemoryUnavailable(Exception):
    """A memory provider was named and cannot be had; `notice` is the line for people."""

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        self.reason = reason
        super().__init__(f"memory provider {name!r}: {reason}")

    @property
    def notice(self) -> str:
        """One line: what failed, why, and how the pod goes on."""
        return f"Failed to load memory provider '{self.name}': {self.reason} — going on without it"


class MemoryNotFound(MemoryUnavailable):
    """No provider of that name is bundled, in the plugins folder, or installed."""

    @property
    def notice(self) -> str:
        """One line: what is missing, and how the pod goes on."""
        return f"Memory provider '{self.name}' not found — going on without it"
