"""What plugins written for Hermes are given of a pod: its models, its configuration, a home."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import define

from pod.context.discovery import BUILT_IN
from pod.context.hermes.clients import TaskClients
from pod.context.hermes.completion import Completions
from pod.context.hermes.config import ModelInForce, hermes_config, with_memory
from pod.context.hermes.runtime import HermesRuntime, activate, deactivate, use_runtime

if TYPE_CHECKING:
    from pod.context.loader import LoadedPlugin
    from pod.launching.preparing import Prepared
    from worker.llm.types import Usage


@define(eq=False)
class HermesPlace:
    """The place of one launch's plugin in this process."""

    runtime: HermesRuntime
    _clients: TaskClients

    def around(self) -> AbstractContextManager[object]:
        """Enter the runtime, for a call into the plugin, in the thread that makes it."""
        return use_runtime(self.runtime)

    def take_down(self, plugin: LoadedPlugin) -> None:
        """Show what a plugin registered to whoever asks the plugin manager."""
        manager, registration = self.runtime.plugins, plugin.registration
        manager.hold_engine(plugin.engine)
        for name, command in registration.commands.items():
            manager.add_command(name, command, plugin.info.name)

    def serve(self, session_id: Callable[[], str], *, on_progress: Callable[[], None]) -> None:
        """Tell the plugin of the present session from now on, and the pod of signs of life."""
        self.runtime.session_id = session_id
        self.runtime.completions.on_progress = on_progress

    def leave(self) -> None:
        """Serve this plugin no longer, and give up its calls to models; idempotent."""
        deactivate(self.runtime)

    async def aclose(self) -> None:
        """Leave, and close the clients that were made for the plugin alone; idempotent."""
        self.leave()
        await self._clients.aclose()


def open_place(prepared: Prepared) -> HermesPlace | None:
    """Return the place of the plugin that a manifest names; None for the built-in engine.

    To be called on the pod's event loop, which answers the plugin's calls from then on.
    """
    engine = prepared.loaded.manifest.context.engine
    if engine == BUILT_IN:
        return None

    # A name is checked by the manifest; it holds no separator.
    place = _place(prepared, _config(prepared), prepared.home.engines / engine)
    activate(place.runtime)
    return place


def open_memory_place(prepared: Prepared, folder: Path) -> HermesPlace:
    """Return the place of a memory provider that keeps its data in `folder`, as `open_place`."""
    manifest = prepared.loaded.manifest
    place = _place(prepared, with_memory(_config(prepared), manifest), folder)
    if manifest.context.engine == BUILT_IN:
        # Threads that say not whose they are belong to the engine's plugin, where there is one.
        activate(place.runtime)

    return place


def _place(prepared: Prepared, config: dict[str, object], folder: Path) -> HermesPlace:
    clients = _clients(prepared, config)
    home = prepared.home
    runtime = HermesRuntime(
        engine=prepared.loaded.manifest.context.engine,
        config=config,
        completions=Completions(asyncio.get_running_loop(), clients),
        home=lambda: home.ensure(folder),
        plugins_dir=home.plugins,
        price=lambda usage, model: _price(prepared, usage, model),
    )
    return HermesPlace(runtime, clients)


def around(place: HermesPlace | None) -> Callable[[], AbstractContextManager[object]]:
    """Return what is entered around every call into a plugin, and around its import."""
    return place.around if place is not None else nullcontext


def _config(prepared: Prepared) -> dict[str, object]:
    client = prepared.provider.client
    model = ModelInForce(
        client.provider, client.model, client.context_window, prepared.provider.base_url
    )
    return hermes_config(prepared.loaded.manifest, model)


def _clients(prepared: Prepared, config: dict[str, object]) -> TaskClients:
    manifest = prepared.loaded.manifest
    summaries = manifest.compaction.provider if manifest.compaction else None
    return TaskClients(
        own=lambda: prepared.provider.client,
        summaries=lambda: prepared.summaries.client,
        sections=(manifest.provider, summaries or manifest.provider),
        build=prepared.client_for,
        config=config,
    )


def _price(prepared: Prepared, usage: Usage, model: str) -> float | None:
    cards = prepared.prices.models
    card = next((card for card in cards if card.model == model), cards[0] if cards else None)
    return card.cost(usage, model) if card is not None else None
