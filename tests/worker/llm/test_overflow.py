"""The wordings of a prompt that does not fit, as providers write them."""

from __future__ import annotations

import json

import pytest

from tests.worker.llm.client import endpoint
from worker.errors import ContextOverflow, ProviderRefused, ProviderUnavailable
from worker.llm.failures import classify, read_report

OVERFLOWS = [
    (
        "openai",
        400,
        {
            "error": {
                "message": "This model's maximum context length is 8192 tokens. However, your"
                " messages resulted in 9001 tokens. Please reduce the length of the messages.",
                "type": "invalid_request_error",
                "code": "context_length_exceeded",
            }
        },
        8192,
    ),
    (
        "openai, newer",
        400,
        {
            "error": {
                "message": "Input tokens exceed the configured limit of 272000 tokens. Your"
                " messages resulted in 300000 tokens.",
                "code": "context_length_exceeded",
            }
        },
        272000,
    ),
    (
        "openai, without numbers",
        400,
        {"error": {"message": "Your input exceeds the context window of this model."}},
        None,
    ),
    (
        "openai, a code alone",
        400,
        {"error": {"message": "no", "code": "context_length_exceeded"}},
        None,
    ),
    (
        "openai, above the allowance of a minute",
        429,
        {
            "error": {
                "message": "Request too large for gpt-4o on tokens per min (TPM): Limit 30000,"
                " Requested 35000.",
                "code": "rate_limit_exceeded",
            }
        },
        None,
    ),
    (
        "llama.cpp",
        400,
        {
            "error": {
                "code": 400,
                "message": "the request exceeds the available context size, try increasing it",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": 5000,
                "n_ctx": 4096,
            }
        },
        4096,
    ),
    (
        "llama.cpp, numbers in words",
        400,
        {
            "error": {
                "message": "request (5000 tokens) exceeds the available context size (4096 tokens)"
            }
        },
        4096,
    ),
    (
        "llama.cpp, while it generates",
        500,
        {"error": {"message": "Context size has been exceeded."}},
        None,
    ),
    (
        "vLLM",
        400,
        {
            "object": "error",
            "message": "This model's maximum context length is 4096 tokens. However, you requested"
            " 5000 tokens (4500 in the messages, 500 in the completion).",
            "type": "BadRequestError",
            "code": 400,
        },
        4096,
    ),
    (
        "vLLM, the prompt alone",
        400,
        {
            "object": "error",
            "message": "The decoder prompt (length 5000) is longer than the maximum model length"
            " of 4096. Make sure that `max_model_len` is no smaller.",
        },
        4096,
    ),
    (
        "Anthropic",
        400,
        {
            "type": "error",
            "error": {
                "type": "invalid_request_error",
                "message": "prompt is too long: 208310 tokens > 200000 maximum",
            },
        },
        200000,
    ),
    (
        "Anthropic, with the answer's room",
        400,
        {
            "error": {
                "message": "input length and `max_tokens` exceed context limit: 188240 + 21333 >"
                " 200000, decrease input length or `max_tokens` and try again"
            }
        },
        200000,
    ),
    (
        "Anthropic, by bytes",
        413,
        {"type": "error", "error": {"type": "request_too_large", "message": "Request exceeds"}},
        None,
    ),
    (
        "Gemini",
        400,
        {
            "error": {
                "code": 400,
                "message": "The input token count (1200000) exceeds the maximum number of tokens"
                " allowed (1048576).",
                "status": "INVALID_ARGUMENT",
            }
        },
        1048576,
    ),
    (
        "OpenRouter",
        400,
        {
            "error": {
                "message": "This endpoint's maximum context length is 32768 tokens. However, you"
                " requested about 40000 tokens (39000 of text input, 1000 in the output).",
                "code": 400,
            }
        },
        32768,
    ),
    (
        "OpenRouter, an upstream's words",
        400,
        {
            "error": {
                "message": "Provider returned error",
                "metadata": {
                    "raw": '{"error":{"message":"prompt is too long: 9 tokens > 8 maximum"}}'
                },
            }
        },
        8,
    ),
    (
        "Groq",
        400,
        {"error": {"message": "Please reduce the length of the messages or completion."}},
        None,
    ),
    (
        "DeepSeek",
        400,
        {
            "error": {
                "message": "This model's maximum context length is 65536 tokens. However, you"
                " requested 70000 tokens (66000 in the messages, 4000 in the completion)."
            }
        },
        65536,
    ),
    ("Ollama", 400, {"error": "prompt too long; exceeded max context length by 4 tokens"}, None),
    ("Ollama, embedding", 400, {"error": "input length exceeds the context length"}, None),
    (
        "xAI",
        400,
        {
            "error": "This model's maximum prompt length is 131072 but the request contains 140000"
            " tokens."
        },
        131072,
    ),
    (
        "Mistral",
        400,
        {
            "object": "error",
            "message": "Prompt contains 40000 tokens and 0 draft tokens, too large for model with"
            " 32768 maximum context length",
        },
        32768,
    ),
    (
        "Copilot",
        400,
        {
            "error": {
                "message": "prompt token count of 130000 exceeds the limit of 128000",
                "code": "model_max_prompt_tokens_exceeded",
            }
        },
        128000,
    ),
    (
        "Text Generation Inference",
        422,
        {
            "error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4097.",
            "error_type": "validation",
        },
        4097,
    ),
    (
        "a proxy that wraps it as 500",
        500,
        {
            "error": {
                "message": "litellm.InternalServerError: maximum context length is 8,192 tokens",
                "type": "transient",
            }
        },
        8192,
    ),
]


