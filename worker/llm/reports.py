"""What a provider reports of an error, read from every shape that providers and proxies give it.

Pure: a body in, a `Report` out. What a report means is decided in `worker.llm.failures`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

import orjson
from attrs import evolve, field, frozen

from worker.text import clean_text, first_line

MAX_MESSAGE_CHARS = 1000
PAGE = "an HTML page"

_CODE_KEYS = ("code", "type", "status", "error_type")
_MESSAGE_KEYS = ("message", "Message", "msg", "detail", "error_description", "description")
# What an answer, or a part of one, holds in any dialect.
_ANSWER_KEYS = frozenset({"choices", "candidates", "output", "content", "delta", "done"})
_CODE = re.compile(r"[a-z0-9][\w.:-]{0,63}", re.ASCII)
_MOST_DETAILS = 32


@frozen
class Report:
    """A provider's report of an error, in no provider's dialect."""

    message: str
    """The provider's own words, those of an upstream included; empty where it gave none."""
    status: int | None = None
    """The HTTP status, or the one that the report names inside a stream."""
    codes: tuple[str, ...] = ()
    """The provider's own words for the kind of error, in lower case, most specific first."""
    fields: Mapping[str, object] = field(factory=dict, repr=False)
    """The error object itself."""
    details: tuple[Mapping[str, object], ...] = field(default=(), repr=False)
    """Google's further objects (`RetryInfo`, `QuotaFailure`, `ErrorInfo`)."""


class ReportedError(Exception):
    """A stream carried the provider's report of an error instead of an answer."""

    def __init__(self, report: Report) -> None:
        super().__init__(report.message)
        self.report = report


def read_report(body: str, *, status: int | None = None) -> Report:
    """Return what the body of an error says, be it JSON, a page, plain text or nothing."""
    value = read_json(body)
    if value is None:
        return Report(_text_of_page(body), status)

    return report_of(value, status=status) or Report(first_line(body, MAX_MESSAGE_CHARS), status)


def read_json(text: str) -> object:
    """Return the value of a JSON text, or None where it is none (or `null`)."""
    try:
        return orjson.loads(text)
    except ValueError:
        # orjson refuses a lone half of an escaped surrogate pair, which messages do carry.
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return None


def report_of(value: object, *, status: int | None = None) -> Report | None:
    """Return the report that a JSON value holds, or None where it reports no error.

    Known: `{"error": {…}}`, `{"error": "…"}`, `{"error": true, "message": …}`, `{"errors": […]}`,
    `{"object": "error", …}`, `{"type": "error", …}`, `{"detail": …}`, `{"code": …, "message": …}`,
    MiniMax's `base_resp`, a list of one of these, and, for a body that came with an error status, a
    bare `{"message": …}`. A report inside of the message, as proxies pass it on, is unwrapped.
    """
    if isinstance(value, list):
        value = value[0] if value else None
    if not isinstance(value, dict):
        return None

    inner = _first(value.get("error") or value.get("errors"))
    if isinstance(inner, str) and inner:
        return _report({"message": inner} | _without(value, "message"), status)
    if isinstance(inner, dict) and inner:
        return _report(inner, status)
    if inner:  # a mere flag, or a status
        return _report({"code": inner} | value, status)

    is_error = value.get("object") == "error" or value.get("type") == "error"
    if is_error or (status is not None and ("message" in value or "Message" in value)):
        return _report(value, status)
    if _ANSWER_KEYS.isdisjoint(value) and (value.get("detail") or _is_coded(value)):
        return _report(value, status)

    return _base_report(value)


def _first(value: object) -> object:
    return next(filter(None, value), None) if isinstance(value, list) else value


def _is_coded(value: Mapping[str, object]) -> bool:
    """Tell whether a bare object is a code of an error and its words (DashScope, gateways)."""
    message, code = value.get("message"), value.get("code")
    is_good = code in (0, 200, "0", "200") or str(code).lower() in {"ok", "success"}
    return isinstance(message, str) and bool(message and code) and not is_good


def _base_report(value: Mapping[str, object]) -> Report | None:
    """Return what MiniMax reports beside an answer that is none, or None."""
    found = value.get("base_resp")
    code = found.get("status_code") if isinstance(found, dict) else None
    if not isinstance(found, dict) or not code or value.get("choices"):
        return None

    return _report({"message": found.get("status_msg"), "code": str(code)}, None)


def _without(value: Mapping[str, object], key: str) -> dict[str, object]:
    return {name: found for name, found in value.items() if name != key}


def _report(fields: Mapping[str, object], status: int | None) -> Report:
    words = [fields.get(key) for key in _CODE_KEYS]
    if status is None:
        status = next((number for number in map(_as_status, words) if number), None)

    details = tuple(_objects(fields.get("details")))
    reasons = [detail.get("reason") for detail in details]
    codes = tuple(dict.fromkeys(_codes((*reasons, *words))))
    said = next((found for key in _MESSAGE_KEYS if (found := fields.get(key))), None)
    report = Report(clean_text(_words(said)), status, codes, fields, details)
    return _with_upstream(_unwrapped(report))


def _unwrapped(report: Report) -> Report:
    """Return `report`, or the one that its message holds as JSON with what `report` adds to it."""
    inner = _report_inside(report.message)
    if inner is None:
        return report

    return evolve(
        inner,
        status=report.status or inner.status,
        codes=tuple(dict.fromkeys((*inner.codes, *report.codes))),
    )


def _with_upstream(report: Report) -> Report:
    """Return `report` with what an upstream said: "Provider returned error" alone tells nothing."""
    metadata = report.fields.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, dict) else None
    if not raw:
        return report

    upstream = report_of(raw, status=report.status) or _report_inside(_words(raw))
    upstream = upstream or Report(clean_text(_words(raw)))
    said = (text for text in (report.message, upstream.message) if text)
    return evolve(
        report,
        message=": ".join(said),
        codes=tuple(dict.fromkeys((*upstream.codes, *report.codes))),
        details=report.details or upstream.details,
    )


def _report_inside(text: str) -> Report | None:
    if not text.lstrip().startswith(("{", "[")):
        return None

    value = read_json(text)
    # A list of findings ("loc", "msg") is what the message says, not a report of its own.
    return report_of(value) if value is not None else None


def _codes(words: tuple[object, ...]) -> Iterator[str]:
    """Yield the words that are codes, written in one way; sentences and numbers are none."""
    for word in words:
        code = word.strip().lower() if isinstance(word, str) else ""
        if _CODE.fullmatch(code):
            yield code.replace("-", "_")


def _objects(value: object) -> Iterator[Mapping[str, object]]:
    for found in value[:_MOST_DETAILS] if isinstance(value, list) else []:
        if isinstance(found, dict):
            yield found


def _words(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


def _as_status(value: object) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) == 3:
        value = int(value)
    is_status = isinstance(value, int) and 400 <= value <= 599
    return value if is_status and isinstance(value, int) else None


def _text_of_page(body: str) -> str:
    """Return the words of a body that is no JSON; of a page, its title; of XML, its message."""
    if not body.lstrip().startswith("<"):
        return first_line(clean_text(body), MAX_MESSAGE_CHARS)

    title = re.search(r"<(title|h1|message)[^>]*>(.*?)</\1>", body, re.IGNORECASE | re.DOTALL)
    words = clean_text(" ".join(title[2].split())) if title else ""
    what = PAGE if title is None or title[1].lower() != "message" else "an XML document"
    return f'{what}, "{first_line(words)}"' if words else what
