"""`agent.context_compressor`: the built-in compressor, as a class to build upon.

`call_llm` and `get_model_context_length` are looked up here at each call: tests replace them.
"""

from __future__ import annotations

from typing import Any

from pod.context.hermes.calls import call_llm
from pod.context.hermes.chat_shapes import Completion
from pod.context.hermes.compressor import HermesCompressor
from pod.context.hermes.handoff import (
    HISTORICAL_PREFIXES as _HISTORICAL_SUMMARY_PREFIXES,
)
from pod.context.hermes.handoff import (
    LEGACY_SUMMARY_PREFIX,
    SUMMARY_PREFIX,
)
from pod.context.hermes.handoff import (
    SUMMARY_END_MARKER as _SUMMARY_END_MARKER,
)
from pod.context.hermes.rough_tokens import messages_tokens as estimate_messages_tokens_rough
from pod.context.hermes.windows import get_model_context_length
from pod.context.rows import COMPRESSED_SUMMARY as COMPRESSED_SUMMARY_METADATA_KEY
from pod.context.thresholds import resolve_model_threshold

__all__ = [
    "COMPRESSED_SUMMARY_METADATA_KEY",
    "LEGACY_SUMMARY_PREFIX",
    "SUMMARY_PREFIX",
    "_DB_PERSISTED_MARKER",
    "_HISTORICAL_SUMMARY_PREFIXES",
    "_SUMMARY_END_MARKER",
    "ContextCompressor",
    "call_llm",
    "estimate_messages_tokens_rough",
    "get_model_context_length",
    "resolve_model_threshold",
]

_DB_PERSISTED_MARKER = "_db_persisted"
"""The key under which Hermes notes that a row is in its database; it never reaches a provider."""


class ContextCompressor(HermesCompressor):
    """Has the older turns summarized by the pod's model; see `HermesCompressor`."""

    def _call_llm(self, **kwargs: Any) -> Completion:  # noqa: ANN401  what `call_llm` takes
        return call_llm(**kwargs)

    def _window_of(self, model: str, configured: int | None) -> int:
        return get_model_context_length(
            model,
            base_url=self.base_url,
            api_key=self.api_key,
            config_context_length=configured,
            provider=self.provider,
        )
