"""Looking after the sessions of a store: mending, going back, removing; under the right locks.

What each of these does is in a module of its own. Here it is put together with the locks of the
sessions it concerns and with the pods' pointers, which move last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from attrs import evolve

from .ancestry import Ancestry
from .blob_use import blob_sizes, remove_unused
from .disk import Disk, storing
from .errors import SessionNotFound, SessionStoreError, Unsuitable
from .files import FileLogs
from .ids import check_session_id, uuid7
from .info import SessionInfo
from .layout import Layout
from .pointers import write_pointer
from .redaction import RedactionReport, masker_for, redact
from .referrals import Referrer
from .removal import DetachReport, RemovalReport, Remover, pods_on
from .retention import Candidate, RetentionPlan, plan_retention
from .rewind import OwnLine, RewindPoint, own_line, rewind_point
from .salvage import SalvageReport, salvage
from .usage_on_disk import usage_on_disk


class Maintenance:
    """Carries the operations out. In memory it keeps only what can never change."""

    def __init__(
        self, disk: Disk, layout: Layout, clock: Callable[[], int], logs: FileLogs
    ) -> None:
        self._disk = disk
        self._layout = layout
        self._clock = clock
        self._logs = logs
        self._ancestry = Ancestry(disk, layout)
        self._remover = Remover(disk, layout)

    # --- a new session from an old one --------------------------------------------------------

    def salvage(self, session_id: str) -> SalvageReport:
        """See `FileSessionStore.salvage`."""
        with self._locked(session_id):
            new_id = uuid7(self._clock())
            report = salvage(self._disk, self._layout, session_id, new_id)

        return evolve(report, pods=self._move_pods(session_id, new_id))

    def redact(
        self, session_id: str, secrets: Mapping[str, str], patterns: Sequence[str]
    ) -> RedactionReport:
        """See `FileSessionStore.redact`."""
        with self._locked(session_id):
            masker = masker_for(self._disk, self._layout, session_id, secrets, patterns)
            new_id = uuid7(self._clock())
            report = redact(self._disk, self._layout, session_id, new_id, masker)

        if report.new_session_id is None:
            return report

        return evolve(report, pods=self._move_pods(session_id, new_id))

    # --- where a pod goes on ------------------------------------------------------------------

    def own_line(self, session_id: str) -> OwnLine:
        """Return what the session goes on from. See `session_store.rewind`."""
        return own_line(self._ancestry, session_id)

    def rewind_point(self, session_id: str, to: str) -> RewindPoint:
        """See `FileSessionStore.rewind_point`."""
        return rewind_point(self._ancestry, session_id, to)

    def uncompact(self, session_id: str) -> str:
        """See `FileSessionStore.uncompact`."""
        match self._ancestry.first_entry(session_id).data.get("compacted_from"):
            case [str(old), str()]:
                pass
            case _:
                raise Unsuitable(session_id, "was not compacted from another: there is no way back")

        if not self._layout.log(old).exists():
            raise SessionNotFound(old, f"session {session_id} was compacted from it")

        self.lead_pods(session_id, old)
        return old

    def lead_pods(self, session_id: str, to: str) -> None:
        """Move the pods that are on the session, or on what it goes on as, to another."""
        for pod, current in pods_on(self._disk, self._layout).items():
            line: tuple[str, ...] = ()
            # A pointer to what is not there any more, or is damaged, is nothing to go back from.
            with suppress(SessionStoreError):
                line = self.own_line(current).ids

            if session_id in line:
                self._set_pointer(pod, to)

    # --- taking away --------------------------------------------------------------------------

    def detach(self, session_id: str) -> DetachReport:
        """See `FileSessionStore.detach`."""
        return self._remover.detach(session_id)

    def remove(self, session_id: str, *, detach: bool) -> RemovalReport:
        """See `FileSessionStore.remove`."""
        self._remover.check_there(session_id)
        with self._locked(session_id):
            return self._remover.remove(session_id, detach=detach)

    def needed_by(self, session_id: str) -> list[Referrer]:
        """See `FileSessionStore.needed_by`."""
        return self._remover.needing(check_session_id(session_id))

    def sweep_blobs(self) -> int:
        """See `FileSessionStore.sweep_blobs`."""
        with storing("remove blobs"):
            return remove_unused(self._disk, self._layout, blob_sizes(self._layout), 0.0)

    def retention_plan(
        self, infos: Sequence[SessionInfo], older_than_ms: int | None, keep_bytes: int | None
    ) -> RetentionPlan:
        """See `FileSessionStore.retention_plan`."""
        used = usage_on_disk(self._layout)
        sizes = {one.session_id: one.bytes for one in used.sessions}
        current = {on: pod for pod, on in pods_on(self._disk, self._layout).items()}
        parents = self._remover.parents()
        candidates = [
            Candidate(
                session_id=info.session_id,
                updated=info.updated,
                bytes=sizes.get(info.session_id, 0),
                parents=tuple(parents.get(info.session_id, ())),
                kept_because=_why_kept(info, current),
            )
            for info in infos
        ]
        return plan_retention(
            candidates,
            now_ms=self._clock(),
            older_than_ms=older_than_ms,
            keep_bytes=keep_bytes,
            other_bytes=used.bytes - sum(one.bytes for one in candidates),
        )

    # --- shared -------------------------------------------------------------------------------

    @contextmanager
    def _locked(self, session_id: str) -> Iterator[None]:
        """Keep every writer out meanwhile. Raises `SessionInUse`."""
        path = self._layout.lock(session_id)
        if not path.exists() and not self._layout.log(session_id).exists():
            raise SessionNotFound(session_id)

        lease = self._logs.claim(session_id)
        try:
            yield
        finally:
            lease.release()

    def _move_pods(self, session_id: str, to: str) -> tuple[str, ...]:
        pods = tuple(pods_on(self._disk, self._layout, session_id))
        for pod in pods:
            self._set_pointer(pod, to)

        return pods

    def _set_pointer(self, pod: str, session_id: str) -> None:
        with storing(f"move the pointer of pod {pod}"):
            write_pointer(self._disk, self._layout.pointer(pod), session_id)


def _why_kept(info: SessionInfo, current: Mapping[str, str]) -> str:
    if info.session_id in current:
        return f"pod {current[info.session_id]} is on it"

    if info.writer is not None:
        return f"in use by pid {info.writer.pid}"

    return "damaged: remove it by its id, once it is salvaged" if info.damaged else ""
