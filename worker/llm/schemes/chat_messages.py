"""Items as Chat Completions messages, and the messages joined."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import TypeAlias, assert_never

import orjson
from attrs import evolve, frozen

from worker.items import (
    AssistantMessage,
    Image,
    Item,
    SummaryMessage,
    SystemNote,
    Text,
    ToolCall,
    ToolResult,
    UserMessage,
)
from worker.llm.schemes.wording import note_text, result_text, sent_arguments, summary_text
from worker.text import clean_text, is_blank

IMAGES_LABEL = "[Images that belong to the tool results above.]"

_Block: TypeAlias = "dict[str, object]"


@frozen
class ChatMessage:
    """One message before it is written. Its content is `text`, or `blocks` with images."""

    role: str
    text: str = ""
    blocks: tuple[_Block, ...] = ()
    calls: tuple[_Block, ...] = ()
    call_id: str | None = None

    def joined_with(self, later: ChatMessage) -> ChatMessage:
        """Return both as one message of the same role, a blank line between their texts."""
        if self.blocks or later.blocks:
            return evolve(self, text="", blocks=(*self._as_blocks(), *later._as_blocks()))

        text = "\n\n".join(text for text in (self.text, later.text) if text)
        return evolve(self, text=text, calls=(*self.calls, *later.calls))

    def encoded(self) -> bytes:
        """Return the message as JSON."""
        message: _Block = {"role": self.role, "content": list(self.blocks) or self.text}
        if self.calls:
            # An empty string would become an empty block in proxies, and those are refused.
            message["content"] = self.text or None
            message["tool_calls"] = list(self.calls)
        if self.call_id is not None:
            message = {"role": self.role, "tool_call_id": self.call_id, "content": self.text}
        return orjson.dumps(message)

    def _as_blocks(self) -> tuple[_Block, ...]:
        return self.blocks or ((_text_block(self.text),) if self.text else ())


@frozen
class Piece:
    """What one item comes to: a message or none, and the images that must follow its group."""

    message: ChatMessage | None
    images: tuple[Image, ...] = ()
    data: bytes = b""
    """The message as JSON, made once."""


def piece_of(item: Item) -> Piece:
    """Return what is sent for `item`. What says nothing (an empty message) comes to no message."""
    match item:
        case UserMessage():
            return _written(_user(item))
        case AssistantMessage():
            return _written(_assistant(item))
        case ToolResult():
            message = ChatMessage("tool", result_text(item), call_id=clean_text(item.call_id))
            return _written(message, item.attachments)
        case SummaryMessage():
            return _written(ChatMessage("user", summary_text(item)))
        case SystemNote():
            return _written(ChatMessage("user", note_text(item)))
        case _:
            assert_never(item)


def images_message(images: Sequence[Image]) -> ChatMessage:
    """Return the user message that carries the images of tool results, which cannot hold any."""
    return ChatMessage("user", blocks=(_text_block(IMAGES_LABEL), *map(_image_block, images)))


def _written(message: ChatMessage | None, images: tuple[Image, ...] = ()) -> Piece:
    return Piece(message, images, message.encoded() if message else b"")


def _user(item: UserMessage) -> ChatMessage | None:
    if all(isinstance(part, Text) for part in item.parts):
        text = clean_text(item.text)
        return None if is_blank(text) else ChatMessage("user", text)

    blocks = [
        _image_block(part) if isinstance(part, Image) else _text_block(clean_text(part.text))
        for part in item.parts
        if isinstance(part, Image) or not is_blank(part.text)
    ]
    return ChatMessage("user", blocks=tuple(blocks))


def _assistant(item: AssistantMessage) -> ChatMessage | None:
    # Reasoning is left out: this dialect has no proof of it to send back.
    text = clean_text(item.text)
    calls = tuple(_call_block(call) for call in item.tool_calls)
    if is_blank(text):
        return ChatMessage("assistant", calls=calls) if calls else None
    return ChatMessage("assistant", text, calls=calls)


def _call_block(call: ToolCall) -> _Block:
    function = {"name": clean_text(call.name) or "unnamed", "arguments": sent_arguments(call)}
    return {"id": clean_text(call.call_id), "type": "function", "function": function}


def _text_block(text: str) -> _Block:
    return {"type": "text", "text": text}


def _image_block(image: Image) -> _Block:
    data = base64.b64encode(image.data).decode("ascii")
    url = f"data:{clean_text(image.media_type)};base64,{data}"
    return {"type": "image_url", "image_url": {"url": url}}


class ChatJoiner:
    """Messages joined so far: the bytes that will not change any more, and what may still grow."""

    def __init__(self, system: str, *, is_strict: bool) -> None:
        self._is_strict = is_strict
        self._done = bytearray()
        self._images: list[Image] = []
        # With strict alternation the last message waits: the next one may have to be joined to it.
        self._open: tuple[ChatMessage, bytes] | None = None
        if system:
            self.add(_written(ChatMessage("system", clean_text(system))))

    def add(self, piece: Piece) -> None:
        """Take the next item's message. Images of a group of results follow the whole group."""
        if piece.message is None:
            return

        if self._images and piece.message.role != "tool":
            message = images_message(self._images)
            self._images = []
            self._put(message, message.encoded())

        self._images.extend(piece.images)
        self._put(piece.message, piece.data)

    def whole(self) -> bytes:
        """Return everything as it is sent now."""
        tail = [self._open[1]] if self._open else []
        if self._images:
            tail.append(images_message(self._images).encoded())

        return b",".join([self._done, *tail] if self._done else tail)

    def _put(self, message: ChatMessage, data: bytes) -> None:
        if not self._is_strict:
            self._append(data)
            return

        if self._open is not None and _must_join(self._open[0], message):
            joined = self._open[0].joined_with(message)
            self._open = (joined, joined.encoded())
            return

        if self._open is not None:
            self._append(self._open[1])
        self._open = (message, data)

    def _append(self, data: bytes) -> None:
        if self._done:
            self._done += b","
        self._done += data


def _must_join(earlier: ChatMessage, later: ChatMessage) -> bool:
    return earlier.role == later.role and earlier.role != "tool" and not earlier.calls
