"""Content blocks, which all sources have in common: text and images in several spellings."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from datetime import UTC, datetime

from worker.items import Image, Reasoning, Text, ToolCall
from worker.text import clean_text

from .jsontext import JsonObject, compact_json
from .outputs import Output, output_of
from .tally import Tally

_TEXTS = frozenset({"text", "input_text", "output_text", "summary_text", "reasoning_text"})
_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)?(?:;[^,;]*)*;base64,", re.ASCII)
_PROVIDERS = (
    ("anthropic", "anthropic"),
    ("openai-responses", "openai_responses"),
    ("openai_responses", "openai_responses"),
    ("openai-codex", "openai_responses"),
    ("azure-openai-responses", "openai_responses"),
    ("openai", "openai"),
    ("google", "gemini"),
)


def blocks_of(content: object) -> list[JsonObject]:
    """Return a message's content as a list of blocks, however it is written."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]

    if isinstance(content, dict):
        return [content]

    if not isinstance(content, list):
        return []

    return [
        {"type": "text", "text": one} if isinstance(one, str) else one
        for one in content
        if isinstance(one, (str, dict))
    ]


def spoken(content: object, tally: Tally) -> tuple[Text | Image, ...]:
    """Return the texts and images of a content. A mark stands for what is neither."""
    return tuple(_spoken(content, tally))


def text_of(content: object) -> str:
    """Return the texts of a content, joined by newlines."""
    return "\n".join(str(one.get("text") or "") for one in blocks_of(content) if _is_text(one))


def tool_output(content: object, tally: Tally) -> Output:
    """Return a content as the output of a tool."""
    said = spoken(content, tally)
    text = "\n".join(part.text for part in said if isinstance(part, Text))
    return output_of(text, tuple(part for part in said if isinstance(part, Image)))


def encrypted_reasoning(item: JsonObject, text: str, model: str) -> Reasoning:
    """Return an item of OpenAI's Responses as the thought that can be sent back there."""
    blob, item_id = item.get("encrypted_content"), item.get("id")
    return Reasoning(
        text,
        item_id if isinstance(item_id, str) else None,
        blob if isinstance(blob, str) else None,
        "openai_responses",
        model,
    )


def tool_call(call_id: object, name: object, arguments: object, call_uid: str = "") -> ToolCall:
    """Return a call; arguments that are not text are written as JSON."""
    text = arguments if isinstance(arguments, str) else compact_json(arguments or {})
    return ToolCall(string(call_id), string(name), clean_text(text), call_uid)


def thinking(block: JsonObject, provider: str, model: str) -> Reasoning:
    """Return a block of thought, its signature as it is; a redacted one holds its data alone."""
    signature, data = block.get("signature"), block.get("data")
    return Reasoning(
        string(block.get("thinking")) or string(block.get("text")),
        signature if isinstance(signature, str) else None,
        data if isinstance(data, str) else None,
        provider,
        model,
    )


def provider_named(text: object) -> str:
    """Return the provider that a source's own name for it, or for its interface, means."""
    name = string(text)
    return next((ours for part, ours in _PROVIDERS if name.startswith(part)), name)


def string(value: object) -> str:
    """Return `value` if it is text, else nothing."""
    return value if isinstance(value, str) else ""


def number(value: object) -> int:
    """Return `value` if it is a whole number that is not negative, else 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def amount(value: object) -> float:
    """Return `value` if it is a number that is not negative, else 0."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and isinstance(value, (int, float)) and value > 0 else 0.0


def mapping(value: object) -> JsonObject:
    """Return `value` if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def time_ms(value: object) -> int | None:
    """Return a time as milliseconds of Unix time, from ISO 8601, seconds or milliseconds."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return int(value if value > 1e11 else value * 1000) if 0 < value < 1e14 else None

    try:
        when = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None

    if when is None:
        return None

    return int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000)


def image_of(block: JsonObject) -> Image | None:
    """Return the image that a block holds, or None where it holds none, or only its address."""
    source = mapping(block.get("source"))
    url = block.get("image_url") or block.get("url")
    url = mapping(url).get("url") if isinstance(url, dict) else url
    if isinstance(url, str):
        found = _DATA_URL.match(url)
        return _decoded(found[1], url[found.end() :]) if found else None

    kind = block.get("mimeType") or block.get("mime_type") or source.get("media_type")
    return _decoded(kind or block.get("media_type"), block.get("data") or source.get("data"))


def _spoken(content: object, tally: Tally) -> Iterator[Text | Image]:
    for block in blocks_of(content):
        if _is_text(block):
            yield Text(string(block.get("text")))
        elif string(block.get("type")) in {"image", "image_url", "input_image"}:
            if block.get("type") == "input_image" and block.get("image_url") is None:
                continue  # an empty slot of the source's format

            yield image_of(block) or _mark("image", block, tally)
        else:
            yield _mark(string(block.get("type")) or "block", block, tally)


def _is_text(block: JsonObject) -> bool:
    kind = block.get("type")
    return kind in _TEXTS or (kind is None and isinstance(block.get("text"), str))


def _mark(kind: str, block: JsonObject, tally: Tally) -> Text:
    tally.left_out[f"{kind} block"] += 1
    url = block.get("image_url") or block.get("url")
    url = mapping(url).get("url") if isinstance(url, dict) else url
    where = f": {url}" if isinstance(url, str) and url.startswith("http") else ""
    return Text(f"[{kind}, not carried over{where}]")


def _decoded(kind: object, data: object) -> Image | None:
    if not isinstance(data, str):
        return None

    try:
        return Image(string(kind) or "image/png", base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        return None
