"""What a provider's error means: one of our errors, and whether the same request may be sent again.

Pure: statuses, headers and bodies in, typed errors out. The transport raises what is decided here.
"""

from __future__ import annotations

import email.utils
import json
import os
import re
from collections.abc import Mapping
from datetime import UTC
from typing import TYPE_CHECKING

from attrs import field, frozen

from worker.errors import (
    BadAnswer,
    ContextOverflow,
    ProviderError,
    ProviderRefused,
    ProviderUnavailable,
    ProviderUnreachable,
    StreamBroken,
)
from worker.llm.overflow import Overflow, find_overflow
from worker.text import clean_text, first_line

if TYPE_CHECKING:
    from worker.llm.endpoint import Endpoint
    from worker.llm.types import Answer

_MAX_MESSAGE_CHARS = 1000

_RETRYABLE_STATUSES = frozenset({408, 425, 429})
_NEVER_SERVED_STATUSES = frozenset({501, 505})

# Words that decide where there is no HTTP status (an error inside a 200 stream).
_REFUSING_CODES = frozenset(
    {
        "authentication_error",
        "billing_error",
        "content_filter",
        "content_policy_violation",
        "exceeded_current_quota_error",
        "failed_precondition",
        "insufficient_quota",
        "invalid_api_key",
        "invalid_argument",
        "invalid_prompt",
        "invalid_request",
        "invalid_request_error",
        "model_not_found",
        "not_found",
        "not_found_error",
        "permission_denied",
        "permission_error",
        "unauthenticated",
        "unsupported_parameter",
        "unsupported_value",
    }
)
# A limit that no waiting lifts: the account has no money left.
_QUOTA_CODES = frozenset({"insufficient_quota", "billing_error", "exceeded_current_quota_error"})

_UNAVAILABLE_HINT = "wait and try again, or use another model"


@frozen
class Report:
    """A provider's report of an error, in no provider's dialect."""

    message: str
    """The provider's own words; empty where it gave none."""
    status: int | None = None
    """The HTTP status, or the one that the report names inside a stream."""
    codes: tuple[str, ...] = ()
    """The provider's own words for the kind of error, most specific first."""
    fields: Mapping[str, object] = field(factory=dict, repr=False)
    """The error object itself."""


class ReportedError(Exception):
    """A stream carried the provider's report of an error instead of an answer."""

    def __init__(self, report: Report) -> None:
        super().__init__(report.message)
        self.report = report


@frozen
class Failure:
    """A failed request: the error it ends with, and whether the request may be sent again."""

    error: ProviderError
    is_retryable: bool = False
    retry_after_s: float | None = None


