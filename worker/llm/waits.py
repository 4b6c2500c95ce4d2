"""How long a provider asks to wait before the next attempt, wherever it says so.

In this order, the first that says something usable wins: the header `retry-after-ms` (milliseconds;
Azure, and whatever was made with OpenAI's and Anthropic's SDKs in mind), `Retry-After` in both
forms, Google's `RetryInfo`, a field of the error object, the message ("Please try again in
1m2.5s"), and the time at which an exhausted rate limit is renewed.

The last kind is of two sorts. `X-RateLimit-Reset` (OpenRouter, which sends it in the body as well)
is the moment at which the window ends, and it is taken as it is. `x-ratelimit-reset-tokens` and its
kin (OpenAI, Groq, Azure) and `anthropic-ratelimit-…-reset` tell when the bucket is *full* again, as
the vendors' pages on rate limits say: a request fits long before that. So they count only where
what remains is 0, and only where they are short; a long one is no reason to give up.
"""

from __future__ import annotations

import email.utils
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from worker.llm.reports import Report

_LONGEST_REFILL_S = 60.0
_LONGEST_S = 1e15

_NUMBER = re.compile(r"\d+(?:\.\d{1,9})?", re.ASCII)
_SEVERAL = re.compile(r"(\d+)(?:\s*,\s*\d+)+", re.ASCII)
_UNITS_S = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_PART = (
    r"\d{1,9}(?:\.\d{1,12})?\s{0,2}(?:milliseconds?|ms|seconds?|secs?|minutes?|mins?|hours?|days?"
    r"|[dhms])(?![a-z])"
)
_DURATION = re.compile(rf"(?:{_PART}[\s,]{{0,2}}(?:and\s)?){{1,4}}", re.IGNORECASE | re.ASCII)
_PARTS = re.compile(r"(\d{1,9}(?:\.\d{1,12})?)\s*(ms|milli|[dhms])", re.IGNORECASE | re.ASCII)
_IN_TEXT = re.compile(
    rf"(?:try again|retry|retrying|available again|resets?) (?:in|after) (?:about )?"
    rf"({_DURATION.pattern})",
    re.IGNORECASE | re.ASCII,
)
_FIELDS = ("retry_after", "retry_after_seconds", "resets_in_seconds")

# Which header tells what remains, and which one when it is renewed.
_BUCKETS = tuple(
    (f"anthropic-ratelimit-{what}-remaining", f"anthropic-ratelimit-{what}-reset")
    for what in ("requests", "tokens", "input-tokens", "output-tokens")
) + tuple(
    (f"x-ratelimit-remaining-{what}", f"x-ratelimit-reset-{what}")
    for what in ("requests", "tokens")
)
_WINDOW = ("x-ratelimit-remaining", "x-ratelimit-reset")


def asked_wait(report: Report, headers: Mapping[str, str], *, now_s: float) -> float | None:
    """Return the seconds that a provider asks to wait, or None where it says nothing usable.

    Args:
        report: What the provider reports.
        headers: The response's headers, their names in lower case.
        now_s: Seconds since the epoch, for what is told as a point in time.
    """
    said = _said(report, headers, now_s)
    return next((wait_s for wait_s in said if wait_s is not None), None)


def _said(report: Report, headers: Mapping[str, str], now_s: float) -> Iterator[float | None]:
    milliseconds = _number(headers.get("retry-after-ms"))
    yield None if milliseconds is None else milliseconds / 1000
    yield parse_retry_after(headers.get("retry-after"), now_s=now_s)
    for detail in report.details:
        if str(detail.get("@type", "")).endswith("RetryInfo"):
            yield parse_duration(detail.get("retryDelay"))
    for name in _FIELDS:
        yield _number(report.fields.get(name))
    yield wait_in_text(report.message)
    yield _renewal(headers, now_s)
    yield _renewal(_passed_on(report), now_s)


