"""Items as Chat Completions messages, for the server and the model that are asked."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import TypeAlias, assert_never

import orjson
from attrs import evolve, field, frozen

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
from worker.llm.schemes.chat.quirks import ChatQuirks
from worker.llm.schemes.chat.reasoning_details import detail_of
from worker.llm.schemes.images import left_out, readable_type
from worker.llm.schemes.wording import (
    note_text,
    result_text,
    sent_arguments,
    sent_name,
    summary_text,
)
from worker.text import IMAGES_LABEL, clean_text, is_blank

_Block: TypeAlias = "dict[str, object]"


@frozen
class Target:
    """Whom messages are written for. Reasoning of any other provider or model is left out."""

    quirks: ChatQuirks = field(factory=ChatQuirks)
    provider: str = ""
    model: str = ""

    def is_own(self, reasoning: Reasoning) -> bool:
        """Tell whether `reasoning` came from this provider and model."""
        own = (self.provider, self.model)
        return bool(self.provider) and (reasoning.provider, reasoning.model) == own


@frozen
class ChatMessage:
    """One message before it is written. Its content is `text`, or `blocks`."""

    role: str
    text: str = ""
    blocks: tuple[_Block, ...] = ()
    calls: tuple[_Block, ...] = ()
    call_id: str | None = None
    thought: str = ""
    """The model's reasoning, for the servers that want it back in a field."""
    details: tuple[_Block, ...] = ()
    """The same as OpenRouter's `reasoning_details`."""

    def joined_with(self, later: ChatMessage) -> ChatMessage:
        """Return both as one message of the same role, a blank line between their texts."""
        has_blocks = bool(self.blocks or later.blocks)
        return evolve(
            self,
            text="" if has_blocks else _joined(self.text, later.text),
            blocks=(*self._as_blocks(), *later._as_blocks()) if has_blocks else (),
            calls=(*self.calls, *later.calls),
            thought=_joined(self.thought, later.thought),
            details=(*self.details, *later.details),
        )

    def _as_blocks(self) -> tuple[_Block, ...]:
        return self.blocks or ((_text_block(self.text),) if self.text else ())

    def encoded(self, quirks: ChatQuirks) -> bytes:
        """Return the message as JSON."""
        if self.call_id is not None:
            answered = quirks.call_ids.sent(self.call_id)
            return orjson.dumps({"role": self.role, "tool_call_id": answered, "content": self.text})

        message: _Block = {"role": self.role, "content": list(self.blocks) or self.text}
        if self.role == "assistant":
            message |= self._reasoning(quirks)
        if self.calls:
            # An empty string would become an empty block in proxies, and those are refused.
            message["content"] = message["content"] or None
            message["tool_calls"] = [
                call | {"id": quirks.call_ids.sent(str(call["id"]))} for call in self.calls
            ]
        return orjson.dumps(message)

    def _reasoning(self, quirks: ChatQuirks) -> _Block:
        if self.details:
            return {"reasoning_details": list(self.details)}

        thought = self.thought or quirks.missing_reasoning
        if thought is None:
            return {}

        is_content = quirks.reasoning == "reasoning_content"
        return {"reasoning_content" if is_content else "reasoning": thought}


@frozen
class Piece:
    """What one item comes to: a message or none, and the images that must follow its group."""

    message: ChatMessage | None
    images: tuple[Image, ...] = ()
    data: bytes = b""
    """The message as JSON, made once."""


def piece_of(item: Item, target: Target | None = None) -> Piece:
    """Return what is sent for `item`. What says nothing (an empty message) comes to no message."""
    target = target or Target()
    message = _message_of(item, target)
    images = item.attachments if isinstance(item, ToolResult) else ()
    return Piece(message, images, message.encoded(target.quirks) if message else b"")


def images_message(images: Sequence[Image]) -> ChatMessage:
    """Return the user message that carries the images of tool results, which cannot hold any."""
    return ChatMessage("user", blocks=(_text_block(IMAGES_LABEL), *map(_image_block, images)))


def _message_of(item: Item, target: Target) -> ChatMessage | None:
    match item:
        case UserMessage():
            return _user(item)
        case AssistantMessage():
            return _assistant(item, target)
        case ToolResult():
            return ChatMessage("tool", result_text(item), call_id=clean_text(item.call_id))
        case SummaryMessage():
            return ChatMessage("user", summary_text(item))
        case SystemNote():
            return ChatMessage("user", note_text(item))
        case _:
            assert_never(item)


def _joined(*texts: str) -> str:
    return "\n\n".join(filter(None, texts))


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


def _assistant(item: AssistantMessage, target: Target) -> ChatMessage | None:
    text = clean_text(item.text)
    text = "" if is_blank(text) else text
    calls = tuple(_call_block(call) for call in item.tool_calls)
    if not text and not calls:
        return None  # Reasoning is sent with what it led to, or not at all.

    message = ChatMessage("assistant", text, calls=calls)
    own = [part for part in item.parts if isinstance(part, Reasoning) and target.is_own(part)]
    return _with_reasoning(message, item, own, target.quirks) if own else message


def _with_reasoning(
    message: ChatMessage, item: AssistantMessage, own: Sequence[Reasoning], quirks: ChatQuirks
) -> ChatMessage:
    thought = clean_text("".join(part.text for part in own))
    match quirks.reasoning:
        case "none":
            return message
        case "reasoning_content" | "reasoning":
            return evolve(message, thought=thought)
        case "reasoning_details":
            details = tuple(detail for part in own if (detail := detail_of(part)))
            return evolve(message, thought=thought, details=details)
        case "thinking_blocks":
            blocks = (_part_block(part, own) for part in item.parts)
            return evolve(message, text="", blocks=tuple(block for block in blocks if block))
        case "think_tags":
            tagged = f"<think>\n{thought}\n</think>" if thought else ""
            return evolve(message, text=_joined(tagged, message.text))
        case _:
            assert_never(quirks.reasoning)


def _part_block(part: Text | Reasoning | ToolCall, own: Sequence[Reasoning]) -> _Block | None:
    if isinstance(part, ToolCall) or is_blank(part.text):
        return None

    block = _text_block(clean_text(part.text))
    if isinstance(part, Text):
        return block
    return {"type": "thinking", "thinking": [block]} if part in own else None


def _call_block(call: ToolCall) -> _Block:
    function = {"name": sent_name(call.name), "arguments": sent_arguments(call)}
    return {"id": clean_text(call.call_id), "type": "function", "function": function}


def _text_block(text: str) -> _Block:
    return {"type": "text", "text": text}


def _image_block(image: Image) -> _Block:
    media_type = readable_type(image)
    if media_type is None:
        return _text_block(left_out(image))

    data = base64.b64encode(image.data).decode("ascii")
    return {"type": "image_url", "image_url": {"url": f"data:{media_type};base64,{data}"}}
