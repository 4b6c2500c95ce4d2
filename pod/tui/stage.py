"""What the application and the place it is shown on want of each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from .blocks import Block
from .region import Scene
from .state import Approval, ViewState


class Listener(Protocol):
    """Who hears what the person does."""

    def entered(self, text: str) -> None:
        """Take a line, or a pasted text of several."""

    def pressed(self, key: str) -> None:
        """Take one of `ANSWERS`, pressed while `takes_keys`."""

    def takes_keys(self) -> bool:
        """Tell whether a single key answers a question now."""

    def left(self) -> None:
        """Hear that the person leaves."""

    def ended(self) -> None:
        """Hear that no more is to come, and what came is still to be done."""

    def is_moving(self) -> bool:
        """Tell whether anything is shown that changes by itself, such as seconds."""

    def scene(self, rows: int, columns: int) -> tuple[ViewState, Scene]:
        """Return what is to be drawn now on so much room."""


ANSWERS = ("y", "s", "n")
"""The keys that answer a question."""


class Stage(Protocol):
    """Where it is shown: a terminal with a live region, or plain lines."""

    async def run(self, listener: Listener) -> None:
        """Take what the person does, until `close`."""

    def update(self, state: ViewState, said: Sequence[Block]) -> None:
        """Show what scrolls by, and draw the rest anew."""

    def ready(self, line: str) -> None:
        """Hear that the pod waits for the person; `line` is the gauge."""

    def ask(self, question: str | None) -> None:
        """Hear that the person is asked something that y or n answers, or no more (None).

        It comes before a call that is asked about.
        """

    def ask_about(self, approval: Approval | None) -> None:
        """Hear which call an answer is about from now on, if any. It was shown whole before."""

    def give_back(self, text: str) -> None:
        """Put a text back to be edited: it was typed, and is not going to be sent."""

    def drop_line(self) -> bool:
        """Empty the input line; tell whether anything was on it."""

    def close(self) -> None:
        """End `run`, the terminal as it was before."""
