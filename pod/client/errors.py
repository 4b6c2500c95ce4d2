"""What can go wrong between a client and a served pod.

PodError
├── NotServed         (pod.serve) nobody answers where the pod's socket should be
├── ConnectionLost    the connection broke, and what was asked may have been done
│   └── RunUnknown    the same, of a run: it may still be going on
├── ProtocolMismatch  what answers is no pod, or speaks another protocol
└── RemoteError       the pod refused or failed; `code` says which kind, for a program

`PodBusy`, `PodClosed`, `UnknownApproval` and `CompactionError` are those of an in-process pod.
"""

from __future__ import annotations

from pod.errors import PodError


class ConnectionLost(PodError):
    """The connection ended before the answer came; what was asked may have been done or not."""


class RunUnknown(ConnectionLost):
    """How a run ended cannot be told: it may still be going on, or ended while nobody looked."""


class ProtocolMismatch(PodError):
    """The other side is not a pod that this client can talk to."""


class RemoteError(PodError):
    """The pod refused what it was asked, or failed at it. `code` is one word, for a program."""

    def __init__(self, code: str, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.code = code
