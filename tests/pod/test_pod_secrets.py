"""Secrets that a manifest names: in no log and in no event, by whatever way they come."""

from __future__ import annotations

from pathlib import Path

import pytest

from manifests import load_manifest
from pod.home import Home
from pod.launching.preparing import prepare
from pod.protocol import CompactionStart, RunEnd, RunStart
from tests.fake_provider import Asked, Say, serving
from tests.pod.pods import KEY, Story, chat, kinds, living, logs, manifest, prose, summary

pytestmark = pytest.mark.anyio

QUESTIONS = ("one " + prose(8_000), "two " + prose(8_000), "three " + prose(8_000))
MASKED = "[masked: FAKE_KEY]"


def short(asked: Asked, number: int) -> Say:
    return Say(f"answer {number}")


def assert_nowhere(home: Path, story: Story) -> None:
    written = b"".join(path.read_bytes() for path in (home / "sessions").iterdir())
    assert KEY.encode() not in written
    assert not [e for e in story.told if KEY.encode() in e.to_json()]


async def test_in_the_system_prompt(home: Path) -> None:
    """It is sent as it is kept, and nothing is noted as changed at the next launch."""
    with serving(chat(short)) as served:
        path = manifest(home, served.base_url, system=f"The key is {KEY}, be brief.")
        async with living(path, home) as story:
            await story.pod.run("one")

        async with living(path, home, resume=logs(home)[0]) as story:
            await story.pod.run("two")

        assert_nowhere(home, story)
        assert "config_changed" not in kinds(home, logs(home)[0])
        assert {asked.body["messages"][0]["content"] for asked in served.asked} == {
            f"The key is {MASKED}, be brief."
        }


async def test_in_a_summary_and_its_focus(home: Path) -> None:
    with serving(chat(short, summary(KEY))) as served:
        async with living(manifest(home, served.base_url), home) as story:
            await story.turns(*QUESTIONS)
            await story.pod.compact(focus=f"what {KEY} is for")
            assert_nowhere(home, story)
            assert story.of(CompactionStart)[0].focus == f"what {MASKED} is for"
            await story.pod.run("four")
            # What is in memory, and is sent, is what is in the log.
            assert KEY not in served.asked[-1].text
            assert MASKED in served.asked[-1].text


async def test_in_a_prompt(home: Path) -> None:
    with serving(chat(short)) as served:
        async with living(manifest(home, served.base_url), home) as story:
            await story.pod.run(f"use {KEY}")
            assert_nowhere(home, story)
            assert story.of(RunStart)[0].input == f"use {MASKED}"


async def test_in_the_words_of_a_hook_that_stops_the_run(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "loose_guard.py").write_text(
        "from worker.hooks import Cancel\n\n\n"
        f"def check(view):\n    return Cancel('refused by {KEY}')\n\n\n"
        f"def fails(view):\n    raise ValueError('no such user: {KEY}')\n"
    )
    monkeypatch.syspath_prepend(home)
    hooks = (
        '[[hooks]]\npoint = "PreLlmRequest"\npython = "loose_guard:fails"\non_error = "ignore"\n'
        '[[hooks]]\npoint = "PreLlmRequest"\npython = "loose_guard:check"\n'
    )
    with serving(chat(short)) as served:
        async with living(manifest(home, served.base_url, hooks), home) as story:
            result = await story.pod.run("one")
            assert_nowhere(home, story)
            assert result.message == f"refused by {MASKED}"
            assert story.of(RunEnd)[0].message == result.message


@pytest.mark.parametrize(("one", "other"), [("a/key", "b/key"), ("a/key", "a/key")])
def test_two_keys_from_places_of_the_same_name(home: Path, one: str, other: str) -> None:
    for place, key in (("a", "first-secret-1"), ("b", "second-secret-2")):
        (home / place).mkdir()
        (home / place / "key").write_text(key)

    path = manifest(
        home,
        "http://127.0.0.1:1/v1",
        "[compaction.provider]\nkind = 'openai_compatible'\nmodel = 'm'\n"
        f"base_url = 'http://127.0.0.1:1/v1'\napi_key_file = '{other}'\n",
    )
    path.write_text(path.read_text().replace('api_key_env = "FAKE_KEY"', f"api_key_file = '{one}'"))
    masker = prepare(load_manifest(path, env={}), Home(home), {}).masker
    for used in {one, other}:
        secret = (home / used).read_text()
        assert secret not in masker.mask(f"it is {secret}")
