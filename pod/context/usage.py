"""A response's usage as engines know it."""

from __future__ import annotations

from worker.llm.types import Usage

from .engine import JsonDict


def usage_record(usage: Usage) -> JsonDict:
    """Return the dict that engines are given: every key is there, unknown numbers as 0."""
    prompt, completion = usage.input_tokens or 0, usage.output_tokens or 0
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "input_tokens": prompt,
        "output_tokens": completion,
        "cache_read_tokens": usage.cache_read or 0,
        "cache_write_tokens": usage.cache_write or 0,
        # Reasoning is counted in the output; what part of it that was, providers tell differently.
        "reasoning_tokens": 0,
    }
