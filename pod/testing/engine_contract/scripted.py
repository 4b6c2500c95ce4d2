"""The model that engines under test ask for summaries: it says what the check wants it to say."""

from __future__ import annotations

import threading
from typing import Literal, TypeAlias

from pod.compaction.checks import SECTIONS

Manner: TypeAlias = Literal["answers", "fails", "times out", "says nothing", "rambles", "waits"]

SUMMARY = "\n\n".join(
    f"{section}\n- the file was read, its lines are in order" for section in SECTIONS
)
RAMBLING = f"{SUMMARY}\n" + "- and then it was read once more, to be sure of it\n" * 8_000
MOST_WAIT_S = 60.0
"""After which a waiting model answers all the same: no thread of a test waits for ever."""


class ModelFailed(Exception):
    """What a model that fails raises: the provider cannot be reached."""


class ScriptedModel:
    """A model without a network. It answers always the same, in one of a few manners.

    `answers`: a summary. `fails`, `times out`: raises. `says nothing`: an empty text. `rambles`:
    far more than was to be summarized. `waits`: a summary, once `release` was called.
    """

    def __init__(self) -> None:
        self.manner: Manner = "answers"
        self.calls = 0
        """How often it was asked."""
        self.asked = threading.Event()
        """Set with the first question since `become`."""
        self._released = threading.Event()

    def become(self, manner: Manner) -> None:
        """Answer in this manner from now on; whoever waits is let go."""
        self._released.set()
        self.manner = manner
        self.asked.clear()
        self._released = threading.Event()

    def release(self) -> None:
        """Let those who wait for an answer have it."""
        self._released.set()

    def complete(self) -> str:
        """Return the answer, or raise: `ModelFailed`, `TimeoutError`."""
        manner, released = self.manner, self._released
        self.calls += 1
        self.asked.set()
        match manner:
            case "fails":
                raise ModelFailed("503: the provider cannot be reached")
            case "times out":
                raise TimeoutError("no answer from the provider in time")
            case "says nothing":
                return ""
            case "rambles":
                return RAMBLING
            case "waits":
                released.wait(MOST_WAIT_S)
            case "answers":
                pass

        return SUMMARY
