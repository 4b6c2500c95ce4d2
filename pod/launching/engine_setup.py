"""The engine that a manifest names, loaded, and what its plugin brings beside it, set to work.

A plugin that cannot be had is told of and never fatal, save where the manifest counts on its tools.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING

from attrs import evolve, frozen

from pod.context.discovery import BUILT_IN, list_engines
from pod.context.errors import (
    EngineInterrupted,
    EngineNotFound,
    EngineTimeout,
    EngineUnavailable,
)
from pod.context.loader import LoadedPlugin, load_plugin
from pod.context.ownership import release_engine
from pod.context.plugin_code import reason_of
from pod.context.plugin_hooks import HOOK_TIMEOUT_S, HookCaller
from pod.context.plugin_host import PluginHost
from pod.context.threads import EngineThread
from pod.errors import PluginFailed
from pod.launching.hermes_setup import HermesPlace, around

if TYPE_CHECKING:
    from manifests import LoadedManifest
    from pod.context.host import EngineHost
    from pod.context.plugin_facts import Scene
    from pod.home import Home
    from worker.tools import Tool
    from worker.worker import Worker

Notice = Callable[[str, str], None]
"""Tells people something of an engine: its name, and one line."""


@frozen
class NamedEngine:
    """What became of the engine that a manifest names: neither, where that is the built-in."""

    plugin: LoadedPlugin | None = None
    failure: EngineUnavailable | None = None


async def load_named_engine(
    loaded: LoadedManifest, home: Home, notice: Notice, *, place: HermesPlace | None = None
) -> NamedEngine:
    """Load the plugin that `context.engine` names. Never raises for what is wrong with it.

    Why it cannot be had is told by `notice`, and so is whatever else people should know. `place` is
    what its Hermes imports work with.
    """
    section = loaded.manifest.context
    try:
        with around(place)():
            plugin = await _plugin(loaded, home, place)
    except EngineUnavailable as error:
        meant = _meant(section.engine, home) if isinstance(error, EngineNotFound) else ""
        notice(section.engine, f"{error.notice} ({_place(loaded)}){meant}")
        return NamedEngine(failure=error)

    if place is not None:
        place.take_down(plugin)

    for line in (*plugin.notices, *_unused_memory(loaded, plugin)):
        notice(section.engine, line)

    return NamedEngine(plugin)


async def _plugin(loaded: LoadedManifest, home: Home, place: HermesPlace | None) -> LoadedPlugin:
    """Return the plugin, loaded in a thread of its own, which is left behind if it never ends.

    Raises:
        EngineUnavailable: It cannot be had, or takes longer than any sign of life may.
    """
    section = loaded.manifest.context
    thread, is_given_up = EngineThread("engine-load"), threading.Event()

    def load() -> LoadedPlugin:
        plugin = load_plugin(
            section.engine,
            home.plugins,
            options=section.options,
            hooks=place.runtime.plugins.hooks if place else None,
        )
        if is_given_up.is_set():
            release_engine(plugin.engine)

        return plugin

    try:
        return await thread.call(load, timeout_s=section.timeout_seconds)
    except EngineTimeout as error:
        slow = f"it was not loaded after {error.limit_s:g} s (context.timeout_seconds)"
        raise EngineUnavailable(section.engine, slow) from error
    except EngineInterrupted as error:
        raise EngineUnavailable(section.engine, reason_of(error.__cause__ or error)) from error
    finally:
        is_given_up.set()  # What comes now is nobody's.
        thread.close()


def _meant(name: str, home: Home) -> str:
    """Return a question for an engine that is here under another name, or nothing."""
    known = [info.name for info in list_engines(home.plugins) if info.name != BUILT_IN]
    near = [other for other in known if len(name) > 2 and (name in other or other in name)]
    near = near or get_close_matches(name, known, 1)
    return f"; did you mean {near[0]!r}?" if near else ""


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


def _unused_memory(loaded: LoadedManifest, plugin: LoadedPlugin) -> Iterable[str]:
    memory = loaded.manifest.memory
    names = {plugin.info.name, plugin.info.declared_name}
    if plugin.registration.memory_providers and (memory is None or memory.provider not in names):
        name = plugin.info.name
        yield f"Plugin '{name}' has a memory provider too; [memory] provider = \"{name}\" uses it"


# ------------------------------------------------------------------ beside the engine


def plugin_host(
    plugin: LoadedPlugin | None, host: EngineHost, scene: Callable[[], Scene]
) -> PluginHost | None:
    """Return what calls a plugin's hooks and tools; None for the built-in engine."""
    if plugin is None:
        return None

    caller = HookCaller(
        plugin.registration.hooks,
        tell=partial(host.notice, plugin.info.name),
        around=host.around,
        timeout_s=min(HOOK_TIMEOUT_S, host.timeout_s),
        said=plugin.registration.said,
    )
    return PluginHost(plugin, caller, scene)


async def tools_beside(
    beside: PluginHost | None, named: Iterable[Tool], of_engine: Iterable[Tool]
) -> list[Tool]:
    """Return the tools that a plugin registered, but those whose name is taken.

    By one that the manifest names, which is told; or by one `of_engine`, which is the same tool.
    """
    if beside is None:
        return []

    taken, same = {tool.name for tool in named}, {tool.name for tool in of_engine}
    thread = EngineThread("engine-tools")
    try:
        # A plugin looks for its variables in this process's environment, whatever the pod was
        # given; its own checks are left behind where they never end.
        return await thread.call(
            beside.tools, taken, same, os.environ, timeout_s=beside.caller.timeout_s
        )
    except EngineTimeout as error:
        beside.caller.tell_once(
            f"the tools that its plugin registers are left out: their checks took over "
            f"{error.limit_s:g} s"
        )
        return []
    finally:
        thread.close()


def attach(beside: PluginHost | None, worker: Worker) -> None:
    """Let a plugin's hooks have their moments in a Worker's runs."""
    if beside is not None:
        worker.hooks = evolve(worker.hooks, hooks=(*worker.hooks.hooks, *beside.hooks()))
        worker.tools |= {tool.name: tool for tool in beside.watched(worker.tools.values())}


def require_named_tools(loaded: LoadedManifest, named: NamedEngine, tools: Iterable[str]) -> None:
    """Refuse to start without a tool that the manifest names and the engine was to bring.

    Raises:
        PluginFailed: `[permissions] tools` names one that is not there, and a plugin's engine is
            named; the message says which, and why it is not there.
    """
    if named.plugin is None and named.failure is None:
        return

    there = set(tools)
    for name in loaded.manifest.permissions.tools:
        if name not in there:
            raise PluginFailed(_missing_tool(loaded, named, name), hint=_instead(name, there))


def _missing_tool(loaded: LoadedManifest, named: NamedEngine, tool: str) -> str:
    line = loaded.line_of("permissions", "tools", tool)
    place = f"{loaded.path}, line {line}" if line else str(loaded.path)
    engine = loaded.manifest.context.engine
    if named.failure is not None:
        why = f"the engine {engine!r}, which might bring it, cannot be had: {named.failure.reason}"
    else:
        why = f"neither the manifest nor the engine {engine!r} brings one of that name"

    return f"{place}: permissions.tools names the tool {tool}, and {why}"


def _instead(name: str, there: set[str]) -> str:
    known = f"there are {', '.join(sorted(there))}" if there else "there is no tool at all"
    return f"mend the plugin, or take {name} out of [permissions] tools; {known}"


def _place(loaded: LoadedManifest) -> str:
    line = loaded.line_of("context", "engine")
    return f"{loaded.path}, line {line}" if line else str(loaded.path)
