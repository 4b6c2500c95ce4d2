"""The content blocks of one Messages answer while they are received: text, thinking, calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

import orjson

from worker.errors import BadAnswer
from worker.items import Reasoning, Text, ToolCall
from worker.llm.schemes.clean_stream import CleanStream
from worker.llm.schemes.received_json import arguments_text
from worker.llm.schemes.wording import is_json_object
from worker.llm.types import (
    ReasoningDelta,
    StreamEvent,
    TextDelta,
    ToolCallArgsDelta,
    ToolCallDone,
    ToolCallStart,
)
from worker.text import clean_text

_MAX_ARGUMENTS_CHARS = 1 << 20

Fields: TypeAlias = "Mapping[str, object]"


class TextPart:
    """Visible text."""

    def __init__(self) -> None:
        self._stream = CleanStream()

    def add(self, fields: Fields) -> Iterator[StreamEvent]:
        """Take what the block begins with, or a delta."""
        yield from self._tell(self._stream.push(text_of(fields.get("text"))))

    def more(self, text: str) -> None:
        """Take the text of a delta that was told already."""
        self._stream.more(text)

    def close(self) -> Iterator[StreamEvent]:
        """Take the end of the block."""
        yield from self._tell(self._stream.close())

    def part(self) -> Text | None:
        """Return what arrived, or None where nothing did: empty blocks do come."""
        return Text(self._stream.text) if self._stream.text else None

    def _tell(self, piece: str) -> Iterator[StreamEvent]:
        if piece:
            yield TextDelta(piece)


class ThinkingPart:
    """Thought, with the signature that proves it; or the provider's encryption of it."""

    def __init__(self, provider: str, model: str) -> None:
        self._provider = provider
        self._model = model
        self._stream = CleanStream()
        self._signature = ""
        self._data = ""

    def add(self, fields: Fields) -> Iterator[StreamEvent]:
        """Take what the block begins with, or a delta. A signature may come in several."""
        signature = text_of(fields.get("signature"))
        if signature != self._signature:  # not the same one over again
            self._signature += signature
        self._data = self._data or text_of(fields.get("data"))
        yield from self._tell(self._stream.push(text_of(fields.get("thinking"))))

    def more(self, text: str) -> None:
        """Take the text of a delta that was told already."""
        self._stream.more(text)

    def close(self) -> Iterator[StreamEvent]:
        """Take the end of the block."""
        yield from self._tell(self._stream.close())

    def part(self) -> Reasoning | None:
        """Return what arrived, or None. Thought may come without its text, as a signature alone."""
        text, signature = self._stream.text, self._signature
        if not (text or signature or self._data):
            return None

        return Reasoning(text, signature or None, self._data or None, self._provider, self._model)

    def _tell(self, piece: str) -> Iterator[StreamEvent]:
        if piece:
            yield ReasoningDelta(piece)


class CallPart:
    """A tool call. `is_kept` once the answer has ended and the call is to be run."""

    def __init__(self, fields: Fields, new_id: Callable[[], str]) -> None:
        self._call_id = clean_text(text_of(fields.get("id"))) or f"toolu_{new_id()[:12]}"
        self._name = clean_text(text_of(fields.get("name")))
        self._uid = new_id()
        self._given = fields.get("input")
        self._arguments = CleanStream()
        self._size = 0
        self._is_closed = False
        self.is_kept = False

    def start(self) -> ToolCallStart:
        """Return the event of the call's beginning."""
        return ToolCallStart(self._call_id, self._name)

    def add(self, fields: Fields) -> Iterator[StreamEvent]:
        """Take more of the arguments.

        Raises:
            BadAnswer: They are over 1 MiB.
        """
        text = fields.get("partial_json")
        text = orjson.dumps(text).decode() if isinstance(text, dict) else text_of(text)
        self._size += len(text)
        if self._size > _MAX_ARGUMENTS_CHARS:
            raise BadAnswer(f"the arguments of the call to {self._name!r} are over 1 MiB")

        yield from self._tell(self._arguments.push(text))

    def close(self) -> Iterator[StreamEvent]:
        """Take the end of the block. Arguments that did not come in deltas came at its start.

        What came there and is no object is kept as it is: a tool must not run without it.
        """
        if self._is_closed:
            return

        self._is_closed = True
        yield from self._tell(self._arguments.close())
        if not self._size:
            yield from self._tell(self._arguments.push(arguments_text(self._given) or "{}"))

    def keep(self) -> ToolCallDone:
        """Take it that the call is to be run, and return the event that says so."""
        self.is_kept = True
        return ToolCallDone(self._call_id, self._name, self._arguments.text)

    def is_whole(self, *, is_last: bool) -> bool:
        """Tell whether an answer that was cut short left the call alone.

        No arguments at all are whole, unless they are what was cut.
        """
        return is_json_object(self._arguments.text) and (bool(self._size) or not is_last)

    def part(self) -> ToolCall | None:
        """Return the call, or None where it is not to be run."""
        if not self.is_kept:
            return None

        return ToolCall(self._call_id, self._name, self._arguments.text, self._uid)

    def _tell(self, piece: str) -> Iterator[StreamEvent]:
        if piece:
            yield ToolCallArgsDelta(self._call_id, piece)


Part: TypeAlias = TextPart | ThinkingPart | CallPart


def text_of(value: object) -> str:
    """Return a text, or an empty one in the place of anything else."""
    return value if isinstance(value, str) else ""
