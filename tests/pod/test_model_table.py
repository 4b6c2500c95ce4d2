"""What is known of a model without asking it: the manifest first, then the table, else nothing."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from manifests.schema_provider import FallbackProvider
from pod.model_table import ModelCard, PriceList
from worker.llm.types import Usage


def card(**section: Any) -> ModelCard:
    return ModelCard.of(FallbackProvider.model_validate(section))


CLAUDE = {"kind": "anthropic", "model": "claude-sonnet-4-5"}
LOCAL = {"kind": "openai_compatible", "model": "mine", "base_url": "http://127.0.0.1:8000/v1"}
OWN = {"input": 2.0, "output": 10.0, "cache_read": 0.5, "cache_write": 3.0}


@pytest.mark.parametrize(
    "section",
    [
        CLAUDE,
        {"kind": "openai", "model": "gpt-5"},
        {"kind": "openai_responses", "model": "gpt-5"},
        {"kind": "gemini", "model": "gemini-2.5-flash"},
        {
            "kind": "openai_compatible",
            "model": "deepseek-chat",
            "base_url": "https://api.deepseek.com/v1",
        },
    ],
)
def test_a_known_model_has_a_window_and_prices(section: dict[str, Any]) -> None:
    known = card(**section)

    assert known.context_window is not None
    assert known.context_window > 10_000
    assert known.source == "genai-prices"
    cost = known.cost(Usage(1_000, 100, 0, 0))
    assert cost is not None
    assert 0 < cost < 1


def test_the_same_model_behind_another_address_costs_the_same() -> None:
    proxied = card(**CLAUDE, base_url="http://127.0.0.1:9/anthropic")

    usage = Usage(1_000, 100)
    assert proxied.cost(usage) == card(**CLAUDE).cost(usage)


def test_what_was_read_from_a_cache_is_part_of_the_prompt_and_cheaper() -> None:
    known = card(**CLAUDE)

    plain = known.cost(Usage(152_200, 500))
    cached = known.cost(Usage(152_200, 500, cache_read=150_000, cache_write=2_000))

    assert plain is not None
    assert cached == pytest.approx(0.0606, rel=0.01)
    assert cached < plain


@pytest.mark.parametrize(
    "section",
    [
        {"kind": "anthropic", "model": "no-such-model"},
        LOCAL,
        {"kind": "ollama", "model": "gpt-oss:20b"},
        {"kind": "local", "model": "claude-sonnet-4-5"},
        {"kind": "scripted", "script": "a.jsonl"},
    ],
)
def test_nothing_is_known_of_others(section: dict[str, Any]) -> None:
    known = card(**section)

    assert (known.context_window, known.source) == (None, "nobody")
    assert known.cost(Usage(1_000, 100)) is None
    assert not known.has_prices
    assert known.described_prices == "no price is known"


@pytest.mark.parametrize(
    ("kind", "model", "cap"),
    [
        ("anthropic", "claude-sonnet-4-5", 64_000),
        ("openai", "gpt-4o-mini", 16_384),
        ("openai_responses", "gpt-5.5", 128_000),
        ("openai", "o3-mini", 100_000),
        ("gemini", "gemini-2.5-pro", 65_536),
        ("gemini", "models/gemini-2.0-flash", 8_192),
        ("openai", "gpt-50", None),
        ("gemini", "gemini-2.5-flash-image", None),
        ("ollama", "gpt-4o", None),
    ],
)
def test_the_longest_answer_is_known_of_some(kind: str, model: str, cap: int | None) -> None:
    assert card(kind=kind, model=model).max_output_tokens == cap


def test_the_manifest_has_the_last_word() -> None:
    own = card(**CLAUDE, context_window=50_000, max_output_tokens=9_000, prices=OWN)

    assert (own.context_window, own.max_output_tokens) == (50_000, 9_000)
    assert own.source == "the manifest"
    assert own.described_prices == "$2 in and $10 out for a million tokens"
    usage = Usage(1_000_000, 100_000, cache_read=600_000, cache_write=100_000)
    assert own.cost(usage) == pytest.approx(0.3 * 2 + 0.6 * 0.5 + 0.1 * 3 + 0.1 * 10)


def test_a_cache_without_prices_of_its_own_costs_what_the_prompt_costs() -> None:
    own = card(**LOCAL, prices={"input": 1.0, "output": 0.0})

    assert own.cost(Usage(1_000_000, 5, cache_read=900_000, cache_write=50_000)) == 1.0


@pytest.mark.parametrize("usage", [Usage(), Usage(input_tokens=5), Usage(output_tokens=5)])
@pytest.mark.parametrize("section", [CLAUDE, {**LOCAL, "prices": OWN}])
def test_what_the_provider_did_not_count_has_no_cost(section: dict[str, Any], usage: Usage) -> None:
    assert card(**section).cost(usage) is None


def test_counts_that_contradict_each_other_still_have_a_cost() -> None:
    wrong = Usage(input_tokens=1, output_tokens=1, cache_read=1_000, cache_write=10)

    for section in (CLAUDE, {**LOCAL, "prices": OWN}):
        cost = card(**section).cost(wrong)
        assert cost is not None
        assert cost > 0


def test_the_name_in_the_answer_helps_where_ours_is_an_alias() -> None:
    alias = card(kind="anthropic", model="our-favourite")

    assert alias.cost(Usage(1_000, 100)) is None
    assert alias.cost(Usage(1_000, 100), "claude-sonnet-4-5-20250929") is not None


@attrs.frozen
class Named:
    provider: str
    model: str


def test_a_list_knows_whom_was_asked() -> None:
    prices = PriceList((card(**LOCAL, prices=OWN), card(**CLAUDE)))
    usage = Usage(1_000, 0)

    assert prices(usage, Named("openai_compatible", "mine")) == 0.002  # type: ignore[arg-type]
    assert prices(usage, Named("anthropic", "claude-sonnet-4-5")) == 0.003  # type: ignore[arg-type]
    assert prices(usage, Named("anthropic", "another")) is None  # type: ignore[arg-type]
