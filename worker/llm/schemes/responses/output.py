"""The output items of one Responses answer while they are received: messages, reasoning, calls.

Everything arrives up to four times: in deltas, at the end of its part, at the end of its item, and
in the whole response. Here each is told once, whichever of them a server sends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from worker.errors import BadAnswer
from worker.items import Reasoning, Text
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

MESSAGE, REASONING, CALL = "message", "reasoning", "function_call"
OUTPUT_TEXT, REFUSAL = "output_text", "refusal"
SUMMARY_TEXT, REASONING_TEXT = "summary_text", "reasoning_text"
_MAX_ARGUMENTS_CHARS = 1 << 20

JsonFields: TypeAlias = "Mapping[str, object]"


class Told:
    """One text that is told as it comes; what its end repeats is not told again."""

    def __init__(self) -> None:
        self._stream = CleanStream()
        self._raw: list[str] = []
        self._is_ended = False
        self.other = ""
        """All of it as its end said, where that contradicts what was told."""

    @property
    def text(self) -> str:
        """What was told."""
        return self._stream.text

    def push(self, text: str) -> str:
        """Take more of it and return what is to be told; nothing once it has ended."""
        if self._is_ended:
            return ""

        self._raw.append(text)
        return self._stream.push(text)

    def end(self, whole: str = "") -> str:
        """Take its end, and all of it unless `whole` is empty; return what was not told yet."""
        if self._is_ended:
            return ""

        self._is_ended = True
        told = "".join(self._raw)
        if whole.startswith(told):
            return self._stream.push(whole[len(told) :]) + self._stream.close()

        self.other = clean_text(whole)
        return self._stream.close()


class TextItem:
    """A message or a reasoning item: texts of one or more kinds, each in numbered parts."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.is_ended = False
        self._id: str | None = None
        self._blob: str | None = None
        self._parts: dict[tuple[int, str], Told] = {}

    @property
    def is_refusal(self) -> bool:
        """Whether the model refused."""
        return bool(self._texts(REFUSAL))

    def told(self, kind: str, number: int) -> Told:
        """Return one part's text."""
        if kind not in {OUTPUT_TEXT, REFUSAL, SUMMARY_TEXT, REASONING_TEXT}:
            kind = OUTPUT_TEXT if self.kind == MESSAGE else REASONING_TEXT
        return self._parts.setdefault((number, kind), Told())

    def push(self, kind: str, number: int, text: str) -> Iterator[StreamEvent]:
        """Take more of one part."""
        yield from self._tell(self.told(kind, number).push(text))

    def end_part(self, kind: str, number: int, whole: str) -> Iterator[StreamEvent]:
        """Take the end of one part."""
        yield from self._tell(self.told(kind, number).end(whole))

    def end(self, fields: JsonFields) -> Iterator[StreamEvent]:
        """Take the end of the item. Only here its id and its encrypted content are whole."""
        self.is_ended = True
        self._id = clean_text(text_of(fields.get("id"))) or None
        self._blob = clean_text(text_of(fields.get("encrypted_content"))) or None
        for name in ("summary", "content"):
            for number, part in enumerate(objects(fields.get(name))):
                kind = text_of(part.get("type"))
                whole = text_of(part.get("refusal" if kind == REFUSAL else "text"))
                yield from self.end_part(kind, number, whole)
        yield from self.close()

    def close(self) -> Iterator[StreamEvent]:
        """Tell what still waited: nothing more is to come."""
        for told in self._parts.values():
            yield from self._tell(told.end())

    def parts(self, provider: str, model: str) -> Iterator[Text | Reasoning]:
        """Yield what the item comes to.

        The parts of a reasoning summary carry the item's id, which ties them together again, and
        the first one its encrypted content. Where a server shows the reasoning itself, that comes
        behind them and carries nothing: it is not sent back.
        """
        if self.kind == MESSAGE:
            text = "".join(self._texts(OUTPUT_TEXT, REFUSAL))
            if text:
                yield Text(text)
            return

        blob = self._blob
        for text in self._texts(SUMMARY_TEXT) or [""] * bool(blob):
            yield Reasoning(text, self._id, blob, provider, model)
            blob = None
        for text in self._texts(REASONING_TEXT):
            yield Reasoning(text, None, None, provider, model)

    def _texts(self, *kinds: str) -> list[str]:
        """Return the texts of these kinds in order: of what was told and the end, the longer."""
        ordered = sorted(self._parts.items())
        texts = (
            max(told.text, told.other, key=len) for (_, kind), told in ordered if kind in kinds
        )
        return [text for text in texts if text]

    def _tell(self, piece: str) -> Iterator[StreamEvent]:
        if piece:
            yield TextDelta(piece) if self.kind == MESSAGE else ReasoningDelta(piece)


