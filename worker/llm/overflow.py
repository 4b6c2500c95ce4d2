"""How providers say that a prompt does not fit the window: one table, a row for each wording.

Wordings about the output cap alone ("max_tokens is too large for this model") are not in it on
purpose: a shorter history would not help.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from attrs import frozen

_CODES = frozenset(
    {
        "context_length_exceeded",  # OpenAI, Azure, Groq, OpenRouter, Together, Cerebras
        "context_window_exceeded",
        "exceed_context_size_error",  # llama.cpp
        "model_max_prompt_tokens_exceeded",  # GitHub Copilot
        "model_context_window_exceeded",  # Anthropic and z.ai, as a stop reason
        "prompt_too_long",
        "request_too_large",  # Anthropic, 413: by bytes, and a shorter history helps as well
        "string_above_max_length",  # OpenAI, for one message of over 10 MB
    }
)

_NUMBER = r"(?P<limit>\d[\d,_]*)"

# Who says it, and how. `limit` is the window, where it is named.
_WORDINGS = (
    ("OpenAI, Azure, DeepSeek, vLLM, OpenRouter", rf"maximum context length (?:is|of) {_NUMBER}"),
    ("OpenAI-compatible proxies", rf"exceeds (?:the )?model'?s maximum context length \({_NUMBER}"),
    ("OpenAI", rf"input tokens exceed the configured limit of {_NUMBER}"),
    ("OpenAI", r"(?:input|prompt|request|messages?) exceeds? the context window"),
    ("OpenAI and Groq: above the whole per-minute allowance", r"request too large for"),
    ("vLLM", rf"longer than the maximum model length of {_NUMBER}"),
    ("Anthropic", rf"prompt is too long: [\d,]+ tokens > {_NUMBER}"),
    ("Anthropic", rf"max_tokens`? exceed context limit: [\d,]+ \+ [\d,]+ > {_NUMBER}"),
    ("Gemini", rf"token count.{{0,40}}exceeds the maximum number of tokens allowed \(?{_NUMBER}"),
    ("Vertex", r"input (?:token count )?exceeds the maximum number of (?:input )?tokens"),
    ("llama.cpp", rf"exceeds? the available context size \(?{_NUMBER}"),
    ("llama.cpp", r"exceeds? the available context size"),
    ("llama.cpp", r"context size has been exceeded"),
    ("llama-cpp-python", rf"requested tokens.{{0,20}}exceed context window of {_NUMBER}"),
    ("LM Studio", rf"greater than the context length \(n_keep: ?\d+ ?>= ?n_ctx: ?{_NUMBER}"),
    ("LM Studio", rf"n_keep \(\d+\) >= n_ctx \({_NUMBER}"),
    ("LM Studio", r"tokens to keep.{0,60}greater than the context length"),
    ("LM Studio", rf"loaded with context length of only {_NUMBER}"),
    ("Groq, Cerebras", r"reduce the length of (?:the messages|either one|your (?:prompt|input))"),
    ("Ollama", r"exceed(?:s|ed)? (?:the )?(?:max(?:imum)? )?context (?:length|window|size|limit)"),
    ("Ollama", r"context (?:length|window) (?:was |has been )?exceeded"),
    ("xAI", rf"maximum prompt length is {_NUMBER}"),
    ("Mistral", rf"too large for model with {_NUMBER} maximum context length"),
    ("GitHub Copilot", rf"prompt token count of [\d,]+ exceeds the limit of {_NUMBER}"),
    ("Together, TGI", rf"`?inputs`? tokens \+ `?max_new_tokens`? must be <= {_NUMBER}"),
    ("Together", rf"longer than the model'?s context length \({_NUMBER}"),
    ("Poolside", rf"exceeds (?:the )?maximum allowed input length of {_NUMBER}"),
    ("Cohere", rf"number of tokens in the prompt cannot exceed {_NUMBER}"),
    ("Cohere", rf"total tokens exceeds? the model'?s max(?:imum)? of {_NUMBER}"),
    ("Moonshot", rf"exceeded model token limit: {_NUMBER}"),
    ("DashScope", rf"range of input length should be \[\d+, ?{_NUMBER}"),
    ("MiniMax", r"context window exceeds limit"),
    ("z.ai", r"tokens in request more than max tokens allowed|prompt exceeds max length"),
    ("Bedrock", r"\binput is too long(?: for (?:the )?(?:requested |this )?model|(?! for))"),
    ("Bedrock", r"exceeds the max(?:imum)? input tokens? (?:limit|count)"),
    ("ctransformers", rf"tokens \(\d+\) exceeded maximum context length \({_NUMBER}"),
    ("others", rf"configured context size is {_NUMBER}"),
    ("proxies that quote a report", r"\bcontext_length_exceeded\b"),
    ("proxies that keep the numbers to themselves", r"\bprompt (?:is )?too long\b"),
)

# The same words, where it is the room asked for the answer that does not fit.
_OUTPUT_CAPS = (
    ("vLLM", r"is too large: (?P<cap>\d+).{0,80}?maximum context length is (?P<limit>\d+)"),
    ("vLLM", r"context length is (?P<limit>\d+).{0,80}?requested (?P<cap>\d+) output tokens"),
    ("OpenAI", r"context length is (?P<limit>\d+).{0,160}?(?P<cap>\d+) in the (?:compl|output)"),
    ("Anthropic", r"exceed context limit: \d+ \+ (?P<cap>\d+) > (?P<limit>\d+)"),
)

_TEXTS = tuple(re.compile(text, re.IGNORECASE | re.DOTALL) for _, text in _WORDINGS)
_CAP_AND_LIMIT = tuple(re.compile(text, re.IGNORECASE | re.DOTALL) for _, text in _OUTPUT_CAPS)

# The per-minute allowance is written with the same words as a window; only these mean the prompt.
_WITH_429 = re.compile(r"request too large for", re.IGNORECASE)
# Bedrock's and Anthropic's limits of a minute ask for shorter prompts as well, and pass by waiting.
_LIMITED = re.compile(r"rate limit|too many requests|throttl|per minute", re.IGNORECASE)


@frozen
class Overflow:
    """The prompt does not fit; `limit_tokens` is the window, where the provider named it."""

    limit_tokens: int | None


def find_overflow(
    text: str, *, status: int | None, codes: tuple[str, ...], body: Mapping[str, object]
) -> Overflow | None:
    """Return what the provider says about its window, or None where it complains of something else.

    Args:
        text: All the words of the error, those of an upstream provider included.
        status: The HTTP status, None for an error inside a stream.
        codes: The provider's own words for the kind of error.
        body: The error object, for providers that name their window in a field.
    """
    if status in {401, 403, 404}:
        return None

    by_code = not _CODES.isdisjoint(codes)
    if not by_code and (status == 429 or _LIMITED.search(text)):
        return Overflow(None) if _WITH_429.search(text) else None

    if _is_output_cap(text):
        return None

    match = _best_match(text)
    if match is None and not by_code and status != 413:
        return None

    return Overflow(_limit_in(body) or _limit_of(match))


def _is_output_cap(text: str) -> bool:
    """Tell whether the answer alone was to have half the window: the history is not at fault."""
    for pattern in _CAP_AND_LIMIT:
        match = pattern.search(text)
        if match:
            return int(match["cap"]) * 2 >= int(match["limit"])

    return False


def _best_match(text: str) -> re.Match[str] | None:
    matches = [match for pattern in _TEXTS if (match := pattern.search(text))]
    # A wording that names the window says more than one that does not.
    matches.sort(key=lambda match: "limit" not in match.re.groupindex)
    return matches[0] if matches else None


def _limit_in(body: Mapping[str, object]) -> int | None:
    n_ctx = body.get("n_ctx")
    return n_ctx if isinstance(n_ctx, int) and n_ctx > 0 else None


def _limit_of(match: re.Match[str] | None) -> int | None:
    if match is None or "limit" not in match.re.groupindex:
        return None

    return int(re.sub(r"[,_]", "", match["limit"])) or None
