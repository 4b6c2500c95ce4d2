"""A served pod: its socket, its clients, and how it ends."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from typing import Any

from attrs import define, field

from pod.failures import EXPECTED_ERRORS
from pod.pod import Pod
from pod.protocol.events import ErrorInfo
from pod.protocol.methods import Answer
from pod.protocol.wire import (
    HEARTBEAT_S,
    MAX_REQUEST_BYTES,
    Hello,
    WireError,
    answer_line,
    error_line,
    hello_line,
    parse_request,
)
from session_store import FileSessionStore

from .connection import Connection, InputBudget
from .dispatcher import Dispatcher, told
from .hub import Hub
from .ledger import Ledger
from .peer import Peer, peer_of
from .places import Places, reachable
from .replay import Replays

_log = logging.getLogger("pod.serve")
_BACKLOG = 512
_ACCEPTED_AT_ONCE = 64
_NO_DESCRIPTORS = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_ACCEPT_AGAIN_S = 0.2
_CANCEL_AGAIN_S = 0.1
FAREWELL_S = 5.0
"""How long all of them together have, at the end, to take what there is for them."""


@define(eq=False)
class PodServer:
    """Serves one pod to many clients. Made before the pod is launched, so that it misses nothing.

    `start`, then `listen` or `adopt`, then `ended`; `shutdown` from anywhere on the loop.
    """

    pod: Pod
    store: Callable[[], FileSessionStore]
    """Where the pod's sessions are."""
    manifest: str = ""
    ledger_of: Callable[[str], Ledger] | None = None
    """Makes the ledger of a launch; None: nothing is kept for later launches."""
    heartbeat_s: float = HEARTBEAT_S
    farewell_s: float = FAREWELL_S
    uid: int = field(factory=os.geteuid)
    """Whose processes may connect."""
    hub: Hub = field(init=False)
    _dispatcher: Dispatcher = field(init=False)
    _budget: InputBudget = field(factory=InputBudget, init=False)
    _connections: set[Connection] = field(factory=set, init=False)
    _tasks: set[asyncio.Task[None]] = field(factory=set, init=False)
    _listener: socket.socket | None = field(default=None, init=False)
    _ending: asyncio.Task[None] | None = field(default=None, init=False)
    _asked: asyncio.Event = field(factory=asyncio.Event, init=False)
    _waits: bool = field(default=False, init=False)
    _since_ms: int = field(factory=lambda: time.time_ns() // 1_000_000, init=False)
    is_started: bool = field(default=False, init=False)
    _places: Places | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        bus = self.pod.bus
        ledger = self.ledger_of(bus.launch) if self.ledger_of is not None else None
        self.hub = Hub(bus, ledger, heartbeat_s=self.heartbeat_s)
        replays = Replays(
            self.pod,
            self.hub,
            self.store,
            ledger,
            self._since_ms,
        )
        self._dispatcher = Dispatcher(
            self.pod, self.hub, replays, self.shutdown, self._since_ms, self.manifest
        )

    # ------------------------------------------------------------------ life

    async def start(self) -> None:
        """Launch the pod. Raises what that raises."""
        if self.hub.ledger is not None:
            self.hub.ledger.open()

        self.hub.start()
        try:
            await self.pod.start()
        except BaseException:  # a cancellation too: nothing of ours stays behind
            self.hub.close()
            raise

        self.is_started = True

    def listen(self, places: Places) -> None:
        """Accept clients on the pod's socket from now on. Raises `OSError`."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._bind(listener, places)
            listener.listen(_BACKLOG)
            listener.setblocking(False)  # noqa: FBT003  the socket's own name for it
            # Whoever finds the name finds somebody who listens.
            (places.folder / _unlisted(places)).replace(places.socket)
        except OSError:
            listener.close()
            raise

        self._listener, self._places = listener, places
        asyncio.get_running_loop().add_reader(listener.fileno(), self._accept)

    @staticmethod
    def _bind(listener: socket.socket, places: Places) -> None:
        path = places.folder / _unlisted(places)
        path.unlink(missing_ok=True)
        with suppress(OSError):  # macOS: there the folder alone keeps others out until the chmod
            os.fchmod(listener.fileno(), 0o600)

        with reachable(path) as short:
            listener.bind(short)

        path.chmod(0o600)

    def shutdown(self, wait: bool = False) -> None:  # noqa: FBT001, FBT002  the protocol's parameter
        """End the pod; with `wait`, after what is going on. Asked again without, it ends now."""
        self._dispatcher.is_closing = True
        if self._ending is not None and self._waits and not wait:
            self._waits = False
            self.pod.cancel()

        if self._ending is None:
            self._waits = wait
            self._ending = asyncio.create_task(self._end(), name="end of the pod")
            self._asked.set()

    async def ended(self) -> None:
        """Return once the pod was shut down and all is closed. Raises what closing raises."""
        await self._asked.wait()
        assert self._ending is not None  # noqa: S101  set together
        await self._ending

    async def _end(self) -> None:
        try:
            await self._until_idle()
            self._close_listener()
            await self.pod.aclose()
        finally:
            await self._say_farewell()

    async def _until_idle(self) -> None:
        """Return once nothing is going on, after stopping it unless that is to be waited for."""
        idle = asyncio.create_task(self._dispatcher.idle(), name="until idle")
        while not idle.done():
            # Again and again: what is to be stopped may only be about to begin.
            if not self._waits:
                self.pod.cancel()

            await asyncio.wait({idle}, timeout=_CANCEL_AGAIN_S)

        await idle

    async def _say_farewell(self) -> None:
        """Give everybody what there is for them, and close."""
        self._close_listener()
        loop = asyncio.get_running_loop()
        end = loop.time() + self.farewell_s
        tasks = tuple(self._tasks)
        if tasks:
            await asyncio.wait(tasks, timeout=self.farewell_s)

        await self.hub.finish(end - loop.time())
        self.hub.end_subscriptions()
        drained = [asyncio.ensure_future(c.drained()) for c in self._connections]
        if drained:
            await asyncio.wait(drained, timeout=max(0.0, end - loop.time()))

        for future in drained:
            future.cancel()

        for connection in tuple(self._connections):
            connection.close()

        self.hub.close()

    def _close_listener(self) -> None:
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener.fileno())
            self._listener.close()
            self._listener = None

        if self._places is not None:
            self._places.socket.unlink(missing_ok=True)
            self._places = None

    # ------------------------------------------------------------------ clients

    def _accept(self) -> None:
        listener = self._listener
        for _ in range(_ACCEPTED_AT_ONCE):
            if listener is None:
                return

            try:
                sock, _address = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause_accepting(listener, error)
                return

            self._admit(sock)

    def _pause_accepting(self, listener: socket.socket, error: OSError) -> None:
        if error.errno not in _NO_DESCRIPTORS:
            raise error

        _log.warning("no client can be taken just now: %s", error.strerror)
        loop = asyncio.get_running_loop()
        loop.remove_reader(listener.fileno())

        def again() -> None:
            if self._listener is listener:
                loop.add_reader(listener.fileno(), self._accept)

        loop.call_later(_ACCEPT_AGAIN_S, again)

    def _admit(self, sock: socket.socket) -> None:
        try:
            peer = peer_of(sock)
        except OSError:
            sock.close()
            return

        if peer.uid != self.uid:
            _refuse(sock, peer)
        else:
            self.adopt(sock, peer)

    def adopt(
        self,
        sock: socket.socket,
        peer: Peer,
        *,
        on_end: Callable[[], None] = lambda: None,
        on_gone: Callable[[], None] = lambda: None,
    ) -> Connection:
        """Take a connected socket as a client's.

        `on_end` is called when it has sent all it has and was answered, `on_gone` when it is
        closed.
        """

        def closed(connection: Connection) -> None:
            self._on_closed(connection)
            on_gone()

        connection = Connection(
            sock=sock,
            peer=peer,
            outbox=self.hub.outbox(),
            budget=self._budget,
            on_line=self._on_line,
            on_closed=closed,
            on_end=on_end,
        )
        self._connections.add(connection)
        connection.start()
        connection.send(hello_line(self._hello()))
        return connection

    def _hello(self) -> Hello:
        return Hello(
            pod=self.pod.name,
            launch=self.pod.bus.launch,
            seq=self.hub.seq,
            session_id=self.pod.session_id,
            version=_version(),
        )

    def _on_closed(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self.hub.unsubscribe(connection)

    def _on_line(self, connection: Connection, line: bytes | None) -> None:
        task = asyncio.create_task(self._answered(connection, line))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answered(self, connection: Connection, line: bytes | None) -> None:
        """Carry out one line; whatever comes of it, its client is told once and only its client."""
        try:
            await self._carry_out(connection, line)
        finally:
            connection.finished()

    def _tell(self, connection: Connection, line: bytes) -> None:
        """Send an answer, after the events that came before it."""
        self.hub.flush()
        connection.send(line)

    async def _carry_out(self, connection: Connection, line: bytes | None) -> None:
        try:
            if line is None:
                raise _too_large()

            request = parse_request(line)
        except WireError as error:
            self._tell(connection, error_line(error.id, told(error)))
            return

        try:
            outcome = await self._dispatcher.handle(request, connection)
        # The supervision point of a request: whatever a pod's parts raise is this one's answer.
        except Exception as error:  # noqa: BLE001  each is told to whoever asked
            if not isinstance(error, (WireError, *EXPECTED_ERRORS)):
                _log.exception("%s failed", request.method)

            self._tell(connection, error_line(request.id, told(error)))
            return

        answer, then = outcome if isinstance(outcome, tuple) else (outcome, None)
        if request.id is not None:
            self._tell(connection, answer_line(request.id, _plain(answer)))

        if then is not None and not (connection.is_closed and request.method == "subscribe"):
            then()


def _plain(answer: Answer) -> dict[str, Any]:
    return answer.model_dump()


@cache
def _version() -> str:
    return version("podworker")


def _too_large() -> WireError:
    message = f"a line of more than {MAX_REQUEST_BYTES >> 20} MiB, or more than there is room for"
    return WireError("too_large", message, hint="send less at once")


def _refuse(sock: socket.socket, peer: Peer) -> None:
    _log.warning("a client of another user was refused: %s", peer.label)
    error = ErrorInfo(code="forbidden", message="this pod belongs to another user")
    with sock, suppress(OSError):  # it may have gone already
        sock.setblocking(False)  # noqa: FBT003  the socket's own name for it
        sock.send(error_line(None, error))


def _unlisted(places: Places) -> str:
    return f".{places.name}.{os.getpid()}"
