"""The errors of the pod package.

PodError
├── NotBuilt          the manifest asks for something that this version validates but cannot do
├── KeyMissing        the provider's key cannot be found where the manifest says
├── PricesMissing     the manifest limits a cost, and no price is known
├── PluginFailed      a tool, hook or plugin that the manifest names cannot be loaded
├── PodBusy           a run is going on, and this would be a second one
├── PodClosed         the pod is closed, or was not started
├── UnknownApproval   no such tool call waits for a decision
├── UnknownEngineCommand  the pod's engine has registered no such command
├── EngineCommandFailed   a command of the pod's engine raised, or took too long
└── Thrash            right after a compaction the prompt was over its threshold again
"""

from __future__ import annotations

from worker.errors import WorkerError


class PodError(Exception):
    """Base of the errors of this package: `message` says what and why, `hint` what can be done."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class NotBuilt(PodError):
    """The manifest asks for something that this version cannot do."""


class KeyMissing(PodError):
    """The provider's key cannot be found."""


class PricesMissing(PodError):
    """The manifest limits what is spent, and nobody knows what a request costs."""


class PluginFailed(PodError):
    """A tool, hook or plugin that the manifest names cannot be loaded."""


class PodBusy(PodError):
    """A run is going on already."""


class PodClosed(PodError):
    """The pod is not running."""


class UnknownApproval(PodError):
    """No such tool call waits for a decision; perhaps it was decided already."""


class UnknownEngineCommand(PodError):
    """The pod's engine has registered no such command."""


class EngineCommandFailed(PodError):
    """A command of the pod's engine raised, or took too long."""


class RequestCancelled(WorkerError):
    """The context engine cancelled a request before it was made; the run ends as cancelled."""


class Thrash(WorkerError):
    """Compacting did not help: the prompt was over its threshold again at once."""
