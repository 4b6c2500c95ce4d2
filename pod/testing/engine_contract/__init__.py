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

from typing import TYPE_CHECKING

from pod.lazy import loaded_on_use as _loaded_on_use

if TYPE_CHECKING:
    from .builtin import built_in
    from .catalogue import CHECKS, check_called
    from .contract_class import EngineContract
    from .results import Check, Report, Result
    from .running import Terms, check_engine, name_of, run_check

_HOME_OF = {
    "CHECKS": ".catalogue",
    "Check": ".results",
    "EngineContract": ".contract_class",
    "Report": ".results",
    "Result": ".results",
    "Terms": ".running",
    "built_in": ".builtin",
    "check_called": ".catalogue",
    "check_engine": ".running",
    "name_of": ".running",
    "run_check": ".running",
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

__getattr__, __dir__ = _loaded_on_use(__name__, _HOME_OF)