def read_report(body: str, *, status: int | None = None) -> Report:
    """Return what the body of an error says, be it JSON, a page, plain text or nothing."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return Report(_text_of_page(body), status)

    return report_of(value, status=status) or Report(first_line(body, _MAX_MESSAGE_CHARS), status)


def report_of(value: object, *, status: int | None = None) -> Report | None:
    """Return the report that a JSON value holds, or None where it reports no error.

    Known: `{"error": {…}}`, `{"error": "…"}`, `{"object": "error", …}`, `{"type": "error", …}`,
    `{"detail": …}`, a list of one of these, and, for a body that came with an error status, a bare
    `{"message": …}`.
    """
    if isinstance(value, list):
        value = value[0] if value else None
    if not isinstance(value, dict):
        return None

    inner = value.get("error")
    if isinstance(inner, str) and inner:
        return _report(value | {"message": inner}, status)
    if isinstance(inner, dict) and inner:
        return _report(inner, status)

    is_error = value.get("object") == "error" or value.get("type") == "error"
    if is_error or (status is not None and "message" in value):
        return _report(value, status)
    if "detail" in value and "choices" not in value:
        return _report(value | {"message": value["detail"]}, status)

    return None


def _report(fields: Mapping[str, object], status: int | None) -> Report:
    message = _words(fields.get("message"))
    # OpenRouter passes on what its upstream said: "Provider returned error" alone tells nothing.
    metadata = fields.get("metadata")
    if isinstance(metadata, dict) and metadata.get("raw"):
        upstream = _words(metadata["raw"])
        message = f"{message}: {upstream}" if message else upstream

    words = [fields.get(key) for key in ("code", "type", "status", "error_type")]
    codes = tuple(word.lower() for word in words if isinstance(word, str) and word)
    if status is None:
        status = next((number for number in map(_as_status, words) if number), None)
    return Report(clean_text(message), status, codes, fields)


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
    """Return the words of a body that is no JSON; of an HTML page, its title."""
    if not body.lstrip().startswith("<"):
        return first_line(clean_text(body), _MAX_MESSAGE_CHARS)

    title = re.search(r"<(title|h1)[^>]*>(.*?)</\1>", body, re.IGNORECASE | re.DOTALL)
    words = " ".join(title[2].split()) if title else ""
    return f'an HTML page, "{first_line(words)}"' if words else "an HTML page"


def classify(
    report: Report,
    endpoint: Endpoint,
    *,
    retry_after: str | None = None,
    now_s: float = 0.0,
    request_bytes: int = 0,
) -> Failure:
    """Return what `report` means. Its message has the key masked and names provider and status.

    Args:
        report: What the provider said.
        endpoint: Where the request went.
        retry_after: The header of that name, as received.
        now_s: Seconds since the epoch, for a `retry_after` that is a date.
        request_bytes: The size of the request, told where the provider said nothing at all.
    """
    overflow = find_overflow(
        report.message, status=report.status, codes=report.codes, body=report.fields
    )
    if overflow is not None:
        return Failure(_overflow_error(report, endpoint, overflow))

    if _is_retryable(report):
        wait_s = parse_retry_after(retry_after, now_s=now_s)
        error = ProviderUnavailable(
            _headline(endpoint, "is not available", report),
            provider=endpoint.provider,
            status=report.status,
            code=_code(report, endpoint),
            hint=_UNAVAILABLE_HINT,
        )
        error.retry_after_s = wait_s
        return Failure(error, is_retryable=True, retry_after_s=wait_s)

    return Failure(_refusal(report, endpoint, request_bytes))


def _is_retryable(report: Report) -> bool:
    if not _QUOTA_CODES.isdisjoint(report.codes):
        return False

    if report.status is None:
        return _REFUSING_CODES.isdisjoint(report.codes)

    is_server_error = report.status >= 500 and report.status not in _NEVER_SERVED_STATUSES
    return is_server_error or report.status in _RETRYABLE_STATUSES


def _overflow_error(report: Report, endpoint: Endpoint, overflow: Overflow) -> ContextOverflow:
    error = ContextOverflow(
        _headline(endpoint, "says that the prompt does not fit the model's window", report),
        provider=endpoint.provider,
        status=report.status,
        code=_code(report, endpoint),
        hint="compact the session, or use a model with a larger window",
    )
    error.limit_tokens = overflow.limit_tokens
    return error


def _refusal(report: Report, endpoint: Endpoint, request_bytes: int) -> ProviderRefused:
    what, hint = "refused the request", ""
    if report.status in {401, 403}:
        what = f"refused the key from {endpoint.key_source}"
        hint = f"check {endpoint.key_source}: is it current, and meant for this provider and model?"
        if not endpoint.key_text:
            what = "wants a key and none was sent"
            hint = "name one with api_key_env, api_key_file or api_key_command"
    elif report.status == 402 or not _QUOTA_CODES.isdisjoint(report.codes):
        hint = f"the account behind {endpoint.key_source} has no credit left"
    elif report.status is not None and report.status < 400:
        what = f"does not answer at {endpoint.shown_url}: it names another address"
        hint = "put the right address in provider.base_url; keys are not sent after a redirect"
    elif report.status in {404, 405}:
        what = f"knows no such address or model ({endpoint.shown_url}, {endpoint.model})"
        hint = "check provider.base_url and provider.model"

    message = _headline(endpoint, what, report)
    if not report.message:
        message += (
            f"; it gave no reason (model {endpoint.model}, request of {request_bytes:,} bytes)"
        )
        hint = hint or "a request that is too large is often refused like this"

    return ProviderRefused(
        message,
        provider=endpoint.provider,
        status=report.status,
        code=_code(report, endpoint),
        hint=hint,
    )


def _headline(endpoint: Endpoint, what: str, report: Report) -> str:
    status = f" ({report.status})" if report.status is not None else ""
    said = endpoint.mask(report.message)
    if len(said) > _MAX_MESSAGE_CHARS:
        said = said[:_MAX_MESSAGE_CHARS] + "…"

    return endpoint.mask(f"{endpoint.provider} {what}{status}") + (f": {said}" if said else "")


def _code(report: Report, endpoint: Endpoint) -> str | None:
    return endpoint.mask(report.codes[0]) if report.codes else None


def parse_retry_after(value: str | None, *, now_s: float) -> float | None:
    """Return the seconds that a Retry-After header asks for, or None where it says nothing usable.

    Both forms are read: seconds (fractions included) and an HTTP date, relative to `now_s`. A past
    date is 0. A negative number, a malformed date or a word is no answer.
    """
    text = (value or "").strip()
    if re.fullmatch(r"\d{1,15}(\.\d{1,9})?", text, re.ASCII):
        return float(text)

    try:
        when = email.utils.parsedate_to_datetime(text)
        # An HTTP date is in GMT, also where it does not say so.
        when = when if when.tzinfo else when.replace(tzinfo=UTC)
        return max(0.0, when.timestamp() - now_s)
    except (ValueError, TypeError, IndexError, OverflowError, OSError):
        return None


def unavailable(endpoint: Endpoint, what: str) -> Failure:
    """Return the failure of a connection that brought no answer: it may be tried again."""
    error = ProviderUnavailable(
        endpoint.mask(f"{endpoint.provider} {what}"),
        provider=endpoint.provider,
        hint=_UNAVAILABLE_HINT,
    )
    return Failure(error, is_retryable=True)


def unreachable(endpoint: Endpoint, cause: Exception) -> Failure:
    """Return the failure of a connection that could not be made."""
    why = _root_words(cause)
    error = ProviderUnreachable(
        f"no connection to {endpoint.provider} at {endpoint.shown_url} ({endpoint.mask(why)})",
        provider=endpoint.provider,
        hint="is the server running, and provider.base_url right?",
    )
    # A certificate does not become right by asking again.
    return Failure(error, is_retryable="CERTIFICATE" not in why.upper())


def _root_words(error: Exception) -> str:
    """Return why, in the system's own words where it gave any: wrappers say only that it failed."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, BaseExceptionGroup):  # one for each address of the host
            cause = cause.exceptions[0]
        elif isinstance(cause, OSError) and cause.strerror:
            # asyncio puts words of its own in the place of the system's; TLS and names have theirs.
            is_system = type(cause).__module__ == OSError.__module__ and bool(cause.errno)
            return clean_text(os.strerror(cause.errno or 0) if is_system else cause.strerror)
        else:
            cause = cause.__cause__ or cause.__context__

    return clean_text(str(error)) or type(error).__name__


