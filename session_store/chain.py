"""The hash chain: how an entry becomes a line, and how lines are proved to be a chain. Pure.

A line is `{"hash":"<64 hex>",` followed by the body, and `hash` is the SHA-256 of the body's exact
bytes. The body holds `prev`, the hash of the entry before. Lines end at byte 0x0A and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from itertools import islice
from operator import itemgetter
from typing import Any, BinaryIO, NamedTuple, TypeAlias

import orjson

from worker.text import clean_text

FORMAT = 1
"""The version of the log's format, as a session's first entry says it. Older ones are read."""

GENESIS = "0" * 64
"""What entry 0 has for `prev`."""

PREFIX_BYTES = 75
"""The length of `{"hash":"<64 hex>",`."""

_OPENING = b'{"hash":"'
_CLOSING = b'",'
_HASH_AT = len(_OPENING)
_AT_ONCE_BYTES = 1 << 16

_OWN_KEYS = frozenset({"hash", "prev", "seq", "ts", "kind", "batch"})
_OWN_VALUES = itemgetter("hash", "prev", "seq", "ts", "kind")
_AFTER_HASH = itemgetter(slice(PREFIX_BYTES - len(_CLOSING), PREFIX_BYTES))


class EntryRef(NamedTuple):
    """The name of one entry. A session's head is the `EntryRef` of its last entry."""

    seq: int
    """Its place in the log, from 0."""
    hash: str
    """Its hash, 64 hex digits."""


class Entry(NamedTuple):
    """One verified line of a log."""

    offset: int
    """The byte of the file at which its line begins."""
    raw: bytes
    """The line as it is stored, without its newline."""
    data: dict[str, Any]
    """All of it, parsed."""

    @property
    def seq(self) -> int:
        """Its place in the log, from 0."""
        seq: int = self.data["seq"]
        return seq

    @property
    def hash(self) -> str:
        """Its hash, 64 hex digits."""
        value: str = self.data["hash"]
        return value

    @property
    def kind(self) -> str:
        """Its kind, known or not."""
        kind: str = self.data["kind"]
        return kind

    @property
    def ts(self) -> int:
        """When it was written, in milliseconds of Unix time."""
        ts: int = self.data["ts"]
        return ts

    @property
    def ref(self) -> EntryRef:
        """Its name."""
        return EntryRef(self.seq, self.hash)

    @property
    def next(self) -> Position:
        """Where the entry after it begins, for a walk that goes on later."""
        return Position(self.seq + 1, self.hash, self.offset + len(self.raw) + 1)


class Position(NamedTuple):
    """A place between two entries from which a walk can go on."""

    seq: int = 0
    """The next entry's."""
    prev: str = GENESIS
    """The hash of the entry before."""
    offset: int = 0
    """The byte at which the next entry's line begins."""

    @property
    def head(self) -> EntryRef:
        """The entry before."""
        return EntryRef(self.seq - 1, self.prev)


Look: TypeAlias = Callable[[Entry], None]

NOWHERE = b"\n\n"
"""Bytes that no line holds."""


def pass_by(_: Entry) -> None:
    """Look at nothing."""


START = Position()
"""The beginning of every log."""


class Failure(NamedTuple):
    """The first line that does not verify."""

    seq: int
    """The place in the log at which it is."""
    reason: str
    """What is wrong, as the end of a sentence that begins with `entry 7`."""
    offset: int
    """The byte at which it begins."""
    size: int
    """How many bytes it has, its newline included, and with what was written together with it."""
    last: bool
    """Whether nothing comes after it, but for what one write that tore may have left."""
    terminated: bool
    """Whether it ends in a newline."""


def encode_entry(
    position: Position,
    ts: int,
    kind: str,
    fields: Mapping[str, Any],
    *,
    batch: int | None = None,
) -> tuple[bytes, str]:
    """Return the line of a new entry, newline included, and its hash.

    `batch` is the seq of the first entry of those that are written at once, if there are several.
    Lone surrogates in `fields` become U+FFFD: UTF-8 has no place for them.

    Raises:
        TypeError: A value of `fields` cannot be JSON, or a key is one of the entry's own.
    """
    if not _OWN_KEYS.isdisjoint(fields):
        message = f"an entry's own keys cannot be fields: {sorted(_OWN_KEYS & fields.keys())}"
        raise TypeError(message)

    own: dict[str, Any] = {"prev": position.prev, "seq": position.seq, "ts": ts, "kind": kind}
    if batch is not None:
        own["batch"] = batch

    body = _to_json({**own, **fields})[1:]
    digest = sha256(body).hexdigest()
    return b"".join((_OPENING, digest.encode(), _CLOSING, body, b"\n")), digest


