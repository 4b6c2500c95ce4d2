"""The prompt of `pod run`: words of the command line, stdin, and attached files, as one message."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from worker.items import Image, Text, UserMessage, new_uid
from worker.text import is_blank

MOST_BYTES = 20_000_000
"""How large a prompt from stdin, or an attached file, may be."""

_FROM_STDIN = "-"


class PromptUnusable(Exception):
    """There is no prompt to run, or a file cannot go with it. Nothing was sent or written."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def read_prompt(
    words: Sequence[str], attached: Sequence[Path] = (), stdin: IO[bytes] | None = None
) -> UserMessage:
    """Return the prompt that a command line means. Reads stdin only where it is asked for.

    Raises:
        PromptUnusable: There is nothing to say, or a file cannot be sent.
    """
    text = _text(words, stdin)
    files = [attachment(path) for path in attached]
    if is_blank(text) and not files:
        hint = 'give one: pod run MANIFEST "…", or pipe it in'
        raise PromptUnusable("the prompt is empty", hint)

    said = () if is_blank(text) else (Text(text),)
    return UserMessage(uid=new_uid(), parts=(*said, *files))


def typed(text: str) -> str:
    """Return words of the command line as text: in some locales they come as bytes in disguise."""
    return os.fsencode(text).decode("utf-8", "replace")


def attachment(path: Path) -> Text | Image:
    """Return a file as a part of a message: an image by its first bytes, else text with its name.

    Raises:
        PromptUnusable: It cannot be read, is too large, or is neither image nor text.
    """
    shown = typed(str(path))
    data = _file(path, shown)
    media_type = image_type(data)
    if media_type is not None:
        return Image(media_type, data)

    if not data:
        raise PromptUnusable(f"cannot attach {shown}: it is empty")

    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"

    if "\0" in text:
        hint = "images (PNG, JPEG, GIF, WebP) and UTF-8 text can be attached"
        raise PromptUnusable(f"cannot attach {shown}: neither an image nor text", hint)

    return Text(f'<file name="{typed(path.name)}">\n{text.rstrip()}\n</file>')


def image_type(data: bytes) -> str | None:
    """Return the media type of an image that models take, told by its first bytes, or None."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"

    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"

    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"

    return "image/webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else None


def _text(words: Sequence[str], stdin: IO[bytes] | None) -> str:
    if not words:
        return _read_stdin(stdin)

    if _FROM_STDIN not in words:
        return typed(" ".join(words))

    said = typed(" ".join(word for word in words if word != _FROM_STDIN))
    piped = _read_stdin(stdin)
    return "\n\n".join(text for text in (said, piped) if text)


def _read_stdin(stdin: IO[bytes] | None) -> str:
    source = stdin
    if source is None:
        # None where the process was started with its stdin closed.
        source = sys.stdin.buffer if sys.stdin is not None else None

    if source is None:
        return ""

    try:
        data = source.read(MOST_BYTES + 1)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise PromptUnusable(f"cannot read the prompt from stdin: {reason}") from error

    if len(data) > MOST_BYTES:
        raise PromptUnusable(f"the prompt is larger than {MOST_BYTES:,} bytes")

    return data.decode("utf-8", "replace").rstrip("\n")


def _file(path: Path, shown: str) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise PromptUnusable(
            f"cannot attach {shown}: {reason.lower()}", "check the path"
        ) from error

    if len(data) > MOST_BYTES:
        raise PromptUnusable(f"cannot attach {shown}: it is larger than {MOST_BYTES:,} bytes")

    return data
