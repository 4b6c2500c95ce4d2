"""Loading an engine that a manifest names: its code is imported here and nowhere else.

A module is imported once; `register` runs for every load, so each pod gets what it registers
anew. Loading blocks for as long as a plugin's import does.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import cast

from attrs import field, frozen

from .attempt import tried
from .discovery import BUILT_IN, BUNDLED, EngineInfo, find_engine, list_engines
from .engine import ContextEngine
from .errors import EngineMissingInPlugin, EngineNotFound, EngineUnavailable
from .ownership import owned
from .plugin_code import code_of, instance_of, reason_of, register_with
from .plugin_folder import mentions, writable_by_others
from .plugin_options import OptionValue, PluginOptions, known_options, leftover, set_attributes
from .registration import REQUIRED_OF_ENGINES, Registration
from .signature import without_async

__all__ = ["EngineInfo", "LoadedPlugin", "list_engines", "load_engine", "load_plugin"]

_ENGINES = "pod.context.engines"
_READS_CONFIG = ("load_config", "cfg_get")


@frozen
class LoadedPlugin:
    """An engine, and what its plugin registered beside it."""

    engine: ContextEngine
    info: EngineInfo
    registration: Registration
    options: Mapping[str, OptionValue] = field(factory=dict)
    """`[context.options]` as the manifest has them."""
    notices: tuple[str, ...] = ()
    """What people should know of this load, a line each."""


def load_engine(name: str, plugins_dir: Path, *, bundled_dir: Path = BUNDLED) -> ContextEngine:
    """Return the engine called `name`. Raises as `load_plugin` does."""
    return load_plugin(name, plugins_dir, bundled_dir=bundled_dir).engine


def load_plugin(
    name: str,
    plugins_dir: Path,
    *,
    options: Mapping[str, OptionValue] | None = None,
    hooks: dict[str, list[Callable[..., object]]] | None = None,
    bundled_dir: Path = BUNDLED,
) -> LoadedPlugin:
    """Return the engine called `name`, with what its plugin registered.

    What the plugin registers is tried first; where that comes to nothing, its first concrete
    `ContextEngine` subclass that can be made of `options`. `hooks` is where hooks are kept, for a
    caller who has them in hand before the plugin's code runs.

    Raises:
        EngineNotFound: There is none of that name.
        EngineMissingInPlugin: Its plugin loads and has no engine.
        EngineNotCopied: Its plugin hands the same engine to every pod, and it cannot be copied.
        EngineUnavailable: Its plugin does not load, or its engine is none; the reason says why.
    """
    info = _found(name, plugins_dir, bundled_dir)
    package = _ENGINES if bundled_dir == BUNDLED else None
    loaded, failure = tried(lambda: code_of(info, package=package))
    if failure is not None:
        raise EngineUnavailable(name, reason_of(failure)) from failure

    given = dict(options or {})
    registration = Registration(name, PluginOptions(given), info.manifest)
    if hooks is not None:
        registration.hooks = hooks

    _, failed = tried(lambda: register_with(loaded, registration))
    engine = _engine(registration, loaded, name, failed)
    mine = owned(engine, loaded, name)
    left_out = without_async(mine)
    refused = set_attributes(mine, registration.options)
    notices = (
        *_notices(info, registration, failed),
        *left_out,
        *refused,
        *_untaken(info, registration, mine),
    )
    return LoadedPlugin(mine, info, registration, given, notices)


def _found(name: str, plugins_dir: Path, bundled_dir: Path) -> EngineInfo:
    info = find_engine(name, plugins_dir, bundled_dir=bundled_dir)
    if info is None:
        raise EngineNotFound(
            name, f"no engine of that name is bundled, in {plugins_dir}, or installed"
        )

    if info.name == BUILT_IN:
        raise EngineUnavailable(name, "it is built in; the pod makes it itself")

    return info


def _engine(
    registration: Registration, loaded: object, name: str, failure: BaseException | None
) -> ContextEngine:
    """Return the engine that was registered, else one that can be made."""
    engine = registration.engine
    if engine is None:
        engine = _instance(registration, loaded, name, failure)

    missing, failure = tried(
        lambda: [part for part in REQUIRED_OF_ENGINES if not hasattr(engine, part)]
    )
    if failure is not None:
        raise EngineUnavailable(name, reason_of(failure)) from failure

    if missing:
        reason = f"its {type(engine).__name__} has no {', '.join(missing)}"
        raise EngineUnavailable(name, reason)

    for part in REQUIRED_OF_ENGINES:
        if inspect.iscoroutinefunction(getattr(type(engine), part, None)):
            raise EngineUnavailable(name, f"its {part} is async; it must be a plain function")

    return cast("ContextEngine", engine)


def _instance(
    registration: Registration, loaded: object, name: str, failure: BaseException | None
) -> object:
    engine, error = instance_of(loaded, ContextEngine, registration.options)
    if engine is not None:
        return engine

    failure = failure or error
    if failure is not None:
        raise EngineUnavailable(name, reason_of(failure)) from failure

    without = "it registers none, and defines no ContextEngine that can be made without arguments"
    raise EngineMissingInPlugin(name, " ".join(registration.told) or without)


# ------------------------------------------------------------------ what there is to tell


def _notices(
    info: EngineInfo, registration: Registration, failure: BaseException | None
) -> Iterator[str]:
    if info.path is not None and (why := writable_by_others(info.path)):
        yield f"{why}: whoever that is can run code in this pod; chmod go-w it"

    yield from registration.told
    if failure is not None:
        yield f"Plugin '{info.name}': register() failed ({reason_of(failure)}); going on without it"

    if registration.unused:
        unused = ", ".join(registration.unused)
        yield f"Plugin '{info.name}' registers what has no use here: {unused}"


def _untaken(info: EngineInfo, registration: Registration, engine: object) -> Iterator[str]:
    from .hermes.config import OVERLAY

    options = registration.options
    if isinstance(options.peek(OVERLAY) if OVERLAY in options else None, Mapping):
        options.get(OVERLAY)  # It is for the configuration, whether or not that is read.

    if options.untaken:
        reads = info.path is not None and mentions(info.path, _READS_CONFIG)
        known = known_options(engine, options)
        said = leftover(options, engine=info.name, reads_config=reads, known=known)
        if said is not None:
            yield said
