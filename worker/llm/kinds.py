"""What kind of failure a report tells of: one table for statuses, one for codes, one for wordings.

The codes are those of Anthropic (`overloaded_error`), OpenAI (`insufficient_quota`), Google
(`RESOURCE_EXHAUSTED`, and the reasons of its `ErrorInfo`) and of the servers that speak like one of
them. Wordings are read only where a provider has no code of its own for a kind.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, TypeAlias

from worker.llm.reports import PAGE, Report

Kind: TypeAlias = Literal[
    "unavailable",  # it may work in a moment: the only kind that is repeated
    "key",
    "account",  # it cannot pay
    "content",  # what is asked for, or answered, is against the provider's rules
    "address",  # no such route or model
    "redirect",
    "request",
]

_BY_CODE: Mapping[Kind, frozenset[str]] = {
    "content": frozenset(
        {
            "content_filter",
            "content_filtered",
            "content_policy_violation",
            "cyber_policy",
            *("data_inspection_failed", "datainspectionfailed"),  # DashScope
            "invalid_prompt",  # OpenAI, for prompts that its policy flags
            "moderation_blocked",
            "responsibleaipolicyviolation",  # Azure
        }
    ),
    "account": frozenset(
        {
            "arrearage",  # DashScope
            "billing_error",
            "billing_hard_limit_reached",
            "billing_not_active",
            "exceeded_current_quota_error",
            "insufficient_balance",
            "insufficient_credits",
            "insufficient_quota",
            "usage_not_included",
        }
    ),
    "key": frozenset(
        {
            "account_deactivated",
            "api_key_invalid",
            "api_key_service_blocked",
            "authentication_error",
            *("invalid_api_key", "invalidapikey"),
            "invalid_authentication",
            "permission_denied",
            "permission_error",
            "unauthenticated",
            "unauthorized",
        }
    ),
    "address": frozenset({"model_not_found", "not_found", "not_found_error"}),
    "unavailable": frozenset(
        {
            "overloaded",
            "overloaded_error",
            "rate_limit_error",
            "rate_limit_exceeded",
            "resource_exhausted",
            "server_error",
            "server_is_overloaded",
            "service_unavailable",
            "service_unavailable_error",
            "slow_down",
            "timeout_error",
            "too_many_requests",
            "unavailable",
        }
    ),
    "request": frozenset(
        {
            "bad_request",
            "badrequesterror",
            "failed_precondition",
            "invalid_argument",
            *("invalid_parameter", "invalidparameter"),  # DashScope
            "invalid_request",
            "invalid_request_error",
            "invalid_value",
            "out_of_range",
            "request_forbidden",  # OpenAI, for a country it does not serve
            "unimplemented",
            "unsupported_country_region_territory",
            "unsupported_parameter",
            "unsupported_value",
            "validation_error",
        }
    ),
}

# Wordings of those that have one code for everything: Anthropic's `invalid_request_error`, xAI's
# "invalid argument", Google's INVALID_ARGUMENT, and servers with no codes at all.
_WORDINGS: Mapping[Kind, tuple[str, ...]] = {
    "content": (
        r"content (?:management|filter(?:ing)?) policy",
        r"flagged as potentially violating",
        r"blocked by (?:content|our safety)",
    ),
    "account": (
        r"credit balance is too low",
        r"insufficient (?:balance|credits?|funds)",
        r"requires more credits",
        r"reached your specified API usage limits",
        r"(?:spend(?:ing)?|usage|billing) (?:hard )?limit (?:has been |was )?reached",
    ),
    "key": (
        r"(?:incorrect|invalid|unknown|malformed) (?:x-)?api.?key",
        r"api.?key (?:is )?(?:not valid|not found|invalid|expired|has expired|missing)",
    ),
}
_BY_WORDS = {kind: re.compile("|".join(words), re.IGNORECASE) for kind, words in _WORDINGS.items()}

_STATUSES: Mapping[int, Kind] = {
    401: "key",
    402: "account",
    403: "key",
    404: "address",
    405: "address",
    408: "unavailable",
    409: "unavailable",  # Anthropic's and OpenAI's conflict of two requests
    425: "unavailable",
    429: "unavailable",
    498: "unavailable",  # Groq: no capacity in the flexible tier
    499: "unavailable",  # Google: CANCELLED
    501: "request",
    505: "request",
}
# A request that is refused for what is in it: only there do the words decide.
_ABOUT_THE_REQUEST = frozenset({None, 400, 403, 422})

_HOPELESS = re.compile(r"requires more (?:system )?memory|unable to load model", re.IGNORECASE)
_NOTHING_ALLOWED = re.compile(r"\blimit: ?0(?![\d.])", re.IGNORECASE)
_DAILY = re.compile(
    r"\bper[ -_]day\b|\bdaily\b|\((?:TPD|RPD)\)|usage limit (?:has been )?reached", re.IGNORECASE
)


def kind_of(report: Report) -> Kind:
    """Return what kind of failure `report` tells of. An unknown one inside a stream may pass."""
    status = report.status
    if status is not None and status < 400:
        return "redirect"

    refused = _refused_by_words_or_code(report)
    if refused is not None:
        return refused

    if status is None:
        return _by_code(report, "request") or "unavailable"
    if status in {400, 422}:
        return _by_code(report, "unavailable") or "request"
    if _HOPELESS.search(report.message) or (status == 403 and _is_of_the_way(report)):
        return "request"

    return _STATUSES.get(status, "unavailable" if status >= 500 else "request")


def is_for_long(report: Report, *, wait_s: float | None) -> bool:
    """Tell whether a limit will not be lifted by waiting: that of a day, or one of nothing at all.

    Google names a limit of a minute's length as the wait for that of a day, too: its quota's name
    decides. Others give the true wait with a daily limit, and that one decides.
    """
    names = [
        str(violation.get("quotaId", ""))
        for detail in report.details
        for violation in _list(detail.get("violations"))
        if isinstance(violation, dict)
    ]
    if any("PerDay" in name or "Daily" in name for name in names):
        return True
    if _NOTHING_ALLOWED.search(report.message):
        return True

    is_named = _DAILY.search(report.message) or "usage_limit_reached" in report.codes
    return wait_s is None and bool(is_named)


def _refused_by_words_or_code(report: Report) -> Kind | None:
    kinds: tuple[Kind, ...] = ("content", "account", "key")
    if report.status == 403 and _is_flagged(report):
        return "content"

    for kind in kinds:
        if _by_code(report, kind):
            return kind
        if report.status in _ABOUT_THE_REQUEST and _BY_WORDS[kind].search(report.message):
            return kind
    if report.status is None and _by_code(report, "address"):
        return "address"

    return None


def _is_of_the_way(report: Report) -> bool:
    """Tell whether a 403 is no word on the key: a firewall's page, or a country that is barred."""
    return report.message.startswith(PAGE) or bool(_by_code(report, "request"))


def _by_code(report: Report, kind: Kind) -> Kind | None:
    return None if _BY_CODE[kind].isdisjoint(report.codes) else kind


def _is_flagged(report: Report) -> bool:
    """Tell whether OpenRouter's moderation says no: it has the status of a refused key."""
    metadata = report.fields.get("metadata")
    return isinstance(metadata, dict) and ("flagged_input" in metadata or "reasons" in metadata)


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
