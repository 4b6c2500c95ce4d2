"""`hermes_cli.plugins`: what plugins have registered: the pod's, or without one the process's."""

from __future__ import annotations

from pod.context.hermes.plugin_slots import PluginContext, PluginManager, PluginManifest
from pod.context.hermes.runtime import current_runtime

__all__ = [
    "PluginContext",
    "PluginManager",
    "PluginManifest",
    "get_plugin_context_engine",
    "get_plugin_manager",
]

_plugin_manager: PluginManager | None = None
"""The one of a process without a pod; tests put their own here."""


def get_plugin_manager() -> PluginManager:
    """Return the manager of the pod that asks; without a pod always the same one."""
    global _plugin_manager  # noqa: PLW0603  the name that tests replace
    runtime = current_runtime()
    if runtime is not None:
        return runtime.plugins

    if _plugin_manager is None:
        _plugin_manager = PluginManager()

    return _plugin_manager


def get_plugin_context_engine() -> object:
    """Return the engine that a plugin has registered, or None."""
    return get_plugin_manager().context_engine
