"""Another adapter of the store port: logs in memory. Nothing above it knows of files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from io import BytesIO
from typing import BinaryIO

from attrs import Factory, define

from session_store import EntryRef, Fenced, HeadMismatch, SessionNotFound
from session_store.anchor import Anchor
from session_store.chain import START, Position, advanced
from session_store.recovery import Verdict


@define
class MemoryLogs:
    """Logs that live as long as this does. A later claim fences an earlier one off."""

    logs: dict[str, bytes] = Factory(dict)
    heads: dict[str, Position] = Factory(dict)
    epochs: dict[str, int] = Factory(dict)
    pointers: dict[str, str] = Factory(dict)
    payloads: dict[str, bytes] = Factory(dict)
    writes: int = 0

    def create(self, session_id: str, lines: Iterable[bytes]) -> None:
        whole = b"".join(lines)
        self.logs[session_id] = whole
        self.heads[session_id] = advanced(START, whole)

    def append(self, session_id: str, expected: EntryRef, epoch: int, lines: bytes) -> int:
        if epoch != self.epochs.get(session_id):
            raise Fenced(session_id, epoch, self.epochs.get(session_id))

        after = self.heads[session_id]
        if after.head != expected:
            raise HeadMismatch(session_id, "somebody else wrote", expected=expected)

        self.writes += 1
        self.logs[session_id] += lines
        self.heads[session_id] = advanced(after, lines)
        return self.heads[session_id].seq - 1

    def read(self, session_id: str) -> BinaryIO:
        if session_id not in self.logs:
            raise SessionNotFound(session_id)

        return BytesIO(self.logs[session_id])

    def head(self, session_id: str) -> Anchor | str | None:
        after = self.heads.get(session_id)
        return None if after is None else Anchor(*after.head, after.offset)

    def publish(self, pod: str, session_id: str) -> None:
        self.pointers[pod] = session_id

    def claim(self, session_id: str) -> MemoryLease:
        self.epochs[session_id] = self.epochs.get(session_id, 0) + 1
        return MemoryLease(self, session_id, self.epochs[session_id])

    def put(self, data: bytes) -> str:
        name = sha256(data).hexdigest()
        self.payloads[name] = data
        return name

    def get(self, name: str) -> bytes:
        return self.payloads[name]


@define(eq=False)
class MemoryLease:
    logs: MemoryLogs
    session_id: str
    epoch: int
    held: bool = True

    def begin(self, verdict: Verdict, after: Position) -> Mapping[str, object] | None:
        return None  # what is in memory is never torn

    def note(self, after: Position) -> None:
        pass  # the head is kept with each append

    def release(self) -> None:
        self.held = False
