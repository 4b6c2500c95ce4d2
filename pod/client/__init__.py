"""Clients of served pods: `PodClient` for programs with an event loop, `SyncPodClient` without.

`async with PodClient.connect("reviewer") as client: await client.run("…")`
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pod.lazy import loaded_on_use as _loaded_on_use

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
    "Backoff": ".backoff",
    "ConnectionLost": ".errors",
    "Fork": ".fork",
    "LinkState": ".link",
    "NotServed": "pod.serve.claim",
    "Patience": ".link",
    "PodClient": ".client",
    "Position": ".cursor",
    "ProtocolMismatch": ".errors",
    "RemoteError": ".errors",
    "RunUnknown": ".errors",
    "SyncPodClient": ".sync",
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

__getattr__, __dir__ = _loaded_on_use(__name__, _HOME_OF)
