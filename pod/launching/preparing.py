"""What a manifest comes to before any session is touched: keys, clients, tools, hooks, prompts."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from attrs import frozen

from manifests import LoadedManifest
from manifests.schema_provider import FallbackProvider
from pod.home import Home
from pod.memory.host import MemoryHost
from pod.memory.settings import Limits, MemorySettings
from pod.model_table import PriceList
from pod.providers import Provider, build_one, build_provider, check_cost_budget
from pod.toolbox import load_hooks, load_tools, permission_hook, system_prompt
from pod.unbuilt import refuse_unbuilt
from session_store import Durability, FileSessionStore
from session_store.masking import Masker
from worker.hooks import Hook
from worker.llm.types import LlmClient
from worker.tools import Tool


@frozen
class Prepared:
    """What a manifest comes to before any session is touched."""

    loaded: LoadedManifest
    home: Home
    provider: Provider
    summaries: Provider
    tools: list[Tool]
    hooks: list[Hook]
    system_prompt: str
    masker: Masker
    prices: PriceList
    client_for: Callable[[FallbackProvider], LlmClient]
    """Makes a client for a further provider section; whoever asks for one closes it."""
    memory: MemoryHost
    """Of the provider that the manifest names, or of none; it lives as long as the pod."""

    async def aclose(self) -> None:
        """End the memory, the connections and the local server of either client; idempotent."""
        await self.memory.aclose()
        await self.provider.client.aclose()
        if self.summaries is not self.provider:
            await self.summaries.client.aclose()


def prepare(loaded: LoadedManifest, home: Home, env: Mapping[str, str]) -> Prepared:
    """Load everything that a manifest names: keys, model files, tools, hooks, prompts.

    Raises:
        PodError: Something cannot be loaded, or is not built.
        WorkerError: A file of the manifest cannot be used.
    """
    refuse_unbuilt(loaded)
    manifest = loaded.manifest
    provider = build_provider(manifest.provider, loaded, home, env)
    own = manifest.compaction.provider if manifest.compaction else None
    summaries = build_provider(own, loaded, home, env) if own else provider
    prices = PriceList((*provider.models, *summaries.models))
    check_cost_budget(loaded)
    hooks = load_hooks(loaded)
    gate = permission_hook(manifest.permissions)
    masker = Masker(_secrets(loaded, provider, summaries))
    return Prepared(
        loaded=loaded,
        home=home,
        provider=provider,
        summaries=summaries,
        tools=load_tools(loaded),
        hooks=[gate, *hooks] if gate else hooks,
        # As it is kept, so is it sent; and a later launch finds nothing changed.
        system_prompt=masker.mask(system_prompt(loaded)),
        masker=masker,
        prices=prices,
        client_for=lambda section: build_one(section, loaded, home, env).client,
        memory=_memory_host(loaded, home, masker, model=provider.client.model),
    )


def _secrets(loaded: LoadedManifest, provider: Provider, summaries: Provider) -> dict[str, str]:
    """Return every secret value that the manifest leads to, by a name that may be shown."""
    secrets: dict[str, str] = {}
    for key in (*provider.keys, *summaries.keys):
        if key.value is None:
            continue

        name, value = key.source.rsplit(" ", 1)[-1], key.value.get_secret_value()
        if secrets.setdefault(name, value) != value:
            secrets[f"{name} ({len(secrets) + 1})"] = value  # another file of the same name, say

    return secrets | {f"env {n}": value for n, value in enumerate(sorted(loaded.secret_values))}


def _memory_host(loaded: LoadedManifest, home: Home, masker: Masker, *, model: str) -> MemoryHost:
    """Return the host of the provider that the manifest names, if any. Loads nothing yet."""
    section = loaded.manifest.memory
    if section is None or section.provider is None:
        return MemoryHost(None)

    folder = loaded.resolve(section.folder) if section.folder else home.memory / section.provider
    settings = MemorySettings(
        provider=section.provider,
        plugins_dir=home.plugins,
        home=folder,
        pod=loaded.manifest.pod.name,
        model=model,
        options=section.options,
        is_home_named=section.folder is not None,
    )
    return MemoryHost(settings, masker, limits=Limits(section.timeout_seconds))


def open_store(loaded: LoadedManifest, home: Home) -> FileSessionStore:
    """Return the store that a manifest's `[session]` means."""
    section = loaded.manifest.session
    sessions = loaded.resolve(section.store) if section.store else None
    durability = Durability(section.durability)
    return FileSessionStore(home.root, sessions=sessions, durability=durability)


def config_of(prepared: Prepared) -> dict[str, object]:
    """Return what a session records of how it was run; nothing secret."""
    manifest, client = prepared.loaded.manifest, prepared.provider.client
    compaction = manifest.compaction
    return {
        "provider": client.provider,
        "model": client.model,
        "context_window": client.context_window,
        "max_tokens": manifest.worker.max_tokens,
        "temperature": manifest.worker.temperature,
        "reasoning_effort": manifest.worker.reasoning_effort,
        "engine": manifest.context.engine,
        "compaction": compaction.model_dump(mode="json", exclude_none=True, exclude={"provider"})
        if compaction
        else None,
        **({"memory": prepared.memory.name} if prepared.memory.name else {}),
    }
