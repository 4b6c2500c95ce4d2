"""JSON Lines, both ways: how requests, answers and events are written, and read within limits.

A line is one JSON object and ends in byte 0x0A. What a client may send is bounded; a line that is
not a request is answered and harms nobody.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import orjson
from attrs import define, field, frozen
from pydantic import ValidationError

from pod.protocol.envelope import EVENTS, Envelope
from pod.protocol.events import ErrorInfo

PROTOCOL_VERSION = 1
"""What the hello says. It rises when a reader of the version before would go wrong."""
MAX_REQUEST_BYTES = 16 << 20
"""The longest line that a pod takes, its newline aside."""
HEARTBEAT_S = 15.0
"""How often a subscriber hears that the pod is there, when there is nothing else to say."""

RequestId: TypeAlias = str | int | None


class WireError(Exception):
    """A line that is no request; `id` is the one to answer with, as far as it could be read."""

    def __init__(self, code: str, message: str, *, hint: str = "", id: RequestId = None) -> None:  # noqa: A002  the protocol's word
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.id = id


@frozen
class Request:
    """One request, its parameters not looked at yet."""

    id: RequestId
    """None where no answer is wanted."""
    method: str
    params: dict[str, Any]


@frozen
class Hello:
    """The first line that a pod sends: who it is."""

    pod: str
    launch: str
    seq: int
    """The last event so far."""
    session_id: str
    version: str
    """Of podworker."""
    protocol: int = PROTOCOL_VERSION


@frozen
class Heartbeat:
    """All events up to `seq` that the subscriber wanted were sent before this line."""

    launch: str
    seq: int
    ts: int
    """Milliseconds since 1970, UTC."""


@frozen
class AnswerLine:
    """An answer: `ok` is the method's answer, or `error` says why not."""

    id: RequestId
    ok: dict[str, Any] | None = None
    error: ErrorInfo | None = None


@frozen
class UnknownLine:
    """A line of a newer version: an event, or something else, that this one does not know."""

    value: dict[str, Any]


ServerLine: TypeAlias = Hello | Heartbeat | AnswerLine | Envelope | UnknownLine


# --- lines ----------------------------------------------------------------------------------


@define(eq=False)
class LineBuffer:
    """Cuts what comes in into lines, however it was cut on the way. Holds one line at most."""

    limit: int = MAX_REQUEST_BYTES
    _pieces: list[bytes] = field(factory=list, init=False)
    _size: int = field(default=0, init=False)
    _skipping: bool = field(default=False, init=False)

    @property
    def held(self) -> int:
        """How many bytes of an unfinished line are held."""
        return self._size

    def feed(self, data: bytes) -> list[bytes | None]:
        """Return the lines that `data` completes; None stands for one that was too long.

        Such a line is told of once, as soon as it is too long, and the rest of it is passed over.
        """
        *ended, rest = data.split(b"\n")
        lines: list[bytes | None] = []
        for piece in ended:
            line = self._end(piece)
            if line is not None or not self._skipping:
                lines.append(line)

            self._skipping = False

        if self._hold(rest):
            lines.append(None)

        return lines

    def skip(self) -> None:
        """Let go of the unfinished line, and pass over the rest of it."""
        self._drop()
        self._skipping = True

    def _end(self, piece: bytes) -> bytes | None:
        if self._skipping:
            return None

        if self._size + len(piece) > self.limit:
            self._drop()
            return None

        line = b"".join((*self._pieces, piece)) if self._pieces else piece
        self._drop()
        return line

    def _hold(self, rest: bytes) -> bool:
        """Keep the beginning of a line; tell whether it has just become too long."""
        if self._skipping or not rest:
            return False

        self._pieces.append(rest)
        self._size += len(rest)
        if self._size <= self.limit:
            return False

        self.skip()
        return True

    def _drop(self) -> None:
        self._pieces.clear()
        self._size = 0


# --- what a client sends --------------------------------------------------------------------


