"""Everything that can go wrong in a session store.

    SessionStoreError
    ├── InvalidSessionId     a text that cannot be a session id; it never reached a path
    ├── InvalidPodName       a text that cannot be a pod's name; it never reached a path
    ├── SessionNotFound      no log of that id
    ├── UnknownEntry         a hash, or its prefix, that names no entry of that session, or several
    ├── SessionDamaged       something in the log does not verify; nothing was changed
    │   └── NewerFormat      the log is of a format that this version does not know
    ├── SessionInUse         another writer holds the session
    ├── HeadMismatch         the log changed underneath its writer
    ├── Fenced               somebody else has taken over the right to write
    ├── StorageFailed        a write or a sync failed; the handle is of no further use
    ├── UnsafePath           a symlink, or somebody else's file, where the store keeps its own
    ├── InvalidHistory       items that cannot be a history
    ├── StillNeeded          a session is not removed while others refer to it
    └── Unsuitable           what was asked for has no meaning for this session

The text of an error says what and why in its first line, and in the next what can be done. The
same facts are attributes.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from .chain import EntryRef
    from .session import Session


class Holder(NamedTuple):
    """Who holds a session open for writing, as they wrote it down themselves."""

    pid: int
    """The process; 0 where the record could not be read."""
    host: str
    """The host's name."""
    since_ms: int
    """When the session was opened, in milliseconds of Unix time."""
    command: str
    """The program, as in `pod serve`."""
    here: bool = True
    """Whether the process is on this machine."""


class SessionStoreError(Exception):
    """Whatever a session store raises on purpose. `hint` says what can be done; it may be empty."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(f"{message}\n  {hint}" if hint else message)
        self.message = message
        self.hint = hint


class InvalidSessionId(SessionStoreError):
    """The text is not a session id, so it was not used as one."""

    def __init__(self, text: object) -> None:
        super().__init__(f"not a session id: {_shown(text)}", "list the ids: pod sessions list")


class InvalidPodName(SessionStoreError):
    """The text is not a pod's name, so it was not used as one."""

    def __init__(self, text: object) -> None:
        super().__init__(
            f"not a pod name: {_shown(text)}", "a name has 1 to 64 of a-z, 0-9, - and _"
        )


class SessionNotFound(SessionStoreError):
    """There is no session of this id."""

    def __init__(self, session_id: str, why: str = "") -> None:
        super().__init__(
            f"no session {session_id}{': ' + why if why else ''}", "list the ids: pod sessions list"
        )
        self.session_id = session_id


class UnknownEntry(SessionStoreError):
    """The hash or prefix names no entry of the session, or more than one."""

    def __init__(self, session_id: str, at: object, why: str) -> None:
        super().__init__(
            f"session {session_id} has no entry {_shown(at)}: {why}",
            f"list its entries: pod sessions show {session_id}",
        )
        self.session_id = session_id
        self.at = at


class SessionDamaged(SessionStoreError):
    """The log does not verify, and is left exactly as it is.

    `seq` is the first entry that does not hold (of a log cut short, the last one there), and
    `good_entries` how many verify before it.
    """

    def __init__(
        self, session_id: str, seq: int, reason: str, good_entries: int, hint: str = ""
    ) -> None:
        salvage = f"to go on from what verifies: pod sessions salvage {session_id}"
        super().__init__(
            f"session {session_id} is damaged: entry {seq} {reason} ({_verified(good_entries)})",
            hint or f"nothing was changed; {salvage}",
        )
        self.session_id = session_id
        self.seq = seq
        self.reason = reason
        self.good_entries = good_entries


class NewerFormat(SessionDamaged):
    """The log was written in a format that this version does not know. It may well be whole."""

    def __init__(self, session_id: str, found: int, known: int) -> None:
        reason = f"is of format {found}, and this version reads up to format {known}"
        super().__init__(session_id, 0, reason, 0)
        SessionStoreError.__init__(
            self,
            f"session {session_id} is of format {found}: this version reads up to format {known}",
            "nothing was changed; use the version of podworker that wrote it, or a newer one",
        )
        self.format = found


class SessionInUse(SessionStoreError):
    """Another writer holds the session."""

    def __init__(self, session_id: str, holder: Holder) -> None:
        super().__init__(
            f"session {session_id} is in use by {_who(holder)}",
            f"work on a copy: pod sessions fork {session_id}",
        )
        self.session_id = session_id
        self.holder = holder


