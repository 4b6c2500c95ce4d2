"""Blocks put together as the messages of a request, with the marks of what is to be cached.

Roles alternate, the first and the last message are the user's, calls have ids of their own, and
results stand before anything else. Two cache marks are set: at the end, and where the request
before this one ended, which is in front of the last answer. So a cached prompt is found again also
where more blocks came in between than the API looks back over (twenty). Neither can fall on
thinking, which takes no mark: both follow a user's block.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from worker.llm.schemes.anthropic.blocks import Block, Piece, text_block
from worker.llm.schemes.item_writer import Written

CACHE_MARK = b',"cache_control":{"type":"ephemeral"}'
GO_ON = "Continue."
"""What the user says where the history has it that an answer followed on nothing, or on another
answer, and where an answer comes last: models refuse to write on at an answer of their own."""

_GO_ON_BLOCK = text_block(GO_ON).head
_NOT_IN_AN_ID = re.compile(r"[^a-zA-Z0-9_-]")
_MAX_ID_CHARS = 64
_BEGIN = b'{"role":"%s","content":['
_END = b"]}"


class MessageJoiner:
    """Messages joined so far; only the last one may still grow."""

    def __init__(self, system: str) -> None:
        """Begin anew. The system prompt is no message here; it stands in a member of its own."""
        # All up to the last character of the user's last block before the last answer, where a
        # mark may stand; and the rest.
        self._fixed = bytearray()
        self._data = bytearray()
        self._role = ""
        self._late: list[Block] = []
        self._ids = CallIds()

    def add(self, piece: Piece) -> None:
        """Take the next item's blocks. What is to follow a group of results follows all of it."""
        if not piece.blocks:
            return

        if not piece.is_result:
            late, self._late = self._late, []
            self._append("user", late)
        if piece.role == "assistant":
            self._let_user_speak()
            self._fixed += self._data[:-1]
            del self._data[:-1]
            self._ids.begin_answer()

        self._append(piece.role, piece.blocks)
        self._late.extend(piece.late)

    def written(self) -> Written:
        """Return everything as it is sent now, between the brackets of the list."""
        held = len(self._data), self._role
        self._append("user", self._late)
        self._let_user_speak()
        data = bytes(self._data)
        # What was put in is taken out again: more may be added to what stood there.
        del self._data[held[0] :]
        self._role = held[1]

        if not self._fixed:
            return [data[:-1], CACHE_MARK, data[-1:], _END]
        return [self._fixed, CACHE_MARK, data[:-1], CACHE_MARK, data[-1:], _END]

    def _let_user_speak(self) -> None:
        if self._role != "user":
            self._append_raw("user", _GO_ON_BLOCK)

    def _append(self, role: str, blocks: Iterable[Block]) -> None:
        for block in blocks:
            data = block.head
            if block.call_id is not None:
                is_call = role == "assistant"
                own = self._ids.of_call if is_call else self._ids.of_result
                data += own(block.call_id).encode() + block.tail
            self._append_raw(role, data)

    def _append_raw(self, role: str, data: bytes) -> None:
        if role == self._role:
            self._data += b","
        else:
            if self._role:
                self._data += _END + b","
            self._data += _BEGIN % role.encode()
            self._role = role
        self._data += data


class CallIds:
    """The ids of a request's calls: those received as far as they are allowed, and no two alike.

    Other providers put other characters into ids, and some number the calls of each answer anew.
    The same calls in the same order get the same ids, whatever follows them.
    """

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._open: dict[str, str] = {}

    def begin_answer(self) -> None:
        """Take it that the results to come answer the calls to come."""
        self._open = {}

    def of_call(self, call_id: str) -> str:
        """Return the id of a new call."""
        plain = own = _allowed(call_id)
        while own in self._counts:
            self._counts[plain] += 1
            suffix = f"_{self._counts[plain]}"
            own = plain[: _MAX_ID_CHARS - len(suffix)] + suffix

        self._counts[own] = 1
        self._open[call_id] = own
        return own

    def of_result(self, call_id: str) -> str:
        """Return the id of the call in the last answer that had `call_id`."""
        return self._open.get(call_id, _allowed(call_id))


def _allowed(call_id: str) -> str:
    return _NOT_IN_AN_ID.sub("_", call_id)[:_MAX_ID_CHARS] or "call"
