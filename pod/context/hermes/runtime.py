"""What served modules work with: one runtime a pod, found by the context of the call.

The host of an engine enters `use_runtime` around every call into it. A thread that a plugin starts
by itself has no such context: whose it is, is told by the plugin's modules on its stack.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import FrameType

from attrs import define, field

from pod.context.engine import JsonDict
from worker.llm.types import Usage

from .completion import Completions
from .plugin_slots import PluginManager

PLUGINS_PACKAGE = "pod_plugins"
"""The package that folders of plugins are imported under: each as its name and a digest."""


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
    """Return the runtime of this call, or None where there is none.

    A thread without a context gets that of the pod which was activated last, of those with the
    plugin that calls: they have the same home and, as a rule, the same configuration.
    """
    entered = _entered.get()
    if entered is not None:
        return entered

    candidates = _candidates()
    return candidates[-1] if candidates else None


def is_ambiguous() -> bool:
    """Tell whether this call could be that of several pods, which may ask different providers."""
    return _entered.get() is None and len(_candidates()) > 1


def _candidates() -> list[HermesRuntime]:
    with _lock:
        activated = list(_activated)

    if len(activated) < 2:
        return activated

    callers = _plugins_on_the_stack()
    return [one for one in activated if one.engine.replace(".", "_") in callers] or activated


def _plugins_on_the_stack() -> set[str]:
    """Return the folders of the plugins whose code has led to this call."""
    folders = set()
    frame: FrameType | None = sys._getframe()  # noqa: SLF001  inspect.stack() reads source files
    while frame is not None:
        package, _, rest = str(frame.f_globals.get("__name__", "")).partition(".")
        if package == PLUGINS_PACKAGE:
            folders.add(rest.partition(".")[0].rpartition("_")[0])

        frame = frame.f_back

    return folders


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
