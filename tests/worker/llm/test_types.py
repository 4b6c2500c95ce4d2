"""Usage in one meaning: what was said is added, and what nobody said stays unknown."""

from __future__ import annotations

import pytest

from worker.llm import Usage


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (Usage(), Usage(), Usage()),
        (Usage(), Usage(5, 2), Usage(5, 2)),
        (Usage(5, 2, 1), Usage(7, None, None, 3), Usage(12, 2, 1, 3)),
        (Usage(0, 0), Usage(), Usage(0, 0)),
        (Usage(5, 2, 0, 0), Usage(7, 3, 4, 1), Usage(12, 5, 4, 1)),
    ],
)
def test_a_sum_is_of_what_was_said(one: Usage, other: Usage, both: Usage) -> None:
    assert one + other == both
    assert other + one == both
