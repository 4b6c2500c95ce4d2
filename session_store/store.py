"""`FileSessionStore`: the sessions under one home."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from worker.items import Item

from .ancestry import Ancestry
from .blobs import blobs_of
from .chain import START, Entry, EntryRef, Position
from .compacted import (
    Entries,
    carried_watermark,
    compacted_entries,
    compacted_start,
    full_start,
)
from .disk import Disk
from .errors import (
    HeadMismatch,
    Holder,
    SessionDamaged,
    SessionNotFound,
    SessionStoreError,
    UnknownEntry,
)
from .family_lock import joining
from .files import FileLogs
from .fold import carried
from .gist import Gist
from .history import check_history
from .ids import check_pod_name, check_session_id, now_ms, uuid7
from .layout import Layout
from .lock import holder
from .log import Durability
from .opening import Opener
from .pointers import read_pointer
from .publish import Publisher
from .reader import read_entries
from .rewind import REWOUND
from .session import Session
from .state import ForkPoint, SessionState, VerifyReport
from .tail import LogEnd
from .verify import verify_session

if TYPE_CHECKING:
    from .info import SessionInfo
    from .maintenance import Maintenance
    from .redaction import RedactionReport
    from .referrals import Referrer
    from .removal import DetachReport, RemovalReport
    from .retention import RetentionPlan
    from .rewind import RewindPoint
    from .salvage import SalvageReport
    from .usage_on_disk import DiskUsage

DEEPEST_CHAIN = 8
"""How many sessions a fork may inherit through; the next one stands by itself."""

_PROVENANCE = frozenset({"forked_from", "compacted_from", "recovered_from", "spawned_by"})


class FileSessionStore:
    """The sessions under one home: made, written, read, forked, compacted and verified.

    Every method checks ids before they touch a path, and raises what `session_store.errors` draws:
    `InvalidSessionId` and `SessionNotFound` for an id that cannot be or is not there, `UnsafePath`
    for symlinks and foreign files, `SessionDamaged` for a log that does not verify, and
    `StorageFailed` for what cannot be written. A store keeps no state in memory: threads may share
    it, and processes may use one home at a time.
    """

    def __init__(
        self,
        home: Path | str,
        *,
        sessions: Path | None = None,
        durability: Durability = Durability.FSYNC,
        clock: Callable[[], int] = now_ms,
        disk: Disk | None = None,
    ) -> None:
        """Use `home`, and `sessions` for the logs instead of its own folder. Makes nothing on disk.

        `clock` gives milliseconds of Unix time.
        """
        self.layout = Layout(home, sessions)
        """Where everything is."""
        self.disk = disk or Disk()
        """How files are reached."""
        self._sessions = sessions
        self._clock = clock
        self._logs = FileLogs(self.disk, self.layout, durability=durability, clock=clock)
        self._ancestry = Ancestry(self.disk, self.layout)
        self._publisher = Publisher(self.disk, self.layout, clock)
        blobs = blobs_of(self.disk, self.layout)
        self._opener = Opener(self._logs, blobs, self._ancestry, clock, self._go_on)

    def create(
        self,
        *,
        pod: str,
        system_prompt: str,
        config: Mapping[str, Any],
        history: Sequence[Item] = (),
        **provenance: object,
    ) -> Session:
        """Return a new session, durable and open for writing.

        `provenance` is any of `forked_from`, `compacted_from`, `recovered_from` (id and hash) and
        `spawned_by`.
        """
        unknown = provenance.keys() - _PROVENANCE
        if unknown:
            raise TypeError(f"not a provenance: {', '.join(sorted(unknown))}")

        fixed = {"config": dict(config), "system_prompt": system_prompt, "history": list(history)}
        return self._create({"pod": check_pod_name(pod), **provenance, **fixed}, [])

    def open(self, session_id: str) -> Session:
        """Return the session, open for writing. A torn tail is set aside first, and noted.

        Raises:
            SessionInUse: Somebody writes it already.
        """
        if not self.layout.log(session_id).exists():
            raise SessionNotFound(session_id)

        with ExitStack() as undo:
            lease = self._logs.claim(session_id)
            undo.callback(lease.release)
            session = self._opener.open(session_id, lease)
            undo.pop_all()
            return session

    def restore(self, session_id: str, at: str | None = None) -> SessionState:
        """Return what the session is at its head, or was at the entry `at`. Changes nothing.

        `at` is an entry's hash or the first 8 or more digits of it.

        Raises:
            UnknownEntry: `at` names no entry, or several.
        """
        upto = None if at is None else self._ancestry.find(session_id, at).hash
        return self._ancestry.state(session_id, upto)

    def entries(self, session_id: str, start: Position = START) -> Iterator[Entry]:
        """Yield the session's own entries, each verified, as they are read; blobs in their places.

        `start` is the `next` of an entry read earlier. A torn tail is the end; damage is raised
        where it is met.
        """
        return read_entries(self.disk, self.layout, session_id, start)

    def fork(self, session_id: str, at: str | None = None) -> str:
        """Return the id of a new session that begins as this one is at its head, or was at `at`.

        The parent may be written meanwhile, and is not touched. See `fork_point` for where a fork
        is really made. Of a parent that its store closed, only the end is read, whatever its size:
        what the fork inherits is verified each time the fork is opened, and not now.

        Raises:
            UnknownEntry: `at` names no entry, or several.
        """
        return self._fork(session_id, self.fork_point(session_id, at).hash, {})

    def _fork(self, session_id: str, digest: str, marks: Mapping[str, object]) -> str:
        with joining(self.layout):
            self._check_there(session_id, digest)
            return self._publish(self._fork_start(session_id, digest, marks))

    def _check_there(self, session_id: str, digest: str) -> None:
        """Return if a session may begin at that entry: it was not removed since it was found."""
        if not self.layout.log(session_id).exists():
            why = self._ancestry.why_missing(session_id, digest)
            if why:
                raise SessionNotFound(session_id, "it was removed")

    def _fork_start(
        self, session_id: str, digest: str, marks: Mapping[str, object]
    ) -> Mapping[str, Any]:
        self._logs.make_durable(session_id)
        links = self._ancestry.links(session_id)
        start: dict[str, Any] = {"forked_from": [session_id, digest], **marks}
        if len(links) <= DEEPEST_CHAIN:
            pod = self._ancestry.first_entry(session_id).data.get("pod")
            start |= {"pod": pod, "config": None, "system_prompt": None, "history": None}
        else:
            state = self._ancestry.state(session_id, digest)
            start |= {"carried": carried(state), **full_start(state, state.history, start)}

        return start

    def _go_on(self, error: HeadMismatch) -> tuple[EntryRef | None, Callable[[], Session]]:
        """Return the head that is there now, and how to go on from the one that was expected."""
        found: EntryRef | None = None
        with suppress(SessionStoreError, OSError):  # then nothing can be told
            found = LogEnd(self._logs, error.session_id).position().head

        return found, lambda: self._fork_away(error, found)

    def _fork_away(self, error: HeadMismatch, found: EntryRef | None) -> Session:
        session_id, expected = error.session_id, error.expected
        heads = {"expected": expected._asdict(), "found": found and found._asdict()}
        try:
            self._ancestry.find(session_id, expected.hash)
            marks = {"reason": "head_mismatch", "head_mismatch": heads}
            start = self._fork_start(session_id, expected.hash, marks)
        except (UnknownEntry, SessionNotFound) as gone:
            good = 0 if found is None else found.seq + 1
            reason = "was acknowledged and is gone"
            raise SessionDamaged(session_id, expected.seq, reason, good) from gone

        return self._create(start, [])

    def fork_point(self, session_id: str, at: str | None = None) -> ForkPoint:
        """Return where a fork at `at` (None: the head) is made.

        It is made there, unless a tool call lacks its result then: a fork that could not go on
        is made at the last entry before that call instead.
        """
        return self._ancestry.fork_point(session_id, at)

    def save_compacted(self, session_id: str, history: Sequence[Item]) -> str:
        """Return the id of a new session of this history, which names this one as its origin.

        Raises:
            InvalidHistory: A uid is there twice, or a call and its result are not together.
        """
        check_history(history)
        old = self._ancestry.state(session_id)
        gist = Gist.of(old)
        start = compacted_start(gist, history, {})
        entries = compacted_entries(
            gist,
            history,
            watermark=carried_watermark(old.history, old.watermark, history),
            compaction={"trigger": "manual", "engine": "external", "method": "engine"},
            carry_extensions=True,
        )
        with joining(self.layout):
            self._check_there(session_id, gist.head.hash)
            self._logs.make_durable(session_id)
            return self._publish(start, entries)

    def publish_compacted(
        self,
        old: Session,
        *,
        history: Sequence[Item],
        watermark: int,
        compaction: Mapping[str, Any],
        start: Mapping[str, Any] | None = None,
        carry_extensions: bool = True,
    ) -> Session:
        """Return the session that takes the place of `old`: written whole, and open for writing.

        `compaction` has the fields of the entry of that kind; `start` those of `session_start`
        that are no longer the old session's (`pod`, `system_prompt`, `config`). Items before
        `watermark` are sent without content. `old` gets its anchor and nothing else, and stays
        open; after a failure or a crash it is all there is. Its log is not read.

        Raises:
            InvalidHistory: A uid is there twice, or a call and its result are not together.
        """
        check_history(history)
        old.write_anchor()
        gist = old.gist
        entries = compacted_entries(
            gist,
            history,
            watermark=watermark,
            compaction=compaction,
            carry_extensions=carry_extensions,
        )
        return self._create(compacted_start(gist, history, start or {}), entries)

    def children(self, session_id: str) -> list[str]:
        """Return the ids of the sessions forked or compacted from this one, oldest first."""
        return self._ancestry.children(check_session_id(session_id))

    def lineage(self, session_id: str) -> list[tuple[str, str]]:
        """Return the way from the root to the session itself: (id, `root`, `fork` or `compact`).

        A session whose parent was removed is the root of what came from it.
        """
        return self._ancestry.lineage(session_id)

    def rewind(self, session_id: str, to: str) -> str:
        """Return the id of a new session that goes on from the entry `to`; nothing is undone.

        `to` is a hash, or the first 8 or more digits of it, of an entry of this session or of one
        that it began from, also across a compaction. The new session is a fork by reference that
        says `rewound`. A pod's pointer that is on this session, or on what it goes on as, moves to
        the new one, so that the pod goes on there; other forks it never follows. The session itself
        stays whole. See `rewind_point` for where going back really leads.

        Raises:
            UnknownEntry: `to` names no entry, or several.
        """
        maintenance = self._maintenance
        point = maintenance.rewind_point(session_id, to)
        if point.session_id not in maintenance.own_line(session_id).ids:
            # What a fork inherits is its parent's: going back there is one more fork of that.
            return self._fork(point.session_id, point.hash, {})

        new_id = self._fork(point.session_id, point.hash, {REWOUND: True})
        maintenance.lead_pods(point.session_id, new_id)
        return new_id

    def rewind_point(self, session_id: str, to: str) -> RewindPoint:
        """Return where going back to `to` leads: there, or before a call that lacks its result.

        Raises:
            UnknownEntry: `to` names no entry, or several.
        """
        return self._maintenance.rewind_point(session_id, to)

    def uncompact(self, session_id: str) -> str:
        """Return the id of the session that this one was compacted from, and go on with that one.

        A pod's pointer that is on this session, or on what it goes on as, moves to the old one.
        Nothing else is changed.

        Raises:
            Unsuitable: It was not compacted from another.
            SessionNotFound: It or the old one is not there.
        """
        return self._maintenance.uncompact(session_id)

    def may_be_pointed_at(self, session_id: str) -> bool:
        """Tell whether a pod's pointer may follow this session: it is not below a fork.

        What a pod was rewound to is where the pod goes on, and counts as no fork here.
        """
        return not self._maintenance.own_line(session_id).is_below_fork

    def salvage(self, session_id: str) -> SalvageReport:
        """Make a new session from what verifies of a damaged one, and say what is not in it.

        Entries count as far as each proves to follow the one before, wherever in the file they
        stand. A fork whose beginning, in other logs, is damaged goes on without what is lost of it.
        The damaged log is not changed. Pods that were on it are on the new one then.

        Raises:
            Unsuitable: It is not damaged.
            SessionDamaged: Not even its beginning verifies.
            SessionInUse: Somebody writes it.
        """
        return self._maintenance.salvage(session_id)

    def redact(
        self, session_id: str, secrets: Mapping[str, str], *, patterns: Sequence[str] = ()
    ) -> RedactionReport:
        """Make a new session without the secrets, and say what of the store still has them.

        `secrets` maps the name that takes a secret's place to the secret; `patterns` are regular
        expressions, and all that they match in the session is taken for a secret. The new session
        stands alone. The old one is not changed; pods that were on it are on the new one then.

        Raises:
            Unsuitable: A secret is too short, or a pattern matches too much.
            SessionDamaged: It does not verify.
            SessionInUse: Somebody writes it.
        """
        return self._maintenance.redact(session_id, secrets, patterns)

    def detach(self, session_id: str) -> DetachReport:
        """Let the session do without those that it inherits from; they may be removed then.

        It keeps its id, its log and its hashes: what it needs of their logs is kept, byte for byte,
        beside the logs. A session that inherits nothing stands alone already.

        Raises:
            SessionDamaged: What it inherits does not verify.
        """
        return self._maintenance.detach(session_id)

    def remove(self, session_id: str, *, detach: bool = False) -> RemovalReport:
        """Remove the session: its log, what lies beside it, and the blobs that nobody else names.

        A pod that was on it is on no session then. After a crash, removing it again takes up the
        rest. With `detach`, sessions that came from it are made to stand alone first.

        Raises:
            SessionNotFound: There is nothing of it.
            StillNeeded: Sessions that came from it need or name it. Nothing was changed.
            SessionInUse: Somebody writes it.
        """
        return self._maintenance.remove(session_id, detach=detach)

    def needed_by(self, session_id: str) -> list[Referrer]:
        """Return the sessions that keep this one from being removed as things are, oldest first."""
        return self._maintenance.needed_by(session_id)

    def sweep_blobs(self) -> int:
        """Remove blobs that have been there for a while and no log names; return their bytes."""
        return self._maintenance.sweep_blobs()

    def usage_on_disk(self) -> DiskUsage:
        """Return how much room the sessions take, each by itself and all together."""
        from .usage_on_disk import usage_on_disk

        return usage_on_disk(self.layout)

    def retention_plan(
        self, *, older_than_ms: int | None = None, keep_bytes: int | None = None
    ) -> RetentionPlan:
        """Return which sessions are to go so that the limits hold. `remove` them in that order.

        None is current, in use or damaged, and none is named by one that stays.
        """
        infos = self.sessions()
        return self._maintenance.retention_plan(infos, older_than_ms, keep_bytes)

    def verify(self, session_id: str) -> VerifyReport:
        """Return whether the session is what was acknowledged. Damage is told and not raised."""
        return verify_session(self.disk, self.layout, session_id)

    def verify_all(self) -> Iterator[VerifyReport]:
        """Yield a report for every session, oldest first."""
        for session_id in self.ids():
            with suppress(SessionNotFound):  # removed since the list was made
                yield self.verify(session_id)

    def sessions(self) -> list[SessionInfo]:
        """Return what there is to say of every session, the newest activity first."""
        from .index import SessionIndex

        home = self.layout.home
        return SessionIndex(home, sessions=self._sessions, disk=self.disk).sessions()

    def ids(self) -> list[str]:
        """Return the id of every log in the store, oldest first. No log is read."""
        return self._ancestry.ids()

    def holder(self, session_id: str) -> Holder | None:
        """Return who has the session open for writing now, or None. Never waits."""
        return holder(self.disk, self.layout.lock(session_id))

    def pointer(self, pod: str) -> str | None:
        """Return the id of the session that the pod is on, or None where it never had one.

        Raises:
            InvalidPodName: The name cannot be a pod's.
            InvalidSessionId: The pointer is there and names no session.
        """
        return read_pointer(self.disk, self.layout.pointer(pod))

    def set_pointer(self, pod: str, session_id: str) -> None:
        """Put the pod on the session, durably.

        Raises:
            InvalidPodName: The name cannot be a pod's.
        """
        self._logs.publish(pod, session_id)

    @cached_property
    def _maintenance(self) -> Maintenance:
        from .maintenance import Maintenance

        return Maintenance(self.disk, self.layout, self._clock, self._logs)

    def _publish(self, start: Mapping[str, Any], entries: Entries | None = None) -> str:
        session_id = uuid7(self._clock())
        self._publisher.publish(session_id, start, entries or [])
        return session_id

    def _create(self, start: Mapping[str, Any], entries: Entries) -> Session:
        session_id = uuid7(self._clock())
        with ExitStack() as undo:
            # Ours before anybody can see it, so that nobody else opens it first.
            lease = self._logs.claim(session_id)
            undo.callback(lease.release)
            # What nobody is told of must not be there: a compaction that failed would look like
            # one that came to its end.
            undo.callback(self._logs.withdraw, session_id)
            self._publisher.publish(session_id, start, entries)
            session = self._opener.open(session_id, lease)
            undo.pop_all()
            return session
