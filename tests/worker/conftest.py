"""Every bench that a test makes is checked when the test ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.worker.bench import Bench, make_bench


@pytest.fixture
def bench(request: pytest.FixtureRequest) -> Iterator[Callable[..., Bench]]:
    """Make a worker on a bench: `bench(answers, tools=…, hooks=…, config=…, stages=…)`."""
    made: list[Bench] = []
    keeps_prefix = request.node.get_closest_marker("moves_prefix") is None

    def make(answers: Any = (), **options: Any) -> Bench:
        made.append(make_bench(answers, keeps_prefix=keeps_prefix, **options))
        return made[-1]

    yield make
    for each in made:
        each.check()
