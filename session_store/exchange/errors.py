"""What keeps a file from being imported, or a session from being written in another format."""

from __future__ import annotations

from session_store.errors import SessionStoreError


class NotImportable(SessionStoreError):
    """Nothing of the file could be imported, and no session was made."""


class UnknownFormat(SessionStoreError):
    """There is no format of that name."""

    def __init__(self, name: str, known: list[str]) -> None:
        super().__init__(f"no format {name!r}", f"there are: {', '.join(known)}")
