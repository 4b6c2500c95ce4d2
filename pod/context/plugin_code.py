"""The code of a plugin: imported once, asked what it registers, its failures put in one line.

Engines and memory providers come through here alike.
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

from . import hermes
from .attempt import tried
from .discovery import EngineInfo
from .hermes.runtime import PLUGINS_PACKAGE as NAMESPACE
from .plugin_options import PluginOptions, made_with
from .words import error_line

_importing = threading.Lock()
_locks: dict[str, threading.RLock] = {}


def code_of(info: EngineInfo, *, package: str | None) -> object:
    """Return the module, class or function that a plugin is made from; importing it may block.

    `package` is the one that bundled plugins are modules of; without it they are folders like any.
    Raises whatever its code raises.
    """
    if info.source == "bundled" and package is not None:
        return importlib.import_module(f"{package}.{info.name}")

    hermes.install()
    if info.entry_point is not None:
        return info.entry_point.load()

    assert info.path is not None  # noqa: S101  a plugin has a folder or an entry point
    return module_of(info.path)


def module_of(folder: Path) -> ModuleType:
    """Return the folder as a package, imported once for each path."""
    path = folder.resolve()
    digest = hashlib.sha256(bytes(path)).hexdigest()[:8]
    name = f"{NAMESPACE}.{folder.name.replace('.', '_')}_{digest}"
    with _importing:
        # Importing a part of a package by its full name looks at the outermost package too.
        namespace = sys.modules.setdefault(NAMESPACE, ModuleType(NAMESPACE))
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


# ------------------------------------------------------------------ what it holds


def register_with(loaded: object, registration: object) -> None:
    """Call a plugin's `register(registration)`, where it has one. Raises whatever that raises."""
    register = loaded if inspect.isroutine(loaded) else getattr(loaded, "register", None)
    if callable(register) and not isinstance(loaded, type):
        register(registration)


def instance_of(
    loaded: object, base: type, options: PluginOptions | None = None
) -> tuple[object, BaseException | None]:
    """Return a plugin's first concrete `base` that can be made of the options, or its failure.

    Neither, where it has no such class. The options that its constructor names are taken.
    """
    failure: BaseException | None = None
    for cls in _classes(loaded, base):
        make = made_with(cls, options or PluginOptions())
        if make is None:
            continue  # It wants arguments: not one to be made by itself.

        made, error = tried(make)
        if made is not None:
            return made, None

        failure = failure or error

    return None, failure


def _classes(loaded: object, base: type) -> list[type]:
    """Return the concrete classes of a module in the order of their definition."""
    if not isinstance(loaded, ModuleType):
        found = [loaded]
    else:
        # Classes that were only imported, such as a base class, are somebody else's.
        own = f"{loaded.__name__}."
        found = [
            value
            for value in vars(loaded).values()
            if f"{getattr(value, '__module__', '')}.".startswith(own)
        ]

    return [
        value
        for value in found
        if isinstance(value, type) and issubclass(value, base) and not inspect.isabstract(value)
    ]


# ------------------------------------------------------------------ what went wrong


def reason_of(error: BaseException) -> str:
    """Return in one line why a plugin does not load."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        return _missing(error.name)

    if isinstance(error, SyntaxError):
        file = Path(error.filename).name if error.filename else "its code"
        return f"{file}, line {error.lineno}: {error.msg}"

    return error_line(error)


def _missing(module: str) -> str:
    hidden_by = hermes.shadowed_by(module)
    if hidden_by:
        return f"it needs the module {module!r}, which another package hides: {hidden_by}"
    if module.startswith(f"{NAMESPACE}."):
        return f"its own module {module.split('.', 2)[-1]!r} is missing"
    if hermes.is_unserved(module):
        return f"it needs the Hermes module {module!r}, which is not served here"

    return f"it needs the module {module!r}, which is not installed"
