"""Pods: long-running LLM agents launched from manifests, on sessions that are never lost.

`async with Pod.launch("manifest.toml") as pod: await pod.run("…")`; events are in `pod.protocol`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pod.compaction.plan import CompactionError
    from pod.errors import KeyMissing, NotBuilt, PluginFailed, PodBusy, PodClosed, PodError, Thrash
    from pod.home import Home
    from pod.pod import Pod
    from pod.runs import RunResult
    from pod.status import PodStatus

_HOME_OF = {
    "CompactionError": "pod.compaction.plan",
    "Home": "pod.home",
    "KeyMissing": "pod.errors",
    "NotBuilt": "pod.errors",
    "PluginFailed": "pod.errors",
    "Pod": "pod.pod",
    "PodBusy": "pod.errors",
    "PodClosed": "pod.errors",
    "PodError": "pod.errors",
    "PodStatus": "pod.status",
    "RunResult": "pod.runs",
    "Thrash": "pod.errors",
}

__all__ = [
    "CompactionError",
    "Home",
    "KeyMissing",
    "NotBuilt",
    "PluginFailed",
    "Pod",
    "PodBusy",
    "PodClosed",
    "PodError",
    "PodStatus",
    "RunResult",
    "Thrash",
]


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)

    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
