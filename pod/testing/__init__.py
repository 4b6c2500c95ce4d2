"""What tests of engines are written with. Everything is loaded on first use; needs no pytest."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .engine_contract import EngineContract, check_engine

_HOMES = {
    "EngineContract": "pod.testing.engine_contract",
    "check_engine": "pod.testing.engine_contract",
}

__all__ = ["EngineContract", "check_engine"]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)

    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
