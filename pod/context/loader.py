"""Loading an engine that a manifest names: its code is imported here and nowhere else.

A module is imported once; `register` runs for every load, so each pod gets what it registers
anew. Loading blocks for as long as a plugin's import does.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import sys
import threading
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import cast

from attrs import frozen

from . import hermes
from .attempt import tried
from .discovery import BUILT_IN, BUNDLED, EngineInfo, find_engine, list_engines
from .engine import ContextEngine
from .errors import EngineMissingInPlugin, EngineNotFound, EngineUnavailable
from .ownership import owned
from .registration import Registration

__all__ = ["EngineInfo", "LoadedPlugin", "list_engines", "load_engine", "load_plugin"]

_NAMESPACE = "pod_plugins"
_REQUIRED = ("name", "update_from_response", "should_compress", "compress")

_importing = threading.Lock()
_locks: dict[str, threading.RLock] = {}


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

    loaded, failure = tried(lambda: _target(info, bundled_dir))
    if failure is not None:
        raise EngineUnavailable(name, _reason(failure)) from failure

    registration = Registration(name)
    _, failure = tried(lambda: _register(loaded, registration))
    engine = registration.engine or _instance(loaded, name, failure)
    missing, failure = tried(lambda: [part for part in _REQUIRED if not hasattr(engine, part)])
    if failure is not None:
        raise EngineUnavailable(name, _reason(failure)) from failure
    if missing:
        reason = f"it registered a {type(engine).__name__} without {', '.join(missing)}"
        raise EngineUnavailable(name, reason)

    return LoadedPlugin(owned(cast("ContextEngine", engine), loaded, name), info, registration)


# ------------------------------------------------------------------ the plugin's code


def _target(info: EngineInfo, bundled_dir: Path) -> object:
    """Return the module, class or function that the engine comes from."""
    if info.source == "bundled" and bundled_dir == BUNDLED:
        return importlib.import_module(f"pod.context.engines.{info.name}")

    hermes.install()
    if info.entry_point is not None:
        return info.entry_point.load()

    assert info.path is not None  # noqa: S101  an engine has a folder or an entry point
    return _module_of(info.path)


def _module_of(folder: Path) -> ModuleType:
    """Return the folder as a package, imported once for each path."""
    path = folder.resolve()
    digest = hashlib.sha256(bytes(path)).hexdigest()[:8]
    name = f"{_NAMESPACE}.{folder.name.replace('.', '_')}_{digest}"
    with _importing:
        # Importing a part of a package by its full name looks at the outermost package too.
        namespace = sys.modules.setdefault(_NAMESPACE, ModuleType(_NAMESPACE))
        namespace.__path__ = []
        lock = _locks.setdefault(name, threading.RLock())

    with lock:
        known = sys.modules.get(name)
        return known if known is not None else _imported(name, path)


def _imported(name: str, path: Path) -> ModuleType:
    spec = spec_from_file_location(
        name, path / "__init__.py", submodule_search_locations=[str(path)]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be imported")

    module = module_from_spec(spec)
    sys.modules[name] = module
    is_whole = False
    try:
        spec.loader.exec_module(module)
        is_whole = True
    finally:
        if not is_whole:
            _forget(name)

    return module


def _forget(name: str) -> None:
    for part in [known for known in sys.modules if f"{known}.".startswith(f"{name}.")]:
        del sys.modules[part]


# ------------------------------------------------------------------ finding the engine


def _register(loaded: object, registration: Registration) -> None:
    register = loaded if inspect.isroutine(loaded) else getattr(loaded, "register", None)
    if callable(register) and not isinstance(loaded, type):
        register(registration)


def _instance(loaded: object, name: str, failure: BaseException | None) -> ContextEngine:
    for cls in _classes(loaded):
        try:
            inspect.signature(cls).bind()
        except (TypeError, ValueError):
            continue  # It wants arguments: not one to be made by itself.

        engine, error = tried(cls)
        if engine is not None:
            return engine

        failure = failure or error

    if failure is not None:
        raise EngineUnavailable(name, _reason(failure)) from failure

    raise EngineMissingInPlugin(
        name, "it registers none, and defines no ContextEngine that can be made without arguments"
    )


def _classes(loaded: object) -> list[type[ContextEngine]]:
    """Return the concrete engine classes of a module in the order of their definition."""
    if not isinstance(loaded, ModuleType):
        found = [loaded]
    else:
        # Classes that were only imported, such as a base class, are somebody else's engines.
        own = f"{loaded.__name__}."
        found = [
            value
            for value in vars(loaded).values()
            if f"{getattr(value, '__module__', '')}.".startswith(own)
        ]

    return [
        value
        for value in found
        if isinstance(value, type)
        and issubclass(value, ContextEngine)
        and not inspect.isabstract(value)
    ]


def _reason(error: BaseException) -> str:
    """Return in one line why a plugin does not load."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        return _missing(error.name)

    if isinstance(error, SyntaxError):
        file = Path(error.filename).name if error.filename else "its code"
        return f"{file}, line {error.lineno}: {error.msg}"

    said = " ".join(str(error).split())
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _missing(module: str) -> str:
    hidden_by = hermes.shadowed_by(module)
    if hidden_by:
        return f"it needs the module {module!r}, which another package hides: {hidden_by}"
    if module.startswith(f"{_NAMESPACE}."):
        return f"its own module {module.split('.', 2)[-1]!r} is missing"
    if hermes.is_unserved(module):
        return f"it needs the Hermes module {module!r}, which is not served here"

    return f"it needs the module {module!r}, which is not installed"
