"""The contract as tests: a class to inherit from, with one test for each check."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar
from unittest import SkipTest

from pod.context.engine import ContextEngine

from .catalogue import CHECKS
from .results import Check
from .running import Terms, run_check


class EngineContract:
    """Tests that hold an engine to the contract: inherit, and say how one is made.

    class TestMine(EngineContract):
        def engine(self):
            return Mine()

    Each check is a method `test_…`, found by pytest. One that says nothing about the engine is
    skipped, with the reason.
    """

    limit_s: ClassVar[float] = 20.0
    """How long any one call into the engine may take."""
    examples: ClassVar[int] = 20
    """How many conversations are made up beside the fixed ones, for each property."""
    save: ClassVar[Path | None] = None
    """Where input that breaks a check is saved."""
    waived: ClassVar[Mapping[str, str]] = {}
    """Checks that the engine does not keep to on purpose: by id, why. They are skipped."""

    _slow: ClassVar[set[str]] = set()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._slow = set()

    def engine(self) -> ContextEngine:
        """Return a new engine, each time."""
        raise NotImplementedError(f"{type(self).__name__} must define engine()")


def _test_of(check: Check) -> Callable[[EngineContract], None]:
    def test(self: EngineContract) -> None:
        if check.id in self.waived:
            raise SkipTest(f"waived: {self.waived[check.id]}")

        terms = Terms(limit_s=self.limit_s, examples=self.examples, save=self.save)
        called = type(self).__name__
        slow = self._slow
        result = run_check(check, self.engine, terms=terms, name=called, slow=slow)
        if result.outcome == "not applicable":
            raise SkipTest(result.found)

        where = f" (input: {result.saved})" if result.saved else ""
        told = f"{check.statement} [{check.source}]\nfound: {result.found}{where}"
        assert result.outcome == "holds", told  # noqa: S101  a test fails by an assertion

    test.__name__ = f"test_{check.id.replace('-', '_')}"
    test.__qualname__ = f"EngineContract.{test.__name__}"
    test.__doc__ = check.statement
    return test


for _check in CHECKS:
    _made = _test_of(_check)
    setattr(EngineContract, _made.__name__, _made)
