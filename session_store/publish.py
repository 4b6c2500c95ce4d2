"""New sessions: a log comes into being whole, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain

from .blobs import blobs_of
from .chain import FORMAT, START, EntryRef
from .disk import Disk
from .encoder import Encoder
from .files import FileLogs
from .layout import Layout
from .port import Logs, Payloads


class SessionMaker:
    """Writes the logs of new sessions."""

    def __init__(self, logs: Logs, payloads: Payloads, clock: Callable[[], int]) -> None:
        self._logs = logs
        self._payloads = payloads
        self._clock = clock

    def publish(
        self,
        session_id: str,
        start: Mapping[str, object],
        entries: Iterable[tuple[str, Mapping[str, object]]] = (),
    ) -> EntryRef:
        """Write the log of a new session: its `session_start` of these fields, then `entries`.

        All of it is durable on return, and nothing of it is there after a failure or a crash.
        Returns the log's head. An entry is written before the next one is asked for.

        Raises:
            StorageFailed: It could not be written.
            TypeError: Something in the fields cannot be JSON.
        """
        # What is large comes last, so that a look at the beginning of a log tells what it is.
        first = {"session_id": session_id, "format": FORMAT, **start}
        log = _Log(Encoder(self._payloads, self._clock))
        self._logs.create(session_id, log.lines([("session_start", first)], entries))
        return log.head


class Publisher(SessionMaker):
    """Writes the logs of new sessions into one folder."""

    def __init__(self, disk: Disk, layout: Layout, clock: Callable[[], int]) -> None:
        super().__init__(FileLogs(disk, layout), blobs_of(disk, layout), clock)


class _Log:
    """The lines of a new log, made one after the other."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._after = START

    @property
    def head(self) -> EntryRef:
        return self._after.head

    def lines(self, *entries: Iterable[tuple[str, Mapping[str, object]]]) -> Iterator[bytes]:
        for entry in chain(*entries):
            line, _, self._after = self._encoder.encode(self._after, [entry])
            yield line
