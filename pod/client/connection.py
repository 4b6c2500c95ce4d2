"""One connection to a served pod: its hello, its answers matched to what was asked, its lines."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable
from itertools import count
from pathlib import Path
from typing import Any, Protocol, TypeAlias, cast

import orjson

from pod.protocol import Envelope
from pod.protocol.wire import (
    MAX_REQUEST_BYTES,
    PROTOCOL_VERSION,
    AnswerLine,
    Heartbeat,
    Hello,
    LineBuffer,
    UnknownLine,
    WireError,
    parse_server_line,
    request_line,
)
from pod.serve.claim import NotServed
from pod.serve.places import reachable

from .errors import ConnectionLost, ProtocolMismatch, RemoteError

MAX_LINE_BYTES = 64 << 20
"""The longest line that is taken from a pod, its newline aside: what is longer is no pod's."""
_BUSY_WAIT_S = 0.01

EventLine: TypeAlias = Envelope | UnknownLine


class Receiver(Protocol):
    """Whoever takes in what a connection brings, in order, on the event loop."""

    def receive(self, line: EventLine | Heartbeat) -> None:
        """Take an event, a heartbeat, or a line of a newer version."""


class Connection(asyncio.Protocol):
    """An open connection. Once it is lost for whatever reason it stays so; make another one."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._buffer = LineBuffer(MAX_LINE_BYTES)
        self._ids = count(1)
        self._waiting: dict[int, asyncio.Future[AnswerLine]] = {}
        self._transport: asyncio.Transport | None = None
        loop = asyncio.get_running_loop()
        self._hello: asyncio.Future[Hello] = loop.create_future()
        self._lost: asyncio.Future[str] = loop.create_future()
        self.heard_at = loop.time()
        """When anything came last, in the event loop's time."""

    # ------------------------------------------------------------------ opening and closing

    @classmethod
    async def open(cls, path: Path, receiver: Receiver, *, hello_s: float = 10.0) -> Connection:
        """Return a connection to the pod behind the socket `path`; `hello` says who it is.

        Whoever answers has `hello_s` seconds to say so.

        Raises:
            NotServed: There is no such socket, or nobody listens behind it.
            ConnectionLost: It ended, or nothing came, before a pod said who it is.
            ProtocolMismatch: What answered is no pod, or speaks another protocol.
            RemoteError: The pod takes no connection of this user.
        """
        connection: Connection | None = None
        try:
            async with asyncio.timeout(hello_s):
                sock = await _connected(path)
                _, connection = await asyncio.get_running_loop().create_unix_connection(
                    lambda: cls(receiver), sock=sock
                )
                await connection.greeted()
        except TimeoutError:
            message = f"no pod said who it is at {path} within {hello_s:g} s"
            if connection is not None:
                connection.close(message)

            raise ConnectionLost(message, hint="is it stopped? see: pod ps") from None
        except BaseException:  # a cancellation too: no socket stays behind
            if connection is not None:
                connection.close("given up")

            raise

        return connection

    async def greeted(self) -> None:
        """Return once the pod has said who it is. Raises as `open` does where it does not."""
        either: set[asyncio.Future[Any]] = {self._hello, self._lost}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not self._hello.done():
            raise ConnectionLost(f"the connection ended before the pod's hello: {self.lost_by}")

        self._hello.result()

    @property
    def hello(self) -> Hello:
        """Who answered."""
        return self._hello.result()

    @property
    def is_lost(self) -> bool:
        """Whether the connection has ended."""
        return self._lost.done()

    @property
    def lost_by(self) -> str:
        """Why it ended; empty while it has not."""
        return self._lost.result() if self._lost.done() else ""

    async def lost(self) -> str:
        """Wait until the connection has ended, and return why."""
        return await asyncio.shield(self._lost)

    def close(self, why: str = "closed by this side") -> None:
        """End the connection at once; idempotent. What waits for an answer is told."""
        if self._lost.done():
            return

        self._lost.set_result(why)
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ConnectionLost(f"the connection to the pod ended: {why}"))

        self._waiting.clear()
        if self._transport is not None:
            self._transport.abort()

    # ------------------------------------------------------------------ asking

    def send(self, method: str, params: dict[str, Any]) -> Awaitable[dict[str, Any]]:
        """Send a request now; what is returned gives its answer, and may be awaited or not.

        Awaiting raises `RemoteError` where the pod refuses, `ConnectionLost` where no answer comes.
        """
        number = next(self._ids)
        line = request_line(method, params, number)
        if len(line) > MAX_REQUEST_BYTES:
            size = f"{len(line):,} bytes, of at most {MAX_REQUEST_BYTES:,}"
            raise RemoteError("too_large", f"the request is too large: {size}")

        future: asyncio.Future[AnswerLine] = asyncio.get_running_loop().create_future()
        if self._lost.done() or self._transport is None:
            future.set_exception(ConnectionLost(f"the connection to the pod ended: {self.lost_by}"))
        else:
            self._waiting[number] = future
            self._transport.write(line)

        return self._answered(number, future)

    async def _answered(self, number: int, future: asyncio.Future[AnswerLine]) -> dict[str, Any]:
        try:
            answer = await future
        finally:
            self._waiting.pop(number, None)

        if answer.error is not None:
            error = answer.error
            raise RemoteError(error.code, error.message, hint=error.hint or "")

        return answer.ok if isinstance(answer.ok, dict) else {}

    # ------------------------------------------------------------------ what comes in

    def pause(self) -> None:
        """Read nothing for now: whoever takes it in has enough to do."""
        if self._transport is not None and not self._lost.done():
            self._transport.pause_reading()

    def go_on(self) -> None:
        """Read again."""
        if self._transport is not None and not self._lost.done():
            self._transport.resume_reading()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin (asyncio calls this)."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Take in bytes (asyncio calls this)."""
        self.heard_at = asyncio.get_running_loop().time()
        for line in self._buffer.feed(data):
            if self._lost.done():  # closed by what an earlier line brought
                return

            if line is None:
                self.close(f"the other side sent a line of more than {MAX_LINE_BYTES:,} bytes")
            elif not self._hello.done():
                self._take_hello(line)
            else:
                self._take(line)

    def connection_lost(self, exc: Exception | None) -> None:
        """End (asyncio calls this)."""
        self.close(str(exc) if exc is not None else "the pod closed it")

    def _take_hello(self, line: bytes) -> None:
        try:
            self._hello.set_result(_hello_of(line))
        except (ProtocolMismatch, RemoteError) as error:
            self._hello.set_exception(error)
            self._hello.exception()  # whoever opens hears of it, if anybody still does
            self.close(error.message)

    def _take(self, line: bytes) -> None:
        try:
            said = parse_server_line(line)
        except WireError as error:
            event = _newer_event(line)
            if event is None:
                self.close(error.message)
            else:
                self._receiver.receive(event)

            return

        match said:
            case AnswerLine(id=int() as number):
                future = self._waiting.get(number)
                if future is not None and not future.done():
                    future.set_result(said)
            case Envelope() | UnknownLine() | Heartbeat():
                self._receiver.receive(said)
            case _:  # a second hello, or an answer to what was not asked: nothing to do with it
                pass


