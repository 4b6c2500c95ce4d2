"""Importing a file: its format found, its conversations read and written as sessions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from session_store.ids import now_ms

from .errors import NotImportable
from .formats import format_of
from .publishing import Imported, publish
from .tally import Tally

if TYPE_CHECKING:
    from session_store.store import FileSessionStore

DEFAULT_POD = "imported"


def import_file(
    store: FileSessionStore,
    path: Path,
    *,
    pod: str | None = None,
    format: str | None = None,  # noqa: A002 - what it is called on the command line too
    name: str | None = None,
    clock: Callable[[], int] = now_ms,
) -> list[Imported]:
    """Return what was imported: a session for each conversation of the file, each durable.

    The file is read and not changed. `format` is found in its content where it is not given;
    `pod` is the pod that the sessions belong to, by default the one that an export names, else
    `imported`. `name` is what the file is called where `path` is only a copy of it.

    Raises:
        NotImportable: Nothing could be read of it, or nothing is in it.
        UnknownFormat: There is no format of that name.
        StorageFailed: A session could not be written. What was imported before stays.
    """
    try:
        chosen = format_of(path, format)
        tally = Tally()
        imported: list[Imported] = []
        for conversation in chosen.read(path, tally):
            if any(segment.items() for segment in conversation.segments):
                if pod is not None:
                    conversation.pod = pod

                imported.append(
                    publish(
                        store, conversation, DEFAULT_POD, file_name=name or path.name, clock=clock
                    )
                )
    except OSError as error:
        raise NotImportable(f"cannot read {path}: {error.strerror or error}") from error

    if not imported:
        raise NotImportable(
            f"{path.name} holds no conversation ({chosen.name})", _why_nothing(tally)
        )

    return imported


def _why_nothing(tally: Tally) -> str:
    if tally.bad_lines:
        line, why = tally.bad_lines[0]
        return (
            f"{tally.bad_line_count:,} of its lines cannot be read; the first is line {line}: {why}"
        )

    return "nothing was written"
