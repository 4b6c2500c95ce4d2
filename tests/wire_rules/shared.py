"""Rules that several providers share, entered in the book `common`, and how a body is walked."""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from . import document
from .report import Book, Report

BOOK = Book("common")
BLANK = BOOK.rule(
    "blank",
    "a text shows something",
    "Anthropic's 400 'text content blocks must contain non-whitespace text', Gemini's 'must include"
    " at least one parts field'; several compatible servers refuse '' too",
)
BASE64 = BOOK.rule(
    "base64", "an image is valid base64 of something", "SDK types: Base64ImageSource, data URLs"
)
MEDIA_TYPE = BOOK.rule(
    "media_type", "an image is of a type that the provider reads", "each vendor's vision guide"
)
TOOLS_SORTED = BOOK.rule(
    "tools_sorted", "tools are sorted by name, so that a cached prefix stays", "DESIGN, 8"
)
TOOLS_UNIQUE = BOOK.rule(
    "tools_unique", "no two tools of one name", "Anthropic's 400 'tools: Tool names must be unique'"
)
ARGUMENTS = BOOK.rule(
    "arguments",
    "a call's arguments are the text of a JSON object",
    "SDK types: ChatCompletionMessageFunctionToolCall, ResponseFunctionToolCall; the chat"
    " templates of compatible servers parse them",
)
HEADERS = BOOK.rule(
    "headers", "the key and version headers are there, and the body is named JSON", "API references"
)

PNG_AND_KIN = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


def check_text(value: object, where: str, report: Report) -> None:
    """Refuse a text that is empty or all whitespace."""
    if isinstance(value, str) and not value.strip():
        report.broke(BLANK, where, repr(value))


def check_base64(value: object, where: str, report: Report) -> None:
    """Refuse what is not strict base64 of at least one byte."""
    if not isinstance(value, str):
        return  # its type was noted

    try:
        data = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        report.broke(BASE64, where, error)
        return

    if not data:
        report.broke(BASE64, where, "no bytes")


def check_data_url(value: object, where: str, report: Report) -> None:
    """Refuse an image that is no data URL of a type that is read. Remote images are not sent."""
    if not isinstance(value, str):
        return

    head, comma, data = value.partition(",")
    media_type, _, encoding = head.removeprefix("data:").partition(";")
    if not head.startswith("data:") or not comma or encoding != "base64":
        report.broke(BASE64, where, f"{value[:40]!r}, not a data URL")
        return

    check_media_type(media_type, where, report)
    check_base64(data, where, report)


def check_media_type(
    value: object, where: str, report: Report, allowed: frozenset[str] = PNG_AND_KIN
) -> None:
    """Refuse an image of another type."""
    if value not in allowed:
        report.broke(MEDIA_TYPE, where, value)


def check_tool_names(names: Sequence[object], where: str, report: Report) -> None:
    """Refuse tools that are not sorted, or that share a name."""
    texts = [name for name in names if isinstance(name, str)]
    if texts != sorted(texts):
        report.broke(TOOLS_SORTED, where, texts)
    for name, count in Counter(texts).items():
        if count > 1:
            report.broke(TOOLS_UNIQUE, where, name)


def check_arguments(value: object, where: str, report: Report) -> None:
    """Refuse arguments that are not the text of a JSON object."""
    if not isinstance(value, str):
        return

    mine = Report()
    parsed = document.parse(value, where, mine)
    # A key twice is bad taste, but it is what the model wrote, and every parser takes it.
    broken = [one for one in mine.broken if one.rule is not document.DUPLICATES]
    report.broken.extend(broken)
    if not broken and not isinstance(parsed, dict):
        report.broke(ARGUMENTS, where, value)


def check_headers(
    headers: Mapping[str, str], wanted: Mapping[str, str | None], report: Report
) -> None:
    """Refuse headers that lack one of `wanted`; None stands for any value that is not empty."""
    have = {key.lower(): value for key, value in headers.items()}
    if have.get("content-type", "").partition(";")[0].strip() != "application/json":
        report.broke(HEADERS, "header content-type", have.get("content-type", "nothing"))
    for name, value in wanted.items():
        found = have.get(name, "")
        if not found or (value is not None and found != value):
            report.broke(HEADERS, f"header {name}", "a value" if found else "nothing")


def dicts(value: object) -> list[dict[str, object]]:
    """The objects of a list; what is none was noted by its shape."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def numbered(value: object, where: str) -> Iterator[tuple[str, dict[str, object]]]:
    """The objects of a list with the path of each."""
    for index, one in enumerate(value if isinstance(value, list) else []):
        if isinstance(one, dict):
            yield f"{where}[{index}]", one
