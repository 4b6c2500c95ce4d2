"""A finder at the end of `sys.meta_path`: it is asked only for what nobody else has.

So a user's own package always wins. A namespace package of the user's shares its name with ours,
module by module; a regular package keeps the name for itself. One that becomes importable later is
made way for at the next `install`; its namespace portions are found at once.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import overload

_ROOT = Path(__file__).with_name("served")

SERVED: Mapping[str, str] = {
    "agent": "agent/__init__.py",
    "agent.auxiliary_client": "agent/auxiliary_client.py",
    "agent.context_compressor": "agent/context_compressor.py",
    "agent.context_engine": "agent/context_engine.py",
    "agent.conversation_loop": "agent/conversation_loop.py",
    "agent.memory_provider": "agent/memory_provider.py",
    "agent.message_metadata": "agent/message_metadata.py",
    "agent.model_metadata": "agent/model_metadata.py",
    "agent.redact": "agent/redact.py",
    "agent.usage_pricing": "agent/usage_pricing.py",
    "gateway": "gateway/__init__.py",
    "gateway.session_context": "gateway/session_context.py",
    "hermes_cli": "hermes_cli/__init__.py",
    "hermes_cli.config": "hermes_cli/config.py",
    "hermes_cli.plugins": "hermes_cli/plugins.py",
    "hermes_constants": "hermes_constants.py",
    "plugins": "plugins/__init__.py",
    "plugins.context_engine": "plugins/context_engine/__init__.py",
    "tools": "tools/__init__.py",
    "tools.registry": "tools/registry.py",
}
"""The module's name, and its file under `served/`."""


_UNSERVED = frozenset({"hermes_logging", "hermes_state", "hermes_time", "model_tools", "run_agent"})
"""Further modules of Hermes's, of which nothing is served."""


def install() -> None:
    """Serve the Hermes modules to this process from now on; a second call does no harm."""
    with _lock:
        _make_way()
        if _FINDER not in sys.meta_path:
            sys.meta_path.append(_FINDER)


def make_way() -> None:
    """Forget our packages whose names a user's package has taken since, before it is imported."""
    with _lock:
        _make_way()


def is_unserved(name: str) -> bool:
    """Tell whether `name` is a module of Hermes's that is not served."""
    top = name.partition(".")[0]
    return name not in SERVED and (top in SERVED or top in _UNSERVED)


def shadowed_by(name: str) -> str | None:
    """Return where the package stands that keeps the served module `name` from being found.

    None where nothing does, or where no such module is served.
    """
    parent = sys.modules.get(name.partition(".")[0])
    if name not in SERVED or parent is None or _shares_its_name(parent):
        return None

    return str(getattr(parent, "__file__", None) or parent)


class _HermesFinder(MetaPathFinder):
    """Finds the modules of `SERVED`, as files that run under their Hermes names."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Return the spec of a served module, or None."""
        if fullname not in SERVED:
            return None

        parent = fullname.rpartition(".")[0]
        if parent and not _shares_its_name(sys.modules.get(parent)):
            return None

        file = _ROOT / SERVED[fullname]
        spec = spec_from_file_location(fullname, file)
        if spec is not None and file.name == "__init__.py":
            spec.submodule_search_locations = _OpenPath(fullname)  # type: ignore[assignment]  # any sequence does, as for namespace packages
        return spec


class _OpenPath(Sequence[str]):
    """The `__path__` of a served package: the folders of its name that users have, as of now.

    Ours is not among them: it would come before what a user adds later.
    """

    def __init__(self, package: str) -> None:
        self._package = package

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        return self._folders()[index]

    def __len__(self) -> int:
        return len(self._folders())

    def __iter__(self) -> Iterator[str]:
        return iter(self._folders())

    def _folders(self) -> list[str]:
        parent, _, name = self._package.rpartition(".")
        entries = sys.modules[parent].__path__ if parent else sys.path
        folders = [Path(entry) / name for entry in entries]
        return [str(folder) for folder in folders if folder.is_dir()]


_FINDER = _HermesFinder()
_lock = threading.Lock()


def _is_ours(module: ModuleType | None) -> bool:
    origin = getattr(getattr(module, "__spec__", None), "origin", None)
    return isinstance(origin, str) and Path(origin).is_relative_to(_ROOT)


def _shares_its_name(package: ModuleType | None) -> bool:
    """Tell whether modules of ours may stand in `package`: it is ours, or open to everybody."""
    spec = getattr(package, "__spec__", None)
    is_namespace = spec is not None and spec.origin is None and hasattr(package, "__path__")
    return is_namespace or _is_ours(package)


def _make_way() -> None:
    """Forget our packages whose names a user's regular package has taken since."""
    for name in [name for name in SERVED if "." not in name]:
        module = sys.modules.get(name)
        if module is None or not _is_ours(module):
            continue

        found = PathFinder.find_spec(name)
        if found is not None and found.origin is not None:
            for taken in [known for known in sys.modules if known.partition(".")[0] == name]:
                del sys.modules[taken]
