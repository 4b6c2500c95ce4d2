"""Session logs: append-only, hash-chained, one writer each; forked, compacted, restored, verified.

Everything is loaded on first use: a program that only catches errors loads little.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .chain import Entry, EntryRef, Position
    from .disk import Disk
    from .errors import (
        Fenced,
        HeadMismatch,
        Holder,
        InvalidHistory,
        InvalidPodName,
        InvalidSessionId,
        NewerFormat,
        SessionDamaged,
        SessionInUse,
        SessionNotFound,
        SessionStoreError,
        StillNeeded,
        StorageFailed,
        UnknownEntry,
        UnsafePath,
        Unsuitable,
    )
    from .ids import check_pod_name, check_session_id
    from .index import SessionIndex
    from .index_messages import IndexedMessage, SearchHit
    from .info import SessionInfo
    from .log import Durability
    from .masking import Masker, StreamMasker
    from .session import Session
    from .state import Approval, ForkPoint, SessionState, Totals, UsageRecord, VerifyReport
    from .store import FileSessionStore

_HOMES = {
    "chain": (
        "Entry",
        "EntryRef",
        "Position",
    ),
    "disk": ("Disk",),
    "errors": (
        "Fenced",
        "HeadMismatch",
        "Holder",
        "InvalidHistory",
        "InvalidPodName",
        "InvalidSessionId",
        "NewerFormat",
        "SessionDamaged",
        "SessionInUse",
        "SessionNotFound",
        "SessionStoreError",
        "StillNeeded",
        "StorageFailed",
        "UnknownEntry",
        "UnsafePath",
        "Unsuitable",
    ),
    "ids": (
        "check_pod_name",
        "check_session_id",
    ),
    "index": ("SessionIndex",),
    "index_messages": (
        "IndexedMessage",
        "SearchHit",
    ),
    "info": ("SessionInfo",),
    "log": ("Durability",),
    "masking": (
        "Masker",
        "StreamMasker",
    ),
    "session": ("Session",),
    "state": (
        "Approval",
        "ForkPoint",
        "SessionState",
        "Totals",
        "UsageRecord",
        "VerifyReport",
    ),
    "store": ("FileSessionStore",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Approval",
    "Disk",
    "Durability",
    "Entry",
    "EntryRef",
    "Fenced",
    "FileSessionStore",
    "ForkPoint",
    "HeadMismatch",
    "Holder",
    "IndexedMessage",
    "InvalidHistory",
    "InvalidPodName",
    "InvalidSessionId",
    "Masker",
    "NewerFormat",
    "Position",
    "SearchHit",
    "Session",
    "SessionDamaged",
    "SessionInUse",
    "SessionIndex",
    "SessionInfo",
    "SessionNotFound",
    "SessionState",
    "SessionStoreError",
    "StillNeeded",
    "StorageFailed",
    "StreamMasker",
    "Totals",
    "UnknownEntry",
    "UnsafePath",
    "Unsuitable",
    "UsageRecord",
    "VerifyReport",
    "check_pod_name",
    "check_session_id",
]


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    value: object = getattr(import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
