"""A whole pod prunes: rarely, for good, and without touching what was said."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from pod.protocol import CompactionStart, PruneApplied
from session_store import FileSessionStore
from tests.fake_provider import Asked, Say, serving
from tests.pod.pods import BIG_TOOL, chat, kinds, living, log_of, manifest, pointer, prose
from worker import ToolResult

pytestmark = pytest.mark.anyio

PRUNE = BIG_TOOL + "[compaction]\nprune_protected_turns = 2\nprune_min_savings = 14000\n"


def one_call_a_turn(asked: Asked, number: int) -> Say:
    last = asked.body["messages"][-1]
    if last["role"] == "tool":
        return Say("noted")

    return Say(calls=(("big", json.dumps({"n": int(str(last["content"]).split()[-1])})),))


def contents(asked: Asked) -> list[int]:
    return [n for n in range(1, 20) if f"CONTENT-{n} " in asked.text]


async def test_it_prunes_when_it_pays_and_what_was_pruned_stays_so(home: Path) -> None:
    with serving(chat(one_call_a_turn)) as served:
        path = manifest(home, served.base_url, PRUNE + "compact_retained_turns = 4\n")
        async with living(path, home) as story:
            await story.turns(f"{prose(3_000)} 1", "turn 2", "turn 3")
            assert not story.of(PruneApplied), "7,500 tokens do not pay"
            await story.turns("turn 4")
            (applied,) = story.of(PruneApplied)
            assert applied.items == 2
            assert applied.est_savings == 2 * 30_010 // 4
            results = [item for item in story.pod.history if isinstance(item, ToolResult)]
            assert all(item.content for item in results), "the history has it all"
            session_id = story.pod.session_id

        breaks = [
            two.body["messages"][: len(one.body["messages"])] != one.body["messages"]
            for one, two in pairwise(served.asked)
        ]
        assert breaks.count(True) == 1, "requests share their prefix but for the one prune"
        assert contents(served.asked[-1]) == [3, 4]
        assert "big result 1" in served.asked[-1].text

        async with living(path, home, resume=session_id) as story:
            await story.turns("turn 5")
            assert contents(served.asked[-1]) == [3, 4, 5], "also after a restart"
            async with await story.pod.fork() as child:
                await child.run("turn 6")
                assert contents(served.asked[-1]) == [5, 6], "a fork goes on from there"

            done = await story.pod.compact()
            assert done is not None
            pruned = story.pod.history[: story.pod.status().watermark]
            assert [item.summary for item in pruned if isinstance(item, ToolResult)] == [
                "big result 2"
            ], "a compaction un-prunes nothing"

        async with living(path, home, resume=done.new_session_id) as story:
            assert story.pod.status().watermark == len(pruned), "nor does a restart after it"
            await story.turns("turn 7")
            assert "big result 2" in served.asked[-1].text
            assert 2 not in contents(served.asked[-1])

        logged = [e for e in log_of(home, session_id) if e["kind"] == "tool_results"]
        assert all(item["content"] for entry in logged for item in entry["items"])
        assert kinds(home, session_id).count("prune_advanced") == 1


async def test_what_is_read_again_after_a_prune_is_there_again(home: Path) -> None:
    with serving(chat(one_call_a_turn)) as served:
        async with living(manifest(home, served.base_url, PRUNE), home) as story:
            await story.turns("turn 1", "turn 2", "turn 3", "turn 4", "again 1")

    assert 1 in contents(served.asked[-1])


async def test_many_turns_below_the_threshold_share_one_prefix(home: Path) -> None:
    with serving(chat(lambda _asked, n: Say(f"answer {n}"))) as served:
        path = manifest(home, served.base_url, PRUNE)
        async with living(path, home) as story:
            await story.turns(*(f"turn {n}" for n in range(10)))

        async with living(path, home, resume=pointer(home)) as story:
            await story.turns(*(f"turn {n}" for n in range(10, 14)))

    for one, two in pairwise(served.asked):
        assert two.body["messages"][: len(one.body["messages"])] == one.body["messages"]


async def test_cached_tokens_are_in_the_prompts_already(home: Path) -> None:
    """A prompt of 38,196 tokens of which 38,153 were cached is not one of 76,349."""

    def cached(asked: Asked, number: int) -> Say:
        return Say(prose(400), prompt_tokens=38_196, cached_tokens=38_153)

    with serving(chat(cached)) as served:
        extra = "[compaction]\ncompact_threshold = 70000\n"
        async with living(manifest(home, served.base_url, extra), home) as story:
            await story.turns("one", "two", "three", "four")
            assert not story.of(CompactionStart)
            assert 38_196 <= story.pod.status().occupancy < 39_000

        extra = extra.replace("70000", "38000")
        path = manifest(home, served.base_url, extra, name="other")
        async with living(path, home) as story:
            await story.turns("one", "two", "three")
            assert story.of(CompactionStart)


async def test_a_script_in_place_of_a_provider_compacts_too(home: Path) -> None:
    sections = ("Original Task", "Completed Work", "Key Discoveries", "Current State")
    summary = "\n".join(f"## {title}\n- kept" for title in sections)
    lines = [{"text": prose(8_000)}] * 3 + [{"text": summary, "match": "four headings"}]
    (home / "script.jsonl").write_text("\n".join(map(json.dumps, [*lines, {"text": "last"}])))
    path = home / "scripted.toml"
    path.write_text(
        '[pod]\nname = "probe"\n[provider]\nkind = "scripted"\nscript = "script.jsonl"\n'
        "[compaction]\ncompact_threshold = 5000\ncompact_retained_turns = 1\n"
    )
    async with living(path, home) as story:
        await story.turns("one", "two", "three")
        assert [start.trigger for start in story.of(CompactionStart)] == ["threshold"]
        assert (await story.pod.run("four")).text == "last"
        assert FileSessionStore(home).restore(story.pod.session_id).generation == 1
