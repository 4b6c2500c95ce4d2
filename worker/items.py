"""Items, the elements of a Worker's history: frozen values whose identity is the `uid` alone.

`uid` is minted once, when an item first enters a history, and is kept by every copy: through
restart, fork, compaction, export. `worker.items_json` writes items as JSON and reads them back.
"""

from __future__ import annotations

import uuid
from typing import Literal, TypeAlias

from attrs import field, frozen


def new_uid() -> str:
    """Return a new identity: 32 lowercase hex digits of a random UUID, derived from nothing."""
    return uuid.uuid4().hex


@frozen
class Text:
    """Plain text."""

    text: str


@frozen
class Image:
    """An image, as its raw bytes."""

    media_type: str
    data: bytes = field(repr=lambda data: f"<{len(data)} bytes>")


@frozen
class Reasoning:
    """What a model thought, with the provider's proof of it.

    `signature` and `blob` are the provider's bytes, kept exactly and sent back only to the same
    `provider`; `text` is what may be shown.
    """

    text: str
    signature: str | None = None
    blob: str | None = None
    provider: str = ""
    model: str = ""


@frozen
class ToolCall:
    """A model's request to run a tool; `arguments` is the text exactly as it was received."""

    call_id: str
    name: str
    arguments: str
    call_uid: str


@frozen
class Covers:
    """What a summary stands for: a range of items of one session, and the log's hash then."""

    session_id: str
    first_uid: str
    last_uid: str
    head_hash: str


@frozen
class UserMessage:
    """Something said to the model: by a person (`user`) or by the program (`injected`)."""

    uid: str
    parts: tuple[Text | Image, ...]
    origin: Literal["user", "injected"] = "user"
    absorbed_uids: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """All text parts, joined by newlines."""
        return "\n".join(part.text for part in self.parts if isinstance(part, Text))


@frozen
class AssistantMessage:
    """One answer of a model, its parts in the order received.

    `stop_reason` is the answer's own, or `partial` where the stream broke off.
    """

    uid: str
    parts: tuple[Text | Reasoning | ToolCall, ...]
    provider: str
    model: str
    stop_reason: str
    absorbed_uids: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """All text parts, joined."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls, in the order received."""
        return tuple(part for part in self.parts if isinstance(part, ToolCall))


@frozen
class ToolResult:
    """What a tool call came to. `summary` always stays; `content` and attachments may be pruned."""

    uid: str
    call_id: str
    call_uid: str
    summary: str
    content: str | None
    is_error: bool
    attachments: tuple[Image, ...] = ()


@frozen
class SummaryMessage:
    """A summary in the place of what it covers; `generation` counts the compactions behind it."""

    uid: str
    text: str
    covers: Covers | None
    generation: int
    absorbed_uids: tuple[str, ...] = ()


@frozen
class SystemNote:
    """A durable note that was put into the context on purpose, such as text added by a hook."""

    uid: str
    text: str
    kind: str


Item: TypeAlias = UserMessage | AssistantMessage | ToolResult | SummaryMessage | SystemNote


def user_message(text: str, *, origin: Literal["user", "injected"] = "user") -> UserMessage:
    """Return a new `UserMessage` of one text part, with a fresh uid."""
    return UserMessage(uid=new_uid(), parts=(Text(text),), origin=origin)


def is_turn_start(item: Item) -> bool:
    """Tell whether `item` starts a turn: a message that a person really sent."""
    return isinstance(item, UserMessage) and item.origin == "user"
