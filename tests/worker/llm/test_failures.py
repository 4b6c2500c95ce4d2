"""What each provider's errors mean: by status, by code, by words, and inside a stream."""

from __future__ import annotations

import json
from typing import Any, Literal, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.worker.llm.client import KEY, endpoint
from worker.errors import ContextOverflow, ProviderRefused, ProviderUnavailable
from worker.llm.failures import Failure, classify
from worker.llm.reports import read_report, report_of

Meaning: TypeAlias = Literal[
    "retry", "allowance", "key", "account", "content", "address", "request", "overflow"
]


def anthropic(kind: str, message: str = "words") -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


def openai(message: str = "words", **fields: Any) -> dict[str, Any]:
    return {"error": {"message": message, "type": None, "param": None, "code": None, **fields}}


def gemini(
    code: int, status: str, message: str = "words", *details: dict[str, Any]
) -> dict[str, Any]:
    error = {"code": code, "message": message, "status": status}
    return {"error": error | ({"details": list(details)} if details else {})}


def google_reason(reason: str) -> dict[str, Any]:
    kind = "type.googleapis.com/google.rpc.ErrorInfo"
    return {"@type": kind, "reason": reason, "domain": "googleapis.com"}


def google_quota(*names: str) -> dict[str, Any]:
    violations = [{"quotaMetric": "requests", "quotaId": name} for name in names]
    return {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": violations}


def google_wait(delay: str) -> dict[str, Any]:
    return {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}


def openrouter(code: int, message: str, **metadata: Any) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "metadata": metadata}, "user_id": "u"}


PER_MINUTE = "GenerateRequestsPerMinutePerProjectPerModel-FreeTier"
PER_DAY = "GenerateRequestsPerDayPerProjectPerModel-FreeTier"
EXCEEDED = "You exceeded your current quota, please check your plan and billing details."

