"""Files that are there whole or not at all, also after a crash at any point."""

from __future__ import annotations

import os
import re
import stat
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from .disk import Disk, write_all

_SUFFIX = ".tmp"
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{32}\.tmp", re.ASCII)
_ABANDONED_S = 24 * 3600
"""A file that nobody has written to for so long is not being written."""


def write_files(disk: Disk, files: Mapping[Path, Iterable[bytes]]) -> None:
    """Put the files in place, each whole and durable, in the order given. All share one folder.

    A file is given in pieces, and its first piece is asked for after the last one of the file
    before. Each is written under a name of its own, synced and renamed; then the folder is synced.
    When anything of that fails, names that did not exist before are taken away again.

    Raises:
        OSError: What the system said. A file that was replaced may be the old or the new one.
    """
    staged: dict[Path, Path] = {}
    published: list[Path] = []
    done = False
    try:
        for path, pieces in files.items():
            # The name is nobody else's, so that two processes that replace one file at a time
            # never write into each other's.
            temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}{_SUFFIX}")
            staged[path] = temporary
            _write_new(disk, temporary, pieces)

        for path, temporary in staged.items():
            is_new = not path.exists()
            disk.rename(temporary, path)
            published += [path] if is_new else []

        for folder in {path.parent for path in files}:
            disk.sync_folder(folder)

        done = True
    finally:
        # What cannot be taken away now is a stray file, and the failure that matters is the one
        # already on its way, whatever it is: the pieces may be made while they are written.
        for leftover in [] if done else [*staged.values(), *reversed(published)]:
            with suppress(OSError):
                disk.unlink(leftover)


def write_file(disk: Disk, path: Path, data: bytes) -> None:
    """Put one file in place, whole and durable, as `write_files` does."""
    write_files(disk, {path: [data]})


def sweep(disk: Disk, folder: Path) -> None:
    """Take away what writers that crashed have left in the folder more than a day ago.

    A writer that is at work touches its file more often. "Now" is when the folder last changed,
    which is told by the same clock as the times of its files. What cannot be taken away stays.
    """
    with suppress(OSError), os.scandir(folder) as found:
        now = folder.stat().st_mtime
        for entry in found:
            if entry.name.endswith(_SUFFIX) and _TEMPORARY.fullmatch(entry.name):
                file = entry.stat(follow_symlinks=False)
                if now - file.st_mtime > _ABANDONED_S and stat.S_ISREG(file.st_mode):
                    disk.unlink(folder / entry.name)


def read_file(disk: Disk, path: Path) -> bytes:
    """Return the file's bytes.

    Raises:
        OSError: What the system said.
        UnsafePath: It is a symlink, somebody else's, or no regular file.
    """
    with os.fdopen(disk.open(path, os.O_RDONLY), "rb") as file:
        return file.read()


def _write_new(disk: Disk, path: Path, pieces: Iterable[bytes]) -> None:
    fd = disk.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        for piece in pieces:
            write_all(disk, fd, piece)

        disk.sync(fd)
    finally:
        os.close(fd)
