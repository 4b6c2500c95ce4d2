"""What happens around an answer, told on stderr; a compaction as a line that counts its seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable

from attrs import define, field

from pod.protocol import CompactionDone, CompactionFailed, CompactionStart, EventData

from .listing import say
from .notes import Scene, note
from .progress import LiveLine


@define
class Narrator:
    """Tells events that a person should know of."""

    scene: Scene
    before: Callable[[], None] = lambda: None
    """Called before anything is said: it ends the line that an answer is in the middle of."""
    _line: LiveLine = field(factory=LiveLine, init=False)

    def tell(self, data: EventData) -> None:
        """Tell an event, if it is worth it."""
        text = note(data, self.scene)
        if isinstance(data, CompactionDone | CompactionFailed):
            self.erase()

        if text is None:
            return

        self.before()
        if isinstance(data, CompactionStart) and sys.stderr.isatty():
            self._line.begin(text)
        else:
            say(text, err=True)

    def erase(self) -> None:
        """Take the line of a compaction away."""
        self._line.erase()