# What was answered, by status and body, and what it means.
ANSWERS: list[tuple[str, int, object, Meaning]] = [
    # Anthropic
    ("anthropic", 529, anthropic("overloaded_error", "Overloaded"), "retry"),
    ("anthropic", 429, anthropic("rate_limit_error"), "retry"),
    ("anthropic", 500, anthropic("api_error"), "retry"),
    ("anthropic", 504, anthropic("timeout_error"), "retry"),
    ("anthropic", 409, anthropic("invalid_request_error"), "retry"),
    ("anthropic", 413, anthropic("request_too_large", "Request exceeds the maximum"), "overflow"),
    ("anthropic", 400, anthropic("invalid_request_error", "messages: at least one"), "request"),
    ("anthropic", 401, anthropic("authentication_error", "invalid x-api-key"), "key"),
    ("anthropic", 403, anthropic("permission_error"), "key"),
    ("anthropic", 404, anthropic("not_found_error", "model: claude-x"), "address"),
    ("anthropic", 402, anthropic("billing_error"), "account"),
    (
        "anthropic",
        400,
        anthropic("invalid_request_error", "Your credit balance is too low to access the API."),
        "account",
    ),
    (
        "anthropic",
        400,
        anthropic("invalid_request_error", "You have reached your specified API usage limits."),
        "account",
    ),
    (
        "anthropic",
        400,
        anthropic("invalid_request_error", "Output blocked by content filtering policy"),
        "content",
    ),
    # A proxy that calls everything a 400.
    ("anthropic", 400, anthropic("overloaded_error", "Overloaded"), "retry"),
    # OpenAI
    ("openai", 429, openai(type="tokens", code="rate_limit_exceeded"), "retry"),
    (
        "openai",
        429,
        openai(EXCEEDED, type="insufficient_quota", code="insufficient_quota"),
        "account",
    ),
    ("openai", 400, openai(code="context_length_exceeded"), "overflow"),
    ("openai", 500, openai(type="server_error"), "retry"),
    ("openai", 503, openai(type="service_unavailable_error", code="server_is_overloaded"), "retry"),
    ("openai", 503, openai(code="slow_down"), "retry"),
    ("openai", 400, openai(type="invalid_request_error", code="invalid_prompt"), "content"),
    ("openai", 400, openai(code="content_policy_violation"), "content"),
    ("openai", 400, openai(code="cyber_policy"), "content"),
    (
        "openai",
        400,
        openai("Invalid prompt: flagged as potentially violating our usage policy."),
        "content",
    ),
    ("openai", 401, openai(f"Incorrect API key provided: {KEY}", code="invalid_api_key"), "key"),
    ("openai", 403, openai(code="unsupported_country_region_territory"), "request"),
    ("openai", 404, openai(code="model_not_found"), "address"),
    ("openai", 400, openai(type="invalid_request_error", param="messages"), "request"),
    ("openai", 429, openai(type="usage_limit_reached", resets_in_seconds=86400), "retry"),
    ("openai", 429, openai(type="usage_limit_reached"), "allowance"),
    ("openai", 429, openai(type="usage_not_included"), "account"),
    # Azure
    (
        "azure",
        400,
        openai(
            "The response was filtered due to the prompt triggering Azure OpenAI's content"
            " management policy.",
            param="prompt",
            code="content_filter",
            status=400,
            innererror={"code": "ResponsibleAIPolicyViolation"},
        ),
        "content",
    ),
    ("azure", 429, openai("Please retry after 6 seconds.", code="429"), "retry"),
    # Gemini
    ("gemini", 429, gemini(429, "RESOURCE_EXHAUSTED"), "retry"),
    ("gemini", 429, [gemini(429, "RESOURCE_EXHAUSTED")], "retry"),
    (
        "gemini",
        429,
        gemini(429, "RESOURCE_EXHAUSTED", EXCEEDED, google_quota(PER_MINUTE), google_wait("26s")),
        "retry",
    ),
    (
        "gemini",
        429,
        gemini(
            429,
            "RESOURCE_EXHAUSTED",
            EXCEEDED,
            google_quota(PER_MINUTE, PER_DAY),
            google_wait("26s"),
        ),
        "allowance",
    ),
    (
        "gemini",
        429,
        gemini(429, "RESOURCE_EXHAUSTED", "Quota exceeded for metric: m, limit: 0, model: g"),
        "allowance",
    ),
    ("gemini", 503, gemini(503, "UNAVAILABLE", "The model is overloaded."), "retry"),
    ("gemini", 500, gemini(500, "INTERNAL"), "retry"),
    ("gemini", 504, gemini(504, "DEADLINE_EXCEEDED"), "retry"),
    ("gemini", 499, gemini(499, "CANCELLED"), "retry"),
    (
        "gemini",
        400,
        gemini(400, "FAILED_PRECONDITION", "User location is not supported for the API use."),
        "request",
    ),
    (
        "gemini",
        400,
        gemini(
            400,
            "INVALID_ARGUMENT",
            "API key not valid. Please pass a valid API key.",
            google_reason("API_KEY_INVALID"),
        ),
        "key",
    ),
    ("gemini", 400, gemini(400, "INVALID_ARGUMENT", "API key expired. Renew the API key."), "key"),
    ("gemini", 400, [gemini(400, "INVALID_ARGUMENT", "API Key not found.")], "key"),
    ("gemini", 400, gemini(400, "INVALID_ARGUMENT", "contents is not specified"), "request"),
    ("gemini", 403, gemini(403, "PERMISSION_DENIED"), "key"),
    ("gemini", 401, gemini(401, "UNAUTHENTICATED"), "key"),
    ("gemini", 404, gemini(404, "NOT_FOUND", "models/x is not found for API version"), "address"),
    (
        "gemini",
        400,
        [
            gemini(
                400,
                "INVALID_ARGUMENT",
                "The input token count (9) exceeds the maximum number of tokens allowed (8).",
            )
        ],
        "overflow",
    ),
    # Ollama
    ("ollama", 404, {"error": "model 'x' not found"}, "address"),
    ("ollama", 400, {"error": "registry.ollama.ai/library/m does not support tools"}, "request"),
    (
        "ollama",
        500,
        {"error": "model requires more system memory (5 GiB) than is there"},
        "request",
    ),
    ("ollama", 500, {"error": "llama runner process has terminated"}, "retry"),
    ("ollama", 503, {"error": "server busy, please try again. maximum pending requests"}, "retry"),
    ("ollama", 401, {"error": "unauthorized"}, "key"),
    # OpenRouter
    ("openrouter", 402, openrouter(402, "This request requires more credits"), "account"),
    ("openrouter", 403, openrouter(403, "flagged", reasons=["x"], flagged_input="…"), "content"),
    ("openrouter", 403, openrouter(403, "Key limit exceeded"), "key"),
    ("openrouter", 408, openrouter(408, "Your request timed out"), "retry"),
    (
        "openrouter",
        429,
        openrouter(429, "Provider returned error", raw="m is temporarily rate-limited upstream"),
        "retry",
    ),
    ("openrouter", 429, openrouter(429, "Rate limit exceeded: free-models-per-day."), "allowance"),
    ("openrouter", 502, openrouter(502, "Provider returned error", raw="ERROR"), "retry"),
    (
        "openrouter",
        400,
        openrouter(400, "Provider returned error", raw=json.dumps(anthropic("overloaded_error"))),
        "retry",
    ),
    # Others that speak like one of them
    ("groq", 498, openai("capacity exceeded"), "retry"),
    (
        "groq",
        429,
        openai("on tokens per day (TPD): Limit 5, Used 5. Please try again in 14m24s."),
        "retry",
    ),
    ("groq", 429, openai("Rate limit reached on requests per day (RPD): Limit 5"), "allowance"),
    (
        "xai",
        400,
        {
            "code": "Client specified an invalid argument",
            "error": "Incorrect API key provided: xa***. You can obtain an API key",
        },
        "key",
    ),
    ("deepseek", 402, openai("Insufficient Balance", type="unknown_error"), "account"),
    ("mistral", 422, {"detail": [{"loc": ["body"], "msg": "field required"}]}, "request"),
    ("moonshot", 429, openai(type="exceeded_current_quota_error"), "account"),
    ("dashscope", 400, {"code": "DataInspectionFailed", "message": "inappropriate"}, "content"),
    ("dashscope", 400, openai(code="data_inspection_failed"), "content"),
    ("a proxy", 502, "<html><title>502 Bad Gateway</title></html>", "retry"),
    ("a proxy", 400, openai("Insufficient credits"), "account"),
    ("a proxy", 501, openai("no such method"), "request"),
    ("a proxy", 418, "I'm a teapot", "request"),
    ("a proxy", 503, "", "retry"),
    ("a firewall", 403, "<html><title>Just a moment...</title></html>", "request"),
    ("a firewall", 401, "<html><title>401 Authorization Required</title></html>", "key"),
    ("a proxy", 400, "Error code: 400 - {'code': 'context_length_exceeded'}", "overflow"),
    (
        "a gateway",
        400,
        {"error": [{"message": "m", "code": "context_length_exceeded"}]},
        "overflow",
    ),
    ("a gateway", 400, {"errors": [{"code": 10000, "message": "Invalid API key"}]}, "key"),
    ("a gateway", 400, {"error": {"msg": "Incorrect API key provided"}}, "key"),
    (
        "aws",
        400,
        "<Error><Message>Input is too long for requested model</Message></Error>",
        "overflow",
    ),
    ("aws", 400, {"Message": "Input is too long for requested model."}, "overflow"),
    *(
        ("cloudflare", status, "<html><title>x | 5xx</title></html>", "retry")
        for status in range(520, 531)
    ),
    *(("anyone", status, "", "request") for status in (406, 407, 410, 415, 421, 431, 451, 505)),
    *(("anyone", status, "", "retry") for status in (408, 425, 498, 499, 507, 599)),
]


