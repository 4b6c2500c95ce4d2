"""A rough size in tokens of messages and text: four characters a token, a flat sum an image. Pure.

It is for what plugins weigh among themselves. What a request really takes is measured by the pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

CHARS_PER_TOKEN = 4
IMAGE_TOKENS = 1_600

_IMAGE_KINDS = frozenset({"image", "image_url", "input_image"})


def text_tokens(text: str) -> int:
    """Return the rough size of a text; a short one is not nothing."""
    return -(-len(text) // CHARS_PER_TOKEN)


def message_tokens(message: Mapping[str, Any]) -> int:
    """Return the rough size of one message. Fields that never reach a provider weigh nothing."""
    images = 0
    chars = 0
    for key, value in message.items():
        if key.startswith("_") or key == "message_uid":
            continue

        if key == "content":
            shown, images = _content(value)
            chars += shown
        else:
            chars += len(key) + _length(value)

    return -(-chars // CHARS_PER_TOKEN) + images * IMAGE_TOKENS


def messages_tokens(messages: Iterable[Mapping[str, Any]]) -> int:
    """Return the rough size of messages."""
    return sum(map(message_tokens, messages))


def _content(value: object) -> tuple[int, int]:
    """Return the characters of a message's content, and how many images it has."""
    if not isinstance(value, list):
        return _length(value), 0

    images = [part for part in value if isinstance(part, dict) and part.get("type") in _IMAGE_KINDS]
    others = [part for part in value if part not in images]
    return sum(map(_length, others)), len(images)


def _length(value: object) -> int:
    if value is None:
        return 0

    return len(value) if isinstance(value, str) else len(orjson.dumps(value, default=str))
