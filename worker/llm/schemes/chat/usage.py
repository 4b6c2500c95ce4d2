"""Usage as Chat Completions servers report it, in one meaning."""

from __future__ import annotations

from collections.abc import Mapping

from worker.llm.schemes.received_json import count_in, object_in
from worker.llm.types import Usage


def read_usage(chunk: Mapping[str, object]) -> Usage | None:
    """Return the usage that a chunk reports, or None where it reports nothing but nulls and zeros.

    Looked for in the chunk, in its first choice (Moonshot) and in Groq's envelope; where there is
    none, the timings of llama.cpp are read.
    """
    for holder in (chunk, _first_choice(chunk), object_in(chunk.get("x_groq"))):
        reported = holder.get("usage")
        usage = _read(reported) if isinstance(reported, dict) else None
        if usage is not None:
            return _with_cache(usage, object_in(chunk.get("timings")))

    timings = chunk.get("timings")
    return _from_timings(timings) if isinstance(timings, dict) else None


def _read(usage: Mapping[str, object]) -> Usage | None:
    details = object_in(usage.get("prompt_tokens_details"))
    misspelt = object_in(usage.get("prompt_token_details"))
    cache_read = count_in(
        details.get("cached_tokens"),
        usage.get("prompt_cache_hit_tokens"),  # DeepSeek
        usage.get("cached_tokens"),  # Moonshot
        misspelt.get("cached_tokens"),  # Mistral
        usage.get("num_cached_tokens"),  # Mistral
        usage.get("cache_read_input_tokens"),  # LiteLLM
    )
    cache_write = count_in(
        details.get("cache_write_tokens"),  # OpenRouter
        details.get("cache_creation_input_tokens"),  # DashScope
        details.get("cache_creation_tokens"),  # LiteLLM
        usage.get("cache_creation_input_tokens"),  # LiteLLM
    )
    # Responses and its kin have other names for the same, which some proxies keep.
    prompt = count_in(usage.get("prompt_tokens"), usage.get("input_tokens")) or None
    if prompt is not None and cache_read is not None and cache_read > prompt:
        prompt += cache_read  # The part cannot be larger than the whole: it is not inside (xAI).

    output = _output(usage)
    return Usage(prompt, output, cache_read, cache_write) if prompt or output else None


def _output(usage: Mapping[str, object]) -> int | None:
    output = count_in(usage.get("completion_tokens"), usage.get("output_tokens"))
    reasoning = count_in(object_in(usage.get("completion_tokens_details")).get("reasoning_tokens"))
    parts = (count_in(usage.get("prompt_tokens")), output, reasoning)
    # xAI counts reasoning apart: the total tells.
    is_apart = None not in parts and usage.get("total_tokens") == sum(part or 0 for part in parts)
    return (output or 0) + (reasoning or 0) if is_apart else output


def _with_cache(usage: Usage, timings: Mapping[str, object]) -> Usage:
    cached = count_in(timings.get("cache_n"))
    if usage.cache_read is not None or cached is None:
        return usage
    return Usage(usage.input_tokens, usage.output_tokens, cached, usage.cache_write)


def _from_timings(timings: Mapping[str, object]) -> Usage | None:
    new, cached = count_in(timings.get("prompt_n")), count_in(timings.get("cache_n"))
    prompt = None if new is None else new + (cached or 0)
    output = count_in(timings.get("predicted_n"))
    return Usage(prompt, output, cached) if prompt or output else None


def _first_choice(chunk: Mapping[str, object]) -> Mapping[str, object]:
    choices = chunk.get("choices")
    return object_in(choices[0] if isinstance(choices, list) and choices else None)
