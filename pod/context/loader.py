"""Loading an engine that a manifest names: its code is imported here and nowhere else.

A module is imported once; `register` runs for every load, so each pod gets what it registers
anew. Loading blocks for as long as a plugin's import does.
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

from attrs import frozen

from .attempt import tried
from .discovery import BUILT_IN, BUNDLED, EngineInfo, find_engine, list_engines
from .engine import ContextEngine
from .errors import EngineMissingInPlugin, EngineNotFound, EngineUnavailable
from .ownership import owned
from .plugin_code import code_of, instance_of, reason_of, register_with
from .registration import Registration

__all__ = ["EngineInfo", "LoadedPlugin", "list_engines", "load_engine", "load_plugin"]

_ENGINES = "pod.context.engines"
_REQUIRED = ("name", "update_from_response", "should_compress", "compress")


@frozen
class LoadedPlugin:
    """An engine, and what its plugin registered beside it."""

    engine: ContextEngine
    info: EngineInfo
    registration: Registration


def load_engine(name: str, plugins_dir: Path, *, bundled_dir: Path = BUNDLED) -> ContextEngine:
    """Return the engine called `name`. Raises as `load_plugin` does."""
    return load_plugin(name, plugins_dir, bundled_dir=bundled_dir).engine


def load_plugin(name: str, plugins_dir: Path, *, bundled_dir: Path = BUNDLED) -> LoadedPlugin:
    """Return the engine called `name`, with what its plugin registered.

    What the plugin registers is tried first; where that comes to nothing, its first concrete
    `ContextEngine` subclass that can be made without arguments.

    Raises:
        EngineNotFound: There is none of that name.
        EngineMissingInPlugin: Its plugin loads and has no engine.
        EngineNotCopied: Its plugin hands the same engine to every pod, and it cannot be copied.
        EngineUnavailable: Its plugin does not load, or its engine is none; the reason says why.
    """
    info = find_engine(name, plugins_dir, bundled_dir=bundled_dir)
    if info is None:
        raise EngineNotFound(
            name, f"no engine of that name is bundled, in {plugins_dir}, or installed"
        )

    if info.name == BUILT_IN:
        raise EngineUnavailable(name, "it is built in; the pod makes it itself")

    package = _ENGINES if bundled_dir == BUNDLED else None
    loaded, failure = tried(lambda: code_of(info, package=package))
    if failure is not None:
        raise EngineUnavailable(name, reason_of(failure)) from failure

    registration = Registration(name)
    _, failure = tried(lambda: register_with(loaded, registration))
    engine = registration.engine or _instance(loaded, name, failure)
    missing, failure = tried(lambda: [part for part in _REQUIRED if not hasattr(engine, part)])
    if failure is not None:
        raise EngineUnavailable(name, reason_of(failure)) from failure
    if missing:
        reason = f"it registered a {type(engine).__name__} without {', '.join(missing)}"
        raise EngineUnavailable(name, reason)

    return LoadedPlugin(owned(cast("ContextEngine", engine), loaded, name), info, registration)


def _instance(loaded: object, name: str, failure: BaseException | None) -> object:
    engine, error = instance_of(loaded, ContextEngine)
    if engine is not None:
        return engine

    failure = failure or error
    if failure is not None:
        raise EngineUnavailable(name, reason_of(failure)) from failure

    raise EngineMissingInPlugin(
        name, "it registers none, and defines no ContextEngine that can be made without arguments"
    )
