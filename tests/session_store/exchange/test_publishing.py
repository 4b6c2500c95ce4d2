from __future__ import annotations

import errno
from pathlib import Path

import pytest

from session_store import Disk, FileSessionStore, StorageFailed
from session_store.exchange import import_file
from tests.session_store.exchange.sources import claude, lines, put, text

COMPACTED = lines(
    claude(1, "user", "Long"),
    claude(2, "assistant", [text("Yes.")]),
    claude(3, "user", "It was long", parent=None, isCompactSummary=True),
    claude(4, "user", "Go on"),
    claude(5, "assistant", [text("Gone on.")]),
)


class FullFrom(Disk):
    """A disk on which the n-th rename, and every one after it, finds no room."""

    def __init__(self, first: int) -> None:
        self.left = first

    def rename(self, source: Path, target: Path) -> None:
        self.left -= 1
        if self.left < 0:
            raise OSError(errno.ENOSPC, "no space left on device")

        super().rename(source, target)


def test_sessions_of_one_conversation_are_all_there_or_none(home: Path, tmp_path: Path) -> None:
    path = put(tmp_path, COMPACTED)
    for renames in range(4):
        store = FileSessionStore(home, disk=FullFrom(renames))
        with pytest.raises(StorageFailed, match="no space left"):
            import_file(store, path)

        assert store.ids() == []
        assert list(home.glob("sessions/*")) == []

    (one,) = import_file(FileSessionStore(home, disk=FullFrom(4)), path)
    assert len(one.earlier) == 1


def test_a_clock_can_be_given(home: Path, tmp_path: Path) -> None:
    store = FileSessionStore(home)
    (one,) = import_file(store, put(tmp_path, COMPACTED), clock=lambda: 1_796_058_210_123)

    assert {entry.ts for entry in store.entries(one.session_id)} == {1_796_058_210_123}
