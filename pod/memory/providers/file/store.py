"""The folder of notes: one Markdown file a topic, written whole under a lock, read without one.

Several pods, and people with editors, may have the folder at once. A change reads what is there
at that moment, so that nobody's notes are lost; bytes that are no UTF-8 come back as they were. A
file that cannot be read is left alone and told of.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import define, evolve, field, frozen

from session_store import SessionStoreError, UnsafePath
from session_store.atomic import read_file, sweep, write_file
from session_store.disk import Disk
from session_store.token_shapes import mask_token_shapes
from worker.text import clean_text, is_blank, utf8_len

from .notes import Note, Page, numbered, plain, same_text

NOTE_MAX_CHARS = 2_000
PAGE_MAX_BYTES = 262_144
ALL_MAX_BYTES = 1_048_576
MOST_PAGES = 100
DEFAULT_TOPIC = "notes"
LOCK_TIMEOUT_S = 10.0

_TOPIC = re.compile(r"\w[\w-]{0,39}")
_LOCK_FILE = ".lock"
_PAUSE_S = 0.02
_NAMED = 3
"""How many of the files that cannot be read are told by name."""


class MemoryRefused(Exception):
    """Something cannot be remembered, changed or forgotten; the text says why and what to do."""


@frozen
class Shelf:
    """Everything there is to remember at one moment, and which files could not be read."""

    pages: tuple[Page, ...] = ()
    problems: tuple[str, ...] = ()
    """Those of the files in `unread` come last, in the same order."""
    unread: tuple[str, ...] = ()
    """The names of the files that could not be read."""

    @property
    def in_short(self) -> tuple[str, ...]:
        """The problems, but of several files that could not be read one line altogether."""
        count = len(self.unread)
        if count < 2:
            return self.problems

        named, rest = ", ".join(self.unread[:_NAMED]), count - _NAMED
        names = f"{named} and {rest} more" if rest > 0 else named
        first = self.problems[-count]
        return (*self.problems[:-count], f"{count} files cannot be read: {names} ({first})")

    @property
    def notes(self) -> list[Note]:
        """All notes, page by page."""
        return [note for page in self.pages for note in page.notes]

    @property
    def size(self) -> int:
        """The bytes of all pages."""
        return sum(utf8_len(page.text) for page in self.pages)


def _today() -> str:
    return time.strftime("%Y-%m-%d")


def _new_id() -> str:
    return secrets.token_hex(3)


@define(eq=False)
class NoteStore:
    """The notes in one folder. Methods block on the disk and on the lock; any thread may call."""

    folder: Path
    today: Callable[[], str] = _today
    mint: Callable[[], str] = _new_id
    lock_timeout_s: float = LOCK_TIMEOUT_S
    _disk: Disk = field(factory=Disk)

    def read(self) -> Shelf:
        """Return all that is there; a folder that is not there holds nothing."""
        pages: list[Page] = []
        problems: list[str] = []
        unread: list[str] = []
        for path in self._files(problems):
            try:
                page = self._page(path)
            except MemoryRefused as error:
                problems.append(str(error))
                unread.append(path.name)
            else:
                pages += [page] if page is not None else []

        return Shelf(tuple(numbered(pages)), tuple(problems), tuple(unread))

    def remember(self, text: str, topic: str = "") -> tuple[Note, bool]:
        """Keep a text as a note and return it, and whether it is new: what is there stays as it is.

        Raises:
            MemoryRefused: It says nothing or too much, the topic is no name, or the memory is full.
        """
        clean = _checked(text)
        with self._locked():
            shelf = self.read()
            known = next((n for n in shelf.notes if same_text(n.text, clean)), None)
            if known is not None:
                return known, False

            page = self._page_for(topic or DEFAULT_TOPIC, shelf)
            note = Note(self._free_id(shelf), self.today(), clean, page.topic)
            self._write(page, page.with_note(note), shelf)
            return note, True

    def replace(self, note_id: str, text: str) -> tuple[Note, Note]:
        """Put a text in the place of a note's, as of today; returns the note as it was, and is.

        Raises:
            MemoryRefused: As `remember`, or there is no such note.
        """
        clean = _checked(text)
        with self._locked():
            shelf = self.read()
            page, old = _find(note_id, shelf)
            new = evolve(old, text=clean, date=self.today())
            self._write(page, page.with_change(old, new), shelf)
            return old, new

    def forget(self, note_id: str) -> Note:
        """Take a note out of its file and return it. Raises `MemoryRefused` where there is none."""
        with self._locked():
            shelf = self.read()
            page, note = _find(note_id, shelf)
            self._write(page, page.without(note), shelf)
            return note

    # ------------------------------------------------------------------ files

    def _files(self, problems: list[str]) -> list[Path]:
        try:
            self._disk.check_folder(self.folder)
            names = [path.name for path in self.folder.iterdir()]
        except FileNotFoundError:
            return []
        except (OSError, SessionStoreError) as error:
            problems.append(f"the folder {self.folder}: {_why(error)}")
            return []

        names = sorted(name for name in names if name.endswith(".md") and name[0] != ".")
        if len(names) > MOST_PAGES:
            problems.append(
                f"{len(names) - MOST_PAGES} files of {self.folder}: only {MOST_PAGES} are read"
            )

        return [self.folder / name for name in names[:MOST_PAGES]]

    def _page(self, path: Path) -> Page | None:
        """Return the page that a file is, or None where it has gone since."""
        try:
            size = os.lstat(path).st_size
            if size > PAGE_MAX_BYTES:
                raise MemoryRefused(
                    f"{path.name} has {size:,} bytes, and at most {PAGE_MAX_BYTES:,} are read; "
                    "split it"
                )

            data = read_file(self._disk, path)
        except FileNotFoundError:
            return None
        except (OSError, SessionStoreError) as error:
            raise MemoryRefused(f"{path.name} cannot be read: {_why(error)}") from error

        return Page.read(path.stem, data.decode("utf-8", "surrogateescape"))

    def _page_for(self, topic: str, shelf: Shelf) -> Page:
        """Return the page of a topic, an empty one where there is none yet."""
        known = next((p for p in shelf.pages if p.topic.casefold() == topic.casefold()), None)
        if known is not None:
            return known

        name = topic.strip().casefold()
        if not _TOPIC.fullmatch(name):
            raise MemoryRefused(
                f"{topic[:60]!r} is no topic: it must be one word of letters, digits, - and _, "
                "at most 40 characters"
            )

        path = self.folder / f"{name}.md"
        if path.exists() or path.is_symlink():
            raise MemoryRefused(f"{path.name} is there and cannot be read; it is left alone")

        if len(shelf.pages) >= MOST_PAGES:
            raise MemoryRefused(f"there are {MOST_PAGES} topics already; use one of them")

        return Page(name, (), ())

    def _write(self, old: Page, new: Page, shelf: Shelf) -> None:
        """Put a page in the place of `old`. What makes the memory smaller is never refused."""
        size, growth = utf8_len(new.text), utf8_len(new.text) - utf8_len(old.text)
        if growth > 0 and size > PAGE_MAX_BYTES:
            raise MemoryRefused(
                f"{old.topic}.md is full ({PAGE_MAX_BYTES:,} bytes): use another topic, or forget "
                "what no longer holds"
            )

        if growth > 0 and shelf.size + growth > ALL_MAX_BYTES:
            raise MemoryRefused(
                f"the memory is full ({ALL_MAX_BYTES:,} bytes): forget what no longer holds"
            )

        path = self.folder / f"{old.topic}.md"
        try:
            write_file(self._disk, path, new.text.encode("utf-8", "surrogateescape"))
        except (OSError, SessionStoreError) as error:
            raise MemoryRefused(f"{path.name} cannot be written: {_why(error)}") from error

    def _free_id(self, shelf: Shelf) -> str:
        taken = {note.id for note in shelf.notes}
        return next(made for made in iter(self.mint, None) if made not in taken)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the folder's lock, which dies with the process that has it."""
        try:
            self._disk.make_folder(self.folder)
            sweep(self._disk, self.folder)
            fd = self._disk.open(self.folder / _LOCK_FILE, os.O_RDWR | os.O_CREAT)
        except (OSError, SessionStoreError) as error:
            raise MemoryRefused(f"the folder {self.folder}: {_why(error)}") from error

        try:
            self._lock(fd)
            yield
        finally:
            os.close(fd)

    def _lock(self, fd: int) -> None:
        deadline = time.monotonic() + self.lock_timeout_s
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise MemoryRefused(
                        f"somebody else has been writing for {self.lock_timeout_s:g} s; try again"
                    ) from None

                time.sleep(_PAUSE_S)
            else:
                return


def _checked(text: str) -> str:
    """Return a text as it is kept: without credentials, no longer than a note may be."""
    clean = mask_token_shapes(plain(clean_text(text)))
    if is_blank(clean):
        raise MemoryRefused("the note is empty")

    if len(clean) > NOTE_MAX_CHARS:
        raise MemoryRefused(
            f"the note has {len(clean):,} characters, and at most {NOTE_MAX_CHARS:,} are kept: "
            "say it shorter, or in several notes"
        )

    return clean


def _find(note_id: str, shelf: Shelf) -> tuple[Page, Note]:
    wanted = note_id.strip().strip("[]").split(" ")[0].casefold()
    for page in shelf.pages:
        for note in page.notes:
            if note.id == wanted:
                return page, note

    raise MemoryRefused(f"no note has the id {note_id[:40]!r}; memory_search shows ids")


def _why(error: OSError | SessionStoreError) -> str:
    if isinstance(error, UnsafePath):
        return f"it is {error.why}"

    return getattr(error, "strerror", None) or str(error)