def advanced(position: Position, lines: bytes) -> Position:
    """Return the position after these whole lines, which begin at `position`."""
    last = lines.rfind(b"\n", 0, -1) + 1
    digest = lines[last + _HASH_AT : last + PREFIX_BYTES - 2].decode("ascii")
    return Position(position.seq + lines.count(b"\n"), digest, position.offset + len(lines))


def _to_json(value: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        # Callers clean what they take in; this is the last place before the disk, and a stray
        # surrogate must not cost a turn. What is wrong for another reason fails again.
        return orjson.dumps(_cleaned(value))


def _cleaned(value: object) -> object:
    if isinstance(value, str):
        return clean_text(value)

    if isinstance(value, dict):
        return {_cleaned(key): _cleaned(item) for key, item in value.items()}

    return [_cleaned(item) for item in value] if isinstance(value, (list, tuple)) else value


def line_start(digits: str) -> bytes:
    """Return how a line begins whose hash begins with `digits`."""
    return _OPENING + digits.encode("ascii") + (b'",' if len(digits) == len(GENESIS) else b"")


def entry_named(raw: bytes, offset: int, ref: EntryRef | None = None) -> Entry | None:
    """Return the entry that the line is, if it matches its own hash, and is the one of that name.

    It is proved to be what was written; whether the entries before it hold is another matter.
    """
    try:
        said = orjson.loads(raw)
        seq, prev = said["seq"], said["prev"]
    except (orjson.JSONDecodeError, TypeError, KeyError):
        return None

    data = _verified(raw, seq, prev)
    if isinstance(data, str) or (ref is not None and ref != (seq, data["hash"])):
        return None

    return Entry(offset, raw, data)


class Walk:
    """Goes through a log once and yields each entry that verifies, in constant memory.

    It ends at the end of the file or at the first line that does not verify, or that is not the
    one which `anchor` says was there. Then `failure`,
    `position` and `unterminated` say what was found. A last line that is whole but for its newline
    is an entry like any other: whatever happens next, it will stay.
    """

    def __init__(
        self, file: BinaryIO, start: Position = START, anchor: EntryRef | None = None
    ) -> None:
        self._file = file
        self._anchor = EntryRef(-1, "") if anchor is None else anchor
        self._seq, self._prev, self._offset = start
        self.failure: Failure | None = None
        """The line at which the walk ended, if one does not verify."""
        self.unterminated = False
        """Whether the last entry lacks its newline."""

    @property
    def position(self) -> Position:
        """Where the next entry begins, after the last one that verified."""
        return Position(self._seq, self._prev, self._offset)

    @property
    def head(self) -> EntryRef | None:
        """The last entry that verified, or None where none has."""
        return self.position.head if self._seq else None

    def __iter__(self) -> Iterator[Entry]:
        """Yield the entries, each proved to follow the one before."""
        self._file.seek(self._offset)
        for line in self._file:
            terminated = line.endswith(b"\n")
            raw = line[:-1] if terminated else line
            data = _verified(raw, self._seq, self._prev)
            if not isinstance(data, str) and self._is_replaced(data["hash"]):
                data = "is not the one that was acknowledged"

            if isinstance(data, str):
                # A line without a newline is where the file ended when it was read. There may be
                # more by now, for the writer may be in the middle of it.
                torn = _size_of_torn(self._file, line, self._seq) if terminated else len(line)
                size, last = len(line) if torn is None else torn, torn is not None
                self.failure = Failure(self._seq, data, self._offset, size, last, terminated)
                return

            entry = Entry(self._offset, raw, data)
            self.unterminated = not terminated
            self._seq += 1
            self._prev = data["hash"]
            self._offset += len(raw) + 1
            yield entry

    def run(self, mark: bytes = NOWHERE, look: Look = pass_by) -> None:
        """Go on as far as an iteration would; `look` only at entries whose line holds `mark`.

        It is the quick way for whoever wants to know whether a log verifies, and no more: lines are
        proved many at a time, and one by one where anything is special about any of them.
        """
        while self.failure is None and (count := self._run_plain(mark)):
            for entry in islice(self, count):
                if mark in entry.raw:
                    look(entry)

    def _run_plain(self, mark: bytes) -> int:
        """Go on to the end, or to lines of which one is special; return how many these are."""
        self._file.seek(self._offset)
        while lines := self._file.readlines(_AT_ONCE_BYTES):
            whole = b"".join(lines)
            digest = _hash_of_last(lines, self._seq, self._prev)
            anchored = 0 <= self._anchor.seq - self._seq < len(lines)
            # `rfind`, for it takes half as long as `in`.
            if digest is None or anchored or whole.rfind(mark) >= 0:
                return len(lines)

            self._seq, self._prev = self._seq + len(lines), digest
            self._offset += len(whole)
            self.unterminated = False

        return 0

    def _is_replaced(self, digest: str) -> bool:
        return self._seq == self._anchor.seq and self._anchor.hash != digest


def _size_of_torn(file: BinaryIO, line: bytes, seq: int) -> int | None:
    """Return how many bytes the bad line and all after it have, if one write may have left them.

    Of a write that was not synced before the power went, any part may be zeros. So the line holds
    zeros, and each one after it does too, or is as it was written and says that it was written at
    once with the line `seq`. Whatever else comes after a bad line was written when that one had
    been acknowledged.
    """
    size, following = len(line), file.readline()
    if following and not _has_zeros(line):
        return None

    while following:
        if not _may_be_torn(following, seq):
            return None

        size += len(following)
        following = file.readline()

    return size


def _has_zeros(line: bytes) -> bool:
    return b"\0" in line  # JSON holds none


def _may_be_torn(line: bytes, seq: int) -> bool:
    if _has_zeros(line):
        return True

    if not line.endswith(b"\n"):
        # The beginning of a line does not tell when it was written.
        return _OPENING.startswith(line[:_HASH_AT])

    entry = entry_named(line[:-1], 0)
    batch = None if entry is None else entry.data.get("batch")
    return type(batch) is int and batch <= seq


def _verified(raw: bytes, seq: int, prev: str) -> dict[str, Any] | str:
    """Return the parsed line, or what is wrong with it."""
    digest = sha256(raw[PREFIX_BYTES:]).hexdigest()
    data = _read(raw, digest, seq, prev)
    return _what_is_wrong(raw, digest, seq, prev) if data is None else data


def _read(line: bytes, digest: str, seq: int, prev: str) -> dict[str, Any] | None:
    """Return the parsed line, if it is an entry of that hash and place."""
    try:
        data: dict[str, Any] = orjson.loads(line)
        # A `hash` key later in the line would win when parsed, but cannot be the hash of what it is
        # part of. So this one is the first, and where it ends tells that nothing else is before it.
        if (
            data["hash"] == digest
            and data["prev"] == prev
            and data["seq"] == seq
            and type(data["seq"]) is type(data["ts"]) is int
            and type(data["kind"]) is str
            and line[PREFIX_BYTES - 2 : PREFIX_BYTES] == _CLOSING
        ):
            return data
    except (orjson.JSONDecodeError, KeyError, TypeError):  # `_what_is_wrong` tells
        return None

    return None


def _hash_of_last(lines: list[bytes], seq: int, prev: str) -> str | None:
    """Return the last line's hash, if all are whole entries and follow each other from that place.

    Each is held to all that `_read` holds one to; what is compared is compared for all at once.
    """
    digests = [sha256(line[PREFIX_BYTES:-1]).hexdigest() for line in lines]
    try:
        own = [*map(_OWN_VALUES, map(orjson.loads, lines))]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None

    hashes, before, places, times, kinds = zip(*own, strict=True)
    proved = (
        hashes == tuple(digests)
        and before == (prev, *digests[:-1])
        and places == tuple(range(seq, seq + len(lines)))
        and {*map(type, places), *map(type, times)} == {int}
        and {*map(type, kinds)} == {str}
        and {*map(_AFTER_HASH, lines)} == {_CLOSING}
        and lines[-1].endswith(b"\n")
    )
    return digests[-1] if proved else None


def _what_is_wrong(raw: bytes, digest: str, seq: int, prev: str) -> str:
    """Return why the line is not the entry of that hash and place."""
    if raw[:PREFIX_BYTES] != b'{"hash":"%b",' % digest.encode():
        return "does not match its hash" if raw.startswith(_OPENING) else "is not an entry"

    try:
        data = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return "is not JSON"

    if not isinstance(data.get("kind"), str) or data["hash"] != digest:
        return "is not an entry"

    if data.get("prev") != prev or data.get("seq") != seq or type(data["seq"]) is not int:
        return f"does not follow entry {seq - 1}" if seq else "is not the first of a log"

    return "has no time"
