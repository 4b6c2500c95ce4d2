"""What a provider's error means: one of our errors, and whether the same request may be sent again.

Pure: statuses, headers and reports in, typed errors out. The transport raises what is decided here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from attrs import frozen

from worker.errors import (
    BadAnswer,
    ContextOverflow,
    ProviderError,
    ProviderRefused,
    ProviderUnavailable,
    ProviderUnreachable,
    StreamBroken,
)
from worker.llm.kinds import Kind, is_for_long, kind_of
from worker.llm.overflow import Overflow, find_overflow
from worker.llm.refusals import RefusedOption, refused_option
from worker.llm.reports import MAX_MESSAGE_CHARS, Report, ReportedError, read_report, report_of
from worker.llm.waits import asked_wait
from worker.text import clean_text, first_line

if TYPE_CHECKING:
    from worker.llm.endpoint import Endpoint
    from worker.llm.types import Answer

__all__ = [
    "Failure",
    "Report",
    "ReportedError",
    "after_attempts",
    "bad_answer",
    "classify",
    "masked",
    "not_json",
    "read_report",
    "report_of",
    "stream_broken",
    "unavailable",
    "unreachable",
    "unusable",
]

_UNAVAILABLE_HINT = "wait and try again, or use another model"
_ALLOWANCE_HINT = (
    "the allowance is used up and no short wait renews it: raise the limit, or use another model"
)


@frozen
class Failure:
    """A failed request: the error it ends with, and whether the request may be sent again."""

    error: ProviderError
    is_retryable: bool = False
    retry_after_s: float | None = None
    refused: RefusedOption | None = None
    """What was refused by name; without it the request may be sent once more."""


def classify(
    report: Report,
    endpoint: Endpoint,
    *,
    headers: Mapping[str, str] | None = None,
    now_s: float = 0.0,
    request_bytes: int = 0,
) -> Failure:
    """Return what `report` means. Its message has the key masked and names provider and status.

    Args:
        report: What the provider said.
        endpoint: Where the request went.
        headers: The response's headers, their names in lower case.
        now_s: Seconds since the epoch, for a wait that is told as a point in time.
        request_bytes: The size of the request, told where the provider said nothing at all.
    """
    overflow = find_overflow(
        report.message, status=report.status, codes=report.codes, body=report.fields
    )
    if overflow is not None:
        return Failure(_overflow_error(report, endpoint, overflow))

    headers = headers or {}
    kind = kind_of(report)
    # Anthropic and OpenAI know best of their own failures; it is no key to a refused account.
    verdict = headers.get("x-should-retry", "").strip().lower()
    if kind == "unavailable" or (kind == "request" and verdict == "true"):
        wait_s = asked_wait(report, headers, now_s=now_s)
        is_long = is_for_long(report, wait_s=wait_s)
        return Failure(
            _unavailable_error(report, endpoint, wait_s, is_long=is_long),
            is_retryable=verdict != "false" and not is_long,
            retry_after_s=wait_s,
        )

    error = _refusal(report, endpoint, kind, request_bytes)
    return Failure(error, refused=refused_option(report) if kind == "request" else None)


def _unavailable_error(
    report: Report, endpoint: Endpoint, wait_s: float | None, *, is_long: bool
) -> ProviderUnavailable:
    error = ProviderUnavailable(
        _headline(endpoint, "is not available", report),
        provider=endpoint.provider,
        status=report.status,
        code=_code(report, endpoint),
        hint=_ALLOWANCE_HINT if is_long else _UNAVAILABLE_HINT,
    )
    error.retry_after_s = wait_s
    return error


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


def _refusal(report: Report, endpoint: Endpoint, kind: Kind, request_bytes: int) -> ProviderRefused:
    what, hint = _what_and_hint(kind, endpoint)
    message = _headline(endpoint, what, report)
    if not report.message:
        message += (
            f"; it gave no reason (model {endpoint.model}, request of {request_bytes:,} bytes)"
        )
        hint = hint or "a request that is too large is often refused like this"

    error = ProviderRefused(
        message,
        provider=endpoint.provider,
        status=report.status,
        code=_code(report, endpoint),
        hint=hint,
    )
    error.is_auth = kind == "key"
    error.is_account = kind == "account"
    error.is_policy = kind == "content"
    return error


def _what_and_hint(kind: Kind, endpoint: Endpoint) -> tuple[str, str]:
    source = endpoint.key_source
    match kind:
        case "key" if not endpoint.key_text:
            return (
                "wants a key and none was sent",
                "name one with api_key_env, api_key_file or api_key_command",
            )
        case "key":
            return (
                f"refused the key from {source}",
                f"check {source}: is it current, and meant for this provider and model?",
            )
        case "account":
            whose = f"the account behind {source}" if endpoint.key_text else "the account"
            return "refused the request", f"{whose} has no credit left"
        case "content":
            return (
                "declined the request for its content",
                "say it in other words, or use another model",
            )
        case "redirect":
            return (
                f"does not answer at {endpoint.shown_url}: it names another address",
                "put the right address in provider.base_url; keys are not sent after a redirect",
            )
        case "address":
            return (
                f"knows no such address or model ({endpoint.shown_url}, {endpoint.model})",
                "check provider.base_url and provider.model",
            )
        case _:
            return "refused the request", ""


def _headline(endpoint: Endpoint, what: str, report: Report) -> str:
    status = f" ({report.status})" if report.status is not None else ""
    said = endpoint.mask(report.message)
    if len(said) > MAX_MESSAGE_CHARS:
        said = said[:MAX_MESSAGE_CHARS] + "…"

    return endpoint.mask(f"{endpoint.provider} {what}{status}") + (f": {said}" if said else "")


def _code(report: Report, endpoint: Endpoint) -> str | None:
    return endpoint.mask(report.codes[0]) if report.codes else None


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
    # A certificate does not become right by asking again, nor does a server that speaks no TLS.
    is_hopeless = "CERTIFICATE" in why.upper() or "WRONG_VERSION_NUMBER" in why
    return Failure(error, is_retryable=not is_hopeless)


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
