"""Cleaning of items on their way into a history: every text in them becomes valid UTF-8."""

from __future__ import annotations

from typing import TypeVar

from attrs import evolve

from .items import (
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
from .text import clean_text

PartT = TypeVar("PartT", bound=Text | Image | Reasoning | ToolCall)


def clean_item(item: Item) -> Item:
    """Return `item` with lone surrogates replaced in its texts; signatures and blobs stay as is."""
    match item:
        case UserMessage():
            return evolve(item, parts=tuple(map(_clean_part, item.parts)))
        case AssistantMessage():
            return evolve(item, parts=tuple(map(_clean_part, item.parts)))
        case ToolResult():
            content = None if item.content is None else clean_text(item.content)
            return evolve(item, summary=clean_text(item.summary), content=content)
        case SummaryMessage() | SystemNote():
            return evolve(item, text=clean_text(item.text))


def _clean_part(part: PartT) -> PartT:
    match part:
        case Text() | Reasoning():
            return evolve(part, text=clean_text(part.text))
        case ToolCall():
            name, arguments = clean_text(part.name), clean_text(part.arguments)
            return evolve(part, name=name, arguments=arguments)
        case _:
            return part