@pytest.mark.parametrize(
    ("status", "body", "limit"),
    [pytest.param(status, body, limit, id=name) for name, status, body, limit in OVERFLOWS],
)
def test_a_prompt_that_does_not_fit(
    status: int, body: dict[str, object], limit: int | None
) -> None:
    failure = classify(read_report(json.dumps(body), status=status), endpoint())
    assert isinstance(failure.error, ContextOverflow)
    assert failure.error.limit_tokens == limit
    assert not failure.is_retryable


def test_a_413_without_a_word_is_an_overflow() -> None:
    page = "<html><title>413 Request Entity Too Large</title></html>"
    failure = classify(read_report(page, status=413), endpoint())
    assert isinstance(failure.error, ContextOverflow)


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "max_tokens: 64000 > 8192, which is the maximum allowed number of output tokens"),
        (
            400,
            "max_tokens is too large: 100000. This model supports at most 16384 completion tokens",
        ),
        (
            400,
            (
                "'max_tokens' or 'max_completion_tokens' is too large: 4096. This model's maximum"
                " context length is 4096 tokens and your request has 500 input tokens (4096 > 3596)"
            ),
        ),
        (
            400,
            (
                "This model's maximum context length is 8192 tokens. However, you requested 9000"
                " tokens (1000 in the messages, 8000 in the completion)."
            ),
        ),
        (
            400,
            (
                "input length and `max_tokens` exceed context limit: 1000 + 199500 > 200000,"
                " decrease input length or `max_tokens` and try again"
            ),
        ),
        (400, "Invalid value for 'temperature'"),
        (400, "Token limit reached"),
        (401, "prompt is too long"),
    ],
)
def test_what_a_shorter_history_would_not_help(status: int, message: str) -> None:
    body = json.dumps({"error": {"message": message}})
    failure = classify(read_report(body, status=status), endpoint())
    assert isinstance(failure.error, ProviderRefused)


@pytest.mark.parametrize(
    "message",
    [
        "Rate limit reached for m on tokens per min: Limit 30000, Used 29000, Requested 2000.",
        "Number of request tokens has exceeded your per-minute rate limit",
    ],
)
def test_a_rate_limit_is_no_overflow(message: str) -> None:
    body = json.dumps({"error": {"message": message, "code": "rate_limit_exceeded"}})
    failure = classify(read_report(body, status=429), endpoint())
    assert isinstance(failure.error, ProviderUnavailable)
    assert failure.is_retryable