def unusable(endpoint: Endpoint) -> Failure:
    """Return the failure of a request that cannot even be written. It quotes nothing of it."""
    return Failure(
        ProviderRefused(
            f"no request can be made to {endpoint.shown_url}: the address or a header is malformed",
            provider=endpoint.provider,
            hint="check provider.base_url (with http:// or https://) and the headers",
        )
    )


def after_attempts(failure: Failure, attempts: int) -> ProviderError:
    """Return the error that a request ends with after `attempts` of them; its message says so."""
    error, message = failure.error, failure.error.message
    if attempts > 1:
        message += f" (tried {attempts} times)"
    if failure.retry_after_s is not None and failure.retry_after_s >= 1:
        message += f"; it asks to wait {failure.retry_after_s:,.0f} s"

    return _say(error, message)


def masked(error: ProviderError, endpoint: Endpoint) -> ProviderError:
    """Return `error` with the key masked in its message."""
    return _say(error, endpoint.mask(error.message))


def _say(error: ProviderError, message: str) -> ProviderError:
    error.message = message
    error.args = (message,)
    return error


def stream_broken(
    message: str, *, provider: str, partial: Answer | None, cause: ProviderError | None = None
) -> StreamBroken:
    """Return a `StreamBroken` that carries `partial` and the facts of `cause`."""
    error = StreamBroken(
        message,
        provider=provider,
        status=cause.status if cause else None,
        code=cause.code if cause else None,
        hint=cause.hint if cause else "what had arrived is kept; ask again to go on",
    )
    error.partial = partial
    return error


def not_json(provider: str, data: str) -> BadAnswer:
    """Return the error for data that should have been a JSON object."""
    return bad_answer(
        provider, f"answered something that is not its protocol: {first_line(data)!r}"
    )


def bad_answer(provider: str, what: str) -> BadAnswer:
    """Return the error for an answer that is not the provider's protocol."""
    return BadAnswer(
        f"{provider} {what}",
        provider=provider,
        hint="check provider.kind and provider.base_url",
    )
