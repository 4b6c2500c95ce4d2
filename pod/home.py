"""The home: the one folder that everything of ours lives under."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from attrs import frozen

HOME_VARIABLE = "POD_HOME"


@frozen
class Home:
    """The paths under one home. Making one touches nothing on disk; `ensure` makes a folder."""

    root: Path
    """The folder itself: `$POD_HOME`, or the user's state directory."""

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Home:
        """Return the home that `env` names by `POD_HOME`, else the one of this user."""
        named = env.get(HOME_VARIABLE)
        if named:
            return cls(Path(named).expanduser().absolute())

        from platformdirs import user_state_path

        return cls(user_state_path("pod", appauthor=False))

    @property
    def sessions(self) -> Path:
        """The session logs, their anchors and locks."""
        return self.root / "sessions"

    @property
    def pods(self) -> Path:
        """Each pod's pointer to its current session."""
        return self.root / "pods"

    @property
    def index(self) -> Path:
        """The index of the sessions; it can be rebuilt from the logs at any time."""
        return self.root / "index.db"

    @property
    def run(self) -> Path:
        """The sockets of running pods."""
        return self.root / "run"

    @property
    def plugins(self) -> Path:
        """Engines that a user put there, one folder each."""
        return self.root / "plugins"

    @property
    def engines(self) -> Path:
        """The engines' own data, one folder each."""
        return self.root / "engines"

    @property
    def memory(self) -> Path:
        """What memory providers keep, one folder each."""
        return self.root / "memory"

    @property
    def models(self) -> Path:
        """Model files for the local provider."""
        return self.root / "models"

    @property
    def blobs(self) -> Path:
        """Payloads too large for a log's line, named by their hash."""
        return self.root / "blobs"

    def ensure(self, path: Path) -> Path:
        """Return `path`, a folder under the home, after making it and its parents private (0700).

        Raises:
            OSError: What the system said.
        """
        missing = [path, *path.parents]
        missing = missing[: next(n for n, folder in enumerate(missing) if folder.exists())]
        for folder in reversed(missing):
            # One by one: the parents that `mkdir` would make itself are open to everybody.
            folder.mkdir(mode=0o700, exist_ok=True)

        return path