def meaning_of(failure: Failure) -> Meaning:
    """What a failure comes to, in one word."""
    error = failure.error
    if isinstance(error, ContextOverflow):
        return "overflow"
    if isinstance(error, ProviderUnavailable):
        return "retry" if failure.is_retryable else "allowance"

    assert isinstance(error, ProviderRefused)
    assert not failure.is_retryable
    assert error.is_auth + error.is_account + error.is_policy <= 1
    if error.is_auth:
        return "key"
    if error.is_account:
        return "account"
    if error.is_policy:
        return "content"
    return "address" if "no such address or model" in error.message else "request"


def text_of(body: object) -> str:
    return body if isinstance(body, str) else json.dumps(body)


@pytest.mark.parametrize(
    ("status", "body", "meaning"),
    [
        pytest.param(status, body, meaning, id=f"{who} {status} {text_of(body)[:60]}: {meaning}")
        for who, status, body, meaning in ANSWERS
    ],
)
def test_an_answer_with_an_error_status(status: int, body: object, meaning: Meaning) -> None:
    failure = classify(read_report(text_of(body), status=status), endpoint())
    assert meaning_of(failure) == meaning
    assert failure.error.status == status
    assert KEY not in failure.error.message


# The same inside of a 200: there is no status but what the body says.
STREAMED: list[tuple[str, object, Meaning]] = [
    ("anthropic", anthropic("overloaded_error", "Overloaded"), "retry"),
    ("anthropic", anthropic("api_error"), "retry"),
    ("anthropic", anthropic("rate_limit_error"), "retry"),
    ("anthropic", anthropic("timeout_error"), "retry"),
    ("anthropic", anthropic("invalid_request_error"), "request"),
    ("anthropic", anthropic("authentication_error"), "key"),
    ("anthropic", anthropic("permission_error"), "key"),
    ("anthropic", anthropic("billing_error"), "account"),
    ("anthropic", anthropic("not_found_error"), "address"),
    ("anthropic", anthropic("request_too_large"), "overflow"),
    ("openai", openai(code="server_is_overloaded", type="service_unavailable_error"), "retry"),
    ("openai", {"type": "error", "code": "server_error", "message": "m", "param": None}, "retry"),
    ("openai", {"type": "error", "code": "rate_limit_exceeded", "message": "m"}, "retry"),
    ("openai", openai(code="insufficient_quota"), "account"),
    ("openai", openai(code="invalid_prompt"), "content"),
    ("openai", openai(type="invalid_request_error"), "request"),
    ("openai", openai(code="context_length_exceeded"), "overflow"),
    ("gemini", gemini(503, "UNAVAILABLE"), "retry"),
    ("gemini", [gemini(429, "RESOURCE_EXHAUSTED", "m", google_quota(PER_DAY))], "allowance"),
    ("gemini", gemini(400, "INVALID_ARGUMENT"), "request"),
    ("gemini", gemini(400, "INVALID_ARGUMENT", "API key not valid."), "key"),
    ("openrouter", openrouter(502, "Provider disconnected"), "retry"),
    ("openrouter", openrouter(400, "bad field"), "request"),
    ("openrouter", openrouter(429, "Provider returned error", raw="slow down"), "retry"),
    ("ollama", {"error": "an error was encountered while running the model"}, "retry"),
    ("anyone", {"error": "something unheard of"}, "retry"),
    ("anyone", {"error": {"code": "new_code", "message": "unheard of"}}, "retry"),
    ("anyone", {"error": [{"message": "m", "code": 400}]}, "request"),
    ("anyone", {"error": ["no capacity"]}, "retry"),
    ("anyone", {"error": True, "message": "invalid api key"}, "key"),
    ("anyone", {"error": 400, "message": "m"}, "request"),
    ("anyone", {"error": {"code": 400, "msg": "credit balance is too low"}}, "account"),
    ("anyone", {"success": False, "errors": [{"code": 401, "message": "m"}]}, "key"),
    ("dashscope", {"code": "InvalidParameter", "message": "m", "request_id": "r"}, "request"),
    ("dashscope", {"code": "Arrearage", "message": "m", "request_id": "r"}, "account"),
    (
        "minimax",
        {"base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}},
        "account",
    ),
    (
        "minimax",
        {"base_resp": {"status_code": 2013, "status_msg": "context window exceeds limit"}},
        "overflow",
    ),
]


@pytest.mark.parametrize(
    ("body", "meaning"),
    [
        pytest.param(body, meaning, id=f"{who} {text_of(body)[:60]}: {meaning}")
        for who, body, meaning in STREAMED
    ],
)
def test_an_error_inside_a_stream(body: object, meaning: Meaning) -> None:
    report = report_of(body)
    assert report is not None
    assert meaning_of(classify(report, endpoint())) == meaning


# --- what is told -------------------------------------------------------------------------------


def failed(status: int, body: object, **headers: str) -> Failure:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return classify(read_report(text_of(body), status=status), endpoint(), headers=named)


@pytest.mark.parametrize(
    "value",
    [
        {"error": None, "message": "hello"},
        {"error": "", "errors": []},
        {"error": {}},
        {"error": False},
        {"error": 0},
        {"error": [None, "", {}]},
        {"code": 0, "message": "hello"},
        {"code": 200, "message": "success"},
        {"code": "OK", "message": "success"},
        {"code": "x", "message": "m", "choices": []},
        {"code": "x", "message": ""},
        {"detail": "m", "choices": []},
        {"detail": None},
        {"base_resp": {"status_code": 0, "status_msg": ""}},
        {"base_resp": None},
        {"message": {"content": "hello"}, "done": False},
        {},
        [],
        [[]],
        "error",
        7,
        None,
    ],
)
def test_what_is_no_report_is_not_taken_for_one(value: object) -> None:
    assert report_of(value) is None


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"error": ["one", "two"]}, "one"),
        ({"error": {"msg": "m"}}, "m"),
        ({"error": {"detail": "m"}}, "m"),
        ({"error": "invalid_client", "error_description": "m"}, "invalid_client"),
        ({"errors": [{"message": "m"}]}, "m"),
        ({"Message": "m"}, "m"),
        (
            "<?xml version='1.0'?><Error><Code>c</Code><Message>m\n n</Message></Error>",
            'an XML document, "m n"',
        ),
        ("<html><body><h1>Bad  Gateway</h1></body></html>", 'an HTML page, "Bad Gateway"'),
    ],
)
def test_the_words_of_a_report_are_found(body: object, words: str) -> None:
    assert read_report(text_of(body), status=400).message == words


