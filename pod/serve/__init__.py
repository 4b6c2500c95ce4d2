"""A served pod: one process, one socket, many clients, events that can be resumed.

`PodServer` serves a pod. What is sent is in `pod.protocol`; the commands are in `pod.cli`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pod.lazy import loaded_on_use as _loaded_on_use

if TYPE_CHECKING:
    from .claim import AlreadyServed, NotServed, Serving, find, served, serving
    from .places import Places, ensure_run_folder, reachable
    from .server import PodServer

_HOME_OF = {
    "AlreadyServed": ".claim",
    "NotServed": ".claim",
    "Places": ".places",
    "PodServer": ".server",
    "Serving": ".claim",
    "ensure_run_folder": ".places",
    "find": ".claim",
    "reachable": ".places",
    "served": ".claim",
    "serving": ".claim",
}

__all__ = [
    "AlreadyServed",
    "NotServed",
    "Places",
    "PodServer",
    "Serving",
    "ensure_run_folder",
    "find",
    "reachable",
    "served",
    "serving",
]

__getattr__, __dir__ = _loaded_on_use(__name__, _HOME_OF)
