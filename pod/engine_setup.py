"""The engine that a manifest names, loaded: a plugin that cannot be had is told of, never fatal."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pod.context.errors import EngineUnavailable
from pod.context.loader import load_plugin
from pod.journal import in_thread

if TYPE_CHECKING:
    from manifests import LoadedManifest
    from pod.context.loader import LoadedPlugin
    from pod.home import Home

Notice = Callable[[str, str], None]
"""Tells people something of an engine: its name, and one line."""


async def load_named_engine(
    loaded: LoadedManifest, home: Home, notice: Notice
) -> LoadedPlugin | None:
    """Return the plugin that `context.engine` names, or None where it cannot be had.

    Why not is told by `notice`, and so is whatever else people should know of the load.
    """
    section = loaded.manifest.context
    try:
        # Importing a plugin runs its code, which may take its time: never on the event loop.
        plugin = await in_thread(
            lambda: load_plugin(section.engine, home.plugins, options=section.options)
        )
    except EngineUnavailable as error:
        notice(section.engine, f"{error.notice} ({_place(loaded)})")
        return None

    for line in plugin.notices:
        notice(section.engine, line)

    return plugin


def tell_of_options(loaded: LoadedManifest, notice: Notice) -> None:
    """Say that the built-in engine has no options, where a manifest gives it some."""
    section = loaded.manifest.context
    if section.options:
        names = ", ".join(map(repr, section.options))
        notice(
            section.engine,
            f"the built-in compressor takes no options, and was given {names}; "
            "its settings are those of [compaction]",
        )


def _place(loaded: LoadedManifest) -> str:
    line = loaded.line_of("context", "engine")
    return f"{loaded.path}, line {line}" if line else str(loaded.path)
