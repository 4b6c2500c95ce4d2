"""Items as the pieces of a request's body: encoded once each, and joined as before.

Between two prunes or compactions the pieces of request k+1 begin with the bytes of request k.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeAlias, TypeVar

from worker.items import Item

PieceT = TypeVar("PieceT")
PieceT_contra = TypeVar("PieceT_contra", contravariant=True)
Written: TypeAlias = "list[bytes | bytearray]"
"""Bytes to be put one behind the other, at once: some of them grow with the next request."""


def with_tail(done: bytearray, tail: Sequence[bytes]) -> Written:
    """Return what is joined already with what follows it, members of one JSON list."""
    if not done or not tail:
        return [done, b",".join(tail)]
    return [done, b",", b",".join(tail)]


class Joiner(Protocol[PieceT_contra]):
    """Puts the pieces of one conversation together, in order; a new one begins anew."""

    def add(self, piece: PieceT_contra, /) -> None:
        """Take the next item's piece."""

    def written(self) -> Written:
        """Return everything as it is sent now; more may be added afterwards."""


class ItemWriter(Generic[PieceT]):
    """Writes the items of one conversation's requests.

    A request whose items begin with those of the last one costs its new items and one copy of the
    bytes, which is made by whoever puts the body together. Items are told apart by uid and value,
    so a projection may hand in equal copies. Only the last request's items are held.
    """

    def __init__(
        self, piece_of: Callable[[Item], PieceT], joiner: Callable[[str], Joiner[PieceT]]
    ) -> None:
        """Make a writer; `joiner` is handed the system prompt, and may leave it to others."""
        self._piece_of = piece_of
        self._joiner = joiner
        self._system = ""
        self._items: list[Item] = []
        self._pieces: dict[str, tuple[Item, PieceT]] = {}
        self._joined = joiner("")
        self.encoded_items = 0
        """How many items were encoded so far, over all requests; reused ones are not counted."""

    def write(self, system: str, items: Sequence[Item]) -> Written:
        """Return what `items` come to, as the joiner puts it together."""
        items = items if isinstance(items, list) else list(items)
        pieces, known = self._pieces, len(self._items)
        # Nothing is known any more if an item cannot be encoded.
        held, self._items = self._items, []
        # Made as long, lists are compared by pointers alone; a slice would count 10,000 references.
        held += items[known:]
        if not known or system != self._system or held != items:
            held, known, pieces = list(items), 0, {}
            self._system = system
            self._joined = self._joiner(system)

        for item in items[known:]:
            piece = self._piece(item)
            pieces[item.uid] = (item, piece)
            self._joined.add(piece)

        self._items, self._pieces = held, pieces
        return self._joined.written()

    def _piece(self, item: Item) -> PieceT:
        held = self._pieces.get(item.uid)
        if held is not None and held[0] == item:
            return held[1]

        self.encoded_items += 1
        return self._piece_of(item)
