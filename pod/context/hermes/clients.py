"""Which client a plugin's call goes to: that of its task, or one for the model it names."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from attrs import define, field

from manifests.schema_provider import FallbackProvider
from worker.llm.types import LlmClient

from .config import config_at

SUMMARIES = "compression"
"""The task that `[compaction.provider]` is for."""

_ONE_MODEL_ONLY = frozenset({"scripted", "replay", "local"})
"""Kinds whose client is one script or one file: another model's name means nothing to them."""


@define(eq=False)
class TaskClients:
    """Finds the client for a task and a model, and makes one for each further model, once.

    All of them reach the servers that the manifest names, and no others.
    """

    own: Callable[[], LlmClient]
    """The pod's client."""
    summaries: Callable[[], LlmClient]
    """The client for summaries: the same, or that of `[compaction.provider]`."""
    sections: tuple[FallbackProvider, FallbackProvider]
    """The provider sections of both."""
    build: Callable[[FallbackProvider], LlmClient]
    config: Mapping[str, object]
    _made: dict[tuple[bool, str], LlmClient] = field(factory=dict, init=False)

    def __call__(self, task: str, model: str) -> LlmClient:
        """Return the client; `model` wins over `auxiliary.<task>.model` of the configuration."""
        is_summary = task == SUMMARIES
        usual = self.summaries() if is_summary else self.own()
        wanted = model or config_at(self.config, "auxiliary", task, "model")
        if not isinstance(wanted, str) or wanted in {"", usual.model}:
            return usual

        for known in (self.own(), self.summaries()):
            if known.model == wanted:
                return known

        section = self.sections[is_summary]
        if section.kind in _ONE_MODEL_ONLY:
            return usual

        key = (is_summary, wanted)
        if key not in self._made:
            self._made[key] = self.build(_with_model(section, wanted))

        return self._made[key]

    async def aclose(self) -> None:
        """Close the clients that were made here; idempotent."""
        while self._made:
            _, client = self._made.popitem()
            await client.aclose()


def _with_model(section: FallbackProvider, model: str) -> FallbackProvider:
    """Return the section for another model on the same server: its sizes and prices are its own."""
    of_the_model = dict.fromkeys(("context_window", "max_output_tokens", "prices"))
    given = {**section.model_dump(exclude={"fallbacks"}), **of_the_model, "model": model}
    return FallbackProvider.model_construct(**given)
