"""What a context engine is told of the pod's models: the one in force, and those that stand in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from attrs import field, frozen

from pod.compaction.thresholds import UNKNOWN_WINDOW
from pod.context.facts import ModelFacts
from pod.providers import BASE_URLS

if TYPE_CHECKING:
    from manifests import LoadedManifest
    from pod.providers import Provider
    from worker.llm.types import LlmClient

_API_MODES = {
    "anthropic": "anthropic_messages",
    "openai": "chat_completions",
    "openai_compatible": "chat_completions",
    "openai_responses": "codex_responses",
    "local": "chat_completions",
}
"""What Hermes calls the dialects; it has no name for the others."""


@frozen
class _Address:
    """Where one model is reached."""

    base_url: str = ""
    api_key: str = field(default="", repr=False)


@frozen
class ModelDirectory:
    """The addresses of a manifest's models, and the thresholds by model."""

    thresholds: Mapping[str, float]
    _addresses: Mapping[tuple[str, str], _Address]

    @classmethod
    def of(cls, loaded: LoadedManifest, provider: Provider) -> ModelDirectory:
        """Return the directory of the models that `[provider]` names."""
        section = loaded.manifest.provider
        addresses: dict[tuple[str, str], _Address] = {}
        for one, key in zip((section, *section.fallbacks), provider.keys, strict=True):
            value = key.value.get_secret_value() if key.value else ""
            base_url = one.base_url or BASE_URLS.get(one.kind, "")
            addresses.setdefault((one.kind, one.model or ""), _Address(base_url, value))

        compaction = loaded.manifest.compaction
        return cls(compaction.model_thresholds if compaction else {}, addresses)

    def facts(self, client: LlmClient, learned: Mapping[str, int]) -> ModelFacts:
        """Return what is known of the model that `client` would ask now.

        `learned` are the windows that providers named when a prompt did not fit, by
        `provider/model`.
        """
        known = (client.context_window, learned.get(f"{client.provider}/{client.model}"))
        windows = [window for window in known if window is not None]
        address = self._addresses.get((client.provider, client.model), _Address())
        return ModelFacts(
            model=client.model,
            context_length=min(windows, default=UNKNOWN_WINDOW),
            provider=client.provider,
            thresholds=self.thresholds,
            base_url=address.base_url,
            api_key=address.api_key,
            api_mode=_API_MODES.get(client.provider, ""),
        )
