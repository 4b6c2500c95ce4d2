"""What tests of every dialect stand on."""

from __future__ import annotations

import pytest

from tests.worker.llm.dialects import DIALECTS, Dialect


@pytest.fixture(scope="module", params=DIALECTS, ids=str)
def dialect(request: pytest.FixtureRequest) -> Dialect:
    """Each dialect in turn. A test of some of them names these: `parametrize("dialect", …)`."""
    each: Dialect = request.param
    return each
