"""Items as the content blocks of a Messages request, each written once.

A call and its result hold the call's id, which must be of certain characters and unlike every
other in a request. Which id that is depends on what stands before: the joiner puts it in.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import assert_never

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
from worker.llm.schemes.images import left_out, readable_type
from worker.llm.schemes.wording import (
    note_text,
    result_text,
    sent_arguments,
    sent_name,
    summary_text,
)
from worker.text import IMAGES_LABEL, clean_text, is_blank

_MAX_IMAGE_CHARS = 10 * 1024 * 1024  # of base64; a larger image has the whole request refused


@frozen
class Block:
    """One content block as JSON, in two halves where a call's id stands between them."""

    head: bytes
    call_id: str | None = None
    tail: bytes = b""
    is_thinking: bool = False


@frozen
class Piece:
    """What one item comes to: blocks of a message, and those that must follow its group."""

    role: str
    blocks: tuple[Block, ...] = ()
    late: tuple[Block, ...] = ()
    is_result: bool = False


@frozen
class BlockWriter:
    """Writes the pieces of a conversation with `provider`, whose own thinking it may send back."""

    provider: str
    sends_thinking: bool = field(kw_only=True)

    def __call__(self, item: Item) -> Piece:
        """Return what is sent for `item`; what says nothing comes to no blocks."""
        match item:
            case UserMessage():
                return Piece("user", tuple(_of_user(item)))
            case AssistantMessage():
                return self._of_assistant(item)
            case ToolResult():
                return _of_result(item)
            case SummaryMessage():
                return Piece("user", (text_block(summary_text(item)),))
            case SystemNote():
                return Piece("user", (text_block(note_text(item)),))
            case _:
                assert_never(item)

    def _of_assistant(self, item: AssistantMessage) -> Piece:
        blocks = [block for part in item.parts for block in self._of_part(part)]
        has_calls = any(block.call_id is not None for block in blocks)
        # Thought that led to nothing is refused; behind calls, it goes on from their results.
        while not has_calls and blocks and blocks[-1].is_thinking:
            blocks.pop()
        # Text behind a call is refused as well. A model that thinks may have put it there itself,
        # and nothing around what it thought may move.
        if not any(block.is_thinking for block in blocks):
            blocks.sort(key=lambda block: block.call_id is not None)

        return Piece("assistant", tuple(blocks))

    def _of_part(self, part: Text | Reasoning | ToolCall) -> Iterator[Block]:
        match part:
            case Text():
                if not is_blank(part.text):
                    yield text_block(clean_text(part.text))
            case Reasoning():
                if self.sends_thinking and is_signed(part, self.provider):
                    yield _thinking_block(part)
            case ToolCall():
                yield _call_block(part)
            case _:
                assert_never(part)


def is_signed(part: object, provider: str) -> bool:
    """Tell whether a part is reasoning that `provider` takes back: its own, with its proof."""
    if not isinstance(part, Reasoning) or part.provider != provider:
        return False

    return bool(part.signature or part.blob)


def text_block(text: str) -> Block:
    """Return a block of text."""
    return Block(orjson.dumps({"type": "text", "text": text}))


def _thinking_block(part: Reasoning) -> Block:
    if part.blob:
        block = {"type": "redacted_thinking", "data": clean_text(part.blob)}
    else:
        signature = clean_text(part.signature or "")
        block = {"type": "thinking", "thinking": clean_text(part.text), "signature": signature}
    return Block(orjson.dumps(block), is_thinking=True)


def _call_block(call: ToolCall) -> Block:
    name = orjson.dumps(sent_name(call.name))
    tail = b"".join((b'","name":', name, b',"input":', sent_arguments(call).encode(), b"}"))
    return Block(b'{"type":"tool_use","id":"', call.call_id, tail)


def _of_result(item: ToolResult) -> Piece:
    content: object = result_text(item)
    late: tuple[Block, ...] = ()
    images = [_image(image) for image in item.attachments]
    if images and item.is_error:
        # An error's content must be text alone.
        late = (text_block(IMAGES_LABEL), *(Block(orjson.dumps(image)) for image in images))
    elif images:
        content = [{"type": "text", "text": content}, *images]

    rest: dict[str, object] = {"content": content}
    if item.is_error:
        rest["is_error"] = True
    tail = b'",' + orjson.dumps(rest)[1:]
    block = Block(b'{"type":"tool_result","tool_use_id":"', item.call_id, tail)
    return Piece("user", (block,), late, is_result=True)


def _of_user(item: UserMessage) -> Iterator[Block]:
    for part in item.parts:
        if isinstance(part, Image):
            yield Block(orjson.dumps(_image(part)))
        elif not is_blank(part.text):
            yield text_block(clean_text(part.text))


def _image(image: Image) -> dict[str, object]:
    """Return an image block, or words in its place where the image would be refused."""
    media_type = readable_type(image)
    if media_type is None:
        return {"type": "text", "text": left_out(image)}

    data = base64.b64encode(image.data).decode("ascii")
    if len(data) > _MAX_IMAGE_CHARS:
        return {"type": "text", "text": left_out(image, "larger than this model reads")}

    source = {"type": "base64", "media_type": media_type, "data": data}
    return {"type": "image", "source": source}
