"""What people are told of an engine: failures once for each place they happen at."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeAlias, TypeVar

from attrs import define, field

from .errors import as_raised
from .words import error_line

T = TypeVar("T")
Failed: TypeAlias = tuple[str, Exception]
"""What failed of an engine, and how."""

_HERE = str(Path(__file__).parent)
_log = logging.getLogger("pod.context")


@define(eq=False)
class Notices:
    """Tells of one engine. All calls come from the event loop."""

    engine: str
    tell: Callable[[str, str], None]
    """Takes the engine's name and one line."""
    _told: set[str] = field(factory=set)

    def say(self, message: str) -> None:
        """Tell it."""
        self.tell(self.engine, message)

    def once(self, key: str, message: str) -> None:
        """Tell it, unless something was told under `key` before."""
        if key not in self._told:
            self._told.add(key)
            self.say(message)

    def forget(self, key: str) -> None:
        """Let what was told under `key` be told again."""
        self._told.discard(key)

    def failed(self, what: str, error: BaseException) -> None:
        """Tell, the first time, that the engine's `what` raised; the traceback goes to the log."""
        _log.debug("context engine %s: %s failed", self.engine, what, exc_info=error)
        self.once(what, f"{what} raised {said(error)}; going on without it")

    def all_failed(self, failed: Iterable[Failed]) -> None:
        """Tell of each, as `failed` does."""
        for what, error in failed:
            self.failed(what, error)


@define(eq=False)
class Tries:
    """Makes several calls into an engine, each on its own: one that fails spoils no other."""

    failed: list[Failed] = field(factory=list)

    def __call__(self, what: str, function: Callable[[], T]) -> T | None:
        """Return what `function` returns; None where it raises, which is kept."""
        try:
            return function()
        except Exception as error:  # noqa: BLE001  # supervision point of engine code
            self.failed.append((what, error))
            return None


def said(error: BaseException) -> str:
    """Return an error on one line: its kind, its words, and where a plugin's code raised it."""
    cause = error.__cause__ or error
    text = error_line(as_raised(error))
    frames = traceback.extract_tb(cause.__traceback__)
    place = next((f for f in reversed(frames) if not f.filename.startswith(_HERE)), None)
    if place is None:
        return text

    path = Path(place.filename)
    return f"{text} ({path.parent.name}/{path.name}, line {place.lineno})"
