"""A blocking connection to a served pod, for commands that ask one thing or read along."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

import orjson

from pod.errors import PodError
from pod.protocol.wire import request_line

from .claim import find
from .places import Places, reachable

ANSWER_S = 10.0
"""How long a pod has to answer what it answers at once."""
_READ_BYTES = 1 << 16
_SHOWN_BYTES = 80
_USE = 2
_WRONG_USE = frozenset(
    {"bad_params", "bad_request", "unknown_method", "ahead", "unknown_entry", "unknown_session"}
)


class Refused(PodError):
    """The pod answered with an error."""

    def __init__(self, code: str, message: str, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.code = code
        self.exit_code = _USE if code in _WRONG_USE else 1


class Unanswered(PodError):
    """The pod does not answer, or closed the connection."""


class NotListening(Unanswered):
    """The pod has no socket just now: it is about to begin, or to end."""


class Caller:
    """A connection. `with Caller.connect(places) as caller: caller.call("status")`."""

    def __init__(self, sock: socket.socket, places: Places) -> None:
        self._sock = sock
        self._places = places
        self._data = bytearray()
        self._searched = 0

    @classmethod
    def connect(cls, places: Places, timeout_s: float = ANSWER_S) -> Caller:
        """Return a connection to the pod.

        Raises:
            NotServed: No pod of that name is served.
            Unanswered: It does not take the connection; `NotListening` if it begins or ends.
        """
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(timeout_s)
        try:
            with reachable(places.socket) as path:
                sock.connect(path)
        except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
            sock.close()
            found = find(places)
            message = f"the pod {places.name} (pid {found.pid}) takes no clients just now"
            raise NotListening(message, hint="it is about to begin, or to end") from None
        except OSError as error:
            sock.close()
            raise _unanswered(places, str(error)) from error

        return cls(sock, places)

    def call(
        self,
        method: str,
        params: dict[str, Any] | None = None,
        *,
        timeout_s: float | None = ANSWER_S,
    ) -> dict[str, Any]:
        """Return what the pod answers; None waits for ever.

        Raises:
            Refused: It answered with an error.
            Unanswered: It did not answer in time, or what answered is no pod.
        """
        self._sock.settimeout(timeout_s)
        try:
            self._sock.sendall(request_line(method, params, 1))
        except OSError as error:
            raise _unanswered(self._places, str(error)) from error

        for _, said in self._lines():
            if "error" in said:
                refusal = said["error"]
                raise Refused(refusal["code"], refusal["message"], refusal.get("hint") or "")

            if "ok" in said:
                ok: dict[str, Any] = said["ok"]
                return ok

        raise _unanswered(self._places, "the connection was closed")

    def lines(self) -> Iterator[tuple[bytes, dict[str, Any]]]:
        """Yield every line that comes from now on, as it is and parsed, until the pod ends.

        Raises `Unanswered` for one that is no pod's.
        """
        self._sock.settimeout(None)
        yield from self._lines()

    def _lines(self) -> Iterator[tuple[bytes, dict[str, Any]]]:
        while (line := self._line()) is not None:
            try:
                said = orjson.loads(line)
            except orjson.JSONDecodeError:
                said = None

            if not isinstance(said, dict):
                raise _unanswered(
                    self._places, f"it said {line[:_SHOWN_BYTES]!r}, no line of a pod's"
                )

            yield line, said

    def _line(self) -> bytes | None:
        """Return the next line, without its newline; None at the end."""
        while (end := self._data.find(b"\n", self._searched)) < 0:
            self._searched = len(self._data)
            try:
                data = self._sock.recv(_READ_BYTES)
            except ConnectionError:
                return None
            except OSError as error:
                raise _unanswered(self._places, str(error)) from error

            if not data:
                return None

            self._data += data

        line = bytes(self._data[:end])
        del self._data[: end + 1]
        self._searched = 0
        return line

    def close(self) -> None:
        """Close the connection."""
        self._sock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _unanswered(places: Places, why: str) -> Unanswered:
    hint = f"pod logs {places.name} shows what it last said; pod stop {places.name} --now ends it"
    return Unanswered(f"the pod {places.name} does not answer: {why}", hint=hint)