def parse_retry_after(value: str | None, *, now_s: float) -> float | None:
    """Return the seconds that a Retry-After header asks for, or None where it says nothing usable.

    Both forms are read: seconds (fractions included) and an HTTP date, relative to `now_s`; and
    what servers send in their place: a duration ("30s"), an ISO date, a number in quotes, and the
    header twice. A past date is 0. A negative number, a malformed date or a word is no answer.
    """
    text = (value or "").strip().strip("\"'")
    if several := _SEVERAL.fullmatch(text):
        text = several[1]
    wait_s = _number(text)
    if wait_s is None:
        wait_s = parse_duration(text)
    if wait_s is None:
        wait_s = _until_date(text, now_s)
    return _until_http_date(text, now_s) if wait_s is None else wait_s


def _until_http_date(text: str, now_s: float) -> float | None:
    try:
        when = email.utils.parsedate_to_datetime(text)
        # An HTTP date is in GMT, also where it does not say so.
        when = when if when.tzinfo else when.replace(tzinfo=UTC)
        return max(0.0, when.timestamp() - now_s)
    except (ValueError, TypeError, IndexError, OverflowError, OSError):
        return None


def parse_duration(value: object) -> float | None:
    """Return the seconds of a duration such as `34.07s`, `20ms`, `1m2.5s` or `6 minutes`."""
    text = value.strip() if isinstance(value, str) else ""
    if not _DURATION.fullmatch(text):
        return None

    return sum(
        float(number) * _UNITS_S["ms" if unit.lower() == "milli" else unit.lower()]
        for number, unit in _PARTS.findall(text)
    )


def wait_in_text(message: str) -> float | None:
    """Return the seconds that a message asks to wait ("Please try again in 1m2.5s")."""
    match = _IN_TEXT.search(message)
    return parse_duration(match[1].rstrip(" ,")) if match else None


def _number(value: object) -> float | None:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(min(value, _LONGEST_S)) if value >= 0 else None

    text = value.strip() if isinstance(value, str) else ""
    return min(float(text), _LONGEST_S) if _NUMBER.fullmatch(text) else None


def _renewal(headers: Mapping[str, str], now_s: float) -> float | None:
    """Return when the limit that is exhausted is renewed, in seconds from now."""
    refills = [
        wait_s
        for remaining, reset in _BUCKETS
        if _number(headers.get(remaining)) == 0
        and (wait_s := _until(headers.get(reset), now_s)) is not None
    ]
    if refills:
        return max(refills) if max(refills) <= _LONGEST_REFILL_S else None
    if _number(headers.get(_WINDOW[0])) == 0:
        return _until(headers.get(_WINDOW[1]), now_s)

    return None


def _passed_on(report: Report) -> Mapping[str, str]:
    """Return the headers that OpenRouter repeats in the error's metadata."""
    metadata = report.fields.get("metadata")
    headers = metadata.get("headers") if isinstance(metadata, dict) else None
    if not isinstance(headers, dict):
        return {}

    return {str(name).lower(): str(value) for name, value in headers.items()}


def _until(value: str | None, now_s: float) -> float | None:
    """Return the seconds until a renewal: a duration, or a point in time in one of three forms."""
    number = _number(value)
    if number is None:
        return parse_duration(value) if _is_duration(value) else _until_date(value, now_s)
    if number > 1e11:  # milliseconds since the epoch
        return max(0.0, number / 1000 - now_s)
    if number > 1e9:
        return max(0.0, number - now_s)
    return number


def _is_duration(value: str | None) -> bool:
    return value is not None and _DURATION.fullmatch(value.strip()) is not None


def _until_date(value: str | None, now_s: float) -> float | None:
    try:
        when = datetime.fromisoformat(value or "")
        when = when if when.tzinfo else when.replace(tzinfo=UTC)
        return max(0.0, when.timestamp() - now_s)
    except (ValueError, OverflowError):
        return None
