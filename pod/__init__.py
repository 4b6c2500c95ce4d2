"""Pods: long-running LLM agents launched from manifests, on sessions that are never lost.

`async with Pod.launch("manifest.toml") as pod: await pod.run("…")`; events are in `pod.protocol`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .lazy import loaded_on_use as _loaded_on_use

if TYPE_CHECKING:
    from pod.compaction.plan import CompactionError
    from pod.errors import KeyMissing, NotBuilt, PluginFailed, PodBusy, PodClosed, PodError, Thrash
    from pod.home import Home
    from pod.pod import Pod
    from pod.runs import RunResult
    from pod.status import PodStatus

_HOME_OF = {
    "CompactionError": ".compaction.plan",
    "Home": ".home",
    "KeyMissing": ".errors",
    "NotBuilt": ".errors",
    "PluginFailed": ".errors",
    "Pod": ".pod",
    "PodBusy": ".errors",
    "PodClosed": ".errors",
    "PodError": ".errors",
    "PodStatus": ".status",
    "RunResult": ".runs",
    "Thrash": ".errors",
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

__getattr__, __dir__ = _loaded_on_use(__name__, _HOME_OF)
