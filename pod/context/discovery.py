"""Where engines are: bundled, in the plugins folder, in installed distributions.

Nothing of an engine is imported here: what is told of one is what its `plugin.yaml` or its
distribution says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Literal

from attrs import evolve, field, frozen

from .plugin_folder import is_memory_only
from .plugin_manifest import MANIFEST, BadManifest, PluginManifest, read_manifest
from .words import one_line

BUILT_IN = "compressor"
BUNDLED = Path(__file__).with_name("engines")
ENTRY_POINT_GROUP = "pod.context_engines"
HERMES_GROUP = "hermes_agent.plugins"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


@frozen
class EngineInfo:
    """What is known of an engine without loading it."""

    name: str
    """What a manifest names it by: its folder, or its entry point."""
    source: Literal["built in", "bundled", "plugin", "entry point"]
    path: Path | None = None
    """Its folder; None for one that is built in or comes with a distribution."""
    version: str = ""
    description: str = ""
    problem: str = ""
    """Why it would not load, or what is wrong with what it says of itself."""
    declared_name: str = ""
    """The name in its `plugin.yaml`, where there is one."""
    entry_point: EntryPoint | None = field(default=None, eq=False, repr=False)
    manifest: PluginManifest = field(default=PluginManifest(), eq=False, repr=False)
    """All that it says of itself."""

    @property
    def place(self) -> str:
        """Where it is, in words."""
        if self.path is not None:
            return str(self.path)

        return self.entry_point.value if self.entry_point else ""


def list_engines(plugins_dir: Path, *, bundled_dir: Path = BUNDLED) -> list[EngineInfo]:
    """Return every engine there is: the built-in first, then in the order in which names win.

    An engine that can never be reached, because another has its name, is listed with that problem.
    """
    listed: list[EngineInfo] = []
    winners: dict[str, EngineInfo] = {}
    for info in _every_engine(plugins_dir, bundled_dir):
        winner = winners.setdefault(info.name, info)
        hidden = f"hidden by the {winner.source} engine of this name"
        listed.append(_checked(info) if winner is info else evolve(info, problem=hidden))

    return listed


def _checked(info: EngineInfo) -> EngineInfo:
    """Return what is listed of an engine that can be reached: with its problem, if it has one."""
    if info.problem or info.path is None or not is_memory_only(info.path):
        return info

    return evolve(info, problem="brings a memory provider and no engine")


def find_engine(name: str, plugins_dir: Path, *, bundled_dir: Path = BUNDLED) -> EngineInfo | None:
    """Return the engine that `name` means, or None. A name in a `plugin.yaml` counts last.

    After all of them comes an installed distribution that was made for Hermes, by the name of its
    entry point. Such ones are not listed: few of them are engines, and none says which.
    """
    found = _named(name, _every_engine(plugins_dir, bundled_dir))
    return found or _named(name, _in_distributions(HERMES_GROUP))


def find_plugin(
    name: str, plugins_dir: Path, *, bundled_dir: Path, group: str
) -> EngineInfo | None:
    """Return the plugin of another kind than engines that `name` means, or None; found alike.

    `group` is the kind's group of entry points.
    """
    return _named(name, _every_plugin(plugins_dir, bundled_dir, group))


def _named(name: str, found: Iterator[EngineInfo]) -> EngineInfo | None:
    infos = list(found) if name else []  # What has no name cannot be meant.
    by_name = (info for info in infos if info.name == name)
    declared = (info for info in infos if info.declared_name == name)
    return next(by_name, None) or next(declared, None)


def _every_engine(plugins_dir: Path, bundled_dir: Path) -> Iterator[EngineInfo]:
    yield EngineInfo(
        BUILT_IN, "built in", description="Prune + Compact to a new session", version=""
    )
    yield from _every_plugin(plugins_dir, bundled_dir, ENTRY_POINT_GROUP)


def _every_plugin(plugins_dir: Path, bundled_dir: Path, group: str) -> Iterator[EngineInfo]:
    yield from _in_folder(bundled_dir, "bundled")
    yield from _in_folder(plugins_dir, "plugin")
    yield from _in_distributions(group)


def _in_distributions(group: str) -> Iterator[EngineInfo]:
    for entry_point in sorted(entry_points(group=group), key=lambda one: one.name):
        yield _of_distribution(entry_point)


def _in_folder(folder: Path, source: Literal["bundled", "plugin"]) -> Iterator[EngineInfo]:
    try:
        paths = sorted(folder.iterdir())
    except OSError:
        return  # No folder, no engines; one that cannot be read holds none that could be loaded.

    for path in paths:
        if _NAME.fullmatch(path.name) and (path / "__init__.py").is_file():
            yield _of_folder(path, source)


def _of_folder(path: Path, source: Literal["bundled", "plugin"]) -> EngineInfo:
    try:
        manifest = read_manifest(path, source)
    except BadManifest as error:
        return EngineInfo(path.name, source, path, problem=f"{MANIFEST}: {error}")

    return EngineInfo(
        path.name,
        source,
        path,
        version=manifest.version,
        description=manifest.description,
        declared_name=manifest.name,
        manifest=manifest,
    )


def _of_distribution(entry_point: EntryPoint) -> EngineInfo:
    distribution = entry_point.dist
    return EngineInfo(
        entry_point.name,
        "entry point",
        version=distribution.version if distribution else "",
        description=one_line(distribution.metadata["Summary"]) if distribution else "",
        entry_point=entry_point,
    )
