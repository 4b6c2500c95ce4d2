"""The prompts of compaction, kept as files. Their digest goes into the log with every summary."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files

NAMES = (
    "summarizer_system",
    "summarize",
    "summarize_short",
    "previous",
    "memory",
    "focus",
    "repair",
)


@cache
def prompt(name: str) -> str:
    """Return the text of a prompt by its file's name, without surrounding white space."""
    return files(__name__).joinpath(f"{name}.md").read_text(encoding="utf-8").strip()


@cache
def grammar() -> str:
    """Return the GBNF grammar that holds a small model to the four sections."""
    return files(__name__).joinpath("four_sections.gbnf").read_text(encoding="utf-8")


@cache
def prompts_digest() -> str:
    """Return the SHA-256 of all prompts together, as hex."""
    joined = "\n".join(f"{name}\n{prompt(name)}" for name in NAMES)
    return hashlib.sha256(joined.encode()).hexdigest()
