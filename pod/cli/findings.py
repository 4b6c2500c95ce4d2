"""What a look at a machine or a manifest found, one finding a line. Pure."""

from __future__ import annotations

from typing import Literal, TypeAlias

from attrs import frozen

Level: TypeAlias = Literal["ok", "warn", "fail"]


@frozen
class Finding:
    """One thing that was looked at."""

    level: Level
    what: str
    """A word for it, such as `home`."""
    detail: str
    """What was found."""
    advice: str = ""
    """What can be done, where something should be."""

    @property
    def line(self) -> str:
        """The finding for a person."""
        told = f"{self.level:<4}  {self.what:<14}  {self.detail}"
        return f"{told} — {self.advice}" if self.advice else told


def failed(what: str, error: Exception) -> Finding:
    """Return the finding that an error of ours is."""
    message, hint = getattr(error, "message", None), getattr(error, "hint", None)
    detail = message if isinstance(message, str) else str(error)
    return Finding("fail", what, _one_line(detail), _one_line(hint or ""))


def _one_line(text: str) -> str:
    return "; ".join(line.strip() for line in text.split("\n") if line.strip())
