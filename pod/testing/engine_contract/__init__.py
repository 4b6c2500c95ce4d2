"""Holding context engines to their contract: a library of checks, and the same as tests.

    report = check_engine(MyEngine)
    assert not report.broken

    class TestMyEngine(EngineContract):
        def engine(self):
            return MyEngine()

`docs/engine-contract.md` has every check. Nothing here needs pytest; hypothesis is used where it is
installed. Everything is loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .builtin import built_in
    from .catalogue import CHECKS, check_called
    from .contract_class import EngineContract
    from .results import Check, Report, Result
    from .running import Terms, check_engine, name_of, run_check

_HOMES = {
    "CHECKS": "catalogue",
    "Check": "results",
    "EngineContract": "contract_class",
    "Report": "results",
    "Result": "results",
    "Terms": "running",
    "built_in": "builtin",
    "check_called": "catalogue",
    "check_engine": "running",
    "name_of": "running",
    "run_check": "running",
}

__all__ = [
    "CHECKS",
    "Check",
    "EngineContract",
    "Report",
    "Result",
    "Terms",
    "built_in",
    "check_called",
    "check_engine",
    "name_of",
    "run_check",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)

    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
