"""Items as Gemini's contents, and the contents joined.

A content is what one side says: `user` or `model`, in parts. The responses to an answer's calls
are a content of their own right behind it: Vertex and some models misread one that holds other
parts as well. User contents may follow each other; two of the model's may not, so they are joined.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, TypeAlias, assert_never

import orjson
from attrs import field, frozen

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
from worker.llm.schemes.gemini.models import GeminiModel, bare_name
from worker.llm.schemes.gemini.schema import wire_name
from worker.llm.schemes.images import left_out, readable_type
from worker.llm.schemes.item_writer import Written
from worker.llm.schemes.wording import note_text, result_text, sent_arguments, summary_text
from worker.text import IMAGES_LABEL, clean_text, is_blank

UNSIGNED = "skip_thought_signature_validator"
"""Google's word for a call whose signature is not at hand: another model made it."""
BEGINNING = "[The conversation begins with an answer of yours.]"
"""What stands before an answer that nothing precedes: the user has to speak first."""
GO_ON = "[Go on.]"
"""What stands behind an answer that ends a request: newer models refuse such a request."""

_RESPONSE_IMAGES = frozenset({"image/jpeg", "image/png", "image/webp"})
_IMAGES = _RESPONSE_IMAGES | {"image/heic", "image/heif"}

_Part: TypeAlias = "dict[str, object]"


@frozen
class Piece:
    """What one item comes to: parts of a content, written once."""

    kind: Literal["nothing", "user", "model", "response"]
    parts: bytes = b""
    """The parts as JSON, a comma between two; of a response, what follows its name."""
    names: Mapping[str, bytes] = field(factory=dict)
    """The names of an answer's calls as JSON, by call id: responses have to repeat them."""
    call_id: str = ""
    images: tuple[Image, ...] = ()
    """Images of a response that cannot hold them: they follow its group."""


@frozen
class ItemEncoder:
    """Writes items for one model. Reasoning goes back only to the model that it came from.

    A signature is no good to another model, which is told so instead.
    """

    provider: str
    model: str
    facts: GeminiModel

    def piece_of(self, item: Item) -> Piece:
        """Return what is sent for `item`; what says nothing comes to nothing."""
        match item:
            case UserMessage():
                return _user(_said(item))
            case AssistantMessage():
                return self._answer(item)
            case ToolResult():
                return self._response(item)
            case SummaryMessage():
                return _user([_text(summary_text(item))])
            case SystemNote():
                return _user([_text(note_text(item))])
            case _:
                assert_never(item)

    def _answer(self, item: AssistantMessage) -> Piece:
        parts = list(self._answer_parts(item))
        if not any("functionCall" in part or _is_said(part) for part in parts):
            return Piece("nothing")  # Thoughts that led to nothing.

        names = {call.call_id: orjson.dumps(_name(call)) for call in item.tool_calls}
        return Piece("model", _joined(parts), names)

    def _answer_parts(self, item: AssistantMessage) -> Iterator[_Part]:
        signature: str | None = None  # of the part that comes next
        must_sign = self.facts.is_gemini_3
        for part in item.parts:
            match part:
                case Reasoning():
                    signature = part.blob if self._is_own(part) else None
                    if self._is_own(part) and signature is None:
                        yield from _thought(part)
                case Text():
                    if not is_blank(part.text):
                        yield _signed(_text(clean_text(part.text)), signature)
                    signature = None
                case ToolCall():
                    # Only the first of parallel calls has one, and has to have one.
                    yield _signed(self._call(part), signature or (UNSIGNED if must_sign else None))
                    must_sign = False
                    signature = None

    def _is_own(self, part: Reasoning) -> bool:
        is_model = bare_name(part.model) == bare_name(self.model)
        return part.provider == self.provider and is_model

    def _call(self, call: ToolCall) -> _Part:
        arguments = orjson.Fragment(sent_arguments(call))
        return {"functionCall": {**self._id(call.call_id), "name": _name(call), "args": arguments}}

    def _response(self, item: ToolResult) -> Piece:
        key = "error" if item.is_error else "output"
        members: _Part = {**self._id(item.call_id), "response": {key: result_text(item)}}
        held = [image for image in item.attachments if self._can_hold(image)]
        if held:
            members["parts"] = [_image(image) for image in held]

        rest = tuple(image for image in item.attachments if image not in held)
        return Piece("response", orjson.dumps(members)[1:], call_id=item.call_id, images=rest)

    def _can_hold(self, image: Image) -> bool:
        return self.facts.is_gemini_3 and readable_type(image, _RESPONSE_IMAGES) is not None

    def _id(self, call_id: str) -> _Part:
        # Older models refuse an id, newer ones want the one of the call in its response.
        return {"id": clean_text(call_id)} if call_id and self.facts.is_gemini_3 else {}


