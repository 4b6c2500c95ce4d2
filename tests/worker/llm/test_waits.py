"""How long a provider asks to wait, in every form in which one says so."""

from __future__ import annotations

import email.utils
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.worker.llm.client import NOW_S
from worker.llm.reports import Report, read_report
from worker.llm.waits import asked_wait, parse_duration

SAYS_NOTHING = Report("busy", 429)


def http_date(offset_s: float) -> str:
    return email.utils.formatdate(NOW_S + offset_s, usegmt=True)


def rfc_3339(offset_s: float) -> str:
    return datetime.fromtimestamp(NOW_S + offset_s, UTC).isoformat().replace("+00:00", "Z")


def wait_of(report: Report = SAYS_NOTHING, /, **headers: str) -> float | None:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return asked_wait(report, named, now_s=NOW_S)


# --- headers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "wait_s"),
    [
        ("7", 7.0),
        ("1.5", 1.5),
        (" 2 ", 2.0),
        ("0", 0.0),
        ("9999999999", 9999999999.0),
        ("9" * 23, 1e15),  # J03: of any length
        ("9" * 400, 1e15),
        ('"5"', 5.0),
        ("5, 5", 5.0),
        ("30s", 30.0),
        ("1m30s", 90.0),
        ("500ms", 0.5),
        (rfc_3339(9), 9.0),
        (rfc_3339(-9), 0.0),
        (http_date(12).replace(" GMT", ""), 12.0),
        ("Friday, 15-Jan-27 08:00:12 GMT", 12.0),
        ("Fri Jan 15 08:00:12 2027", 12.0),
        (http_date(12), 12.0),
        (http_date(-3600), 0.0),
        ("Wed, 99 Foo", None),
        ("Wed, 99 Nov 2026 99:99:99 GMT", None),
        *((text, None) for text in ("-5", "soon", "", "nan", "inf", "1e3", "٣", "0x10", "1_0")),
    ],
)
def test_retry_after(value: str, wait_s: float | None) -> None:
    found = wait_of(retry_after=value)
    assert found == (None if wait_s is None else pytest.approx(wait_s))


@pytest.mark.parametrize(
    ("milliseconds", "seconds", "wait_s"),
    [
        ("1500", None, 1.5),
        ("20", "9", 0.02),
        ("20.5", "9", 0.0205),
        ("-20", "9", 9.0),
        ("x", "9", 9.0),
        ("x", None, None),
    ],
)
def test_milliseconds_are_more_exact_than_seconds(
    milliseconds: str, seconds: str | None, wait_s: float | None
) -> None:
    headers = {"retry_after_ms": milliseconds} | ({"retry_after": seconds} if seconds else {})
    assert wait_of(**headers) == (None if wait_s is None else pytest.approx(wait_s))


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        # A bucket that is empty: when it is full again is known, and it is soon.
        ({"x_ratelimit_remaining_tokens": "0", "x_ratelimit_reset_tokens": "7.66s"}, 7.66),
        ({"x_ratelimit_remaining_requests": "0", "x_ratelimit_reset_requests": "12ms"}, 0.012),
        ({"x_ratelimit_remaining_tokens": "0", "x_ratelimit_reset_tokens": "9"}, 9.0),
        (
            {
                "anthropic_ratelimit_requests_remaining": "0",
                "anthropic_ratelimit_requests_reset": rfc_3339(20),
                "anthropic_ratelimit_tokens_remaining": "0",
                "anthropic_ratelimit_tokens_reset": rfc_3339(30),
            },
            30.0,
        ),
        # A full bucket is far off, and a request fits long before.
        ({"x_ratelimit_remaining_tokens": "0", "x_ratelimit_reset_tokens": "6m0s"}, None),
        # A bucket that is not empty is not what stopped us.
        ({"x_ratelimit_remaining_tokens": "5", "x_ratelimit_reset_tokens": "7s"}, None),
        ({"x_ratelimit_reset_tokens": "7s"}, None),
        ({"x_ratelimit_remaining_tokens": "-1", "x_ratelimit_reset_tokens": "0"}, None),
        ({"x_ratelimit_remaining_tokens": "0", "x_ratelimit_reset_tokens": "soon"}, None),
        # The end of a window is the end of it, however far.
        ({"x_ratelimit_remaining": "0", "x_ratelimit_reset": f"{NOW_S + 33:.0f}"}, 33.0),
        ({"x_ratelimit_remaining": "0", "x_ratelimit_reset": f"{(NOW_S + 33) * 1000:.0f}"}, 33.0),
        ({"x_ratelimit_remaining": "0", "x_ratelimit_reset": "33"}, 33.0),
        ({"x_ratelimit_remaining": "0", "x_ratelimit_reset": f"{NOW_S + 86400:.0f}"}, 86400.0),
        ({"x_ratelimit_remaining": "0", "x_ratelimit_reset": f"{NOW_S - 5:.0f}"}, 0.0),
        ({"x_ratelimit_remaining": "1", "x_ratelimit_reset": "33"}, None),
        # What asks for a wait outright is asked first.
        (
            {
                "retry_after": "2",
                "x_ratelimit_remaining_tokens": "0",
                "x_ratelimit_reset_tokens": "7s",
            },
            2.0,
        ),
    ],
)
def test_rate_limits(headers: dict[str, str], wait_s: float | None) -> None:
    assert wait_of(**headers) == (None if wait_s is None else pytest.approx(wait_s))


