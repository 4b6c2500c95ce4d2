"""`plugins.context_engine`: engines by name, loaded as a pod loads them."""

from __future__ import annotations

import logging
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from pod.context.errors import EngineMissingInPlugin, EngineNotFound, EngineUnavailable
from pod.context.hermes.plugin_slots import PluginContext, PluginManifest
from pod.context.hermes.surroundings import plugins_dir

if TYPE_CHECKING:
    from pod.context.engine import ContextEngine

__all__ = ["discover_context_engines", "load_context_engine"]

_CONTEXT_ENGINE_PLUGINS_DIR: Path | None = None
"""Where engines are looked for; None: where the pod looks, or `plugins` under the Hermes home."""

_log = logging.getLogger("pod.context")


def load_context_engine(name: str) -> ContextEngine | None:
    """Return a new engine of that name, or None where there is none, or none that loads."""
    from pod.context.loader import load_plugin

    try:
        loaded = load_plugin(name, _folder())
    except EngineNotFound:
        _log.debug("Context engine '%s' not found in %s", name, _folder())
    except EngineMissingInPlugin:
        _log.warning("Context engine '%s' loaded but no engine instance found", name)
    except EngineUnavailable as error:
        _log.warning("Failed to load context engine '%s': %s", name, error.reason)
    else:
        for refused in loaded.registration.told:
            _log.warning("%s", refused)

        collector = _EngineCollector(name)
        for command, entry in loaded.registration.commands.items():
            collector.register_command(command, entry.handler, entry.description, entry.args_hint)

        return loaded.engine

    return None


def discover_context_engines() -> list[tuple[str, str, bool]]:
    """Return name, description and availability of every engine but the built-in.

    Available is one that loads and does not say that it is not.
    """
    from pod.context.discovery import BUILT_IN, list_engines

    infos = [info for info in list_engines(_folder()) if info.name != BUILT_IN]
    return [(info.name, info.description, _is_available(info.name)) for info in infos]


class _EngineCollector(PluginContext):
    """The `ctx` of an engine's plugin; commands go to the manager, under the engine's name."""

    def __init__(self, engine_name: str = "") -> None:
        # By its served name: that is where a test suite puts a manager of its own.
        plugins = import_module("hermes_cli.plugins")
        manifest = PluginManifest(name=f"context-engine:{engine_name}")
        super().__init__(manifest, plugins.get_plugin_manager())


def _folder() -> Path:
    return _CONTEXT_ENGINE_PLUGINS_DIR or plugins_dir()


def _is_available(name: str) -> bool:
    from pod.context.attempt import tried

    engine = load_context_engine(name)
    ask = getattr(engine, "is_available", None)
    said, failure = tried(ask) if callable(ask) else (engine is not None, None)
    return failure is None and bool(said)
