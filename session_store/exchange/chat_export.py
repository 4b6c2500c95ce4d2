"""A history as OpenAI chat messages: a JSON list, one message a line."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator

import orjson

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
from worker.text import IMAGES_LABEL, NO_OUTPUT, SUMMARY_LABEL

from .jsontext import JsonObject

NAME = "openai-chat"


def write(system_prompt: str, items: Iterable[Item]) -> Iterator[bytes]:
    """Yield the bytes of the list. Of an item, what the format has no place for is left out."""
    first = True
    for message in _messages(system_prompt, items):
        yield (b"[\n" if first else b",\n") + orjson.dumps(message)
        first = False

    yield b"[]\n" if first else b"\n]\n"


def _messages(system_prompt: str, items: Iterable[Item]) -> Iterator[JsonObject]:
    if system_prompt:
        yield {"role": "system", "content": system_prompt}

    images: list[Image] = []
    for item in items:
        # A result holds no images here; they follow all results of an answer.
        if images and not isinstance(item, ToolResult):
            yield _with_images(IMAGES_LABEL, images)
            images = []

        if isinstance(item, ToolResult):
            images += item.attachments

        yield from _message(item)

    if images:
        yield _with_images(IMAGES_LABEL, images)


def _message(item: Item) -> Iterator[JsonObject]:
    match item:
        case UserMessage() if all(isinstance(part, Text) for part in item.parts):
            yield {"role": "user", "content": item.text}
        case UserMessage():
            yield {"role": "user", "content": [_block(part) for part in item.parts]}
        case AssistantMessage() if item.text or item.tool_calls:
            calls = [_call(call) for call in item.tool_calls]
            message: JsonObject = {"role": "assistant", "content": item.text or None}
            yield {**message, "tool_calls": calls} if calls else message
        case AssistantMessage():
            return
        case ToolResult():
            text = "\n".join(text for text in (item.summary, item.content) if text)
            yield {"role": "tool", "tool_call_id": item.call_id, "content": text or NO_OUTPUT}
        case SummaryMessage():
            yield {"role": "user", "content": f"{SUMMARY_LABEL}\n\n{item.text}"}
        case SystemNote():
            yield {"role": "user", "content": f"[note: {item.kind}]\n{item.text}"}


def _call(call: ToolCall) -> JsonObject:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.call_id, "type": "function", "function": function}


def _with_images(label: str, images: list[Image]) -> JsonObject:
    return {"role": "user", "content": [_block(Text(label)), *map(_block, images)]}


def _block(part: Text | Image) -> JsonObject:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}

    data = base64.b64encode(part.data).decode("ascii")
    return {"type": "image_url", "image_url": {"url": f"data:{part.media_type};base64,{data}"}}
