"""A plugin's folder, looked at without running it: who may write to it, what its code mentions."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

_LOOK_AT_BYTES = 8_192
_LARGEST_SOURCE_BYTES = 1_000_000


def writable_by_others(folder: Path) -> str | None:
    """Return what of a plugin somebody else can change, and so run code in a pod; None: nothing.

    Somebody else is anybody, a group that is not this process's own, and an owner who is neither
    root nor this user.
    """
    for path in _parts(folder):
        why = _open_to(path)
        if why is not None:
            return f"{path} {why}"

    return None


def _parts(folder: Path) -> Iterator[Path]:
    yield folder.parent
    try:
        # Of a link, what it leads to is what counts.
        real = folder.resolve()
        yield real
        yield from sorted(real.glob("*.py"))
    except OSError:
        return  # What cannot be looked at cannot be loaded either.


def _open_to(path: Path) -> str | None:
    try:
        found = path.stat()
    except OSError:
        return None  # Gone, or out of reach: it will not be loaded.

    if found.st_uid not in {0, os.geteuid()}:
        return f"belongs to another user (uid {found.st_uid})"

    mode = stat.S_IMODE(found.st_mode)
    by_anybody = mode & stat.S_IWOTH and not mode & stat.S_ISVTX
    by_group = mode & stat.S_IWGRP and found.st_gid not in {0, os.getegid()}
    return f"can be written by others (mode {mode:04o})" if by_anybody or by_group else None


def is_memory_only(folder: Path) -> bool:
    """Tell whether a plugin brings a memory provider and says nothing of an engine."""
    text = _beginning(folder / "__init__.py")
    has_engine = "ContextEngine" in text or "register_context_engine" in text
    return not has_engine and ("register_memory_provider" in text or "MemoryProvider" in text)


def mentions(folder: Path, words: tuple[str, ...]) -> bool:
    """Tell whether any of a plugin's own modules has one of the words in its text."""
    for path in sorted(folder.rglob("*.py")):
        text = _beginning(path, _LARGEST_SOURCE_BYTES)
        if any(word in text for word in words):
            return True

    return False


def _beginning(path: Path, size: int = _LOOK_AT_BYTES) -> str:
    try:
        with path.open("rb") as file:
            return file.read(size).decode("utf-8", "replace")
    except OSError:
        return ""  # It says nothing that could be read; loading it tells why.
