"""What is said once and stays: the pieces that scroll by, in the order of what happened. Pure."""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

from attrs import frozen


class Tone(Enum):
    """How much something said wants to be noticed."""

    DETAIL = "detail"
    """Only for who asked to be told more."""
    INFO = "info"
    GOOD = "good"
    WARNING = "warning"
    ERROR = "error"


@frozen
class Asked:
    """A prompt, whoever gave it."""

    text: str


@frozen
class Said:
    """Markdown of an answer that nothing later can change: a block of it, or all."""

    text: str
    begins: bool = True
    """Whether the answer begins here."""


@frozen
class Thought:
    """What the model thought; for who asked to be told more."""

    text: str


@frozen
class Called:
    """A tool call that has its result."""

    name: str
    arguments: str
    """As received; empty where the call itself was not seen."""
    summary: str
    is_error: bool
    took_ms: int | None = None


@frozen
class Wanted:
    """A tool call that somebody is asked about, whole: what is allowed is what is shown."""

    name: str
    arguments: str
    """As received."""
    reason: str | None = None


@frozen
class Told:
    """Something else that a person should know, in one or more lines."""

    text: str
    tone: Tone = Tone.INFO


Block: TypeAlias = Asked | Said | Thought | Called | Wanted | Told


def is_detail(block: Block) -> bool:
    """Tell whether this is only for who asked to be told more."""
    return isinstance(block, Thought) or (isinstance(block, Told) and block.tone is Tone.DETAIL)
