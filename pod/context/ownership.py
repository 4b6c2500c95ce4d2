"""One engine, one pod: whose an engine object is, and copies of those that plugins share."""

from __future__ import annotations

import copy
import threading
import weakref
from collections.abc import Callable

from .attempt import tried
from .engine import ContextEngine
from .errors import EngineNotCopied
from .words import error_line

_lock = threading.Lock()
_copying = threading.Lock()
_in_use: dict[int, Callable[[], ContextEngine | None]] = {}


def owned(engine: ContextEngine, plugin: object, name: str) -> ContextEngine:
    """Return an engine that no other pod has: `engine` itself, or its copy.

    One that is in use, or that the module `plugin` holds on to, is copied by its
    `clone_for_agent`; where that fails, the first pod gets the object itself.

    Raises:
        EngineNotCopied: The object is in use, and the copy failed.
    """
    with _lock:
        is_shared = _is_used(engine) or any(value is engine for value in _globals(plugin))
        if not is_shared:
            return _taken(engine)

    # A plugin's code, which may take its time: nobody who lets go of an engine waits for it.
    with _copying:
        clone, failure = tried(lambda: _copy(engine))

    with _lock:
        if clone is not None and not _is_used(clone):
            return _taken(clone)

        if not _is_used(engine):
            return _taken(engine)

    why = failure or ValueError("clone_for_agent returned the engine of another pod")
    raise EngineNotCopied(name, error_line(why)) from failure


def release_engine(engine: ContextEngine) -> None:
    """Note that the pod of `engine` has ended, so that another pod may have the object itself."""
    with _lock:
        _in_use.pop(id(engine), None)


def _copy(engine: ContextEngine) -> ContextEngine:
    clone = getattr(engine, "clone_for_agent", None)
    made = clone() if callable(clone) else copy.deepcopy(engine)
    if made is None or made is engine:
        given = "None" if made is None else "the engine itself"
        raise ValueError(f"clone_for_agent returned {given}")

    return made


def _is_used(engine: ContextEngine) -> bool:
    reference = _in_use.get(id(engine))
    return reference is not None and reference() is engine


def _taken(engine: ContextEngine) -> ContextEngine:
    key = id(engine)
    try:
        _in_use[key] = weakref.ref(engine, lambda _: _in_use.pop(key, None))
    except TypeError:  # Its class has slots, and none for that: it stays until it is released.
        _in_use[key] = lambda: engine

    return engine


def _globals(plugin: object) -> list[object]:
    return list(vars(plugin).values()) if hasattr(plugin, "__dict__") else []
