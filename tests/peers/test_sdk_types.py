"""Our rules and our requests, held to the parameter types of the vendors' own SDKs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.wire_rules.checker import Api, api_of
from tests.wire_rules.histories import HISTORIES
from tests.wire_rules.targets import TARGETS, Target
from tests.wire_rules.test_any_history import REQUESTS
from tests.wire_rules.test_rules import TABLES
from worker.projection import repair

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / "build" / "peers" / "sdk" / "bin" / "python"

pytestmark = [
    pytest.mark.skipif(
        not PYTHON.exists(), reason="the vendors' SDKs are not installed: scripts/peers does it"
    ),
    pytest.mark.timeout(180),
]

TYPED = {
    name: target
    for name, target in TARGETS.items()
    if target.variant in (None, "official") and target.provider != "ollama"
}


def refused(requests: Sequence[tuple[Api | None, Any]]) -> list[str]:
    """What the SDKs' types say of requests that they do not take."""
    done = subprocess.run(
        [PYTHON, Path(__file__).with_name("sdk_types.py")],
        input="".join(f"{json.dumps(one)}\n" for one in requests),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return [f"{json.dumps(requests[number])[:500]}\n  {why}" for number, why in found]


def test_what_our_rules_call_right_is_right_by_the_types() -> None:
    good = [
        (api_of(sent.path), sent.body)
        for name, table in TABLES.items()
        for sent in table.good.values()
        if name != "ollama" and sent.variant in (None, "official")
    ]
    assert len(good) > 30
    assert refused(good) == []


@pytest.mark.parametrize("target", TYPED.values(), ids=TYPED)
def test_what_we_send_is_right_by_the_types(target: Target) -> None:
    requests: list[tuple[Api | None, Any]] = []

    @given(HISTORIES, REQUESTS, st.integers(0, 12))
    @settings(max_examples=200, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    def collect(items: Any, request: Any, cut: int) -> None:
        sent = repair(items[cut:])
        if sent:
            body = target.encoder().encode(evolve(request, items=tuple(sent)))
            requests.append((api_of(target.scheme.path(target.model)), json.loads(body)))

    collect()
    assert len(requests) > 10
    assert refused(requests) == []


def test_the_types_refuse_what_is_wrong() -> None:
    wrong = [
        (api_of(bad.sent.path), bad.sent.body)
        for name, table in TABLES.items()
        for bad in table.bad
        if bad.rule == "shape.unknown" and name in ("anthropic", "chat", "responses", "gemini")
        if bad.sent.variant in (None, "official")
    ]
    assert len(refused(wrong)) == len(wrong) > 8