class CallItem:
    """A function call."""

    def __init__(self, own_id: str) -> None:
        self.kind = CALL
        self.is_ended = False
        self.is_kept = False
        self.call_id = own_id
        self.name = ""
        self._is_started = False
        self._is_cut = False
        self._size = 0
        self._arguments = Told()

    @property
    def arguments(self) -> str:
        """The arguments as received: those at the end, unless only the deltas make sense."""
        told, other = self._arguments.text, self._arguments.other
        if not other or (is_json_object(told) and not is_json_object(other)):
            return told
        return other

    def begin(self, fields: JsonFields) -> Iterator[StreamEvent]:
        """Take what is known of the call; it is told of once its name is there."""
        if not self._is_started:
            self.call_id = clean_text(text_of(fields.get("call_id"))) or self.call_id
            self.name = clean_text(text_of(fields.get("name")))
        if self.name:
            yield from self._start()

    def push(self, text: str) -> Iterator[StreamEvent]:
        """Take more arguments."""
        self._size += len(text)
        self._check(self._size)
        yield from self._tell(self._arguments.push(text))

    def end_arguments(self, fields: JsonFields) -> Iterator[StreamEvent]:
        """Take the end of the arguments; some servers name the call only here."""
        yield from self.begin(fields)
        whole = arguments_text(fields.get("arguments"))
        self._check(len(whole))
        yield from self._tell(self._arguments.end(whole))

    def end(self, fields: JsonFields) -> Iterator[StreamEvent]:
        """Take the end of the item."""
        self.is_ended = True
        self._is_cut = fields.get("status") == "incomplete"
        yield from self.end_arguments(fields)

    def close(self, *, is_cut: bool) -> Iterator[StreamEvent]:
        """Take the end of the answer: keep the call and tell of its end.

        Of an answer that was cut, only whole calls are kept: the rest of one must never run.
        """
        is_whole = self.is_ended and not self._is_cut and is_json_object(self.arguments or "{}")
        if is_cut and not is_whole:
            return

        yield from self._start()
        yield from self._tell(self._arguments.end())
        self.is_kept = True
        yield ToolCallDone(self.call_id, self.name, self.arguments)

    def _start(self) -> Iterator[StreamEvent]:
        if not self._is_started:
            self._is_started = True
            yield ToolCallStart(self.call_id, self.name)
            yield from self._tell(self._arguments.text)

    def _tell(self, piece: str) -> Iterator[StreamEvent]:
        if piece and self._is_started:
            yield ToolCallArgsDelta(self.call_id, piece)

    def _check(self, size: int) -> None:
        if size > _MAX_ARGUMENTS_CHARS:
            raise BadAnswer(f"the arguments of the call to {self.name!r} are over 1 MiB")


OutputItem: TypeAlias = TextItem | CallItem


def text_of(value: object) -> str:
    """Return `value` where it is text, else nothing."""
    return value if isinstance(value, str) else ""


def objects(value: object) -> Iterator[JsonFields]:
    """Yield the objects of a list; of anything else, nothing."""
    for element in value if isinstance(value, list) else []:
        if isinstance(element, dict):
            yield element
