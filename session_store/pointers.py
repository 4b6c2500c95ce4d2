"""Pointers: which session a pod is on now. The last thing that moves."""

from __future__ import annotations

from pathlib import Path

import orjson

from .atomic import read_file, write_file
from .disk import Disk
from .errors import InvalidSessionId
from .ids import check_session_id


def read_pointer(disk: Disk, path: Path) -> str | None:
    """Return the session id, or None where there is no pointer.

    Raises:
        InvalidSessionId: The file is there and names no session.
    """
    try:
        data = read_file(disk, path)
    except FileNotFoundError:
        return None

    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise InvalidSessionId(data) from error

    return check_session_id(value.get("session_id") if isinstance(value, dict) else value)


def write_pointer(disk: Disk, path: Path, session_id: str) -> None:
    """Move the pointer, whole and durable. Raises `OSError`."""
    data = orjson.dumps({"session_id": check_session_id(session_id)}) + b"\n"
    disk.make_folder(path.parent)
    write_file(disk, path, data)
