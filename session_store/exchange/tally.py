"""What an import found, counted while it goes on: the source of its report."""

from __future__ import annotations

from collections import Counter

from attrs import define, field

MOST_BAD_LINES = 100
"""So many are named; the others are counted."""


@define
class Tally:
    """Counts of one file, or of one conversation of it."""

    records: int = 0
    """Records that could be read."""
    kept: Counter[str] = field(factory=Counter)
    """What no item can hold, by its name in the singular: it is kept in extension entries."""
    left_out: Counter[str] = field(factory=Counter)
    """What is not kept at all, by its name in the singular."""
    bad_lines: list[tuple[int, str]] = field(factory=list)
    """Lines that could not be read, and why: the first of them."""
    bad_line_count: int = 0
    notes: list[str] = field(factory=list)
    """What else a person should know, each a sentence without its full stop."""

    def bad(self, line: int, why: str) -> None:
        """Note a line that could not be read."""
        self.bad_line_count += 1
        if len(self.bad_lines) < MOST_BAD_LINES:
            self.bad_lines.append((line, why))

    def note(self, text: str) -> None:
        """Note something once."""
        if text not in self.notes:
            self.notes.append(text)