def _user(parts: Sequence[_Part]) -> Piece:
    return Piece("user", _joined(parts)) if parts else Piece("nothing")


def _said(item: UserMessage) -> list[_Part]:
    return [
        _image(part) if isinstance(part, Image) else _text(clean_text(part.text))
        for part in item.parts
        if isinstance(part, Image) or not is_blank(part.text)
    ]


def _thought(part: Reasoning) -> Iterator[_Part]:
    if part.signature and not part.text:
        yield _signed(_text(""), part.signature)
    elif part.signature or not is_blank(part.text):
        yield _signed({"text": clean_text(part.text), "thought": True}, part.signature)


def _signed(part: _Part, signature: str | None) -> _Part:
    return {**part, "thoughtSignature": signature} if signature else part


def _is_said(part: _Part) -> bool:
    return bool(part.get("text")) and "thought" not in part


def _name(call: ToolCall) -> str:
    return wire_name(clean_text(call.name))


def _text(text: str) -> _Part:
    return {"text": text}


def _image(image: Image) -> _Part:
    media_type = readable_type(image, _IMAGES)
    if media_type is None:
        # It would be refused with every request from now on.
        return _text(left_out(image))

    data = base64.b64encode(image.data).decode("ascii")
    return {"inlineData": {"mimeType": media_type, "data": data}}


def _joined(parts: Sequence[_Part]) -> bytes:
    return b",".join(map(orjson.dumps, parts))


class ContentJoiner:
    """Contents joined so far; the last one is still open. `system` is said first, if given."""

    def __init__(self, system: str) -> None:
        self._done = bytearray()
        self._open: str | None = None
        self._names: Mapping[str, bytes] = {}
        self._images: tuple[Image, ...] = ()
        if system:
            self.add(_user([_text(system)]))

    def add(self, piece: Piece) -> None:
        """Take the next item's parts. A response to no call of the answer before is left out."""
        if piece.kind == "nothing":
            return
        if piece.kind == "response":
            self._respond(piece)
            return

        if self._images:
            self._put("user", _images(self._images))
            self._images = ()
        if piece.kind == "model":
            if self._open is None:
                self._put("user", orjson.dumps(_text(BEGINNING)))
            self._names = piece.names
        self._put(piece.kind, piece.parts)

    def written(self) -> Written:
        """Return everything as it is sent now; the user has the last word."""
        last = b""
        if self._images:
            last = _head("user") + _images(self._images) + b"]}"
        elif self._open in {None, "model"}:
            last = _head("user") + orjson.dumps(_text(GO_ON)) + b"]}"
        if self._open is None:
            return [last]
        return [self._done, b"]}", b"," + last if last else b""]

    def _respond(self, piece: Piece) -> None:
        name = self._names.get(piece.call_id)
        if name is not None:
            head = b'{"functionResponse":{"name":' + name + b","
            self._put("response", head + piece.parts + b"}")
            self._images += piece.images

    def _put(self, kind: str, parts: bytes) -> None:
        if self._open == kind and kind != "user":
            self._done += b"," + parts
            return

        self._done += (b"]}," if self._open else b"") + _head(kind) + parts
        self._open = kind


def _head(kind: str) -> bytes:
    role = b"model" if kind == "model" else b"user"
    return b'{"role":"' + role + b'","parts":['


def _images(images: Sequence[Image]) -> bytes:
    return _joined([_text(IMAGES_LABEL), *map(_image, images)])
