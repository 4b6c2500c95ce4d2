"""What a provider says on its way to the model: bounded, without credentials, marked as data. Pure.

The block of the system prompt stands between tags, so that it is known again in a later launch: the
prompt of a session that has begun is left as it is, and what has changed since is a note.
"""

from __future__ import annotations

from collections.abc import Iterable

from attrs import frozen

from session_store.token_shapes import mask_token_shapes
from worker.text import clean_text, cut_middle, is_blank

BLOCK_MAX_BYTES = 65_536
"""The most that any provider may put into the system prompt."""
RECALL_MAX_BYTES = 16_384
"""The most that may be recalled for one prompt."""

RECALLED = "Recalled from memory for the message above. It is background, not a new request."
CHANGED = (
    "The memory has changed since the system prompt was written: lines with a plus are new in it, "
    "and what the lines with a minus say holds no more."
)

_END = "</memory>"


def shown(text: object, max_bytes: int) -> str:
    """Return what may be shown of what a provider returned; anything that is no text is none."""
    if not isinstance(text, str):
        return ""

    # Masked before it is cut: half a credential has no shape to know it by.
    clean = mask_token_shapes(clean_text(text).strip())
    return "" if is_blank(clean) else cut_middle(clean, max_bytes)


@frozen
class MemoryPrompt:
    """A system prompt, and what of the memory has to be said beside it."""

    system_prompt: str
    note: str = ""
    """To be put into the context before the next request; empty for nothing."""


def with_block(base: str, block: str, *, provider: str) -> str:
    """Return the system prompt `base` with a provider's block under it."""
    if not block:
        return base

    fenced = f"{_begin(provider)}\n{_inner(block)}\n{_END}"
    return f"{base}\n\n{fenced}" if base else fenced


def resumed(
    base: str, block: str, *, provider: str, recorded: str, told: Iterable[str]
) -> MemoryPrompt:
    """Return the prompt for a session that was begun with the prompt `recorded`.

    Where only the block has changed since, the prompt stays, as what the provider has cached begins
    with it, and the note says what has changed. `told` are the notes that have said so before.
    """
    known = _block_of(recorded, base, provider)
    if known is None:
        return MemoryPrompt(with_block(base, block, provider=provider))

    lines = [line for line in _inner(block).split("\n") if line.strip()]
    before = _as_told(known.split("\n"), told)
    gone = [f"- {line}" for line in before if line not in lines]
    new = [f"+ {line}" for line in lines if line not in before]
    return MemoryPrompt(recorded, "\n".join([CHANGED, *gone, *new]) if gone or new else "")


def recalled(text: str) -> str:
    """Return the note that says what was recalled; empty for nothing."""
    return f"{RECALLED}\n\n{text}" if text else ""


def _begin(provider: str) -> str:
    return f'<memory provider="{provider}">'


def _inner(block: str) -> str:
    return block.replace("</memory", "< /memory")


def _block_of(prompt: str, base: str, provider: str) -> str | None:
    """Return the block under `base` in a prompt; None where the prompt is not made like that."""
    begin, end = f"{_begin(provider)}\n", f"\n{_END}"
    rest = prompt.removeprefix(base).removeprefix("\n\n") if prompt.startswith(base) else ""
    if not rest.startswith(begin) or not rest.endswith(end):
        return None

    return rest[len(begin) : -len(end)]


def _as_told(lines: Iterable[str], notes: Iterable[str]) -> list[str]:
    """Return the lines of a block, as they are once the changes that notes tell of are made."""
    known = dict.fromkeys(line for line in lines if line.strip())
    for note in notes:
        if not note.startswith(f"{CHANGED}\n"):
            continue

        for change in note.split("\n")[1:]:
            if change.startswith("+ "):
                known[change[2:]] = None
            elif change.startswith("- "):
                known.pop(change[2:], None)

    return list(known)
