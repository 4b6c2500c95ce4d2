"""What is known of a model without asking anybody: its window, its output cap and its prices.

The manifest's word comes first, then the data that genai-prices brings along (extra `prices`; it
works offline). This is the one home of that library. Prices are in US dollars.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.util import find_spec
from typing import TYPE_CHECKING

from attrs import field, frozen

from manifests.schema_provider import FallbackProvider, PricesSection
from pod.compaction.break_even import USUAL, CachePrices
from worker.llm.types import LlmClient, Usage

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, Provider

_MILLION = 1_000_000
_CACHED = 1_000
# What the table calls the makers of our kinds. Others are found by their address.
_MAKERS = {
    "anthropic": "anthropic",
    "openai": "openai",
    "openai_responses": "openai",
    "gemini": "google",
}
# The longest answers, by the vendors' own pages on each model, as of November 2026: genai-prices
# has none. Where a name fits nothing, nothing is known, and nothing is lowered.
_OUTPUT_CAPS = {
    "openai": (
        (r"gpt-3\.5|gpt-4-turbo", 4_096),
        (r"gpt-4o|chatgpt-4o|gpt-5-chat", 16_384),
        (r"gpt-4\.1", 32_768),
        (r"o[134](-|$)", 100_000),
        (r"gpt-5(?!\d)", 128_000),
    ),
    "google": (
        (r"(models/)?gemini-(1\.5|2\.0)", 8_192),
        (r"(models/)?gemini-(2\.5|3)(?!.*(image|tts|live|audio))", 65_536),
    ),
}
_PRICED_KINDS = frozenset({*_MAKERS, "openai_compatible"})


@frozen
class ModelCard:
    """One model of a manifest. What nobody knows is None."""

    provider: str
    """The provider's kind."""
    model: str
    """The model's name, as the manifest has it."""
    context_window: int | None = None
    """In tokens."""
    max_output_tokens: int | None = None
    """The most tokens of one answer."""
    prices: PricesSection | None = field(default=None, repr=False)
    """The manifest's own prices."""
    base_url: str | None = None
    """The address that the manifest names."""
    source: str = "nobody"
    """Who says what the window is: `the manifest`, `genai-prices`, or `nobody`."""

    @classmethod
    def of(cls, section: FallbackProvider) -> ModelCard:
        """Return what the manifest and the table know of a section's model.

        The table loads with the first call, which takes some 0.4 s.
        """
        window, source = section.context_window, "the manifest"
        if window is None or section.prices is None:
            # Also for the prices' sake: the table loads now, and not in the middle of a run.
            found = _find(section.kind, section.base_url, [section.model or ""])
            if window is None:
                window, source = found and found[1].context_window, "genai-prices"

        return cls(
            provider=section.kind,
            model=section.model or "",
            context_window=window,
            max_output_tokens=section.max_output_tokens or _known_cap(section),
            prices=section.prices,
            base_url=section.base_url,
            source=source if window is not None else "nobody",
        )

    @property
    def is_looked_up(self) -> bool:
        """Whether the table may know it: servers of one's own are in none."""
        return self.provider in _PRICED_KINDS

    @property
    def has_prices(self) -> bool:
        """Whether a request's cost can be told."""
        return self.cost(Usage(1, 1, 0, 0)) is not None

    @property
    def described_prices(self) -> str:
        """What a million tokens cost, in words."""
        # A million tokens at once may be in a dearer tier than a request of the usual size.
        sent, said = self.cost(Usage(1000, 0, 0, 0)), self.cost(Usage(0, 1000, 0, 0))
        if sent is None or said is None:
            return "no price is known"

        return f"${1000 * sent:g} in and ${1000 * said:g} out for a million tokens"

    def cost(self, usage: Usage, answered_by: str = "") -> float | None:
        """Return what a request cost, in US dollars, or None where that cannot be known.

        `answered_by` is the model's name in the answer, which may be more exact than ours.
        """
        if usage.input_tokens is None or usage.output_tokens is None:
            return None

        if self.prices is not None:
            return _own_cost(usage, self.prices)

        return _table_cost(usage, self, [name for name in (answered_by, self.model) if name])


@frozen
class PriceList:
    """The prices of every model that a pod may ask."""

    models: tuple[ModelCard, ...] = ()

    def of_cache(self, client: LlmClient) -> CachePrices:
        """Return what cached tokens of `client`'s model cost, or what is usual."""
        card = self._card(client)
        read = card and card.cost(Usage(_CACHED, 0, cache_read=_CACHED))
        write = card and card.cost(Usage(_CACHED, 0, cache_write=_CACHED))
        return USUAL if not read or not write else CachePrices(read, write)

    def __call__(self, usage: Usage, client: LlmClient, answered_by: str = "") -> float | None:
        """Return what a request to `client` cost, in US dollars, or None where nobody knows."""
        card = self._card(client)
        return None if card is None else card.cost(usage, answered_by)

    def _card(self, client: LlmClient) -> ModelCard | None:
        name = (client.provider, client.model)
        return next((card for card in self.models if (card.provider, card.model) == name), None)


def _known_cap(section: FallbackProvider) -> int | None:
    name = (section.model or "").lower()
    if section.kind == "anthropic":
        from worker.llm.schemes.anthropic.models import facts

        return facts(name).max_output

    rows = _OUTPUT_CAPS.get(_MAKERS.get(section.kind, ""), ())
    return next((cap for pattern, cap in rows if re.match(pattern, name)), None)


def _own_cost(usage: Usage, prices: PricesSection) -> float:
    read, write = usage.cache_read or 0, usage.cache_write or 0
    plain = max(0, (usage.input_tokens or 0) - read - write)
    cost = plain * prices.input + (usage.output_tokens or 0) * prices.output
    cost += read * (prices.input if prices.cache_read is None else prices.cache_read)
    cost += write * (prices.input if prices.cache_write is None else prices.cache_write)
    return cost / _MILLION


# ------------------------------------------------------------------ the table


def has_table() -> bool:
    """Tell whether there is a table to look models up in: the extra `prices` is installed."""
    return find_spec("genai_prices") is not None


def _table_cost(usage: Usage, card: ModelCard, names: Iterable[str]) -> float | None:
    found = _find(card.provider, card.base_url, names)
    if found is None:
        return None

    from genai_prices import Usage as TableUsage

    provider, model = found
    read, write = usage.cache_read or 0, usage.cache_write or 0
    counted = TableUsage(
        # A provider that counts wrongly must not end a run.
        input_tokens=max(usage.input_tokens or 0, read + write),
        cache_read_tokens=read,
        cache_write_tokens=write,
        output_tokens=usage.output_tokens,
    )
    return float(model.calc_price(counted, provider).total_price)


def _find(
    kind: str, base_url: str | None, names: Iterable[str]
) -> tuple[Provider, ModelInfo] | None:
    """Return the table's entry of the first name that it knows, or None."""
    if kind not in _PRICED_KINDS:
        return None

    try:
        from genai_prices.data_snapshot import get_snapshot
    except ImportError:  # the extra is not installed
        return None

    snapshot = get_snapshot()
    maker = _MAKERS.get(kind)
    for name in names:
        try:
            if maker is not None:
                return snapshot.find_provider_model(name, None, maker, None)
            return snapshot.find_provider_model(name, None, None, base_url)
        except LookupError:
            continue

    return None
