"""Tokens and costs in the buckets that Hermes plugins count in."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Literal

from attrs import frozen

from worker.llm.types import Usage

from .runtime import current_runtime


@frozen
class CanonicalUsage:
    """What requests took. `input_tokens` is the part of the prompt that no cache had."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    request_count: int = 1
    raw_usage: dict[str, Any] | None = None

    @property
    def prompt_tokens(self) -> int:
        """The whole prompt, the cached parts included."""
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens

    @property
    def total_tokens(self) -> int:
        """Prompt and answer together."""
        return self.prompt_tokens + self.output_tokens

    def __add__(self, other: CanonicalUsage) -> CanonicalUsage:
        """Return both together; what one answer said of itself is left out."""
        return CanonicalUsage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            self.request_count + other.request_count,
        )


@frozen
class CostResult:
    """What something cost, in US dollars, as far as that is known."""

    amount_usd: Decimal | None
    status: Literal["estimated", "unknown"]
    source: str
    label: str
    fetched_at: object = None
    pricing_version: str | None = None
    notes: tuple[str, ...] = ()


_UNKNOWN = CostResult(None, "unknown", "none", "n/a")


def normalize_usage(
    response_usage: object, *, provider: str | None = None, api_mode: str | None = None
) -> CanonicalUsage:
    """Return the usage of an answer, whichever dialect it is told in.

    A prompt is counted with its cached part in the dialects of OpenAI, and without it in
    Anthropic's, which is known by its field names.
    """
    if not response_usage:
        return CanonicalUsage()

    read = _first(
        response_usage,
        "prompt_tokens_details.cached_tokens",
        "input_tokens_details.cached_tokens",
        "cache_read_input_tokens",
        "prompt_cache_hit_tokens",
    )
    write = _first(
        response_usage,
        "prompt_tokens_details.cache_write_tokens",
        "input_tokens_details.cache_creation_tokens",
        "cache_creation_input_tokens",
    )
    prompt = _first(response_usage, "prompt_tokens", "input_tokens")
    if not _is_anthropic(response_usage, provider, api_mode):
        prompt = max(0, prompt - read - write)

    return CanonicalUsage(
        input_tokens=prompt,
        output_tokens=_first(response_usage, "completion_tokens", "output_tokens"),
        cache_read_tokens=read,
        cache_write_tokens=write,
        reasoning_tokens=_first(
            response_usage,
            "output_tokens_details.reasoning_tokens",
            "completion_tokens_details.reasoning_tokens",
        ),
    )


def estimate_usage_cost(model_name: str, usage: CanonicalUsage, **route: object) -> CostResult:
    """Return what `usage` of a model costs by the pod's own prices; unknown without a pod."""
    runtime = current_runtime()
    counted = Usage(
        usage.prompt_tokens,
        usage.output_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
    )
    cost = runtime.price(counted, model_name) if runtime is not None else None
    if cost is None:
        return _UNKNOWN

    return CostResult(Decimal(str(cost)), "estimated", "user_override", f"~${cost:.2f}")


def _is_anthropic(usage: object, provider: str | None, api_mode: str | None) -> bool:
    says_so = (api_mode or "").lower() == "anthropic_messages"
    is_named = (provider or "").strip().lower() == "anthropic"
    # Our own answers are counted as Chat Completions count, whichever provider gave them.
    return (says_so or is_named) and _at(usage, "prompt_tokens") is None


def _first(usage: object, *paths: str) -> int:
    """Return the first number at one of `paths` that is not nothing."""
    numbers = (_at(usage, *path.split(".")) for path in paths)
    return next((int(n) for n in numbers if isinstance(n, int | float) and n > 0), 0)


def _at(value: object, *path: str) -> object:
    for step in path:
        value = value.get(step) if isinstance(value, Mapping) else getattr(value, step, None)

    return value
