"""A served pod: one process, one socket, many clients, events that can be resumed.

`PodServer` serves a pod. What is sent is in `pod.protocol`; the commands are in `pod.cli`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .claim import AlreadyServed, NotServed, Serving, find, served, serving
    from .places import Places, ensure_run_folder, reachable
    from .server import PodServer

_HOME_OF = {
    "AlreadyServed": "claim",
    "NotServed": "claim",
    "Places": "places",
    "PodServer": "server",
    "Serving": "claim",
    "ensure_run_folder": "places",
    "find": "claim",
    "reachable": "places",
    "served": "claim",
    "serving": "claim",
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


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)

    value: object = getattr(import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
