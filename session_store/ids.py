"""Session ids and pod names: made, and checked before they touch a path."""

from __future__ import annotations

import os
import re
import time
import uuid
from collections.abc import Callable

from .errors import InvalidPodName, InvalidSessionId

_SESSION_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.ASCII)
_POD_NAME = re.compile(r"[a-z0-9_-]{1,64}", re.ASCII)


def now_ms() -> int:
    """Return the time in milliseconds of Unix time: the clock used where none is given."""
    return time.time_ns() // 1_000_000


def uuid7(timestamp_ms: int, random: Callable[[int], bytes] = os.urandom) -> str:
    """Return a new UUID of version 7: its first 48 bits are the time, so ids sort by birth."""
    value = (timestamp_ms & (1 << 48) - 1) << 80 | int.from_bytes(random(10), "big")
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return str(uuid.UUID(int=value))


def is_session_id(text: object) -> bool:
    """Tell whether `text` is a session id: a UUID in lowercase with hyphens."""
    return isinstance(text, str) and _SESSION_ID.fullmatch(text) is not None


def check_session_id(text: object) -> str:
    """Return `text`, which is a session id: a UUID in lowercase with hyphens.

    Raises:
        InvalidSessionId: It is anything else.
    """
    if not isinstance(text, str) or not is_session_id(text):
        raise InvalidSessionId(text)

    return text


def check_pod_name(text: object) -> str:
    """Return `text`, which is a pod's name: 1 to 64 of a-z, 0-9, - and _.

    Raises:
        InvalidPodName: It is anything else.
    """
    if not isinstance(text, str) or not _POD_NAME.fullmatch(text):
        raise InvalidPodName(text)

    return text
