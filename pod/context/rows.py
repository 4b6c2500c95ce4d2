"""Items as OpenAI-format messages, and such messages read back as checked values. Pure.

What the model sees of an item is decided where the Chat Completions wire is written; here are
added the identity fields that travel beside it and never reach a provider.
"""

from __future__ import annotations

import base64
import binascii
import reprlib
from collections.abc import Mapping
from typing import Literal, TypeAlias

import orjson
from attrs import field, frozen

from worker.items import (
    AssistantMessage,
    Image,
    Item,
    SummaryMessage,
    SystemNote,
    Text,
    ToolResult,
    UserMessage,
)
from worker.llm.schemes.chat.messages import piece_of
from worker.text import clean_text

from .engine import Message
from .errors import BridgeError

MESSAGE_UID = "message_uid"
ABSORBED_MESSAGE_UIDS = "_absorbed_message_uids"
TOOL_CALL_UIDS = "_tool_call_uids"
TOOL_CALL_UID = "_tool_call_uid"
COMPRESSED_SUMMARY = "_compressed_summary"

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]
_Content: TypeAlias = "str | tuple[tuple[str, str], ...]"

_ROLES: Mapping[object, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
LONGEST_IDENTITY = 256
"""In characters; what is longer was meant as something else."""
IMAGE_MARK = "[image]"
"""Stands for an image where none can be."""
_DATA_URL = "data:"
_BASE64 = ";base64"


# ------------------------------------------------------------------ from an item


def message_of(item: Item) -> Message:
    """Return the message that stands for `item`, a new dict each time, identity fields included."""
    message = _visible(item)
    if item.uid:
        message[MESSAGE_UID] = item.uid
    absorbed = () if isinstance(item, ToolResult | SystemNote) else item.absorbed_uids
    if absorbed:
        message[ABSORBED_MESSAGE_UIDS] = list(absorbed)
    return message


def wire_text(item: ToolResult | SummaryMessage | SystemNote) -> str:
    """Return the text under which the model sees `item`, label included."""
    sent = piece_of(item).message
    return sent.text if sent else ""


def without_identity(message: Message) -> Message:
    """Return what a provider may see of `message`."""
    return {
        key: value
        for key, value in message.items()
        if key != MESSAGE_UID and not key.startswith("_")
    }


def _visible(item: Item) -> Message:
    match item:
        case UserMessage():
            return {"role": "user", "content": _user_content(item)}
        case AssistantMessage():
            return _assistant(item)
        case ToolResult():
            message = {"role": "tool", "tool_call_id": item.call_id, "content": wire_text(item)}
            return message | ({TOOL_CALL_UID: item.call_uid} if item.call_uid else {})
        case SummaryMessage():
            return {"role": "user", "content": wire_text(item), COMPRESSED_SUMMARY: True}
        case SystemNote():
            return {"role": "user", "content": wire_text(item)}


def _user_content(item: UserMessage) -> object:
    if all(isinstance(part, Text) for part in item.parts):
        return clean_text(item.text)

    return [
        {"type": "text", "text": clean_text(part.text)}
        if isinstance(part, Text)
        else {"type": "image_url", "image_url": {"url": _data_url(part)}}
        for part in item.parts
    ]


def _assistant(item: AssistantMessage) -> Message:
    message: Message = {"role": "assistant", "content": clean_text(item.text) or None}
    calls = item.tool_calls
    if not calls:
        return message

    message["tool_calls"] = [
        {
            "id": call.call_id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in calls
    ]
    by_id = {call.call_id: call.call_uid for call in calls}
    if not any(by_id.values()):
        return message

    # One id may name several calls after two answers were folded into one: then a uid a place.
    is_plain = all(call.call_uid and by_id[call.call_id] == call.call_uid for call in calls)
    uids = by_id if is_plain else [call.call_uid or None for call in calls]
    return message | {TOOL_CALL_UIDS: uids}


def _data_url(image: Image) -> str:
    return f"data:{image.media_type};base64,{base64.b64encode(image.data).decode('ascii')}"


# ------------------------------------------------------------------ from a message


@frozen
class RowCall:
    """A tool call as a message has it."""

    call_id: str
    name: str
    arguments: str


@frozen
class Row:
    """A message that was read and found to be one. Equal content gives equal `key`."""

    role: Role
    content: _Content
    """Plain text, or what kind each part is and its text or URL, where there is an image."""
    calls: tuple[RowCall, ...] = ()
    call_id: str = ""
    uid: str | None = field(default=None, kw_only=True)
    absorbed: tuple[str, ...] = field(default=(), kw_only=True)
    is_summary: bool = field(default=False, kw_only=True)
    call_uid: str | None = field(default=None, kw_only=True)
    call_uids: Mapping[str, str] | tuple[str | None, ...] = field(factory=dict, kw_only=True)

    @property
    def key(self) -> tuple[object, ...]:
        """What the model sees of the message."""
        return (self.role, self.content, self.calls, self.call_id)

    @property
    def text(self) -> str:
        """The text, images left out."""
        if isinstance(self.content, str):
            return self.content

        return "\n".join(text for kind, text in self.content if kind == "text")

    @property
    def parts(self) -> tuple[Text | Image, ...]:
        """The content as parts of a user message."""
        if isinstance(self.content, str):
            return (Text(self.content),)

        return tuple(Text(text) if kind == "text" else _image(text) for kind, text in self.content)


def read_row(message: object, place: str) -> Row:
    """Return `message` as a `Row`. Identity fields that are not well-formed count as absent.

    Raises:
        BridgeError: It is no message; the text begins with `place`.
    """
    if not isinstance(message, dict):
        raise BridgeError(f"{place} is of the type {type(message).__name__}, not a dict")

    role = _ROLES.get(message.get("role")) if isinstance(message.get("role"), str) else None
    if role is None:
        raise BridgeError(f"{place} has the role {reprlib.repr(message.get('role'))}")

    call_id = message.get("tool_call_id") if role == "tool" else ""
    if not isinstance(call_id, str):
        raise BridgeError(f"{place} is a tool result without a tool_call_id")

    uid = _identity(message.get(MESSAGE_UID))
    return Row(
        role,
        _content(message.get("content"), role, place),
        _calls(message.get("tool_calls"), place) if role == "assistant" else (),
        clean_text(call_id),
        uid=uid,
        absorbed=_absorbed(message.get(ABSORBED_MESSAGE_UIDS), uid),
        is_summary=message.get(COMPRESSED_SUMMARY) is True,
        call_uid=_identity(message.get(TOOL_CALL_UID)),
        call_uids=_call_uids(message.get(TOOL_CALL_UIDS)),
    )


def _content(value: object, role: Role, place: str) -> _Content:
    if value is None:
        return ""
    if isinstance(value, str):
        return clean_text(value)
    if not isinstance(value, list):
        raise BridgeError(f"{place} has content that is a {type(value).__name__}")

    parts = tuple(_part(part, place) for part in value)
    if role == "user" and any(kind == "image" for kind, _ in parts):
        return parts

    # As items join the texts of their parts. Only what a user says can hold an image.
    texts = [text if kind == "text" else IMAGE_MARK for kind, text in parts]
    return ("" if role == "assistant" else "\n").join(texts)


def _part(part: object, place: str) -> tuple[str, str]:
    if isinstance(part, str):
        return "text", clean_text(part)

    kind = part.get("type") if isinstance(part, dict) else None
    if isinstance(part, dict) and isinstance(part.get("text"), str):
        return "text", clean_text(part["text"])

    image = part.get("image_url") if isinstance(part, dict) else None
    url = image.get("url") if isinstance(image, dict) else image
    if kind != "image_url" or not isinstance(url, str):
        raise BridgeError(f"{place} has a content part of the kind {reprlib.repr(kind)}")

    if not url.startswith(_DATA_URL):
        return "text", f"[image: {clean_text(url)}]"

    _check_data_url(url, place)
    return "image", url


def _check_data_url(url: str, place: str) -> None:
    try:
        _image(url)
    except ValueError as error:
        raise BridgeError(f"{place} has an image whose data URL cannot be read") from error


def _image(url: str) -> Image:
    head, _, data = url.removeprefix(_DATA_URL).partition(",")
    if not head.endswith(_BASE64) or not head.isascii():
        raise ValueError("not base64")

    try:
        return Image(head.removesuffix(_BASE64), base64.b64decode(data, validate=True))
    except binascii.Error as error:
        raise ValueError(str(error)) from error


def _calls(value: object, place: str) -> tuple[RowCall, ...]:
    if not value:
        return ()
    if not isinstance(value, list):
        raise BridgeError(f"{place} has tool_calls that are a {type(value).__name__}")

    return tuple(_call(call, place) for call in value)


def _call(call: object, place: str) -> RowCall:
    function = call.get("function") if isinstance(call, dict) else None
    call_id = call.get("id") if isinstance(call, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(call_id, str) or not isinstance(name, str) or not isinstance(function, dict):
        raise BridgeError(f"{place} has a tool call without an id or a name")

    arguments = function.get("arguments", "")
    if not isinstance(arguments, str):
        arguments = _as_json(arguments, place)
    return RowCall(clean_text(call_id), clean_text(name), clean_text(arguments))


def _as_json(arguments: object, place: str) -> str:
    try:
        return orjson.dumps(arguments).decode()
    except TypeError as error:
        raise BridgeError(f"{place} has a tool call whose arguments are no JSON") from error


def _identity(value: object) -> str | None:
    if not isinstance(value, str) or not value.strip() or len(value) > LONGEST_IDENTITY:
        return None

    # As a log would have it, two that differ here could be one there.
    return value if clean_text(value) == value else None


def _absorbed(value: object, own: str | None) -> tuple[str, ...]:
    listed = value if isinstance(value, list | tuple) else ()
    uids = [uid for uid in map(_identity, listed) if uid is not None and uid != own]
    return tuple(dict.fromkeys(uids))


def _call_uids(value: object) -> Mapping[str, str] | tuple[str | None, ...]:
    if isinstance(value, list | tuple):
        return tuple(map(_identity, value))
    if not isinstance(value, dict):
        return {}

    uids = {call_id: _identity(uid) for call_id, uid in value.items()}
    return {call_id: uid for call_id, uid in uids.items() if uid is not None}
