"""What the host of a memory provider is told: which provider, of which pod, within which times."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from attrs import field, frozen


@frozen
class MemorySettings:
    """Which provider a pod has, and what it is told of the pod."""

    provider: str
    plugins_dir: Path
    home: Path
    """The folder for the provider's data."""
    pod: str
    model: str
    options: Mapping[str, object] = field(factory=dict)
    is_home_named: bool = False
    """Whether the manifest names the folder, and it is not one that podworker has chosen."""

    def told(self, parent_id: str) -> dict[str, object]:
        """Return the keywords of `initialize` that say all this; `parent_id` may be empty."""
        return {
            "hermes_home": str(self.home),
            "platform": "cli",
            "model": self.model,
            "agent_context": "primary",
            "agent_identity": self.pod,
            "agent_workspace": "pod",
            "options": dict(self.options),
            **({"parent_session_id": parent_id} if parent_id else {}),
            **({"folder": str(self.home)} if self.is_home_named else {}),
        }


@frozen
class Limits:
    """How long the pod waits for a provider, in seconds, before it goes on without it."""

    call_s: float = 8.0
    """For what it is asked, and for all that is left at the end."""

    @property
    def short_s(self) -> float:
        """For it to follow to another session, which it does anyway when its turn comes."""
        return min(2.0, self.call_s)

    @property
    def long_s(self) -> float:
        """For its import with its `initialize`, and before a compaction: models may be asked."""
        return 3 * self.call_s

    @property
    def stuck_s(self) -> float:
        """How long it may take note of one thing before it is handed no more."""
        return 30 * self.call_s
