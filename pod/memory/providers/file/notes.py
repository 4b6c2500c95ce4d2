"""A page of notes as Markdown: read without losing a byte, and changed note by note. Pure.

A note is an item of a list at the margin, with what is indented under it:

    - [k3f9a2 2026-12-01] The staging database is db-7.
      It is reset every Monday.

An item without the brackets is a note too: a person wrote it, and it goes by an id drawn from its
text. All other lines (headings, prose, whatever) are nobody's business here, and stay.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence

from attrs import evolve, frozen

_ITEM = re.compile(r"\ufeff?[-*+][ \t]+(?=\S)")
_MARK = re.compile(r"\[([0-9a-z]{4,16}) (\d{4}-\d{2}-\d{2})\][ \t]*")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_INDENT = "  "


@frozen
class Note:
    """One note, and the lines of its page that it takes: from `start` up to `end`."""

    id: str
    date: str
    """The day it was written, as `2026-12-01`; empty where a person wrote it without one."""
    text: str
    topic: str
    start: int = 0
    end: int = 0

    @property
    def marked(self) -> str:
        """The note as a line for the model: its id, its date and its topic before the text."""
        where = " ".join(part for part in (self.id, self.date, self.topic) if part)
        return f"- [{where}] {self.text}".replace("\n", f"\n{_INDENT}")


@frozen
class Page:
    """The lines of one file, and the notes among them."""

    topic: str
    lines: tuple[str, ...]
    """Split at newlines alone, so that joining them gives the file again."""
    notes: tuple[Note, ...]

    @classmethod
    def read(cls, topic: str, text: str) -> Page:
        """Return the page that a text is, with the ids that stand there; see `numbered`."""
        lines = tuple(text.split("\n"))
        starts = [n for n, line in enumerate(lines) if _ITEM.match(line)]
        notes = tuple(_note(lines, start, topic) for start in starts)
        return cls(topic, lines, notes)

    @property
    def text(self) -> str:
        """The text of the file, byte for byte as it was read, apart from what was changed."""
        return "\n".join(self.lines)

    def with_note(self, note: Note) -> Page:
        """Return the page with a note at its end."""
        before = list(self.lines)
        while before and not before[-1].strip():
            before.pop()
        if not before:
            before = [f"# {self.topic}", ""]
        elif not self.notes or self.notes[-1].end < len(before):
            before.append("")  # What is not a list comes before: a list begins after a blank line.

        return Page.read(self.topic, "\n".join([*before, *_lines(note), ""]))

    def with_change(self, old: Note, new: Note) -> Page:
        """Return the page with `new` in the place of `old`, which is one of its notes."""
        lines = (*self.lines[: old.start], *_lines(new), *self.lines[old.end :])
        return Page.read(self.topic, "\n".join(lines))

    def without(self, note: Note) -> Page:
        """Return the page without one of its notes."""
        lines = (*self.lines[: note.start], *self.lines[note.end :])
        return Page.read(self.topic, "\n".join(lines))


def numbered(pages: Iterable[Page]) -> list[Page]:
    """Return the pages with an id for each note, no two alike; the first one keeps its own.

    The same pages always come to the same ids.
    """
    taken: set[str] = set()
    made = []
    for page in pages:
        notes = []
        for note in page.notes:
            unique = note.id if note.id and note.id not in taken else _drawn(note.text, taken)
            taken.add(unique)
            notes.append(note if unique == note.id else evolve(note, id=unique))
        made.append(evolve(page, notes=tuple(notes)))

    return made


def plain(text: str) -> str:
    """Return a text as a note can hold it: ends of lines as newlines, no control characters."""
    lines = (_CONTROL.sub("", line).rstrip() for line in text.splitlines())
    return "\n".join(lines).strip()


def same_text(one: str, other: str) -> bool:
    """Tell whether two texts say the same, white space and case apart."""
    return " ".join(one.split()).casefold() == " ".join(other.split()).casefold()


def _note(lines: Sequence[str], start: int, topic: str) -> Note:
    end = start + 1
    for place in range(start + 1, len(lines)):
        line = lines[place]
        if line.strip():
            if not line[:1].isspace():
                break

            # A blank line belongs to the note only where the note goes on after it.
            end = place + 1

    item = _ITEM.match(lines[start])
    first = lines[start][item.end() if item else 0 :]
    mark = _MARK.match(first)
    rest = [_dedented(line) for line in lines[start + 1 : end]]
    text = "\n".join([first[mark.end() if mark else 0 :], *rest])
    return Note(
        id=mark.group(1) if mark else "",
        date=mark.group(2) if mark else "",
        text="\n".join(line.rstrip() for line in text.split("\n")).strip(),
        topic=topic,
        start=start,
        end=end,
    )


def _dedented(line: str) -> str:
    return line.removeprefix(_INDENT) if line.startswith(_INDENT) else line.lstrip()


def _lines(note: Note) -> list[str]:
    first, *rest = note.text.split("\n")
    return [f"- [{note.id} {note.date}] {first}", *(f"{_INDENT}{line}".rstrip() for line in rest)]


def _drawn(text: str, taken: set[str]) -> str:
    """Return an id drawn from a text, with as many digits as it takes to be free."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
    free = (digest[:size] for size in range(6, 17, 2) if digest[:size] not in taken)
    # Equal notes in plenty: they are told apart by their number.
    return next(free, None) or next(
        f"{digest[:10]}{n:06x}" for n in range(1 << 24) if f"{digest[:10]}{n:06x}" not in taken
    )
