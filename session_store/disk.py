"""The file system as the store uses it: every operation that can fail or tear is one of `Disk`.

One seam, so that a test can let any single operation fail, stop half-way or be the last one before
a crash. Files are private, never reached through a symlink, and never inherited by other programs.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from .errors import StorageFailed, UnsafePath

_FILE_MODE = 0o600
_FOLDER_MODE = 0o700


class Disk:
    """The operating system's own file operations. Errors are the system's: `OSError`."""

    def open(self, path: Path, flags: int) -> int:
        """Return a descriptor of the file at `path`, which is a regular file of our own.

        Raises:
            UnsafePath: It is a symlink, somebody else's, or no regular file.
        """
        try:
            # Not blocking, for a FIFO in the file's place must not hold us up before it is refused.
            flags |= os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
            fd = os.open(path, flags, _FILE_MODE)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise UnsafePath(path, "a symbolic link") from error

            raise

        found = os.fstat(fd)
        unsafe = _why_unsafe(found, is_right_type=stat.S_ISREG(found.st_mode))
        if unsafe:
            os.close(fd)
            raise UnsafePath(path, unsafe)

        return fd

    def make_folder(self, path: Path) -> None:
        """Make sure that the folder is there and our own; what is made is private and durable.

        Raises:
            UnsafePath: It is a symlink, somebody else's, or no folder.
        """
        missing: list[Path] = []
        folder = path
        while not folder.exists() and not folder.is_symlink():
            missing.append(folder)
            folder = folder.parent

        for folder in reversed(missing):
            with suppress(FileExistsError):  # another process was faster
                folder.mkdir(_FOLDER_MODE)

            self.sync_folder(folder.parent)

        self.check_folder(path)

    def check_folder(self, path: Path) -> None:
        """Return if the folder is one of our own, or is not there.

        Raises:
            UnsafePath: It is a symlink, somebody else's, or no folder.
        """
        with suppress(FileNotFoundError):  # nothing there is nothing unsafe
            found = os.lstat(path)
            link = "a symbolic link" if stat.S_ISLNK(found.st_mode) else ""
            unsafe = link or _why_unsafe(found, is_right_type=stat.S_ISDIR(found.st_mode))
            if unsafe:
                raise UnsafePath(path, unsafe)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        """Write what can be written at once and return how many bytes that was."""
        return os.write(fd, data)

    def sync(self, fd: int) -> None:
        """Return once the file's bytes and size are on the medium itself."""
        if sys.platform == "darwin":
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
        else:
            os.fdatasync(fd)

    def truncate(self, fd: int, size: int) -> None:
        """Cut the file off after `size` bytes."""
        os.ftruncate(fd, size)

    def rename(self, source: Path, target: Path) -> None:
        """Give the file another name, in the place of what had it before."""
        source.rename(target)

    def touch(self, path: Path) -> None:
        """Let the file count as written now."""
        os.utime(path, follow_symlinks=False)

    def unlink(self, path: Path) -> None:
        """Take the file's name away."""
        path.unlink()

    def sync_folder(self, path: Path) -> None:
        """Return once the names in the folder are on the medium."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def write_all(disk: Disk, fd: int, data: bytes) -> None:
    """Write every byte of `data`, however many calls that takes."""
    rest: bytes | memoryview = data
    while rest:
        written = disk.write(fd, rest)
        if written <= 0:
            raise OSError(errno.EIO, "the system wrote nothing")

        if written == len(rest):
            return

        rest = memoryview(rest)[written:]


class storing:  # noqa: N801  a context manager, named as those of the standard library
    """Turns what the system says of a failed write into `StorageFailed`, which says it of `what`.

    A class, for a generator would be a tenth of what an append takes by itself.
    """

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: object, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, OSError):
            raise StorageFailed(self._what, error.strerror or error) from error


def _why_unsafe(found: os.stat_result, *, is_right_type: bool) -> str:
    if not is_right_type:
        return "not what the store put there"

    return "owned by somebody else" if found.st_uid != os.geteuid() else ""
