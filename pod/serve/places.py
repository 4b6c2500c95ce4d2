"""Where a served pod's things are under the home, and how a socket there is reached."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import frozen

from pod.errors import PodError
from pod.home import Home

MAX_SOCKET_PATH_BYTES = 103
"""What a socket's path may have: 107 on Linux, 103 on macOS."""


class UnsafeRunFolder(PodError):
    """The folder of the sockets is not ours alone."""


@frozen
class Places:
    """The files of one served pod, in `run/` under the home."""

    folder: Path
    name: str

    @classmethod
    def of(cls, home: Home, name: str) -> Places:
        """Return the places of the pod of that name. Raises `InvalidPodName`."""
        from session_store import check_pod_name

        return cls(home.run, check_pod_name(name))

    @property
    def socket(self) -> Path:
        """The socket."""
        return self.folder / f"{self.name}.sock"

    @property
    def lock(self) -> Path:
        """The lock that whoever serves the pod holds, and what it says of itself."""
        return self.folder / f"{self.name}.lock"

    @property
    def ledger(self) -> Path:
        """Which event an entry was told by."""
        return self.folder / f"{self.name}.seqs"

    @property
    def log(self) -> Path:
        """What a detached pod prints."""
        return self.folder / f"{self.name}.log"


class UnusableRunFolder(PodError):
    """Nothing can be written in the folder of the sockets."""


@contextmanager
def usable(folder: Path) -> Iterator[None]:
    """Say of what fails in there what it is, and what to do: raise `UnusableRunFolder`."""
    try:
        yield
    except OSError as error:
        name = Path(error.filename).name if isinstance(error.filename, str) else ""
        which = f"{name}: " if name not in {"", folder.name} else ""
        message = f"cannot write in {folder}: {which}{error.strerror or error}"
        hint = "free space or mend its permissions, or set POD_HOME to another folder"
        raise UnusableRunFolder(message, hint=hint) from error


def ensure_run_folder(home: Home) -> Path:
    """Return the folder of the sockets, made private to this user.

    Raises:
        UnsafeRunFolder: It is a link, or somebody else's.
        UnusableRunFolder: It cannot be made.
    """
    with usable(home.run):
        folder = home.ensure(home.run)
        found = folder.lstat()

    if not stat.S_ISDIR(found.st_mode):
        message = f"{folder} is not a folder of its own"
        raise UnsafeRunFolder(message, hint="remove it, or set POD_HOME to another folder")

    if found.st_uid != os.geteuid():
        message = f"{folder} belongs to another user (uid {found.st_uid})"
        raise UnsafeRunFolder(message, hint="set POD_HOME to a folder of your own")

    if stat.S_IMODE(found.st_mode) & 0o077:
        folder.chmod(0o700)

    return folder


@contextmanager
def reachable(path: Path) -> Iterator[str]:
    """Yield a path by which a socket at `path` can be bound and connected to.

    The system takes about a hundred bytes. A longer one is reached through a short link to its
    folder, which is there only for as long as this lasts.
    """
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES:
        yield os.fspath(path)
        return

    with tempfile.TemporaryDirectory(prefix="pod-", dir=_short_folder()) as folder:
        link = Path(folder) / "d"
        link.symlink_to(path.parent.absolute(), target_is_directory=True)
        yield os.fspath(link / path.name)


def _short_folder() -> str:
    # Some systems' own folder for temporary files is itself as long as that.
    named = tempfile.gettempdir()
    return named if len(os.fsencode(named)) <= 20 else "/tmp"  # noqa: S108  what is made in there is private
