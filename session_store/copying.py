"""A session written anew from the entries of another: other hashes, the same kinds and times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from .chain import Entry
from .disk import Disk
from .layout import Layout
from .publish import Publisher

_OF_THE_LOG = frozenset({"hash", "prev", "seq", "ts", "kind", "batch", "session_id", "format"})


class Copied(NamedTuple):
    """What becomes an entry of the copy."""

    ts: int
    kind: str
    fields: Mapping[str, object]


def copied(entry: Entry, changes: Mapping[str, object] | None = None) -> Copied:
    """Return the entry as one for the copy, with `changes` in the place of what it says."""
    fields = {key: value for key, value in entry.data.items() if key not in _OF_THE_LOG}
    return copied_with(Copied(entry.ts, entry.kind, fields), changes or {})


def copied_with(entry: Copied, changes: Mapping[str, object]) -> Copied:
    """Return the entry with `changes` in the place of what it says, and before the rest."""
    # What is large comes last, so that a look at the beginning of a log tells what it is.
    rest = {key: value for key, value in entry.fields.items() if key not in changes}
    return entry._replace(fields={**changes, **rest})


def publish_copy(
    disk: Disk, layout: Layout, session_id: str, start: Copied, rest: Iterable[Copied]
) -> None:
    """Write the log of a new session of these entries, each with the time that it had.

    All of it is durable on return, and nothing of it is there after a failure or a crash.

    Raises:
        StorageFailed: It could not be written.
    """
    times = _Times(start.ts)
    Publisher(disk, layout, times.now).publish(session_id, start.fields, times.followed(rest))


class _Times:
    """A clock that stands at the time of the entry that is written just now."""

    def __init__(self, ts: int) -> None:
        self._ts = ts

    def now(self) -> int:
        return self._ts

    def followed(self, entries: Iterable[Copied]) -> Iterator[tuple[str, Mapping[str, object]]]:
        # The publisher asks for an entry when the one before is encoded.
        for ts, kind, fields in entries:
            self._ts = ts
            yield kind, fields