def test_a_key_that_is_no_key_is_told_as_one_whatever_its_status() -> None:
    body = gemini(400, "INVALID_ARGUMENT", "API key not valid.", google_reason("API_KEY_INVALID"))
    error = failed(400, body).error
    assert "refused the key from the variable FAKE_KEY" in error.message
    assert "the variable FAKE_KEY" in error.hint
    assert error.code == "api_key_invalid"


def test_a_used_up_allowance_is_told_and_not_waited_for() -> None:
    body = gemini(429, "RESOURCE_EXHAUSTED", EXCEEDED, google_quota(PER_DAY), google_wait("26s"))
    failure = failed(429, body)
    assert not failure.is_retryable
    assert isinstance(failure.error, ProviderUnavailable)
    assert "allowance" in failure.error.hint
    assert "another model" in failure.error.hint


def test_a_declined_prompt_is_not_blamed_on_the_key() -> None:
    error = failed(403, openrouter(403, "Input was flagged", reasons=["violence"])).error
    assert "declined the request for its content" in error.message
    assert "FAKE_KEY" not in error.hint


def test_a_report_inside_a_report_is_unwrapped() -> None:
    inner = json.dumps(gemini(429, "RESOURCE_EXHAUSTED", "the inner words", google_wait("26s")))
    failure = failed(429, {"error": {"message": inner, "code": 429, "status": "Too Many Requests"}})
    assert failure.error.message.endswith("is not available (429): the inner words")
    assert failure.retry_after_s == 26.0