# --- the error itself ---------------------------------------------------------------------------


def google(retry_delay: object) -> dict[str, Any]:
    detail = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": retry_delay}
    return {
        "error": {
            "code": 429,
            "status": "RESOURCE_EXHAUSTED",
            "message": "You exceeded your current quota. Please retry in 99s.",
            "details": [{"@type": "type.googleapis.com/google.rpc.Help", "links": []}, detail],
        }
    }


def openrouter(reset: str) -> dict[str, Any]:
    headers = {"X-RateLimit-Limit": "20", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": reset}
    message = "Rate limit exceeded: free-models-per-min."
    return {"error": {"message": message, "code": 429, "metadata": {"headers": headers}}}


@pytest.mark.parametrize(
    ("body", "wait_s"),
    [
        (google("34.074824224s"), 34.074824224),
        (google("0.539477544s"), 0.539477544),
        (google("900ms"), 0.9),
        ([google("26s")], 26.0),
        (google("x"), 99.0),
        (google(None), 99.0),
        ({"error": {"message": json.dumps(google("26s"))}}, 26.0),
        (openrouter(f"{(NOW_S + 40) * 1000:.0f}"), 40.0),
        (openrouter("no number"), None),
        ({"error": {"message": "limit", "resets_in_seconds": 90}}, 90.0),
        ({"error": {"message": "limit", "retry_after": "3"}}, 3.0),
        ({"error": {"message": "limit", "retry_after": -3}}, None),
        ({"error": {"message": "limit", "retry_after": True}}, None),
    ],
)
def test_fields_of_the_error(body: object, wait_s: float | None) -> None:
    report = read_report(json.dumps(body), status=429)
    found = asked_wait(report, {}, now_s=NOW_S)
    assert found == (None if wait_s is None else pytest.approx(wait_s))


@pytest.mark.parametrize(
    ("message", "wait_s"),
    [
        ("Rate limit reached for m … Requested 1443. Please try again in 4.77s. Need more?", 4.77),
        ("on tokens per day (TPD): Limit 5. Please try again in 1m47.5854s. Visit", 107.5854),
        ("Limit: 10000 / min. Please try again in 6ms. Contact us", 0.006),
        ("Please try again in 1m2.5s", 62.5),
        ("Please try again in 20ms", 0.02),
        ("Please try again in 6m0s.", 360.0),
        ("Please try again in 1h2m3s.", 3723.0),
        ("Please retry after 6 seconds.", 6.0),
        ("Try again in 35 seconds.", 35.0),
        ("Retry after 1 minute.", 60.0),
        ("Please retry in 34.07s.", 34.07),
        ("Your quota will reset after 23h12m", 83520.0),
        ("Please try again later", None),
        ("Please try again in a moment", None),
        ("Please try again in 5", None),
        ("The retry in 5sessions failed", None),
    ],
)
def test_the_message(message: str, wait_s: float | None) -> None:
    found = asked_wait(Report(message, 429), {}, now_s=NOW_S)
    assert found == (None if wait_s is None else pytest.approx(wait_s))


def test_a_header_is_trusted_more_than_the_message() -> None:
    assert wait_of(Report("Please try again in 9s", 429), retry_after="3") == 3.0


@given(st.text(max_size=200), st.dictionaries(st.text(max_size=30), st.text(max_size=40)))
def test_whatever_is_said_a_wait_is_a_number_or_nothing(
    message: str, headers: dict[str, str]
) -> None:
    known = {"retry-after": message, "x-ratelimit-remaining": "0", "x-ratelimit-reset": message}
    wait_s = asked_wait(Report(message, 429), headers | known, now_s=NOW_S)
    assert wait_s is None or 0 <= wait_s < 1e16


@given(st.integers(0, 400), st.integers(0, 59), st.integers(0, 59), st.integers(0, 999))
def test_durations_add_up(hours: int, minutes: int, seconds: int, milliseconds: int) -> None:
    text = f"{hours}h{minutes}m{seconds}.{milliseconds:03}s"
    expected = hours * 3600 + minutes * 60 + seconds + milliseconds / 1000
    assert parse_duration(text) == pytest.approx(expected)
