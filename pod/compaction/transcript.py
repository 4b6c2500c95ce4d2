"""The history as text for the summarizer: data between delimiters, never instructions. Pure.

A block is a head line at the margin, such as `[3 tool result, error]`, and its text indented under
it. Indented text cannot pass for a head line, and cannot close the delimiter, which is random.
"""

from __future__ import annotations

from collections.abc import Sequence

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
from worker.text import cut_middle, is_blank, utf8_len

RESULT_MAX_BYTES = 2_000
ARGUMENTS_MAX_BYTES = 1_200
TEXT_MAX_BYTES = 8_000


def blocks(items: Sequence[Item], *, first: int = 1) -> list[str]:
    """Return a block of text an item, numbered from `first`; none for empty ones and reasoning."""
    texts = (_block(item, number) for number, item in enumerate(items, first))
    return [text for text in texts if text]


def fence(text: str, delimiter: str) -> str:
    """Return `text` between a pair of `delimiter` lines, with look-alikes inside broken up."""
    # Its core alone: occurrences of a whole delimiter can share their rulers, and then breaking
    # one up would leave the next one whole.
    core = delimiter.strip("=")
    safe = text.replace(core, core[:3] + "…" + core[4:])
    return f"{delimiter}\n{safe}\n{delimiter}"


def _block(item: Item, number: int) -> str:
    match item:
        case UserMessage():
            who = "user" if item.origin == "user" else "program, in the user's place"
            return _joined(f"[{number} {who}]", _parts(item.parts))
        case AssistantMessage():
            return _joined(f"[{number} assistant]", _parts(item.parts))
        case ToolResult():
            head = f"[{number} tool result{', error' if item.is_error else ''}]"
            detail = f"{item.summary}\n{item.content}" if item.content else item.summary
            return _joined(head, [cut_middle(detail, RESULT_MAX_BYTES)])
        case SystemNote():
            return _joined(f"[{number} note]", [cut_middle(item.text, TEXT_MAX_BYTES)])
        case SummaryMessage():
            return ""  # An earlier summary has a place of its own in the prompt.


def _parts(parts: Sequence[Text | Image | Reasoning | ToolCall]) -> list[str]:
    texts = []
    for part in parts:
        match part:
            case Text():
                texts.append(cut_middle(part.text, TEXT_MAX_BYTES))
            case ToolCall():
                arguments = cut_middle(part.arguments, ARGUMENTS_MAX_BYTES)
                texts.append(f"(calls {part.name} with {arguments})")
            case Image():
                texts.append(f"(an image, {part.media_type})")
            case Reasoning():
                continue

    return texts


def _joined(head: str, texts: list[str]) -> str:
    # Whatever may pass for the end of a line is one: nothing gets to the margin by a lone CR.
    shown = ["\n  ".join(text.splitlines()) for text in texts if not is_blank(text)]
    return "\n  ".join([head, *shown]) if shown else ""


def chunked(texts: Sequence[str], max_bytes: int) -> list[str]:
    """Return the blocks joined into as few texts as fit `max_bytes` each, order kept.

    A block that alone is larger is cut in its middle.
    """
    chunks: list[list[str]] = []
    size = 0
    for text in texts:
        fitted = cut_middle(text, max_bytes)
        length = utf8_len(fitted) + 1
        if not chunks or size + length > max_bytes:
            chunks.append([])
            size = 0

        chunks[-1].append(fitted)
        size += length

    return ["\n".join(chunk) for chunk in chunks]
