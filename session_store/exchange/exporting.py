"""Exporting a session: its bytes in one of the formats that can be written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from . import chat_export, markdown, own
from .errors import UnknownFormat

if TYPE_CHECKING:
    from session_store.store import FileSessionStore
    from worker.items import Item

EXPORT_FORMATS = (own.NAME, chat_export.NAME, markdown.NAME)


def export_session(
    store: FileSessionStore,
    session_id: str,
    format: str = own.NAME,  # noqa: A002 - what it is called on the command line too
    *,
    paired: Callable[[Sequence[Item]], Sequence[Item]] = list,
) -> Iterator[bytes]:
    """Yield the session's bytes in that format: `podworker`, `openai-chat` or `markdown`.

    Only the first holds everything, and can be imported again without loss. `paired` gives chat
    messages the items that a request would hold.

    Raises:
        UnknownFormat: There is no such format to write.
        SessionStoreError: The session cannot be read.
    """
    if format not in EXPORT_FORMATS:
        raise UnknownFormat(format, list(EXPORT_FORMATS))

    state = store.restore(session_id)
    if format == own.NAME:
        yield from own.write(store, state)
    elif format == chat_export.NAME:
        yield from chat_export.write(state.system_prompt, paired(state.history))
    else:
        yield from markdown.write(state)
