"""Clients of served pods: `PodClient` for programs with an event loop, `SyncPodClient` without.

`async with PodClient.connect("reviewer") as client: await client.run("…")`
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pod.serve.claim import NotServed

    from .backoff import Backoff
    from .client import PodClient
    from .cursor import Position
    from .errors import ConnectionLost, ProtocolMismatch, RemoteError, RunUnknown
    from .fork import Fork
    from .link import LinkState, Patience
    from .sync import SyncPodClient

_HOME_OF = {
    "Backoff": "pod.client.backoff",
    "ConnectionLost": "pod.client.errors",
    "Fork": "pod.client.fork",
    "LinkState": "pod.client.link",
    "NotServed": "pod.serve.claim",
    "Patience": "pod.client.link",
    "PodClient": "pod.client.client",
    "Position": "pod.client.cursor",
    "ProtocolMismatch": "pod.client.errors",
    "RemoteError": "pod.client.errors",
    "RunUnknown": "pod.client.errors",
    "SyncPodClient": "pod.client.sync",
}

__all__ = [
    "Backoff",
    "ConnectionLost",
    "Fork",
    "LinkState",
    "NotServed",
    "Patience",
    "PodClient",
    "Position",
    "ProtocolMismatch",
    "RemoteError",
    "RunUnknown",
    "SyncPodClient",
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
