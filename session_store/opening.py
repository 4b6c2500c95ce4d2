"""Opening a session for writing: verified as a whole, mended if its tail was torn, else refused."""

from __future__ import annotations

from collections.abc import Callable

from attrs import evolve

from .ancestry import Family
from .chain import START
from .encoder import Encoder
from .fold import Fold
from .port import Lease, Logs, Payloads
from .reader import Scan, anchor_of, raise_if_unusable, with_payload
from .session import GoOn, Session


class Opener:
    """Opens the sessions of one store for writing."""

    def __init__(
        self,
        logs: Logs,
        payloads: Payloads,
        family: Family,
        clock: Callable[[], int],
        go_on: GoOn,
    ) -> None:
        self._logs = logs
        self._payloads = payloads
        self._family = family
        self._clock = clock
        self._go_on = go_on

    def open(self, session_id: str, lease: Lease) -> Session:
        """Return the session, open for writing by this lease; mended if its tail was torn.

        The lease is the session's on return, and the caller's after an error.

        Raises:
            SessionNotFound: There is none.
            SessionDamaged: It does not verify. Nothing was changed.
            StorageFailed: It could not be opened for writing, or not be mended.
            UnsafePath: A symlink, or not our own.
        """
        # The anchor before the log, as everywhere.
        anchor = anchor_of(self._logs, session_id)
        with self._logs.read(session_id) as file:
            scan = Scan(file, session_id, anchor, START)
            state = self._folded(scan, session_id).state()

        recovered = lease.begin(scan.verdict, scan.position)
        raise_if_unusable(session_id, scan.verdict, scan.position)
        position = scan.position
        encoder = Encoder(self._payloads, self._clock, state.updated)
        if recovered is not None:
            lines, _, after = encoder.encode(position, [("recovered", recovered)])
            self._logs.append(session_id, position.head, lease.epoch, lines)
            state, position = evolve(state, head=after.head), after

        session = Session(
            state, position, logs=self._logs, lease=lease, encoder=encoder, go_on=self._go_on
        )
        session.set_aside = recovered
        return session

    def _folded(self, scan: Scan, session_id: str) -> Fold:
        fold = Fold()
        for entry in scan:
            if entry.seq == 0:
                fold = Fold(self._family.inherited(session_id))

            fold.take(with_payload(entry, session_id, self._payloads))

        return fold