class HeadMismatch(SessionStoreError):
    """The log is not as its writer left it: something else wrote, cut or replaced it.

    Nothing was written. `expected` is the entry that the writer left as the last one, and `found`
    the last one that is there now, where that can be told.
    """

    def __init__(
        self,
        session_id: str,
        why: str,
        *,
        expected: EntryRef,
        found: EntryRef | None = None,
        fork: Callable[[], Session] | None = None,
    ) -> None:
        super().__init__(
            f"session {session_id} was changed underneath its writer: {why}",
            f"nothing was written; look at it: pod sessions verify {session_id}",
        )
        self.session_id = session_id
        self.why = why
        self.expected = expected
        self.found = found
        self._fork = fork

    def fork(self) -> Session:
        """Return a session that goes on from `expected`, open for writing; the old one is closed.

        Both heads are recorded in its first entry, and what could not be appended is not in it.
        Asked again, the same session is returned.

        Raises:
            SessionDamaged: What the writer left is gone, so there is nothing to go on from.
            StorageFailed: The new session could not be written.
        """
        if self._fork is None:
            raise self

        return self._fork()


class Fenced(SessionStoreError):
    """The right to write the session has gone to somebody else. Nothing was written."""

    def __init__(self, session_id: str, epoch: int, current: int | None) -> None:
        taken = "" if current is None else f", who has epoch {current}"
        super().__init__(
            f"session {session_id} is written by somebody else{taken}: epoch {epoch} is over",
            f"work on a copy: pod sessions fork {session_id}",
        )
        self.session_id = session_id
        self.epoch = epoch
        self.current = current


class StorageFailed(SessionStoreError):
    """A write or a sync failed. What was acknowledged before stays; this handle writes no more."""

    def __init__(self, what: str, why: object) -> None:
        super().__init__(
            f"cannot {what}: {why}",
            "what was acknowledged is safe; mend the disk or free space, then open it again",
        )
        self.what = what
        self.why = why


class UnsafePath(SessionStoreError):
    """Something is in the store that the store did not put there, and is not followed or read."""

    def __init__(self, path: object, why: str) -> None:
        super().__init__(f"{path} is {why}: refused", "put the file itself there, owned by you")
        self.path = path
        self.why = why


class InvalidHistory(SessionStoreError):
    """The items cannot be a history: a uid twice, a result without its call, or the reverse."""

    def __init__(self, why: str) -> None:
        super().__init__(f"not a valid history: {why}", "nothing was written")
        self.why = why


class StillNeeded(SessionStoreError):
    """The session was not removed: others refer to it.

    `by` has their ids, each with how it came from the session: `fork` or `compact`.
    """

    def __init__(self, session_id: str, by: tuple[tuple[str, str], ...]) -> None:
        named = ", ".join(f"{other} ({_CAME[relation]})" for other, relation in by[:_SHOWN])
        more = f" and {len(by) - _SHOWN:,} more" if len(by) > _SHOWN else ""
        super().__init__(
            f"session {session_id} was not removed: still referred to by {named}{more}",
            f"remove those first, or let them stand alone: pod sessions rm {session_id} --detach",
        )
        self.session_id = session_id
        self.by = by


class Unsuitable(SessionStoreError):
    """What was asked for has no meaning for this session. Nothing was changed."""

    def __init__(self, session_id: str, why: str, hint: str = "nothing was changed") -> None:
        super().__init__(f"session {session_id} {why}", hint)
        self.session_id = session_id


_SHOWN = 5
_CAME = {"fork": "forked from it", "compact": "compacted from it"}


def _shown(text: object) -> str:
    shown = ascii(text)
    return shown if len(shown) <= 60 else shown[:57] + "…"


def _verified(good_entries: int) -> str:
    if good_entries == 0:
        return "no entry before it verifies"

    return "entry 0 verifies" if good_entries == 1 else f"entries 0–{good_entries - 1} verify"


def _who(holder: Holder) -> str:
    if not holder.pid:
        return "another process"

    where = "this machine" if holder.here else holder.host
    since = datetime.fromtimestamp(holder.since_ms / 1000, UTC).astimezone()
    today = since.date() == datetime.now(UTC).astimezone().date()
    when = f"{since:%H:%M}" if today else f"{since:%Y-%m-%d %H:%M}"
    command = f" ({holder.command})" if holder.command else ""
    return f"pid {holder.pid} on {where} since {when}{command}"
