"""Lines that were typed before, one a line in a file that is private to the user."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from attrs import frozen

_MOST_REMEMBERED = 1_000
_BREAK = "\\n"


@frozen
class PastLines:
    """The file of what was typed. What cannot be read or written is only not remembered."""

    path: Path

    def read(self) -> list[str]:
        """Return what was typed, oldest first."""
        try:
            data = self.path.read_bytes()
        except OSError:  # none yet, or not readable
            return []

        lines = data.decode("utf-8", "replace").split("\n")
        return [_unfolded(line) for line in lines if line.strip()][-_MOST_REMEMBERED:]

    def add(self, text: str) -> None:
        """Remember a text."""
        folded = text.replace("\\", "\\\\").replace("\n", _BREAK)
        with suppress(OSError):  # a home that takes no file is told of where that matters
            number = os.open(self.path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
            with os.fdopen(number, "ab") as file:
                file.write(folded.encode("utf-8", "replace") + b"\n")

    def trim(self) -> None:
        """Forget the oldest lines beyond what is kept."""
        try:
            lines = self.path.read_bytes().split(b"\n")
        except OSError:  # as in `read`
            return

        kept = [line for line in lines if line.strip()]
        if len(kept) <= 2 * _MOST_REMEMBERED:
            return

        with suppress(OSError):  # then the file stays as long as it is
            fresh = self.path.with_suffix(".new")
            number = os.open(fresh, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
            with os.fdopen(number, "wb") as file:
                file.write(b"\n".join([*kept[-_MOST_REMEMBERED:], b""]))

            fresh.replace(self.path)


def _unfolded(line: str) -> str:
    """Return a text with its line breaks; other escapes are what older versions wrote, as it is."""
    return "\\".join(part.replace(_BREAK, "\n") for part in line.split("\\\\"))
