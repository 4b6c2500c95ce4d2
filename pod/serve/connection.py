"""One client's socket: lines in and out, without ever waiting for the other end.

It uses the socket itself, and not one of asyncio's transports: those copy what they cannot send at
once, for every client anew; here all of them share the same lines.
"""

from __future__ import annotations

import asyncio
import select
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from attrs import define, field

from pod.protocol.wire import LineBuffer

from .outbox import Outbox
from .peer import Peer
from .record import Parcel, Record

READ_BYTES = 1 << 16
MAX_IN_FLIGHT = 64
"""How many requests of one client are worked on at once; more wait unread."""
MAX_ANSWER_BYTES = 1 << 20
"""How much of answers a client may leave unread before its requests wait."""


@define(eq=False)
class InputBudget:
    """How much of unfinished lines all clients together may have a pod hold."""

    limit: int = 64 << 20
    held: int = 0


@define(eq=False)
class Connection:
    """A client. All calls come from the loop's thread; none of them waits.

    `on_line` is called with each line, or None for one that was too long, and says when it is done
    by `finished`; `on_end` is called when the client has sent all it has and that is done, and
    `on_closed` once, whatever happens.
    """

    sock: socket.socket
    peer: Peer
    outbox: Outbox
    budget: InputBudget
    on_line: Callable[[Connection, bytes | None], None]
    on_closed: Callable[[Connection], None]
    on_end: Callable[[], None] = lambda: None
    _loop: asyncio.AbstractEventLoop = field(factory=asyncio.get_running_loop, init=False)
    _lines: LineBuffer = field(factory=LineBuffer, init=False)
    _waiting: deque[bytes | None] = field(factory=deque, init=False)
    """Lines that came and are not worked on yet."""
    _in_flight: int = field(default=0, init=False)
    _is_reading: bool = field(default=False, init=False)
    _is_work_due: bool = field(default=False, init=False)
    _drained: asyncio.Future[None] | None = field(default=None, init=False)
    is_blocked: bool = field(default=False, init=False)
    """Whether the other end takes nothing just now."""
    is_closed: bool = field(default=False, init=False)
    is_leaving: bool = field(default=False, init=False)
    """Whether it closes as soon as everything is sent."""
    at_end: bool = field(default=False, init=False)
    """Whether the other end sends nothing more."""

    is_subscribed: bool = field(default=False, init=False)
    """Whether events are still to come, also to a client that sends nothing more."""

    def start(self) -> None:
        """Begin to read."""
        self.sock.setblocking(False)  # noqa: FBT003  the socket's own name for it
        self._read()

    # ------------------------------------------------------------------ in

    def _read(self) -> None:
        """Read on, as long as the client does not ask for more than it takes."""
        wanted = not (self.at_end or self.is_leaving or self.is_closed or self._waiting)
        if wanted == self._is_reading:
            return

        self._is_reading = wanted
        if wanted:
            self._loop.add_reader(self.sock.fileno(), self._on_readable)
        else:
            self._loop.remove_reader(self.sock.fileno())

    def _on_readable(self) -> None:
        try:
            data = self.sock.recv(READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.close()
            return

        if not data:
            self._on_end()
            return

        before = self._lines.held
        self._waiting.extend(self._lines.feed(data))
        self.budget.held += self._lines.held - before
        if self.budget.held > self.budget.limit and self._lines.held:
            self.budget.held -= self._lines.held
            self._lines.skip()
            self._waiting.append(None)

        self._work_soon()

    def _on_end(self) -> None:
        self.at_end = True
        self._read()
        if _has_hung_up(self.sock):
            self.close()
        else:
            self._maybe_leave()

    def _work(self) -> None:
        """Hand over one line, if the client may have more worked on.

        The next one follows when this one was begun: mostly its answer is there then, and counts.
        """
        self._is_work_due = False
        if self.is_closed:
            return

        if self._waiting and self._may_ask():
            self._in_flight += 1
            self.on_line(self, self._waiting.popleft())
            self._work_soon()

        self._read()
        self._maybe_leave()

    def _work_soon(self) -> None:
        if not self._is_work_due:
            self._is_work_due = True
            self._loop.call_soon(self._work)

    def _may_ask(self) -> bool:
        return self._in_flight < MAX_IN_FLIGHT and self.outbox.other_bytes < MAX_ANSWER_BYTES

    def finished(self) -> None:
        """Note that one line was worked on."""
        self._in_flight -= 1
        self._work_soon()

    # ------------------------------------------------------------------ out

    def send(self, line: bytes) -> None:
        """Send a line that is no event."""
        self.send_record(Record(line))

    def send_record(self, record: Record) -> None:
        """Send a line, behind those that wait already."""
        if not self.is_closed:
            self.outbox.add(record)
            self.flush()

    def hand(self, parcel: Parcel) -> Record | None:
        """Send events, or keep those that the other end does not take just now.

        Returns the first for which there is no room; it and those after it are not kept.
        """
        if self.is_closed:
            return None

        if not (self.is_blocked or self.outbox):
            self._send_parcel(parcel)
            return None

        missed = next((r for r in parcel.records if not self.outbox.offer(r)), None)
        self.flush()
        return missed

    def _send_parcel(self, parcel: Parcel) -> None:
        """Send events to somebody for whom nothing is kept: mostly all of it goes at once."""
        try:
            sent = self.sock.send(parcel.data)
        except OSError:
            sent = 0  # it is tried again, and heeded, by `flush`

        if sent < len(parcel.data):
            for record in parcel.records:
                self.outbox.add(record)

            self.outbox.sent(sent)
            self.flush()

    def flush(self) -> None:
        """Send what the other end takes just now; the rest follows when it takes more."""
        while self.outbox and not self.is_blocked and not self.is_closed:
            self._send_some()

    def _send_some(self) -> None:
        buffers = self.outbox.buffers()
        try:
            size = self.sock.send(buffers[0]) if len(buffers) == 1 else self.sock.sendmsg(buffers)
        except (BlockingIOError, InterruptedError):
            size = 0
        except OSError:
            self.close()
            return

        self.outbox.sent(size)
        if self.outbox and size < sum(map(len, buffers)):
            self.is_blocked = True
            self._loop.add_writer(self.sock.fileno(), self._on_writable)
        elif not self.outbox:
            self._on_drained()

    def _on_writable(self) -> None:
        self._loop.remove_writer(self.sock.fileno())
        self.is_blocked = False
        self.flush()
        self._work_soon()

    def _on_drained(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

        if self.is_leaving:
            self.close()
        else:
            self._maybe_leave()

    async def drained(self) -> None:
        """Return once everything was sent, or the connection is closed."""
        if self.outbox and not self.is_closed:
            if self._drained is None or self._drained.done():
                self._drained = self._loop.create_future()

            await asyncio.shield(self._drained)

    # ------------------------------------------------------------------ the end

    def _maybe_leave(self) -> None:
        """Close where the other end has sent all it had, and has been told all there is."""
        if not self.at_end or self._in_flight or self._waiting:
            return

        on_end, self.on_end = self.on_end, lambda: None
        on_end()
        if not (self.outbox or self.is_subscribed or self.is_closed):
            self.close()

    def leave(self) -> None:
        """Close as soon as everything was sent; nothing more is read."""
        self.is_leaving = True
        self._waiting.clear()
        self._read()
        if not self.outbox:
            self.close()

    def close(self) -> None:
        """Close now; idempotent. What was not sent is lost."""
        if self.is_closed:
            return

        number = self.sock.fileno()
        self._loop.remove_reader(number)
        self._loop.remove_writer(number)
        self.is_closed = True
        self.budget.held -= self._lines.held
        self._waiting.clear()
        self.outbox.clear()
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

        with suppress(OSError):  # the other end may have gone first, or have sent no more
            self._read_up()

        self.sock.close()
        self.on_closed(self)

    def _read_up(self) -> None:
        """Take what came and is not wanted: where it stays unread, what was sent last is lost."""
        self.sock.shutdown(socket.SHUT_RD)
        while self.sock.recv(READ_BYTES):
            pass


def _has_hung_up(sock: socket.socket) -> bool:
    """Tell whether the other end is gone altogether, and did not only end its half."""
    poll = select.poll()
    poll.register(sock.fileno(), 0)
    return any(flags & (select.POLLHUP | select.POLLERR) for _, flags in poll.poll(0))
