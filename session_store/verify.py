"""Verifying a session: all that its log promises is checked, and damage is told, not raised."""

from __future__ import annotations

from .ancestry import Ancestry, Link
from .blobs import BLOB_MARK, Blobs, BlobUnusable, blob_names
from .chain import Entry
from .disk import Disk
from .errors import SessionDamaged, UnsafePath
from .layout import Layout
from .reader import LogReader
from .recovery import Aborted, Damaged, NoNewline, Sound, Torn
from .state import VerifyReport


def verify_session(disk: Disk, layout: Layout, session_id: str) -> VerifyReport:
    """Return what was found: chain, anchor, blobs, and whether the parent has the entry named.

    Raises:
        SessionNotFound: There is no such session.
    """
    reader = LogReader(disk, layout, session_id)
    blobs = Blobs(disk, layout.blobs)
    bad: tuple[int, str] | None = None

    def look(entry: Entry) -> None:
        nonlocal bad
        bad = bad or _bad_blob(entry, blobs)

    try:
        reader.run(BLOB_MARK, look)
    except UnsafePath as error:
        bad = (0, f"is in a log that is not read: it is {error.why}")

    head = reader.position.head if reader.position.seq else None

    torn_bytes = 0
    match reader.verdict:
        case Damaged(seq, reason):
            bad = min(bad, (seq, reason)) if bad else (seq, reason)
        case Torn(_, size) | Aborted(size):
            torn_bytes = size
        case NoNewline() | Sound():
            pass

    if head is not None and bad is None:
        bad = _bad_parent(Ancestry(disk, layout), layout, session_id)

    return VerifyReport(
        session_id=session_id,
        ok=bad is None,
        entries=head.seq + 1 if head else 0,
        first_bad_seq=bad[0] if bad else None,
        reason=bad[1] if bad else None,
        head=head,
        torn_bytes=torn_bytes,
    )


def _bad_blob(entry: Entry, blobs: Blobs) -> tuple[int, str] | None:
    try:
        for name in blob_names(entry.data):
            blobs.get(name)
    except BlobUnusable as error:
        return entry.seq, str(error)

    return None


def _bad_parent(ancestry: Ancestry, layout: Layout, session_id: str) -> tuple[int, str] | None:
    """Return what is wrong with the entries that the session says it came from."""
    try:
        named = ancestry.links(session_id)[1:]
    except SessionDamaged as error:
        return error.seq, error.reason

    start = ancestry.first_entry(session_id).data
    for key in ("forked_from", "compacted_from"):
        match start.get(key):
            # Of one that was removed on purpose, only what is inherited has to be there.
            case [str(parent), str(digest)] if not layout.is_removed(parent):
                named.append(Link(parent, digest))
            case _:
                pass

    for link in dict.fromkeys(named):
        why = ancestry.why_missing(link.session_id, link.upto)
        if why:
            return 0, f"came from session {link.session_id}, {why}"

    return None
