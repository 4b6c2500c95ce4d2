"""How long is waited before a lost connection is tried again."""

from __future__ import annotations

import random
from collections.abc import Callable

from attrs import frozen


@frozen
class Backoff:
    """Waits that double from `first_s` up to `most_s`, each shortened by up to half at random.

    The randomness keeps a thousand clients of a pod that was restarted from coming all at once.
    """

    first_s: float = 0.05
    most_s: float = 2.0
    chance: Callable[[], float] = random.random
    """Gives a number from 0 to 1."""

    def wait_s(self, attempt: int) -> float:
        """Return the wait before the try after `attempt` failed ones (1 and up), in seconds."""
        # Bounded before the power is taken: attempts go on for as long as a pod is away.
        whole = self.first_s * float(2 ** min(attempt - 1, 30))
        return min(whole, self.most_s) * (1 - self.chance() / 2)
