"""A session as Markdown, for people to read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from session_store.state import SessionState

NAME = "markdown"
_TICKS = re.compile("`+")


def write(state: SessionState) -> Iterator[bytes]:
    """Yield the document's bytes: a head, then every item in order."""
    for paragraph in _paragraphs(state):
        yield f"{paragraph}\n\n".encode()


def _paragraphs(state: SessionState) -> Iterator[str]:
    title = " ".join(state.title.split()).replace("<", "&lt;")
    yield f"# {title or 'Session'}"
    made = datetime.fromtimestamp(state.created / 1000, UTC)
    yield f"session `{state.session_id}` · {state.pod} · {made:%Y-%m-%d %H:%M} UTC"
    if state.system_prompt:
        yield _folded("System prompt", state.system_prompt)

    names: dict[str, str] = {}
    for item in state.history:
        if isinstance(item, AssistantMessage):
            names |= {call.call_uid: call.name for call in item.tool_calls}

        yield from _item(item, names)


def _item(item: Item, names: dict[str, str]) -> Iterator[str]:
    match item:
        case UserMessage():
            yield "## User" if item.origin == "user" else f"## User ({item.origin})"
            yield from map(_part, item.parts)
        case AssistantMessage():
            model = "/".join(filter(None, (item.provider, item.model)))
            yield f"## Assistant · {model}" if model else "## Assistant"
            yield from map(_part, item.parts)
        case ToolResult():
            name = names.get(item.call_uid, "tool")
            failed = ", failed" if item.is_error else ""
            yield _folded(f"Result of {name}{failed}", item.content or item.summary)
            yield from map(_part, item.attachments)
        case SummaryMessage():
            yield "## Summary of what came before"
            yield item.text
        case SystemNote():
            yield f"## Note · {item.kind}"
            yield item.text


def _part(part: Text | Image | Reasoning | ToolCall) -> str:
    match part:
        case Text():
            return part.text
        case Image():
            return f"*[{part.media_type}, {len(part.data):,} bytes]*"
        case Reasoning():
            return _folded("Thought", part.text or "(not shown)")
        case ToolCall():
            return f"**→ {part.name}**\n\n{_fenced(part.arguments, 'json')}"


def _folded(title: str, text: str) -> str:
    shown = title.replace("&", "&amp;").replace("<", "&lt;")
    return f"<details><summary>{shown}</summary>\n\n{_fenced(text)}\n\n</details>"


def _fenced(text: str, language: str = "") -> str:
    longest = max(map(len, _TICKS.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip(chr(10))}\n{fence}"