async def _connected(path: Path) -> socket.socket:
    """Return a connected socket. A full queue of connections is waited for."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)  # noqa: FBT003  the socket's own name for it
        while True:
            try:
                with reachable(path) as short:
                    sock.connect(short)
            except BlockingIOError:  # of a Unix socket: so many wait to be accepted already
                await asyncio.sleep(_BUSY_WAIT_S)
            else:
                return sock
    except OSError as error:
        sock.close()
        if isinstance(error, FileNotFoundError):
            message = f"no pod is served at {path}"
        elif isinstance(error, ConnectionRefusedError):
            message = f"nobody listens at {path}: the pod that was served there has ended"
        else:
            message = f"cannot connect to {path}: {error.strerror or error}"

        raise NotServed(message, hint="start it: pod serve MANIFEST; list: pod ps") from error
    except BaseException:  # a cancellation too
        sock.close()
        raise


def _hello_of(line: bytes) -> Hello:
    """Return the hello that a first line is; what is wrong with it is told in words."""
    try:
        value = orjson.loads(line)
        said = value["hello"]
        version = said["protocol"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        _raise_refusal(line)
        message = "what answered is no pod: its first line is not a pod's hello"
        raise ProtocolMismatch(message, hint="is that the socket of a pod? see: pod ps") from None

    if version != PROTOCOL_VERSION:
        pod, release = said.get("pod", "?"), said.get("version", "?")
        raise ProtocolMismatch(
            f"pod {pod} (podworker {release}) speaks protocol {version}, "
            f"this client protocol {PROTOCOL_VERSION}",
            hint="use the podworker that the pod runs on, or restart the pod with this one",
        )

    try:
        hello = parse_server_line(line)
    except WireError as error:
        raise ProtocolMismatch(f"the pod's hello cannot be read: {error.message}") from None

    if not isinstance(hello, Hello):
        raise ProtocolMismatch("what answered is no pod: its first line is not a pod's hello")

    return hello


def _raise_refusal(line: bytes) -> None:
    """Raise what a pod says in the place of a hello, if it does: why it takes nobody."""
    try:
        said = parse_server_line(line)
    except WireError:
        return

    if isinstance(said, AnswerLine) and said.error is not None:
        raise RemoteError(said.error.code, said.error.message, hint=said.error.hint or "")


def _newer_event(line: bytes) -> UnknownLine | None:
    """Return a line as an event of a newer version, if that is what it may be.

    Such as one of a known name with a value that is not known yet: it is passed over, and counted.
    """
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None

    if isinstance(value, dict) and "event" in value and isinstance(value.get("seq"), int):
        return UnknownLine(value)

    return None
