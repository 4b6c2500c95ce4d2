"""What tests of engines are written with. Everything is loaded on first use; needs no pytest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pod.lazy import loaded_on_use as _loaded_on_use

if TYPE_CHECKING:
    from .engine_contract import EngineContract, check_engine

_HOME_OF = {
    "EngineContract": ".engine_contract",
    "check_engine": ".engine_contract",
}

__all__ = ["EngineContract", "check_engine"]

__getattr__, __dir__ = _loaded_on_use(__name__, _HOME_OF)
