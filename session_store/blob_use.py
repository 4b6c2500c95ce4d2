"""Which blobs are in use, and taking away those that are not.

Logs are searched as bytes: what names a blob counts even in a log that is damaged.
"""

from __future__ import annotations

import mmap
import os
import re
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from .atomic import read_file
from .blobs import LOGS_NOTE
from .disk import Disk
from .layout import LOG_SUFFIX, Layout

BASE_SUFFIX = ".base"

_NAMED = re.compile(rb'"blob":"([0-9a-f]{64})"')
_NAME = re.compile(r"[0-9a-f]{64}", re.ASCII)
_GRACE_S = 600
"""How long a blob may have been stored before an entry names it. That takes milliseconds."""


def blobs_named_in(path: Path) -> set[str]:
    """Return the names of the blobs that a log names; none where there is no such file."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return {name.decode() for name in _NAMED.findall(data)}
    except (FileNotFoundError, ValueError):  # an empty file cannot be mapped
        return set()


def logs_in(folder: Path) -> Iterator[Path]:
    """Yield every log in the folder, and what is kept of removed ones."""
    with suppress(FileNotFoundError), os.scandir(folder) as found:
        for entry in found:
            if entry.name.endswith((LOG_SUFFIX, BASE_SUFFIX)):
                yield folder / entry.name


def remove_unused(disk: Disk, layout: Layout, names: Collection[str], before_s: float) -> int:
    """Take away those blobs of `names` that no log names, and return how many bytes they had.

    A blob that somebody stored after the time `before_s` may be about to be named, and is left
    alone until it has been there for a while. Nothing is taken away while the logs of a folder
    that uses these blobs cannot be seen. Raises `OSError`.
    """
    there = {name for name in names if (layout.blobs / name).exists()}
    folders = _folders_of_logs(disk, layout)
    if not there or not all(folder.is_dir() for folder in folders):
        return 0

    for folder in folders:
        for path in logs_in(folder):
            there -= blobs_named_in(path)

    old = time.time() - _GRACE_S
    removed = 0
    for name in sorted(there):
        path = layout.blobs / name
        with suppress(FileNotFoundError):  # somebody else removed it
            found = path.stat()
            if found.st_mtime <= max(before_s, old):
                disk.unlink(path)
                removed += found.st_size

    if removed:
        disk.sync_folder(layout.blobs)

    return removed


def blob_sizes(layout: Layout) -> dict[str, int]:
    """Return the name and the size in bytes of every blob."""
    sizes: dict[str, int] = {}
    with suppress(FileNotFoundError), os.scandir(layout.blobs) as found:
        for entry in found:
            if _NAME.fullmatch(entry.name):
                sizes[entry.name] = entry.stat(follow_symlinks=False).st_size

    return sizes


def _folders_of_logs(disk: Disk, layout: Layout) -> set[Path]:
    folders = {layout.sessions}
    usual = layout.home / "sessions"
    if usual.exists():
        folders.add(usual)

    with suppress(FileNotFoundError), os.scandir(layout.blobs) as found:
        notes = [entry.name for entry in found if entry.name.startswith(LOGS_NOTE)]
        folders |= {Path(os.fsdecode(read_file(disk, layout.blobs / note))) for note in notes}

    return folders
