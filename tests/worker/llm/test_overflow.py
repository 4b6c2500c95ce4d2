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


# One message each, as a 400 of OpenAI's shape says it; and the window, where it is named.
WORDINGS = [
    (
        "vLLM, newer",
        (
            "This model's maximum context length is 262144 tokens. However, you requested 0 output"
            " tokens and your prompt contains at least 262145 input tokens, for a total of at"
            " least 262145 tokens. (parameter=input_tokens, value=262145)"
        ),
        262144,
    ),
    (
        "vLLM, newer, a cap below half",
        (
            "This model's maximum context length is 262144 tokens. However, you requested 128000"
            " output tokens and your prompt contains at least 134145 input tokens."
        ),
        262144,
    ),
    (
        "LiteLLM",
        "Requested token count exceeds the model's maximum context length of 131072 tokens.",
        131072,
    ),
    (
        "OpenAI-compatible",
        "Input length (265330) exceeds model's maximum context length (262144).",
        262144,
    ),
    (
        "Poolside",
        "Input length 131393 exceeds the maximum allowed input length of 131040 tokens.",
        131040,
    ),
    (
        "Together",
        "The input (516368 tokens) is longer than the model's context length (262144 tokens).",
        262144,
    ),
    (
        "LM Studio",
        (
            "The number of tokens to keep from the initial prompt is greater than the context"
            " length (n_keep: 13055>= n_ctx: 4096). Try to load the model with a larger context"
            " length."
        ),
        4096,
    ),
    (
        "LM Studio, without numbers",
        "The number of tokens to keep from the initial prompt is greater than the context length.",
        None,
    ),
    ("LM Studio, newer", "Cannot truncate prompt with n_keep (15028) >= n_ctx (7424)", 7424),
    (
        "LM Studio, older",
        (
            "Trying to keep the first 10136 tokens when context the overflows. However, the model"
            " is loaded with context length of only 7866 tokens, which is not enough."
        ),
        7866,
    ),
    ("z.ai", "tokens in request more than max tokens allowed", None),
    ("z.ai, newer", "Prompt exceeds max length", None),
    ("Moonshot", "Your request exceeded model token limit: 262144 (requested: 300123)", 262144),
    ("MiniMax", "invalid params, context window exceeds limit", None),
    ("Bedrock", "ValidationException: Input is too long for requested model.", None),
    ("Bedrock, streamed", "ModelStreamErrorException: Input is too long", None),
    ("Bedrock, a limit", "Input exceeds the max input token limit", None),
    ("Cohere", "total tokens exceeds the model's max of 4096", 4096),
    ("Ollama, a proxy", "ollama error: context length exceeded, too many tokens", None),
    ("Vertex", "input token count exceeds the maximum number of input tokens allowed 4096", None),
    ("llama-cpp-python", "Requested tokens (600) exceed context window of 512", 512),
    ("ctransformers", "Number of tokens (2662) exceeded maximum context length (512).", 512),
    (
        "a configured size",
        "Prompt has 5,958,968 tokens, but the configured context size is 256,000",
        256000,
    ),
    ("DashScope", "Range of input length should be [1, 30720]", 30720),
    (
        "Cerebras",
        "Please reduce the length of the messages or completion. Current length is 9.",
        None,
    ),
]
OVERFLOWS += [
    (name, 400, {"error": {"message": message}}, limit) for name, message, limit in WORDINGS
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
        (
            400,
            (
                "This model's maximum context length is 131072 tokens. However, you requested"
                " 128000 output tokens and your prompt contains at least 3073 input tokens, for a"
                " total of at least 131073 tokens."
            ),
        ),
        (400, "Invalid value for 'temperature'"),
        (400, "The input is too long for this field"),
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
        (
            "This request would exceed the rate limit for your organization of 20,000 input"
            " tokens per minute. Please reduce the length of the prompt or the maximum tokens"
            " requested."
        ),
        "Too many tokens, please wait before trying again.",
    ],
)
def test_a_rate_limit_is_no_overflow(message: str) -> None:
    body = json.dumps({"error": {"message": message, "code": "rate_limit_exceeded"}})
    failure = classify(read_report(body, status=429), endpoint())
    assert isinstance(failure.error, ProviderUnavailable)
    assert failure.is_retryable


@pytest.mark.parametrize("status", [500, 503])
@pytest.mark.parametrize(
    "message",
    [
        "ThrottlingException: please reduce the length of the messages, too many requests",
        "rate limit: reduce the length of the messages or wait a minute",
    ],
)
def test_a_limit_that_a_proxy_passes_on_is_no_overflow(status: int, message: str) -> None:
    body = json.dumps({"error": {"message": message}})
    failure = classify(read_report(body, status=status), endpoint())
    assert isinstance(failure.error, ProviderUnavailable)


@pytest.mark.parametrize(
    "code",
    ["context_length_exceeded", "model_context_window_exceeded", "request_too_large"],
)
@pytest.mark.parametrize("where", ["code", "type", "upstream"])
def test_a_code_is_enough_wherever_it_stands(code: str, where: str) -> None:
    error: dict[str, object] = {"message": "no", "type": "invalid_request_error"}
    if where == "upstream":
        inner = json.dumps({"error": {"message": "no", "code": code}})
        error = {"message": "Provider returned error", "code": 400, "metadata": {"raw": inner}}
    else:
        error[where] = code
    failure = classify(read_report(json.dumps({"error": error}), status=400), endpoint())
    assert isinstance(failure.error, ContextOverflow)
