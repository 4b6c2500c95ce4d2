"""Where everything of a store is. Ids and names are checked before they become part of a path."""

from __future__ import annotations

import os
from pathlib import Path

from .disk import Disk
from .ids import check_pod_name, check_session_id

LOG_SUFFIX = ".jsonl"


class Layout:
    """The paths under one home. Making one touches nothing on disk."""

    def __init__(self, home: Path | str, sessions: Path | None) -> None:
        # The home and a folder that was named may be links, as their owner likes; what is
        # beneath them may not.
        self.home = Path(os.path.realpath(Path(home).expanduser()))
        self.sessions = (
            self.home / "sessions"
            if sessions is None
            else Path(os.path.realpath(sessions.expanduser()))
        )
        self.pods = self.home / "pods"
        self.blobs = self.home / "blobs"

    def log(self, session_id: str) -> Path:
        """Return the path of the session's log."""
        return self._of_session(session_id, LOG_SUFFIX)

    def anchor(self, session_id: str) -> Path:
        """Return the path of the session's anchor."""
        return self._of_session(session_id, ".head")

    def lock(self, session_id: str) -> Path:
        """Return the path of the file that a writer locks."""
        return self._of_session(session_id, ".lock")

    def base(self, session_id: str) -> Path:
        """Return the path of what is kept of the session's beginning for its detached forks."""
        return self._of_session(session_id, ".base")

    def is_removed(self, session_id: str) -> bool:
        """Tell whether the session was removed on purpose while others named it."""
        return self.base(session_id).exists() and not self.log(session_id).exists()

    def sidecar(self, session_id: str, offset: int, number: int) -> Path:
        """Return the path for bytes that were cut off the log at `offset`."""
        return self._of_session(session_id, f".torn-{offset}" + (f"-{number}" if number else ""))

    def pointer(self, pod: str) -> Path:
        """Return the path of the pod's pointer to its session."""
        return self.pods / f"{check_pod_name(pod)}.json"

    def open_log(self, disk: Disk, session_id: str, flags: int) -> int:
        """Return a descriptor of the session's log; of a removed one's, what its forks need of it.

        Raises:
            FileNotFoundError: There is none.
            UnsafePath: The log, or the folder of the logs, is a symlink or not our own.
        """
        path = self.log(session_id)
        disk.check_folder(self.sessions)
        try:
            return disk.open(path, flags)
        except FileNotFoundError:
            # Nobody writes a session that was removed.
            if flags & (os.O_WRONLY | os.O_RDWR):
                raise

        return disk.open(self.base(session_id), flags)

    def _of_session(self, session_id: str, suffix: str) -> Path:
        return self.sessions / (check_session_id(session_id) + suffix)
