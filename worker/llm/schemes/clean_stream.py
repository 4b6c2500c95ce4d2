"""Clean text out of deltas: a surrogate pair whose halves came in two deltas is joined."""

from __future__ import annotations

from worker.text import clean_text


class CleanStream:
    """Text that arrives in pieces; every piece handed on is valid on its own, as is the whole."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._held = ""

    def push(self, piece: str) -> str:
        """Take the next piece and return what can be handed on; a half pair at its end waits."""
        piece = self._held + piece
        self._held = ""
        if piece and "\ud800" <= piece[-1] <= "\udbff":
            self._held = piece[-1]
            piece = piece[:-1]

        return self._keep(piece)

    def more(self, piece: str) -> None:
        """Take a piece that is valid on its own, after one that was handed on whole."""
        self._pieces.append(piece)

    def close(self) -> str:
        """Return what was still waiting: nothing, or a replacement character for the half."""
        held, self._held = self._held, ""
        return self._keep(held)

    @property
    def text(self) -> str:
        """Everything that was handed on."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    def _keep(self, piece: str) -> str:
        piece = clean_text(piece)
        if piece:
            self._pieces.append(piece)
        return piece
