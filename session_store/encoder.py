"""From what a caller appends to the lines that are written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import attrs

from worker.items import Item
from worker.items_json import dump_item

from .blobs import INLINE_BYTES, with_blobs_put_away
from .chain import EntryRef, Position, encode_entry
from .disk import storing
from .port import Payloads

_WITH_ITEMS = frozenset({"items", "history", "item"})


class Encoder:
    """Makes the lines of one session: items dumped, blobs put away, time never going back."""

    def __init__(self, blobs: Payloads, clock: Callable[[], int], last_ts: int = 0) -> None:
        self._blobs = blobs
        self._clock = clock
        self._last_ts = last_ts

    def encode(
        self,
        position: Position,
        entries: Iterable[tuple[str, Mapping[str, object]]],
        *,
        batch: int | None = None,
    ) -> tuple[bytes, list[EntryRef], Position]:
        """Return the lines of the entries, their names, and the position after them.

        `batch` is the seq of the first of all that are written at once, if there are several. The
        blobs that they name are durable on return.

        Raises:
            TypeError: Something in an entry's fields cannot be JSON.
            StorageFailed: A blob could not be stored.
        """
        lines: list[bytes] = []
        refs: list[EntryRef] = []
        for kind, fields in entries:
            self._last_ts = max(self._last_ts, self._clock())
            line, digest = self._line(position, kind, _with_items_dumped(fields), batch)
            lines.append(line)
            refs.append(EntryRef(position.seq, digest))
            position = Position(position.seq + 1, digest, position.offset + len(line))

        return b"".join(lines), refs, position

    def _line(
        self, position: Position, kind: str, fields: dict[str, Any], batch: int | None
    ) -> tuple[bytes, str]:
        line, digest = encode_entry(position, self._last_ts, kind, fields, batch=batch)
        if len(line) <= INLINE_BYTES:
            return line, digest

        with storing("store a large payload"):
            fields = with_blobs_put_away(fields, self._blobs.put)

        return encode_entry(position, self._last_ts, kind, fields, batch=batch)


def _with_items_dumped(fields: Mapping[str, object]) -> dict[str, Any]:
    dumped: dict[str, Any] = dict(fields)
    for key in _WITH_ITEMS & dumped.keys():
        value = dumped[key]
        # One item, or what is called so and is a number: `items` of `prune_advanced`.
        many = isinstance(value, (list, tuple))
        dumped[key] = [_dumped(item) for item in value] if many else _dumped(value)

    return dumped


def _dumped(item: object) -> object:
    return dump_item(cast("Item", item)) if attrs.has(type(item)) else item
