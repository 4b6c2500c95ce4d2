"""Images as models take them: by what they are, whatever they are called."""

from __future__ import annotations

import re
from collections.abc import Collection

from worker.items import Image
from worker.text import clean_text

READABLE = frozenset({"image/gif", "image/jpeg", "image/png", "image/webp"})
"""The types that most models read."""
# An image that is not of the type it is said to be has the whole request refused.
_MAGIC = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "image/png"),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(rb"GIF8[79]a"), "image/gif"),
    (re.compile(rb"RIFF....WEBP", re.DOTALL), "image/webp"),
)


def readable_type(image: Image, readable: Collection[str] = READABLE) -> str | None:
    """Return the media type to send `image` as, or None where it is none of the `readable` ones."""
    found = next((kind for magic, kind in _MAGIC if magic.match(image.data)), None)
    media_type = found or image.media_type.lower().replace("image/jpg", "image/jpeg")
    return media_type if image.data and media_type in readable else None


def left_out(image: Image, why: str = "not readable") -> str:
    """Return the words in the place of an image that cannot be sent."""
    kind = clean_text(image.media_type)
    return f"[An image of {len(image.data):,} bytes and type {kind} is left out: {why}.]"
