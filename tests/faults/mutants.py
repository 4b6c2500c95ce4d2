"""Disks that break one rule of those that a store over files must keep. Each must be found out."""

from __future__ import annotations

from pathlib import Path

from tests.faults.power import (
    Operation,
    Sync,
    SyncFolder,
    TracingDisk,
    Truncate,
)


class NeverSyncs(TracingDisk):
    """No fdatasync."""

    def note(self, operation: Operation) -> None:
        if not isinstance(operation, Sync):
            super().note(operation)


class NeverSyncsFolders(TracingDisk):
    """No fsync of a folder."""

    def note(self, operation: Operation) -> None:
        if not isinstance(operation, SyncFolder):
            super().note(operation)


class _Late(TracingDisk):
    """Lets some operations wait."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.waiting: list[Operation] = []

    def catch_up(self) -> None:
        for operation in self.waiting:
            super().note(operation)

        self.waiting.clear()


class AcknowledgesBeforeSync(_Late):
    """An append returns before its sync, which comes when the disk is next used."""

    def note(self, operation: Operation) -> None:
        self.catch_up()
        if isinstance(operation, Sync) and self.is_log(operation.file):
            self.waiting.append(operation)
        else:
            super().note(operation)


class TruncatesWithoutSync(TracingDisk):
    """What is cut off is not synced before something else is written in its place."""

    cut: int | None = None

    def note(self, operation: Operation) -> None:
        if isinstance(operation, Sync) and operation.file == self.cut:
            self.cut = None
            return

        super().note(operation)
        if isinstance(operation, Truncate):
            self.cut = operation.file


class AnchorsBeforeLog(_Late):
    """The anchor is on the medium first, and then the entry that it names."""

    def note(self, operation: Operation) -> None:
        if isinstance(operation, Sync) and self.is_log(operation.file):
            self.waiting.append(operation)
            return

        super().note(operation)
        if isinstance(operation, SyncFolder):
            self.catch_up()


class RenamesBeforeSync(_Late):
    """A file has its name before its content is on the medium."""

    def note(self, operation: Operation) -> None:
        if isinstance(operation, Sync) and self.is_temporary(operation.file):
            self.waiting.append(operation)
            return

        super().note(operation)
        if isinstance(operation, SyncFolder):
            self.catch_up()


MUTANTS = {
    "no fdatasync": NeverSyncs,
    "no fsync of the folder": NeverSyncsFolders,
    "acknowledged before the sync": AcknowledgesBeforeSync,
    "cut off without a sync": TruncatesWithoutSync,
    "anchor before log": AnchorsBeforeLog,
    "rename before sync": RenamesBeforeSync,
}
