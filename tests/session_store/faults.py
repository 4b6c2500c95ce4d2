"""Disks that fail: at one operation, in the middle of a write, or by losing power."""

from __future__ import annotations

import os
import random
from pathlib import Path

from session_store import Disk


class PowerCut(BaseException):
    """The end of the process, as seen from inside: nothing may catch it."""


class FailingDisk(Disk):
    """Raises `error` at the n-th operation that changes anything, from 1.

    Later ones work, unless it was a cut of power: then none does.
    """

    def __init__(self, at: int, error: BaseException) -> None:
        self._at = at
        self._error = error
        self._sticky = isinstance(error, PowerCut)
        self.count = 0

    def strike_in(self, steps: int) -> None:
        """Raise at that many operations from now."""
        self._at = self.count + steps

    def mend(self) -> None:
        """Raise no more."""
        self._at = 10**9

    @property
    def struck(self) -> bool:
        return self.count >= self._at

    def _step(self) -> None:
        self.count += 1
        if self.count == self._at or (self._sticky and self.struck):
            raise self._error

    def open(self, path: Path, flags: int) -> int:
        if flags & (os.O_CREAT | os.O_WRONLY | os.O_RDWR):
            self._step()

        return super().open(path, flags)

    def make_folder(self, path: Path) -> None:
        self._step()
        super().make_folder(path)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        self._step()
        # Half of it, so that the step before the next one is always in the middle of a line.
        return super().write(fd, memoryview(data)[: (len(data) + 1) // 2])

    def sync(self, fd: int) -> None:
        self._step()
        super().sync(fd)

    def truncate(self, fd: int, size: int) -> None:
        self._step()
        super().truncate(fd, size)

    def rename(self, source: Path, target: Path) -> None:
        self._step()
        super().rename(source, target)

    def unlink(self, path: Path) -> None:
        self._step()
        super().unlink(path)

    def sync_folder(self, path: Path) -> None:
        self._step()
        super().sync_folder(path)


class PowerDisk(Disk):
    """Knows what of a folder is on the medium, and can tell what a loss of power may leave.

    Of bytes that were not synced any part may be there, be zeros, or not be there; of names that
    were changed since their folder was synced, any may be the old or the new.
    """

    def __init__(self, at: int, folder: Path) -> None:
        self._left = at
        self._kept: list[int] = []
        # What is there at the beginning is on the medium.
        listing = _listing(folder) if folder.exists() else {}
        self._names = {folder: listing}
        self._synced = {inode: (folder / name).read_bytes() for name, inode in listing.items()}

    def open(self, path: Path, flags: int) -> int:
        fd = super().open(path, flags)
        if flags & os.O_CREAT:
            # Held open, so that no later file gets the inode of one that was removed.
            self._kept.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))

        return fd

    def _step(self) -> None:
        self._left -= 1
        if self._left <= 0:
            raise PowerCut

    def write(self, fd: int, data: bytes | memoryview) -> int:
        self._step()
        return super().write(fd, data)

    def sync(self, fd: int) -> None:
        self._step()
        self._synced[os.fstat(fd).st_ino] = Path(f"/proc/self/fd/{fd}").read_bytes()

    def truncate(self, fd: int, size: int) -> None:
        self._step()
        super().truncate(fd, size)

    def rename(self, source: Path, target: Path) -> None:
        self._step()
        super().rename(source, target)

    def unlink(self, path: Path) -> None:
        self._step()
        super().unlink(path)

    def sync_folder(self, path: Path) -> None:
        self._step()
        self._names[path] = _listing(path)

    def leave(self, folder: Path, target: Path, chance: random.Random) -> None:
        """Put into `target` one of the things that `folder` may be after the loss of power."""
        now = _listing(folder)
        here = {inode: (folder / name).read_bytes() for name, inode in now.items()}
        before = self._names.get(folder, {})
        target.mkdir(parents=True)
        for name in before.keys() | now.keys():
            inode = chance.choice((before.get(name), now.get(name)))
            if inode is not None:
                synced = self._synced.get(inode, b"")
                data = _after_the_cut(synced, here.get(inode, synced), chance)
                (target / name).write_bytes(data)

        for fd in self._kept:
            os.close(fd)


def _listing(folder: Path) -> dict[str, int]:
    with os.scandir(folder) as found:
        return {entry.name: entry.inode() for entry in found}


def _after_the_cut(synced: bytes, now: bytes, chance: random.Random) -> bytes:
    if not now.startswith(synced):
        return chance.choice((synced, now))

    rest = now[len(synced) :]
    cut = chance.randint(0, len(rest))
    hole = chance.randint(0, len(rest))
    return synced + chance.choice(
        (
            b"",
            rest,
            rest[:cut],
            bytes(len(rest)),
            rest[:cut] + bytes(len(rest) - cut),
            rest[: min(cut, hole)] + bytes(abs(cut - hole)) + rest[max(cut, hole) :],
        )
    )
