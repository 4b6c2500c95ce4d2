"""Where one event of a stream ends and the next begins: server-sent events, and JSON lines.

Pure: pieces of bytes in, the data of each event out. This is not httpx-sse, for three reasons: it
cuts bytes and not text, so its limits are in bytes; it hands on all events of a piece at once, at a
fraction of the time; and it knows what else providers put into such a stream.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Protocol

from worker.llm.endpoint import StreamLimits
from worker.llm.failures import bad_answer
from worker.llm.reports import read_json, report_of
from worker.llm.scheme import Framing

# What a body begins with that is no stream at all: a whole answer, an error, a page.
_WHOLE = {"sse": (b"{", b"[", b"<"), "ndjson": (b"[", b"<")}
_BOM = b"\xef\xbb\xbf"

# Anthropic's `ping` and OpenAI's `keepalive` have data, and it says nothing. Proxies have others.
_LONGEST_KEEP_ALIVE = 128
_KEEP_ALIVE = re.compile(
    rb'\{\s*"type"\s*:\s*"(?:ping|keep-?alive|heartbeat)"'
    rb'|\s*(?:null|\{\s*\}|"?(?:ping|keep-?alive|heartbeat)"?)?\s*\Z',
    re.IGNORECASE,
)
_FIELDS = (b":", b"data", b"event", b"id", b"retry")
_LONGEST_STRAY = 500

_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_BRACKETS = re.compile(r"[\[{]+|[\]}]+")


class Framer(Protocol):
    """Cuts one answer's body."""

    def feed(self, piece: bytes) -> list[str]:
        """Take the next bytes and return the data of the events that they complete."""

    def check(self) -> None:
        """Raise `BadAnswer` where the event that is not yet whole exceeds a limit.

        For pieces that complete nothing: what grows too large is noticed within one of them.
        """

    def close(self) -> list[str]:
        """Return what the end of the body completes."""


def framer_for(framing: Framing, first: bytes, limits: StreamLimits, provider: str) -> Framer:
    """Return what cuts a body whose first byte, white space left out, is `first`."""
    if first in _WHOLE[framing]:
        return WholeBody(limits, provider)
    return (
        JsonLines(limits, provider) if framing == "ndjson" else ServerSentEvents(limits, provider)
    )


class _Waiting:
    """What is not yet handed on, and its size against the limits."""

    def __init__(self, limits: StreamLimits, provider: str) -> None:
        self.parts: list[bytes] = []
        self.event = 0
        """The bytes since the last event that was handed on."""
        self._limits = limits
        self._provider = provider
        self._line = 0
        self._has_begun = False

    def keep(self, rest: bytes) -> None:
        """Keep a line, or more of one, that has no end yet."""
        self.parts.append(rest)
        self._line += len(rest)

    def taken(self, end: bytes) -> bytes:
        """Return the line that waited, with its end."""
        line = b"".join((*self.parts, end))
        self.parts.clear()
        self._line = 0
        if not self._has_begun:
            self._has_begun = True
            line = line.removeprefix(_BOM)
        return line

    def check(self) -> None:
        """Raise `BadAnswer` where a limit is exceeded."""
        limits = self._limits
        for what, size, limit in (
            ("a line", self._line, limits.line_bytes),
            ("an event", self.event, limits.event_bytes),
        ):
            if size > limit:
                raise bad_answer(self._provider, f"sent {what} of over {limit:,} bytes")


