"""What served modules work with: one runtime a pod, found by the context of the call.

The host of an engine enters `use_runtime` around every call into it. A thread that a plugin starts
by itself has no such context: it gets the runtime of the pod that was activated last.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from attrs import define, field

from pod.context.engine import JsonDict
from worker.llm.types import Usage

from .completion import Completions
from .plugin_slots import PluginManager


def _nowhere() -> str:
    return ""


def _unpriced(_usage: Usage, _model: str) -> float | None:
    return None


@define(eq=False)
class HermesRuntime:
    """A pod, as far as plugins written for Hermes can see it."""

    engine: str
    """The engine's name, as the manifest has it."""
    config: JsonDict
    """What `load_config()` gives; see `config.py`."""
    completions: Completions
    home: Callable[[], Path]
    """Gives the engine's own folder, made where it is not there yet."""
    plugins_dir: Path
    """Where plugins are looked for by name."""
    session_id: Callable[[], str] = _nowhere
    price: Callable[[Usage, str], float | None] = _unpriced
    """What a usage of a model costs, in US dollars, where that is known."""
    plugins: PluginManager = field(factory=PluginManager)


_entered: ContextVar[HermesRuntime | None] = ContextVar("pod.hermes.runtime", default=None)
_activated: list[HermesRuntime] = []
_lock = threading.Lock()


@contextmanager
def use_runtime(runtime: HermesRuntime) -> Iterator[HermesRuntime]:
    """Let what runs inside, and what it hands its context to, work with `runtime`."""
    token = _entered.set(runtime)
    try:
        yield runtime
    finally:
        _entered.reset(token)


def current_runtime() -> HermesRuntime | None:
    """Return the runtime of this call; outside of any, that of the pod activated last, or None."""
    entered = _entered.get()
    if entered is not None:
        return entered

    with _lock:
        return _activated[-1] if _activated else None


def activate(runtime: HermesRuntime) -> None:
    """Make `runtime` the one for threads without a context of their own."""
    with _lock:
        _activated.append(runtime)


def deactivate(runtime: HermesRuntime) -> None:
    """Take `runtime` away again and give up its calls; idempotent."""
    with _lock:
        if runtime in _activated:
            _activated.remove(runtime)

    runtime.completions.close()
