"""Notes as the model is shown them: as many as fit, the newest ones first of all. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from worker.text import clean_text, cut_middle, utf8_len

from .notes import Note

_INTRODUCTION = """\
You have a memory that lasts beyond this session: short notes, each with an id. Keep it in order.
memory_remember keeps what will matter in later sessions: preferences, decisions, lessons, facts
about people, places and systems. memory_replace corrects a note, memory_forget drops one that no
longer holds, memory_search finds notes that are not shown. Keep no secrets, nothing that only
matters now, nothing twice. A note says what was known on its date; what the user says now comes
first."""
_EMPTY = "It is empty so far."
_NOTE_MAX_BYTES = 1_000
"""A longer note is shown with its middle left out; `memory_search` gives it whole."""


def newest_first(notes: Sequence[Note]) -> list[Note]:
    """Return the notes by date, then by place; a person's without a date counts as newest."""
    oldest_first = sorted(notes, key=lambda note: note.date or "9999")
    return oldest_first[::-1]


def prompt_block(
    notes: Sequence[Note], problems: Sequence[str], max_bytes: int
) -> tuple[str, list[Note]]:
    """Return what the system prompt says of the memory, and the notes that it shows."""
    shown = fitting(newest_first(notes), max_bytes)
    left_out = len(notes) - len(shown)
    lines = [_INTRODUCTION, ""]
    if not notes:
        lines.append(_EMPTY)
    if left_out:
        lines.append(f"({counted(left_out)} not shown here: memory_search finds them.)")

    lines += listed(reversed(shown))
    lines += [f"(Not readable: {clean_text(problem)}.)" for problem in problems]
    return "\n".join(lines), shown


def fitting(notes: Iterable[Note], max_bytes: int) -> list[Note]:
    """Return the notes that fit into `max_bytes` together, the first ones first; in their order."""
    fits, left = [], max_bytes
    for note in notes:
        size = utf8_len(line(note)) + 1
        if size <= left:
            fits.append(note)
            left -= size

    return fits


def listed(notes: Iterable[Note]) -> list[str]:
    """Return a line of Markdown a note (or several, indented)."""
    return [line(note) for note in notes]


def line(note: Note) -> str:
    """Return a note as it is shown."""
    return cut_middle(clean_text(note.marked), _NOTE_MAX_BYTES)


def counted(count: int) -> str:
    """Return a number of notes in words."""
    return f"{count} note is" if count == 1 else f"{count:,} notes are"


def text_of(notes: Iterable[Note], title: str, *, fits: Callable[[str], str]) -> str:
    """Return the notes under a title, or nothing without notes."""
    lines = listed(notes)
    return fits("\n".join([title, *lines])) if lines else ""
