"""Items as the input items of the Responses API, and the input items joined.

Requests are stateless. Messages and calls carry no item ids: an id would tie them to the reasoning
before them, and what is replayed here may be pruned. Reasoning carries its own: some servers want
it, and its encrypted content is bound to it, so that another one is refused.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias, assert_never

import orjson
from attrs import frozen

from worker.items import (
    AssistantMessage,
    Image,
    Item,
    Reasoning,
    SummaryMessage,
    SystemNote,
    Text,
    ToolCall,
    ToolResult,
    UserMessage,
)
from worker.llm.schemes.images import left_out, readable_type
from worker.llm.schemes.item_writer import Written
from worker.llm.schemes.wording import (
    note_text,
    result_text,
    sent_arguments,
    sent_name,
    summary_text,
)
from worker.text import clean_text, is_blank

_MAX_ID_CHARS = 64
_ID = re.compile(r"[\x21-\x7e]{1,64}")
_REASONING_ID = re.compile(r"rs_[\x21-\x7e]+")

_Block: TypeAlias = "dict[str, object]"
_AnswerPart: TypeAlias = Text | Reasoning | ToolCall


@frozen
class IdPlace:
    """A place for an id between two pieces of JSON: what is sent there depends on earlier items."""

    of: Literal["call", "output", "reasoning"]
    value: str
    """The id as it was received."""


@frozen
class Piece:
    """The input items that one item comes to, as JSON with places for ids; maybe none."""

    segments: tuple[bytes | IdPlace, ...] = ()


@frozen
class PieceMaker:
    """Makes pieces for one provider and model; equal items come to equal pieces."""

    provider: str
    """Only reasoning that came from it is sent back."""
    has_phases: bool
    """Whether answers are labelled commentary or final answer."""
    takes_reasoning: bool
    """Whether any reasoning is sent back at all."""

    def piece_of(self, item: Item) -> Piece:
        """Return what is sent for `item`. What says nothing comes to an empty piece."""
        match item:
            case UserMessage():
                return _user_message(_user_blocks(item))
            case AssistantMessage():
                return Piece(tuple(self._answer(item)))
            case ToolResult():
                return _output(item)
            case SummaryMessage():
                return _user_message([_text_block("input_text", summary_text(item))])
            case SystemNote():
                return _user_message([_text_block("input_text", note_text(item))])
            case _:
                assert_never(item)

    def _answer(self, item: AssistantMessage) -> Iterator[bytes | IdPlace]:
        parts = list(self._grouped(item.parts))
        # Reasoning is refused where nothing follows that it led to.
        while parts and isinstance(parts[-1], list):
            parts.pop()

        for index, part in enumerate(parts):
            if index:
                yield b","
            match part:
                case Text():
                    yield orjson.dumps(self._said(part, item, is_last=index == len(parts) - 1))
                case ToolCall():
                    yield from _call(part)
                case _:
                    yield from _reasoning(part)

    def _grouped(self, parts: Sequence[_AnswerPart]) -> Iterator[Text | ToolCall | list[Reasoning]]:
        """Yield the parts that say something, the reasoning in groups of one item each."""
        group: list[Reasoning] = []
        for part in parts:
            if isinstance(part, Text) and is_blank(part.text):
                continue
            if group and isinstance(part, Reasoning) and _goes_on(group[0], part):
                group.append(part)
                continue
            if group:
                yield group
                group = []
            if not isinstance(part, Reasoning):
                yield part
            elif self._takes(part):
                group.append(part)
        if group:
            yield group

    def _takes(self, part: Reasoning) -> bool:
        # Without its encrypted content an item would be looked up, and nothing is stored.
        return self.takes_reasoning and bool(part.blob) and part.provider == self.provider

    def _said(self, part: Text, item: AssistantMessage, *, is_last: bool) -> _Block:
        content = [_text_block("output_text", clean_text(part.text))]
        message: _Block = {"type": "message", "role": "assistant", "content": content}
        if self.has_phases and item.stop_reason != "partial":
            is_final = is_last and not item.tool_calls
            message["phase"] = "final_answer" if is_final else "commentary"
        return message


def _goes_on(first: Reasoning, part: Reasoning) -> bool:
    """Tell whether `part` is a further part of the item that `first` began."""
    if part.blob is not None or part.signature is None:
        return False
    return (part.signature, part.provider) == (first.signature, first.provider)


def _reasoning(group: Sequence[Reasoning]) -> Iterator[bytes | IdPlace]:
    first = group[0]
    summary = [_text_block("summary_text", clean_text(part.text)) for part in group if part.text]
    rest = {"summary": summary, "encrypted_content": clean_text(first.blob or "")}
    yield b'{"type":"reasoning"'
    yield IdPlace("reasoning", first.signature or "")
    yield b"," + orjson.dumps(rest)[1:]


def _call(call: ToolCall) -> Iterator[bytes | IdPlace]:
    rest = {"name": sent_name(call.name), "arguments": sent_arguments(call)}
    yield b'{"type":"function_call"'
    yield IdPlace("call", call.call_id)
    yield b"," + orjson.dumps(rest)[1:]


def _output(item: ToolResult) -> Piece:
    output: object = result_text(item)
    if item.attachments:
        says_nothing = is_blank(item.summary) and is_blank(item.content or "")
        text = [] if says_nothing else [_text_block("input_text", result_text(item))]
        output = [*text, *map(_image_block, item.attachments)]

    return Piece(
        (
            b'{"type":"function_call_output"',
            IdPlace("output", item.call_id),
            b"," + orjson.dumps({"output": output})[1:],
        )
    )


def _user_message(blocks: list[_Block]) -> Piece:
    if not blocks:
        return Piece()
    return Piece((orjson.dumps({"type": "message", "role": "user", "content": blocks}),))


def _user_blocks(item: UserMessage) -> list[_Block]:
    return [
        _image_block(part)
        if isinstance(part, Image)
        else _text_block("input_text", clean_text(part.text))
        for part in item.parts
        if isinstance(part, Image) or not is_blank(part.text)
    ]


def _text_block(kind: str, text: str) -> _Block:
    return {"type": kind, "text": text}


def _image_block(image: Image) -> _Block:
    media_type = readable_type(image)
    if media_type is None:
        return _text_block("input_text", left_out(image))

    url = f"data:{media_type};base64,{base64.b64encode(image.data).decode('ascii')}"
    return {"type": "input_image", "image_url": url, "detail": "auto"}


def fitting_name(text: str, prefix: str) -> str:
    """Return `text` as it is where it is taken as an id, else `prefix` and its hash.

    Equal texts come to equal names, and different ones to different names.
    """
    if _ID.fullmatch(text):
        return text

    digest = hashlib.sha256(clean_text(text).encode()).hexdigest()
    return prefix + digest[: _MAX_ID_CHARS - len(prefix)]


class ResponsesJoiner:
    """The input joined so far; the system prompt has a field of its own and is left to others.

    Some servers number their calls anew in every answer, but here an id may name one call only: a
    later one gets another id, and its output with it. An output without its call is left out.
    """

    def __init__(self, system: str) -> None:
        self._done = bytearray()
        self._taken: set[str] = set()
        # The calls without an output so far: the id that was received, and the one that was sent.
        self._open: dict[str, str] = {}

    def add(self, piece: Piece) -> None:
        """Take the next item's piece."""
        places = [segment for segment in piece.segments if isinstance(segment, IdPlace)]
        is_orphan = any(at.of == "output" and at.value not in self._open for at in places)
        if is_orphan or not piece.segments:
            return

        if self._done:
            self._done.extend(b",")
        for segment in piece.segments:
            self._done.extend(self._id(segment) if isinstance(segment, IdPlace) else segment)

    def written(self) -> Written:
        """Return everything as it is sent now."""
        return [self._done]

    def _id(self, place: IdPlace) -> bytes:
        """Return the member that an id comes to, with its comma; nothing where none can be sent."""
        match place.of:
            case "reasoning":
                # It is bound to the content: another one is refused, and so is a second use.
                if place.value in self._taken or not _REASONING_ID.fullmatch(place.value):
                    return b""
                self._taken.add(place.value)
                return b',"id":' + orjson.dumps(place.value)
            case "call":
                name = self._open[place.value] = self._free_name(place.value)
                return b',"call_id":' + orjson.dumps(name)
            case "output":
                return b',"call_id":' + orjson.dumps(self._open.pop(place.value))

    def _free_name(self, call_id: str) -> str:
        name = fitting_name(call_id, "call_")
        again = 1
        while name in self._taken:
            again += 1
            name = fitting_name(f"{call_id}_{again}", "call_")
        self._taken.add(name)
        return name
