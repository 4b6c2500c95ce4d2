"""A tool of the manifests of tests that shows a picture."""

from __future__ import annotations

from worker import ToolOutput
from worker.items import Image

PICTURE = bytes.fromhex("89504e470d0a1a0a") + b"of-a-tool"
looked: list[str] = []
"""The words that were looked up, in this process."""


def look(word: str) -> ToolOutput:
    """Look it up."""
    looked.append(word)
    return ToolOutput(f"{word} is found", attachments=(Image("image/png", PICTURE),))