@pytest.mark.parametrize("status", [429, 500, 503, 529])
def test_a_provider_that_says_not_to_retry_is_believed(status: int) -> None:
    failure = failed(status, anthropic("rate_limit_error"), x_should_retry="false")
    assert isinstance(failure.error, ProviderUnavailable)
    assert not failure.is_retryable


def test_a_provider_that_says_to_retry_is_believed_unless_it_cannot_help() -> None:
    assert failed(400, openai("odd"), x_should_retry="true").is_retryable
    assert failed(500, openai("odd"), x_should_retry="nonsense").is_retryable
    for status, body in (
        (401, openai("no key")),
        (402, openai("no money")),
        (400, openai(code="invalid_prompt")),
        (400, openai(code="context_length_exceeded")),
        (404, openai(code="model_not_found")),
    ):
        assert not failed(status, body, x_should_retry="true").is_retryable


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=20),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["error", "message", "code", "type", "status", "details", "metadata", "raw"]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    ),
    st.none() | st.integers(300, 599),
)
def test_whatever_is_reported_means_something(body: object, status: int | None) -> None:
    report = read_report(json.dumps(body), status=status)
    failure = classify(report, endpoint(), headers={"retry-after": "5"})
    assert failure.error.message.startswith("openai_compatible ")
    assert failure.error.args == (failure.error.message,)
