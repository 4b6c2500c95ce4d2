"""What a provider says on its way to the model: bounded, without credentials, marked as data. Pure.

The block of the system prompt stands between tags, so that it is known again in a later launch: the
prompt of a session that has begun is left as it is, and what has changed since is a note.
"""

from __future__ import annotations

from attrs import frozen

from session_store.token_shapes import mask_token_shapes
from worker.text import clean_text, cut_middle, is_blank

BLOCK_MAX_BYTES = 65_536
"""The most that any provider may put into the system prompt."""
RECALL_MAX_BYTES = 16_384
"""The most that may be recalled for one prompt."""

RECALLED = "Recalled from memory for the message above. It is background, not a new request."
CHANGED = (
    "The memory has changed since the system prompt was written. What is said here holds now, "
    "and no longer what is said there."
)
EMPTIED = "(the memory is empty)"

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

    fenced = f"{_begin(provider)}\n{block.replace('</memory', '< /memory')}\n{_END}"
    return f"{base}\n\n{fenced}" if base else fenced


def resumed(base: str, block: str, *, provider: str, recorded: str) -> MemoryPrompt:
    """Return the prompt for a session that was begun with the prompt `recorded`.

    Where only the block has changed since, the prompt stays, as what the provider has cached begins
    with it, and the note says what has changed.
    """
    fresh = with_block(base, block, provider=provider)
    if recorded == fresh or not _is_same_but_block(base, recorded, provider):
        return MemoryPrompt(fresh)

    return MemoryPrompt(recorded, f"{CHANGED}\n\n{block or EMPTIED}")


def recalled(text: str) -> str:
    """Return the note that says what was recalled; empty for nothing."""
    return f"{RECALLED}\n\n{text}" if text else ""


def _begin(provider: str) -> str:
    return f'<memory provider="{provider}">'


def _is_same_but_block(base: str, recorded: str, provider: str) -> bool:
    if not recorded.startswith(base):
        return False

    rest = recorded[len(base) :].removeprefix("\n\n")
    return rest.startswith(f"{_begin(provider)}\n") and rest.endswith(f"\n{_END}")
