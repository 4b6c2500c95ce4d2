"""The history that benchmarks run on: user 200 characters, a tool call, 1 KiB of result, 300 back.

Plain values of the Chat Completions shape, standard library only: a peer's interpreter, which has
none of our packages, makes the same ones. Nothing is random.
"""

from __future__ import annotations

import json
from typing import Any

SENTENCE = (
    "we looked through the settings and found that one option names a folder which is gone so the "
    "loader stops early and the report stays empty until somebody sets it right again"
)
WORDS = SENTENCE.split()
TURN = 4
"""How many messages one turn has."""


def prose(seed: int, size: int) -> str:
    """Return `size` characters of text; another seed gives another text."""
    words: list[str] = []
    length = 0
    while length < size + 1:
        n = seed + len(words)
        word = WORDS[(n * 7 + seed) % len(WORDS)] + (str(n % 89) if n % 6 == 0 else "")
        words.append(word)
        length += len(word) + 1

    return " ".join(words)[:size]


def messages(count: int) -> list[dict[str, Any]]:
    """Return the first `count` messages of a long conversation."""
    made: list[dict[str, Any]] = []
    for turn in range((count + TURN - 1) // TURN):
        made += _turn(turn)

    return made[:count]


def _turn(number: int) -> list[dict[str, Any]]:
    call_id = f"call_{number:06d}"
    arguments = json.dumps({"path": f"src/part_{number}.py", "limit": 100 + number % 50})
    function = {"name": "read_file", "arguments": arguments}
    return [
        {"role": "user", "content": prose(number, 200)},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": call_id, "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": call_id, "content": prose(number + 3, 1024)},
        {"role": "assistant", "content": prose(number + 5, 300)},
    ]
