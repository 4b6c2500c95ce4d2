"""Tiny GGUF files: a header that says what a test needs, and no tensors."""

from __future__ import annotations

import struct
from pathlib import Path

TEMPLATE = "tokenizer.chat_template"


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def texts(**said: str) -> list[bytes]:
    """Entries that are text, by key; a double underscore stands for a dot."""
    pairs = ((key.replace("__", "."), value) for key, value in said.items())
    return [text(key) + struct.pack("<I", 8) + text(value) for key, value in pairs]


def header(context: int = 4096, *, version: int = 3, template: str | None = None) -> bytes:
    """A header in the order that real files have: the vocabulary lies before the template."""
    entries = [
        *texts(general__architecture="llama", general__name="Tiny"),
        text("llama.context_length") + struct.pack("<II", 4, context),
        text("tokens") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("bc"),
        text("scores") + struct.pack("<IIQ", 9, 6, 3) + bytes(12),
        *(texts(tokenizer__chat_template=template) if template is not None else []),
    ]
    return packed(entries, version=version)


def packed(entries: list[bytes], *, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, 0, len(entries)) + b"".join(entries)


def model_file(folder: Path, *, template: str | None = None, context: int = 4096) -> Path:
    path = folder / "Tiny-1B-Chat.Q4_K_M.gguf"
    path.write_bytes(header(context, template=template))
    return path
