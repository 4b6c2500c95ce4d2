"""Packages whose names are loaded on first use, so that importing the package costs nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def loaded_on_use(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return the `__getattr__` and the `__dir__` of a package that offers the names of `homes`.

    Args:
        package: The package's own `__name__`.
        homes: Which module each name is taken from; `.claim` is one inside of the package.
    """

    def get(name: str) -> object:
        home = homes.get(name)
        if home is None:
            message = f"module {package!r} has no attribute {name!r}"
            raise AttributeError(message)

        value: object = getattr(import_module(home, package), name)
        setattr(sys.modules[package], name, value)  # From now on it is found without asking here.
        return value

    return get, lambda: sorted(homes)
