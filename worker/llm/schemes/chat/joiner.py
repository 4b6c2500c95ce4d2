"""Chat Completions messages put together: the order of roles that a server takes."""

from __future__ import annotations

from worker.items import Image
from worker.llm.schemes.chat.messages import ChatMessage, Piece, images_message
from worker.llm.schemes.chat.quirks import ChatQuirks
from worker.llm.schemes.item_writer import Written, with_tail
from worker.text import clean_text, is_blank

BRIDGE = "I have the results."
"""What the assistant says between a tool's result and the user, where nobody said anything."""
GO_ON = "Continue."
"""What the user says where it must be the user who begins, or who spoke last."""


class ChatJoiner:
    """Messages joined so far: the bytes that will not change any more, and what may still grow."""

    def __init__(self, system: str, *, quirks: ChatQuirks) -> None:
        self._quirks = quirks
        self._is_strict = quirks.strict_alternation
        self._has_bridges = quirks.strict_alternation or quirks.bridge_after_tools
        self._done = bytearray()
        self._images: list[Image] = []
        self._last_role = ""
        # With strict alternation the last message waits: the next one may have to be joined to it.
        self._open: tuple[ChatMessage, bytes] | None = None
        if not is_blank(system):
            message = ChatMessage("system", clean_text(system))
            self._append(message.encoded(quirks))

    def add(self, piece: Piece) -> None:
        """Take the next item's message. Images of a group of results follow the whole group."""
        if piece.message is None:
            return

        if self._images and piece.message.role != "tool":
            message = images_message(self._images)
            self._images = []
            self._put(message, message.encoded(self._quirks))

        self._images.extend(piece.images)
        self._put(piece.message, piece.data)

    def written(self) -> Written:
        """Return everything as it is sent now."""
        tail = [self._open[1]] if self._open else []
        last_role = self._last_role
        if self._images:
            messages = [*self._between(last_role, "user"), images_message(self._images)]
            tail += [message.encoded(self._quirks) for message in messages]
            last_role = "user"
        if last_role == "assistant" and self._has_bridges:
            tail.append(ChatMessage("user", GO_ON).encoded(self._quirks))

        return with_tail(self._done, tail)

    def _put(self, message: ChatMessage, data: bytes) -> None:
        for missing in self._between(self._last_role, message.role):
            self._place(missing, missing.encoded(self._quirks))

        self._place(message, data)

    def _between(self, earlier_role: str, role: str) -> list[ChatMessage]:
        """What must stand between two messages of these roles, where anything must."""
        if self._has_bridges and earlier_role == "tool" and role == "user":
            return [ChatMessage("assistant", BRIDGE)]
        if self._is_strict and not earlier_role and role == "assistant":
            return [ChatMessage("user", GO_ON)]
        return []

    def _place(self, message: ChatMessage, data: bytes) -> None:
        self._last_role = message.role
        if not self._is_strict:
            self._append(data)
            return

        if self._open is not None and _must_join(self._open[0], message):
            joined = self._open[0].joined_with(message)
            self._open = (joined, joined.encoded(self._quirks))
            return

        if self._open is not None:
            self._append(self._open[1])
        self._open = (message, data)

    def _append(self, data: bytes) -> None:
        if self._done:
            self._done += b","
        self._done += data


def _must_join(earlier: ChatMessage, later: ChatMessage) -> bool:
    return earlier.role == later.role and earlier.role != "tool"
