"""`file`: a memory of notes in Markdown files, which people can read and edit."""

from __future__ import annotations

from .provider import FileMemory

__all__ = ["FileMemory"]
