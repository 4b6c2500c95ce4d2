"""A long life of a pod, by dice: tools, notes, prunes, compactions, restarts; what always holds."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

from pod.protocol import CompactionDone, Envelope, PruneApplied, RequestStart, RunEnd
from session_store import FileSessionStore
from tests.fake_provider import Asked, Say, Script, serving
from tests.pod.pods import (
    BIG_TOOL,
    assert_paired,
    chat,
    living,
    logs,
    manifest,
    pointer,
    prose,
    summary,
    user_texts,
)

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(90)]

EXTRA = BIG_TOOL + (
    '[[hooks]]\npoint = "OnPromptSubmit"\npython = "tests.pod.big_tools:remember"\n'
    "[compaction]\nprune_protected_tokens = 9000\nprune_min_savings = 8000\n"
    "compact_threshold = 30000\ncompact_request_threshold = 40000\n"
    "compact_retained_turns = 2\ncompact_retained_tokens = 6000\n"
)


def by_dice(dice: random.Random) -> Script:
    """Answers of any size, with up to three calls at once, of which one names no tool."""

    def script(asked: Asked, number: int) -> Say:
        calls = dice.choices([0, 1, 3], [6, 3, 1])[0]
        names = ["big" if dice.random() < 0.9 else "no_such_tool" for _ in range(calls)]
        arguments = json.dumps({"n": number})
        text = f"answer {number} {prose(dice.choice([20, 400, 4_000]))}"
        return Say(text, calls=tuple((name, arguments) for name in names))

    return script


def prefixes_held(told: list[Envelope], chats: list[Asked]) -> int:
    """Check that each request begins with the one before, but for a prune or a compaction.

    Returns how many of them had to.
    """
    number, moved, held = 0, True, 0
    for envelope in told:
        match envelope.data:
            case CompactionDone() | PruneApplied():
                moved = True
            case RequestStart():
                if not moved:
                    one, two = (chats[n].body["messages"] for n in (number - 1, number))
                    assert two[: len(one)] == one, f"request {number + 1}"
                    assert chats[number].body["tools"] == chats[number - 1].body["tools"]
                    held += 1

                number, moved = number + 1, False
            case _:
                pass

    assert number == len(chats)
    return held


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_what_always_holds(home: Path, seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311
    told: list[Envelope] = []
    files: dict[str, bytes] = {}
    store = FileSessionStore(home)
    with serving(chat(by_dice(dice), summary())) as served:
        path = manifest(home, served.base_url, EXTRA)
        turn = 0
        for _ in range(4):
            resume = store.pointer("probe")
            async with living(path, home, resume=resume) as story:
                for _ in range(dice.randint(4, 9)):
                    turn += 1
                    size = dice.choice([10, 10, 3_000])
                    await story.turns(f"TURN-{turn} {prose(size)}")
                    if dice.random() < 0.15:
                        await story.pod.compact()

                    for session_id in set(logs(home)) - {story.pod.session_id}:
                        log = (home / "sessions" / f"{session_id}.jsonl").read_bytes()
                        assert files.setdefault(session_id, log) == log, "left, and left alone"

                history = story.pod.history

            told += story.told
            assert tuple(store.restore(pointer(home)).history) == history

    chats = [asked for asked in served.asked if not asked.wants_summary]
    ends = [envelope.data for envelope in told if isinstance(envelope.data, RunEnd)]
    assert {end.outcome for end in ends} == {"finished"}
    assert len(ends) == turn
    assert prefixes_held(told, chats) > len(chats) / 2
    assert_paired(chats)
    for asked in chats:
        said = [int(n) for text in user_texts(asked) for n in re.findall(r"^TURN-(\d+)", text)]
        assert said == sorted(set(said)), "each once, in order"
        assert said == list(range(said[0], said[-1] + 1)), "none is left out in between"

    assert sum(isinstance(envelope.data, CompactionDone) for envelope in told) >= 2
    assert any(isinstance(envelope.data, PruneApplied) for envelope in told)
    assert all(report.ok for report in store.verify_all())
