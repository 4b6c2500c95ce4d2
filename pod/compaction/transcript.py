"""The history as text for the summarizer: data between delimiters, never instructions. Pure.

A block is a head line at the margin, such as `[3 tool result, error]`, and its text indented under
it. Indented text cannot pass for a head line, and cannot close the delimiter, which is random.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

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

_OTHER_LINE_ENDS = "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"


def blocks(items: Sequence[Item], *, first: int = 1) -> list[str]:
    """Return a block of text an item, numbered from `first`; none for empty ones and reasoning."""
    texts = [_BLOCKS[type(item)](item, number) for number, item in enumerate(items, first)]
    whole = "".join(texts)
    if any(end in whole for end in _OTHER_LINE_ENDS):
        # Whatever may pass for the end of a line is one: nothing gets to the margin by a lone CR.
        texts = [_with_plain_ends(text) for text in texts]

    return [text for text in texts if text]


def fence(text: str, delimiter: str) -> str:
    """Return `text` between a pair of `delimiter` lines, with look-alikes inside broken up."""
    # Its core alone: occurrences of a whole delimiter can share their rulers, and then breaking
    # one up would leave the next one whole.
    core = delimiter.strip("=")
    safe = text.replace(core, core[:3] + "…" + core[4:])
    return f"{delimiter}\n{safe}\n{delimiter}"


def _user(item: UserMessage, number: int) -> str:
    who = "user" if item.origin == "user" else "program, in the user's place"
    return _block(f"[{number} {who}]", _parts(item.parts))


def _assistant(item: AssistantMessage, number: int) -> str:
    return _block(f"[{number} assistant]", _parts(item.parts))


def _result(item: ToolResult, number: int) -> str:
    detail = f"{item.summary}\n{item.content}" if item.content else item.summary
    head = f"[{number} tool result{', error' if item.is_error else ''}]"
    return _block(head, cut_middle(detail, RESULT_MAX_BYTES))


def _note(item: SystemNote, number: int) -> str:
    return _block(f"[{number} note]", cut_middle(item.text, TEXT_MAX_BYTES))


def _summary(_item: SummaryMessage, _number: int) -> str:
    return ""  # An earlier summary has a place of its own in the prompt.


# A table, not a match: a long history has as many items as this has to be quick for.
_BLOCKS: dict[type[Item], Callable[[Any, int], str]] = {
    UserMessage: _user,
    AssistantMessage: _assistant,
    ToolResult: _result,
    SystemNote: _note,
    SummaryMessage: _summary,
}


def _call(part: ToolCall) -> str:
    return f"(calls {part.name} with {cut_middle(part.arguments, ARGUMENTS_MAX_BYTES)})"


_PARTS: dict[type[object], Callable[[Any], str]] = {
    Text: lambda part: cut_middle(part.text, TEXT_MAX_BYTES),
    ToolCall: _call,
    Image: lambda part: f"(an image, {part.media_type})",
    Reasoning: lambda _part: "",
}


def _parts(parts: Sequence[Text | Image | Reasoning | ToolCall]) -> str:
    if len(parts) == 1:
        return _PARTS[type(parts[0])](parts[0])

    texts = [_PARTS[type(part)](part) for part in parts]
    return "\n".join([text for text in texts if not is_blank(text)])


def _block(head: str, text: str) -> str:
    # The first look is a short cut: what begins with a letter shows something.
    if not text[:1].isalnum() and is_blank(text):
        return ""

    indented = text.removesuffix("\n").replace("\n", "\n  ")
    return f"{head}\n  {indented}"


def _with_plain_ends(block: str) -> str:
    return "\n  ".join(block.replace("\n  ", "\n").splitlines())


def chunked(texts: Sequence[str], max_bytes: int) -> list[str]:
    """Return the blocks joined into as few texts as fit `max_bytes` each, order kept.

    A block that alone is larger is cut in its middle.
    """
    whole = "\n".join(texts)
    if utf8_len(whole) < max_bytes:
        return [whole] if texts else []

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