class ServerSentEvents:
    """Cuts `text/event-stream`. Comments, names, ids and keep-alives say nothing and are left out.

    A report of an error that stands bare between the events, as Gemini's server writes it, is
    handed on as if it were one. So are the first words of a body that has no event at all: they say
    what it is.
    """

    def __init__(self, limits: StreamLimits, provider: str) -> None:
        self._waiting = _Waiting(limits, provider)
        self._limits = limits
        self._data: list[bytes] = []
        self._bare: list[bytes] = []
        self._stray = b""
        self._has_events = False
        self._is_after_return = False
        self._has_begun = False

    def feed(self, piece: bytes) -> list[str]:
        """Take the next bytes and return the data of the events that they complete."""
        if self._is_after_return or piece.find(b"\r") >= 0:
            piece = self._with_newlines(piece)

        # Every line of a long answer passes here: it calls as little as it can.
        waiting, data = self._waiting, self._data
        waiting.event += len(piece)
        lines = piece.split(b"\n")
        rest = lines.pop()
        if lines and (waiting.parts or not self._has_begun):
            self._has_begun = True
            lines[0] = waiting.taken(lines[0])

        texts: list[str] = []
        for line in lines:
            if line[:6] == b"data: ":
                data.append(line[6:])
            elif line:
                self._other(line)
            elif len(data) == 1 and len(data[0]) > _LONGEST_KEEP_ALIVE:
                texts.append(data.pop().decode("utf-8", "replace"))
            elif data or self._bare:
                self._end(texts)

        if rest:
            waiting.keep(rest)
        if texts:
            self._has_events = True
            waiting.event = len(rest) + (sum(map(len, data)) if data else 0)
        return texts

    def check(self) -> None:
        """Raise `BadAnswer` where the event that is not yet whole exceeds a limit."""
        self._waiting.check()

    def close(self) -> list[str]:
        """Return what stands at the end: a bare report, or an event that is whole but for its end.

        That is one whose data is one JSON value, or an end marker; any other may have been cut.
        """
        texts: list[str] = []
        self._other(self._waiting.taken(b""))
        if not self._is_whole(_text(b"\n".join(self._data))):
            self._data.clear()
        self._end(texts)
        if self._stray and not (texts or self._has_events):
            texts.append(_text(self._stray))
        return texts

    def _is_whole(self, data: str) -> bool:
        is_object = data.rstrip().endswith(("}", "]")) and fault_of(data, self._limits) is None
        return data.strip() == "[DONE]" or (is_object and read_json(data) is not None)

    def _with_newlines(self, piece: bytes) -> bytes:
        """Return `piece` with 0x0A as the only end of a line."""
        if self._is_after_return and piece[:1] == b"\n":
            piece = piece[1:]  # the second half of a CRLF whose first one has ended the line
        self._is_after_return = piece[-1:] == b"\r"
        return piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _other(self, line: bytes) -> None:
        if line[:5] == b"data:":
            self._data.append(line[5:].removeprefix(b" "))
        elif self._bare or line[:1] == b"{":
            self._bare.append(line)
        elif line == b"data":  # a field without a colon: its value is empty
            self._data.append(b"")
        elif not (self._has_events or self._stray or line.startswith(_FIELDS)):
            # The last line of a broken stream may be half a field.
            is_half = any(field.startswith(line) for field in _FIELDS)
            self._stray = b"" if is_half else line[:_LONGEST_STRAY]

    def _end(self, texts: list[str]) -> None:
        if self._bare:
            bare = _text(b"\n".join(self._bare))
            self._bare.clear()
            if report_of(read_json(bare)) is not None:
                texts.append(bare)

        data = b"\n".join(self._data)
        self._data.clear()
        if len(data) > _LONGEST_KEEP_ALIVE or (data and not _KEEP_ALIVE.match(data)):
            texts.append(_text(data))


class JsonLines:
    """Cuts newline-delimited JSON: one value a line, blank lines left out.

    A body that is one JSON value on several lines is handed on as a whole.
    """

    def __init__(self, limits: StreamLimits, provider: str) -> None:
        self._waiting = _Waiting(limits, provider)
        self._whole: WholeBody | None = None
        self._make_whole = partial(WholeBody, limits, provider)
        self._has_begun = False

    def feed(self, piece: bytes) -> list[str]:
        """Take the next bytes and return the lines that they complete."""
        if self._whole is not None:
            return self._whole.feed(piece)

        waiting = self._waiting
        waiting.event += len(piece)
        lines = piece.split(b"\n")
        rest = lines.pop()
        if lines and (waiting.parts or not self._has_begun):
            lines[0] = waiting.taken(lines[0])
        texts = [line.decode("utf-8", "replace") for line in lines if line and not line.isspace()]
        if texts and not self._has_begun:
            self._has_begun = True
            if read_json(texts[0]) is None:
                self._whole = self._make_whole()
                return self._whole.feed(b"\n".join((*lines, rest)))

        if rest:
            waiting.keep(rest)
        if texts:
            waiting.event = len(rest)
        return texts

    def check(self) -> None:
        """Raise `BadAnswer` where what is not yet whole exceeds a limit."""
        (self._whole or self._waiting).check()

    def close(self) -> list[str]:
        """Return the last line where it is whole: it needs no newline."""
        if self._whole is not None:
            return self._whole.close()

        last = _text(self._waiting.taken(b"").strip())
        is_cut = read_json(last) is None and (self._has_begun or last[:1] == "{")
        return [last] if last and not is_cut else []


class WholeBody:
    """Takes a body as one piece: an answer, or an error, of a server that does not stream."""

    def __init__(self, limits: StreamLimits, provider: str) -> None:
        self._limit = limits.event_bytes
        self._provider = provider
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> list[str]:
        """Take the next bytes; nothing is whole before the end."""
        self._pieces.append(piece)
        self._size += len(piece)
        return []

    def check(self) -> None:
        """Raise `BadAnswer` where the body is larger than an event may be."""
        if self._size > self._limit:
            raise bad_answer(self._provider, f"sent an event of over {self._limit:,} bytes")

    def close(self) -> list[str]:
        """Return the body."""
        return [b"".join(self._pieces).decode("utf-8-sig", "replace")]


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace")


def fault_of(text: str, limits: StreamLimits) -> str | None:
    """Return what is wrong with the shape of a JSON text, or None: it can be parsed.

    Parsed, a text of nothing but brackets takes thirty times its size.
    """
    depth, most = limits.json_depth, limits.json_containers
    if text.count("{") + text.count("[") <= depth:
        return None

    level = opened = 0
    for run in _BRACKETS.finditer(_STRING.sub("", text)):
        length = run.end() - run.start()
        if run[0][0] not in "[{":
            level -= length
            continue

        level += length
        opened += length
        if level > depth:
            return f"sent objects more than {depth} deep in each other"
        if opened > most:
            return f"sent more than {most:,} objects in one event"

    return None