def request_line(
    method: str,
    params: dict[str, Any] | None = None,
    id: RequestId = None,  # noqa: A002  the protocol's word
) -> bytes:
    """Return a request as a line, its newline included."""
    request: dict[str, Any] = {} if id is None else {"id": id}
    return orjson.dumps({**request, "method": method, "params": params or {}}) + b"\n"


def parse_request(line: bytes) -> Request:
    """Return the request that a line is.

    Raises:
        WireError: It is none: `bad_json`, or `bad_request`.
    """
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        message = f"a line that is not JSON: {error}"
        raise WireError("bad_json", message, hint="send one JSON object a line") from None

    if not isinstance(value, dict):
        raise _bad_request("a request is a JSON object", None)

    found = value.get("id")
    request_id: RequestId = found if _is_id(found) else None
    if found is not None and request_id is None:
        raise _bad_request("a request's id is a text or a whole number", None)

    method, params = value.get("method"), value.get("params")
    if not isinstance(method, str) or not method:
        raise _bad_request("a request names its method", request_id)

    if params is not None and not isinstance(params, dict):
        raise _bad_request("a request's params are a JSON object", request_id)

    return Request(request_id, method, params or {})


def _is_id(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool))


def _bad_request(message: str, request_id: RequestId) -> WireError:
    hint = 'such as {"id": 1, "method": "status", "params": {}}'
    return WireError("bad_request", message, hint=hint, id=request_id)


# --- what a pod sends -----------------------------------------------------------------------


def hello_line(hello: Hello) -> bytes:
    """Return the first line of a connection."""
    value = {
        "protocol": hello.protocol,
        "pod": hello.pod,
        "launch": hello.launch,
        "seq": hello.seq,
        "session_id": hello.session_id,
        "version": hello.version,
    }
    return orjson.dumps({"hello": value}) + b"\n"


def heartbeat_line(heartbeat: Heartbeat) -> bytes:
    """Return a line without `event` that says the pod is there."""
    value = {"launch": heartbeat.launch, "seq": heartbeat.seq, "ts": heartbeat.ts}
    return orjson.dumps({"heartbeat": value}) + b"\n"


def answer_line(request_id: RequestId, ok: dict[str, Any]) -> bytes:
    """Return the answer of a request that went well; what is no JSON goes as its text."""
    options = orjson.OPT_NON_STR_KEYS
    return orjson.dumps({"id": request_id, "ok": ok}, default=str, option=options) + b"\n"


def error_line(request_id: RequestId, error: ErrorInfo) -> bytes:
    """Return the answer of a request that did not."""
    value = {"id": request_id, "error": error.model_dump(exclude_none=True)}
    return orjson.dumps(value) + b"\n"


def parse_server_line(line: bytes) -> ServerLine:
    """Return what a pod's line is.

    Raises:
        WireError: It is not a JSON object, or lacks what its kind must have.
    """
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise WireError("bad_json", f"the pod sent a line that is not JSON: {error}") from None

    if not isinstance(value, dict):
        raise WireError("bad_json", "the pod sent a line that is not a JSON object")

    try:
        return _known(value)
    except (KeyError, TypeError, ValidationError) as error:
        raise WireError("bad_line", f"the pod sent a line that cannot be read: {error}") from None


def _known(value: dict[str, Any]) -> ServerLine:
    if "event" in value:
        model = EVENTS.get(value["event"])
        return UnknownLine(value) if model is None else Envelope.from_json(value)

    if "ok" in value:
        return AnswerLine(value["id"], ok=value["ok"])

    if "error" in value:
        return AnswerLine(value["id"], error=ErrorInfo.model_validate(value["error"]))

    if "heartbeat" in value:
        beat = value["heartbeat"]
        return Heartbeat(beat["launch"], beat["seq"], beat["ts"])

    if "hello" in value:
        said = value["hello"]
        fields = ("pod", "launch", "seq", "session_id", "version", "protocol")
        return Hello(**{name: said[name] for name in fields})

    return UnknownLine(value)
