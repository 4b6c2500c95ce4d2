"""Loading the memory provider that a manifest names: its code is imported here and nowhere else.

Where providers are found, and how their code is imported, is as for context engines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

from attrs import frozen

from pod.context.attempt import tried
from pod.context.discovery import EngineInfo, find_plugin
from pod.context.engine import ContextEngine
from pod.context.errors import EngineNotCopied
from pod.context.ownership import owned, release_engine
from pod.context.plugin_code import code_of, instance_of, reason_of, register_with
from pod.context.plugin_folder import writable_by_others
from pod.context.plugin_options import PluginOptions
from pod.context.registration import Registration

from .errors import MemoryNotFound, MemoryUnavailable
from .provider import MemoryProvider

BUNDLED = Path(__file__).with_name("providers")
ENTRY_POINT_GROUP = "pod.memory_providers"

_PACKAGE = "pod.memory.providers"
_REQUIRED = ("name", "initialize")


@frozen
class LoadedProvider:
    """A provider, which no other pod has, and what people should know of its plugin."""

    provider: MemoryProvider
    notices: tuple[str, ...] = ()

    def shut_down(self) -> None:
        """Let the provider let go of everything, and leave it to other pods."""
        try:
            function = getattr(self.provider, "shutdown", None)
            if callable(function):
                function()
        finally:
            self.release()

    def release(self) -> None:
        """Leave the object to other pods."""
        release_engine(cast("ContextEngine", self.provider))


def find_provider(
    name: str, plugins_dir: Path, *, bundled_dir: Path = BUNDLED
) -> EngineInfo | None:
    """Return the provider that `name` means, or None. Imports nothing of it."""
    return find_plugin(name, plugins_dir, bundled_dir=bundled_dir, group=ENTRY_POINT_GROUP)


def is_bundled(name: str) -> bool:
    """Tell whether a provider comes with podworker."""
    return (BUNDLED / name / "__init__.py").is_file()


def load_provider(
    name: str,
    plugins_dir: Path,
    *,
    bundled_dir: Path = BUNDLED,
    options: Mapping[str, object] | None = None,
) -> LoadedProvider:
    """Return the provider called `name`, not initialized. `release` it in the end.

    What its plugin registers is tried first; where that comes to nothing, its first concrete
    `MemoryProvider` subclass that can be made of `options`. May block, as imports do.

    Raises:
        MemoryNotFound: There is none of that name.
        MemoryUnavailable: Its plugin does not load, or has no provider; the reason says why.
    """
    info = find_provider(name, plugins_dir, bundled_dir=bundled_dir)
    if info is None:
        raise MemoryNotFound(
            name, f"no provider of that name is bundled, in {plugins_dir}, or installed"
        )

    package = _PACKAGE if bundled_dir == BUNDLED else None
    loaded, failure = tried(lambda: code_of(info, package=package))
    if failure is not None:
        raise MemoryUnavailable(name, reason_of(failure)) from failure

    registration = Registration(name, PluginOptions(options), info.manifest)
    provider, failure = _provider_of(loaded, registration)
    mine = _own(_checked(provider, name, failure), loaded, name)
    return LoadedProvider(mine, tuple(_notices(info, registration)))


def _provider_of(loaded: object, registration: Registration) -> tuple[object, BaseException | None]:
    if isinstance(loaded, MemoryProvider):
        return loaded, None  # An entry point may be the object itself.

    _, failure = tried(lambda: register_with(loaded, registration))
    if registration.memory_providers:
        return registration.memory_providers[0], failure

    provider, error = instance_of(loaded, MemoryProvider, registration.options)
    return provider, failure or error


def _own(provider: MemoryProvider, loaded: object, name: str) -> MemoryProvider:
    """Return `provider`, or a copy where its plugin hands the same object to every pod."""
    try:
        return cast("MemoryProvider", owned(cast("ContextEngine", provider), loaded, name))
    except EngineNotCopied as error:
        reason = f"another pod uses the same object, and it cannot be copied ({error.reason})"
        raise MemoryUnavailable(name, reason) from error


def _checked(provider: object, name: str, failure: BaseException | None) -> MemoryProvider:
    if provider is None and failure is not None:
        raise MemoryUnavailable(name, reason_of(failure)) from failure

    if provider is None:
        reason = (
            "it registers none, and defines no MemoryProvider that can be made without arguments"
        )
        raise MemoryUnavailable(name, reason)

    missing, failure = tried(lambda: [part for part in _REQUIRED if not hasattr(provider, part)])
    if failure is not None:
        raise MemoryUnavailable(name, reason_of(failure)) from failure
    if missing:
        reason = f"it registered a {type(provider).__name__} without {', '.join(missing)}"
        raise MemoryUnavailable(name, reason)

    return cast("MemoryProvider", provider)


def _notices(info: EngineInfo, registration: Registration) -> Iterator[str]:
    if info.path is not None and (why := writable_by_others(info.path)):
        yield f"{why}: whoever that is can run code in this pod; chmod go-w it"

    if registration.engine is not None:
        return  # The rest is the engine's, whose host tells of it.

    unused = [
        *(f"hook {name}" for name in registration.hooks),
        *(f"command {name}" for name in registration.commands),
        *(f"tool {name}" for name in registration.tools),
    ]
    if unused:
        yield f"registers what has no use here: {', '.join(unused)}"
