"""A plugin loaded in no pod: to be looked at, or asked for one of its commands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .hermes.completion import CallRefused, Completions, PluginCall
from .hermes.config import default_config
from .hermes.runtime import HermesRuntime, use_runtime
from .loader import LoadedPlugin, load_plugin
from .ownership import release_engine
from .plugin_options import OptionValue

if TYPE_CHECKING:
    from pod.home import Home

    from .hermes.chat_shapes import Completion

_NO_MODEL = "this engine is in no pod, so there is no model: give --manifest FILE"


class _NoModel(Completions):
    """Refuses every call to a model."""

    def __init__(self) -> None:
        """Make one that needs no event loop."""

    def complete(self, call: PluginCall) -> Completion:
        """Refuse the call."""
        raise CallRefused(_NO_MODEL)

    async def acomplete(self, call: PluginCall) -> Completion:
        """Refuse the call."""
        raise CallRefused(_NO_MODEL)

    def close(self) -> None:
        """Nothing is under way."""


@contextmanager
def plugin_alone(
    name: str, home: Home, options: Mapping[str, OptionValue] | None = None
) -> Iterator[LoadedPlugin]:
    """Load a plugin's engine, which is let go at the end of the block. Blocks as imports do.

    Inside, what the plugin imports of Hermes's works: its folder is the one that a pod would give
    it, and there is no model. Raises as `load_plugin` does.
    """
    runtime = HermesRuntime(
        engine=name,
        config=default_config() | {"context": {"engine": name}},
        completions=_NoModel(),
        home=lambda: home.ensure(home.engines / name),
        plugins_dir=home.plugins,
    )
    with use_runtime(runtime):
        plugin = load_plugin(name, home.plugins, options=options, hooks=runtime.plugins.hooks)
        try:
            yield plugin
        finally:
            release_engine(plugin.engine)
