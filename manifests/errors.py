"""What is wrong with a manifest, as values and as the text a person reads.

ManifestError            the manifest was read and has mistakes
└─ ManifestUnreadable    there is no text to look at: missing, a directory, not UTF-8, too large
"""

from __future__ import annotations

from pathlib import Path

from attrs import frozen

MESSAGE_GAP = 4
WIDEST_ALIGNED = 48


@frozen(kw_only=True)
class Mistake:
    """One thing to mend: where it is, what stands there, and what may."""

    key: str
    """The dotted key as it would be written, such as `hooks[0].point`; empty for the whole file."""
    message: str
    """What is wrong and how to mend it, without the key."""
    line: int | None = None
    """The line in the file, counted from 1; None when nothing in the file stands for it."""
    column: int | None = None
    """The column, counted from 1; only known for TOML that does not parse."""
    found: str | None = None
    """The value as TOML, shortened, secrets masked; None when showing it would not help."""
    allowed: tuple[str, ...] = ()
    """Everything that may stand here, where that is a closed list worth printing."""
    suggestion: str | None = None
    """The one of `allowed`, or the key, that was probably meant."""
    origin: str = ""
    """Where it came from when not from the file: `--set`."""

    @property
    def place(self) -> str:
        """The first column of the listing: `line 6`, `--set`, or nothing."""
        return f"line {self.line}" if self.line is not None else self.origin

    @property
    def what(self) -> str:
        """The second column: the key, with the value found where that is known."""
        if self.column is not None:
            return f"column {self.column}"

        if not self.key:
            return "the file"

        return self.key if self.found is None else f"{self.key} = {self.found}"


class ManifestError(Exception):
    """A manifest that cannot be used; `str()` lists every mistake, one a row.

    `path` is the file as the caller named it, `mistakes` a tuple in file order.
    """

    def __init__(self, path: Path, mistakes: tuple[Mistake, ...]) -> None:
        super().__init__(path, mistakes)
        self.path = path
        self.mistakes = mistakes

    def __str__(self) -> str:
        count = len(self.mistakes)
        head = f"{_plain(self.path)} has {count} mistake{'' if count == 1 else 's'}"
        return "\n".join([head, *_rows(self.mistakes)])


class ManifestUnreadable(ManifestError):
    """A manifest that could not even be read; it has no mistakes, only a reason."""

    def __init__(self, path: Path, reason: str, hint: str) -> None:
        super().__init__(path, ())
        self.reason = reason
        self.hint = hint

    def __str__(self) -> str:
        return f"cannot read {_plain(self.path)}: {self.reason}\n  {self.hint}"


def _plain(path: Path) -> str:
    """Return a path that can be printed anywhere, whatever bytes are in its name."""
    return "".join(c if c.isprintable() else "?" for c in str(path))


def _rows(mistakes: tuple[Mistake, ...]) -> list[str]:
    """Lay the mistakes out in three columns; a row too wide for its column only pushes itself."""
    place_width = max((len(m.place) for m in mistakes), default=0)
    aligned = [len(m.what) for m in mistakes if len(m.what) <= WIDEST_ALIGNED]
    what_width = max(aligned, default=0)
    rows: list[str] = []
    for mistake in mistakes:
        lead = f"  {mistake.place:<{place_width}}  " if place_width else "  "
        start = f"{lead}{mistake.what:<{what_width}}{' ' * MESSAGE_GAP}"
        rows.append(start + mistake.message)
        if mistake.allowed:
            rows.append(" " * len(start) + f"({', '.join(mistake.allowed)})")

    return rows
