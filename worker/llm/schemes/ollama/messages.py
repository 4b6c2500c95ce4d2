"""Items as messages of Ollama's native chat, and the messages joined.

Differences from Chat Completions: images stand beside the text as bare base64, arguments are an
object, a tool's result names its tool, and reasoning is a field of the message.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import TypeAlias, assert_never

import orjson
from attrs import frozen

from worker.items import (
    AssistantMessage,
    Image,
    Item,
    Reasoning,
    SummaryMessage,
    SystemNote,
    ToolCall,
    ToolResult,
    UserMessage,
)
from worker.llm.schemes.chat.messages import Target
from worker.llm.schemes.chat.quirks import ANY_ID
from worker.llm.schemes.images import left_out, readable_type
from worker.llm.schemes.item_writer import Written, with_tail
from worker.llm.schemes.wording import (
    note_text,
    result_text,
    sent_arguments,
    sent_name,
    summary_text,
)
from worker.text import IMAGES_LABEL, clean_text, is_blank

_Message: TypeAlias = "dict[str, object]"


@frozen
class OllamaPiece:
    """What one item comes to, before it is known what stands around it."""

    data: bytes = b""
    """The message as JSON, of a tool's result the content alone; nothing where it says nothing."""
    called: tuple[tuple[str, str], ...] = ()
    """The ids of the calls that it makes, and the names of their tools."""
    call_id: str | None = None
    """The call that it answers."""
    images: tuple[Image, ...] = ()
    """What must follow its group of results, in which there are no images."""


def piece_of(item: Item, target: Target) -> OllamaPiece:
    """Return what is sent for `item`; of its reasoning, only the target's own."""
    match item:
        case UserMessage():
            return _user(item)
        case AssistantMessage():
            return _assistant(item, target)
        case ToolResult():
            # The name of the tool is in the call, not in the result.
            content = orjson.dumps(result_text(item))
            return OllamaPiece(content, (), _sent_id(item.call_id), item.attachments)
        case SummaryMessage():
            return _said("user", summary_text(item))
        case SystemNote():
            return _said("user", note_text(item))
        case _:
            assert_never(item)


def _said(role: str, text: str) -> OllamaPiece:
    return OllamaPiece(orjson.dumps({"role": role, "content": text}))


def _user(item: UserMessage) -> OllamaPiece:
    text = "" if is_blank(item.text) else clean_text(item.text)
    images = [part for part in item.parts if isinstance(part, Image)]
    return OllamaPiece(_with_images(text, images)) if text or images else OllamaPiece()


def _with_images(text: str, images: Sequence[Image]) -> bytes:
    readable = [image for image in images if readable_type(image)]
    words = (left_out(image) for image in images if image not in readable)
    message: _Message = {"role": "user", "content": "\n".join(filter(None, (text, *words)))}
    if readable:
        message["images"] = [base64.b64encode(image.data).decode("ascii") for image in readable]
    return orjson.dumps(message)


def _assistant(item: AssistantMessage, target: Target) -> OllamaPiece:
    text = clean_text(item.text)
    calls = item.tool_calls
    if is_blank(text) and not calls:
        return OllamaPiece()

    message: _Message = {"role": "assistant", "content": "" if is_blank(text) else text}
    own = (part for part in item.parts if isinstance(part, Reasoning) and target.is_own(part))
    thinking = clean_text("".join(part.text for part in own))
    if thinking:
        message["thinking"] = thinking
    if calls:
        message["tool_calls"] = [_call(call) for call in calls]
    called = tuple((_sent_id(call.call_id), sent_name(call.name)) for call in calls)
    return OllamaPiece(orjson.dumps(message), called)


def _call(call: ToolCall) -> _Message:
    # As text of JSON that is known to be an object: no number is rounded on the way.
    arguments = orjson.Fragment(sent_arguments(call))
    function = {"name": sent_name(call.name), "arguments": arguments}
    return {"id": _sent_id(call.call_id), "function": function}


def _sent_id(call_id: str) -> str:
    return ANY_ID.sent(clean_text(call_id))


class OllamaJoiner:
    """Messages joined so far."""

    def __init__(self, system: str) -> None:
        self._done = bytearray()
        self._images: list[Image] = []
        self._names: dict[str, str] = {}
        if not is_blank(system):
            self._append(_said("system", clean_text(system)).data)

    def add(self, piece: OllamaPiece) -> None:
        """Take the next item's message. Images of a group of results follow the whole group."""
        if piece.call_id is not None:
            self._append(self._result(piece.call_id, piece.data))
            self._images.extend(piece.images)
            return
        if not piece.data:
            return

        if self._images:
            self._append(_with_images(IMAGES_LABEL, self._images))
            self._images = []
        self._names = dict(piece.called)
        self._append(piece.data)

    def written(self) -> Written:
        """Return everything as it is sent now."""
        tail = [_with_images(IMAGES_LABEL, self._images)] if self._images else []
        return with_tail(self._done, tail)

    def _result(self, call_id: str, content: bytes) -> bytes:
        name = orjson.dumps(self._names.get(call_id) or sent_name(""))
        return b'{"role":"tool","tool_name":%b,"tool_call_id":%b,"content":%b}' % (
            name,
            orjson.dumps(call_id),
            content,
        )

    def _append(self, data: bytes) -> None:
        if self._done:
            self._done += b","
        self._done += data
