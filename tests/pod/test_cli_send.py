"""What the words after a method's name are taken for."""

from __future__ import annotations

from typing import Any

import pytest

from pod.cli.send import parameters


@pytest.mark.parametrize(
    ("method", "words", "params"),
    [
        ("run", ["input=5"], {"input": "5"}),
        ("fork", ["at=12345678"], {"at": "12345678"}),
        ("compact", ["focus=2024"], {"focus": "2024"}),
        ("rewind", ["to=00001234"], {"to": "00001234"}),
        ("subscribe", ["launch=1e5", "from_seq=7"], {"launch": "1e5", "from_seq": 7}),
        (
            "subscribe",
            ['events=["run_end"]', "observe=true"],
            {"events": ["run_end"], "observe": True},
        ),
        ("approve", ["call_id=1", "decision=allow"], {"call_id": "1", "decision": "allow"}),
        ("run", ['{"input": "5"}'], {"input": "5"}),
        ("no_such", ["a=1", "b=x"], {"a": 1, "b": "x"}),
    ],
)
def test_a_text_stays_one_whatever_it_looks_like(
    method: str, words: list[str], params: dict[str, Any]
) -> None:
    assert parameters(method, tuple(words)) == params
