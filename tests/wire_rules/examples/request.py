"""How examples are written: a good request, and small edits of it that break one rule each."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping
from typing import Any

from attrs import evolve, field, frozen

from tests.wire_rules.openai_chat_rules import Variant

DROP = object()
"""In an edit: the key goes."""
PIXEL = "iVBORw0KGgo="
"""The first bytes of a PNG; nobody looks at the picture."""


@frozen
class Sent:
    """A request: where to, what, and under which headers."""

    path: str
    body: dict[str, Any]
    headers: Mapping[str, str]
    variant: Variant | None = None
    raw: bytes | None = None
    """The bytes, where they are not those of `body`."""

    @property
    def data(self) -> bytes:
        return self.raw if self.raw is not None else json.dumps(self.body).encode()


@frozen
class Bad:
    """A request that breaks `rule`; others may be broken with it."""

    rule: str
    why: str
    sent: Sent


@frozen
class Table:
    """Good requests of one API, and bad ones."""

    good: dict[str, Sent] = field(factory=dict)
    bad: list[Bad] = field(factory=list)

    def breaks(self, rule: str, why: str, good: Sent, edits: Mapping[str, Any]) -> None:
        """Enter a bad request: `good` with values set, or dropped, at paths such as `a[0].b`."""
        self.bad.append(Bad(rule, why, evolve(good, body=edited(good.body, edits))))


def edited(body: dict[str, Any], edits: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of `body` with other values at some paths. `[+]` appends to a list."""
    made = copy.deepcopy(body)
    for path, value in edits.items():
        steps = [
            int(step[1:-1]) if step[1:-1].isdigit() else step
            for step in re.findall(r"\[[\d+]+\]|[^.\[\]]+", path)
        ]
        held: Any = made
        for step in steps[:-1]:
            held = held[step]
        last = steps[-1]
        if value is DROP:
            del held[last]
        elif last == "[+]":
            held.append(value)
        else:
            held[last] = value

    return made
