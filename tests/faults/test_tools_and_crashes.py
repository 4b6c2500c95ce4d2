"""A pod that dies between a tool's intent, its effect and its result, again and again.

Whenever it comes back, each call has exactly one result, and no tool was run twice for one call.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import IO

import pytest

from session_store import FileSessionStore
from tests.fake_provider import Asked, Say, serving
from tests.faults.figures import SEED, figure, report, shares, within
from tests.pod.pods import living, manifest, pointer
from worker.items import AssistantMessage, ToolResult

ROOT = Path(__file__).resolve().parents[2]
CRASHES = figure("TOOL_CRASHES", 200)
CRASHES_OF_ONE_SESSION = 20
PARTS = 2
EXTRA = '[tools]\npython = ["tests.faults.effects:effect"]\n'


def calls_or_ends(asked: Asked, number: int) -> Say:
    """One to three calls at once, each with a token of its own; after some rounds, an answer."""
    if asked.body["messages"][-1]["role"] == "tool" and number % 3 == 0:
        return Say("done")

    tokens = [json.dumps({"token": uuid.uuid4().hex}) for _ in range(1 + number % 3)]
    return Say(calls=tuple(("effect", token) for token in tokens))


@within(120)
@pytest.mark.parametrize("part", range(PARTS))
def test_each_call_has_one_result_and_each_tool_ran_at_most_once(
    home: Path, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = home / "ledger"
    monkeypatch.setenv("FAULTS_LEDGER", str(ledger))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    dice = random.Random(SEED + part)  # noqa: S311  a repeatable choice, no secret
    found: Counter[str] = Counter()
    script = str(Path(__file__).with_name("pod_for_ever.py"))
    with serving(calls_or_ends) as served:
        path = manifest(home, served.base_url, EXTRA)
        with subprocess.Popen(
            [sys.executable, script, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            left = shares(CRASHES, PARTS)[part]
            while left > 0:
                life = home / f"home-{left}"
                for _ in range(min(left, CRASHES_OF_ONE_SESSION)):
                    process.stdin.write(f"{life}\n")
                    process.stdin.flush()
                    crash(process.stdout, dice.randint(1, 5), dice.random() * 0.03)

                left -= CRASHES_OF_ONE_SESSION
                asyncio.run(once_more(path, life))
                found += what_was_done(life, Counter(ledger.read_text().split()))

            process.stdin.close()

    crashes = shares(CRASHES, PARTS)[part]
    report("T16 tools and crashes", crashes=crashes, done_twice=0, **found)
    if crashes >= 50:
        assert found["interrupted"], "no crash came between a call and its result"
        assert found["done_but_unknown"], "no crash came between an effect and its result"


def what_was_done(home: Path, done: Counter[str]) -> Counter[str]:
    store = FileSessionStore(home)
    assert all(found.ok for found in store.verify_all())
    history = store.restore(pointer(home)).history
    calls = [call for i in history if isinstance(i, AssistantMessage) for call in i.tool_calls]
    results = [item for item in history if isinstance(item, ToolResult)]
    answered = Counter(result.call_uid for result in results)
    assert answered == Counter(call.call_uid for call in calls)
    assert set(answered.values()) == {1}, "each call has one result"

    token_of = {call.call_uid: json.loads(call.arguments)["token"] for call in calls}
    assert all(done[token] <= 1 for token in token_of.values()), "nothing was done twice"
    unknown = [result for result in results if result.is_error]
    known = [result for result in results if not result.is_error]
    assert all(done[token_of[result.call_uid]] for result in known), "what is told was done"
    return Counter(
        calls=len(calls),
        interrupted=len(unknown),
        done_but_unknown=sum(done[token_of[result.call_uid]] for result in unknown),
    )


def crash(told: IO[str], calls: int, delay_s: float) -> None:
    """Wait for a pod to start and kill it so long after the model asked for its n-th call."""
    pid, seen = 0, 0
    while seen < calls or not pid:
        line = told.readline().strip()
        assert line and line != "gone", "the child ended by itself"  # noqa: PT018
        seen += line == "calling"
        pid = int(line.removeprefix("pid ")) if line.startswith("pid ") else pid

    time.sleep(delay_s)
    os.kill(pid, signal.SIGKILL)
    while told.readline().strip() != "gone":
        pass


async def once_more(path: Path, home: Path) -> None:
    async with living(path, home, resume=pointer(home)) as story:
        await story.turns("the last thing")
