"""The door: one request in, every rule that it breaks out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from . import (
    anthropic_rules,
    document,
    gemini_rules,
    ollama_rules,
    openai_chat_rules,
    openai_responses_rules,
    shapes,
    shared,
)
from .report import Report, Rule

Api: TypeAlias = Literal["anthropic", "chat", "responses", "gemini", "ollama"]

RULES: dict[str, Rule] = {
    name: rule
    for book in (
        document.BOOK,
        shapes.BOOK,
        shared.BOOK,
        anthropic_rules.BOOK,
        openai_chat_rules.BOOK,
        openai_responses_rules.BOOK,
        gemini_rules.BOOK,
        ollama_rules.BOOK,
    )
    for name, rule in book.rules.items()
}
"""Every rule by its name."""


def api_of(path: str) -> Api | None:
    """The API that a path belongs to, or None where it is none of those known."""
    bare = urlsplit(path).path
    if bare.endswith("/chat/completions"):
        return "chat"
    if bare.endswith("/v1/messages"):
        return "anthropic"
    if bare.endswith("/responses"):
        return "responses"
    if bare.endswith((":streamGenerateContent", ":generateContent")):
        return "gemini"
    return "ollama" if bare.endswith("/api/chat") else None


def check(
    path: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    variant: openai_chat_rules.Variant | None = None,
) -> dict[str, object]:
    """Return the body's value; raise `BrokenRequest` where the API at `path` would refuse it.

    Chat Completions are held to OpenAI's own rules where the `host` header is OpenAI's or
    `variant` says so, else to those of the servers that speak it in their own way.
    """
    report = Report()
    api = api_of(path)
    if api is None:
        raise AssertionError(f"no API of ours has the path {path}")

    document_read = document.read(body, report)
    if document_read is not None:
        _check_api(api, path, document_read, headers, variant or _variant(headers), report)
    report.raise_if_broken(f"{api} request to {path.partition('?')[0]}")
    return document_read or {}


def _variant(headers: Mapping[str, str]) -> openai_chat_rules.Variant:
    host = next((value for key, value in headers.items() if key.lower() == "host"), "")
    return "official" if host.partition(":")[0] == "api.openai.com" else "compatible"


def _check_api(
    api: Api,
    path: str,
    body: dict[str, object],
    headers: Mapping[str, str],
    variant: openai_chat_rules.Variant,
    report: Report,
) -> None:
    match api:
        case "anthropic":
            anthropic_rules.check(body, headers, report)
        case "chat":
            openai_chat_rules.check(body, headers, report, variant)
        case "responses":
            openai_responses_rules.check(body, headers, report)
        case "gemini":
            gemini_rules.check(path, body, headers, report)
        case "ollama":
            ollama_rules.check(body, headers, report)
