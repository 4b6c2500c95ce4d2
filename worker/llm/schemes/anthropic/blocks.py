"""Items as the content blocks of a Messages request, each written once.

A call and its result hold the call's id, which must be of certain characters and unlike every
other in a request. Which id that is depends on what stands before: the joiner puts it in.
"""

from __future__ import annotations

import base64
import json
import re
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
from worker.llm.schemes.wording import note_text, result_text, sent_arguments, summary_text
from worker.text import clean_text, is_blank

IMAGES_LABEL = "[Images that belong to the tool results above.]"

_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_-]")
_MAX_NAME_CHARS = 64
_MAX_IMAGE_CHARS = 10 * 1024 * 1024  # of base64; a larger image has the whole request refused

_MEDIA_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
# An image that is not of the type it is said to be has the whole request refused.
_MAGIC = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "image/png"),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(rb"GIF8[79]a"), "image/gif"),
    (re.compile(rb"RIFF....WEBP", re.DOTALL), "image/webp"),
)


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
    name = orjson.dumps(_name(call.name))
    tail = b"".join((b'","name":', name, b',"input":', _input(call).encode(), b"}"))
    return Block(b'{"type":"tool_use","id":"', call.call_id, tail)


def _input(call: ToolCall) -> str:
    """Return the arguments as they were received; of a key that stands there twice, the last."""
    arguments = sent_arguments(call)
    repeated: list[str] = []

    def read(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        if len(found) < len(pairs):
            repeated.append("")
        return found

    try:
        value = json.loads(arguments, object_pairs_hook=read)
    except RecursionError:
        return "{}"
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")) if repeated else arguments


def _name(name: str) -> str:
    return _NOT_IN_A_NAME.sub("_", name)[:_MAX_NAME_CHARS] or "unnamed"


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
    found = next((kind for magic, kind in _MAGIC if magic.match(image.data)), None)
    media_type = found or image.media_type.lower().replace("image/jpg", "image/jpeg")
    if media_type not in _MEDIA_TYPES or not image.data:
        return _left_out(f"of type {clean_text(image.media_type)}, which this model does not read")

    data = base64.b64encode(image.data).decode("ascii")
    if len(data) > _MAX_IMAGE_CHARS:
        return _left_out(f"of {len(image.data):,} bytes, more than this model reads")
    return {
        "type": "image",
        "source": {"type": "base64", "media_type": media_type, "data": data},
    }


def _left_out(why: str) -> dict[str, object]:
    return {"type": "text", "text": f"[An image is left out: {why}.]"}
