"""Runs on their way to a provider: in order, and joined where it cannot keep up."""

from __future__ import annotations

import threading
from collections import deque

from attrs import define, evolve, field, frozen

from worker.items import Item
from worker.text import cut_middle

MOST_WAITING = 8
"""How many runs may wait, one by one; more are joined to the newest that waits."""
JOINED_MAX_BYTES = 262_144
"""The most that each side of joined runs may have; what is over it gives up its middle."""


@frozen
class Turn:
    """A run that finished: what was asked, what was answered, and the history at its end."""

    user: str
    assistant: str
    session_id: str
    history: tuple[Item, ...]


@define(eq=False)
class TurnQueue:
    """Runs that wait. All methods may be called on any thread."""

    _waiting: deque[Turn] = field(factory=deque, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, turn: Turn) -> bool:
        """Take a run; returns whether it waits by itself, and is not joined to another."""
        with self._lock:
            last = self._waiting[-1] if self._waiting else None
            if (
                last is not None
                and len(self._waiting) >= MOST_WAITING
                and last.session_id == turn.session_id
            ):
                self._waiting[-1] = _joined(last, turn)
                return False

            self._waiting.append(turn)
            return True

    def take(self) -> Turn | None:
        """Return the oldest run that waits, and let go of it."""
        with self._lock:
            return self._waiting.popleft() if self._waiting else None


def _joined(first: Turn, second: Turn) -> Turn:
    return evolve(
        second,
        user=cut_middle(f"{first.user}\n\n{second.user}", JOINED_MAX_BYTES),
        assistant=cut_middle(f"{first.assistant}\n\n{second.assistant}", JOINED_MAX_BYTES),
    )
