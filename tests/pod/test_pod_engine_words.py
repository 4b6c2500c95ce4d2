"""Engines that say too much, or what no text can hold: pods go on, and tell of it in few words."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pytest

from pod.compaction.plan import CompactionError
from pod.protocol import CompactionFailed, EngineNotice, RunEnd
from tests.fake_provider import Asked, Say, serving
from tests.pod.context.engine_shelf import USE, Recorder, shelve
from tests.pod.pods import KEY, chat, living, log_of, logs, manifest, prose

pytestmark = pytest.mark.anyio

HALF = "\ud800"
"""Half of a surrogate pair: text in Python, and nowhere else."""
ODD = f"{HALF} {'much ' * 100_000}"
MOST_BYTES = 20_000


def long(asked: Asked, number: int) -> Say:
    return Say(f"answer {number} {prose(3_000)}")


class Mute(Exception):
    """Has nothing to say for itself."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


class Wordless:
    """Cannot be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no words")


def raising(error: BaseException) -> Any:
    def hook(*_args: Any, **_kwargs: Any) -> Any:
        raise error

    return hook


def giving(value: Any) -> Any:
    return lambda *_args, **_kwargs: value


def calling(arguments: object) -> list[dict[str, Any]]:
    function = {"name": "f", "arguments": arguments}
    call = {"id": "c", "type": "function", "function": function}
    return [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "r"},
        {"role": "user", "content": "go on"},
    ]


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"deeper": value}

    return value


def broken() -> Any:
    return property(raising(ZeroDivisionError("no hook")))


CASES: dict[str, dict[str, Any]] = {
    "name": {"name": ODD},
    "what compress raises": {"compress": raising(ValueError(ODD))},
    "what compress raises, mute": {"compress": raising(Mute())},
    "a role": {"compress": giving([{"role": ODD, "content": "x"}])},
    "a role that cannot be shown": {"compress": giving([{"role": Wordless(), "content": "x"}])},
    "a uid that comes twice": {
        "compress": giving([{"role": "user", "content": "x", "message_uid": ODD}] * 2)
    },
    "a call": {"compress": giving([{"role": "tool", "tool_call_id": ODD, "content": "x"}])},
    "why it gave up": {"_last_compress_aborted": True, "_last_summary_error": ODD},
    "why its summary failed": {"_last_summary_error": ODD, "_last_summary_fallback_used": True},
    "why it holds back": {"should_compress_info": giving((False, ODD))},
    "what is said of a compaction": {
        "get_automatic_compaction_status_message": giving(ODD),
        "should_compress": giving(True),
    },
    "what a hook raises": {"on_turn_complete": raising(ValueError(ODD))},
    "what a hook raises, mute": {"on_turn_complete": raising(Mute())},
    "status": {
        "get_status": giving({"big": 2**80, "odd": ODD, ODD: 1, "fine": 3}),
        "threshold_tokens": 2**70,
    },
    "hooks that cannot be looked up": {
        "select_context": broken(),
        "on_turn_complete": broken(),
        "has_content_to_compress": broken(),
        "get_tool_schemas": broken(),
    },
    "a selection's arguments": {"select_context": giving(calling({"x": object()}))},
    "a selection's nested arguments": {"select_context": giving(calling(nested(5_000)))},
    "a selection's role": {"select_context": giving([{"role": Wordless(), "content": "x"}])},
}


MOVES = pytest.mark.moves_prefix("the engine compacts, or selects what a request holds")


def all_cases() -> list[Any]:
    fails = {"compress", "_last_compress_aborted"}
    return [
        pytest.param(name, id=name, marks=() if fails & case.keys() else MOVES)
        for name, case in CASES.items()
    ]


@pytest.mark.parametrize("name", all_cases())
async def test_whatever_an_engine_says_is_told_in_words_that_everybody_can_take(
    home: Path, name: str
) -> None:
    shelve(home, type("Odd", (Recorder,), CASES[name]))
    with serving(chat(long)) as served:
        async with living(manifest(home, served.base_url, USE), home) as story:
            await story.turns("one", "two")
            with suppress(CompactionError):
                await story.pod.compact()

            await story.turns("three")
            assert {end.outcome for end in story.of(RunEnd)} == {"finished"}
            assert len(orjson.dumps(story.pod.status().engine_status)) < MOST_BYTES

    assert all(len(envelope.to_json()) < MOST_BYTES for envelope in story.told)
    for session_id in logs(home):
        for entry in log_of(home, session_id):
            assert len(orjson.dumps(entry)) < MOST_BYTES


async def test_status_says_what_it_can(home: Path) -> None:
    shelve(home, type("Odd", (Recorder,), CASES["status"]))
    with serving(chat(long)) as served:
        async with living(manifest(home, served.base_url, USE), home) as story:
            assert story.pod.status().engine_status["fine"] == 3


async def test_a_secret_is_masked_wherever_a_text_is_cut(home: Path) -> None:
    """A key that lies across the place where a text is cut is not half told."""
    odd = {"compress": raising(ValueError("so " + f"{KEY} " * 1_000))}
    shelve(home, type("Odd", (Recorder,), odd))
    with serving(chat(long)) as served:
        async with living(manifest(home, served.base_url, USE), home) as story:
            await story.turns("one", "two")
            with pytest.raises(CompactionError):
                await story.pod.compact()

    (failed,) = story.of(CompactionFailed)
    assert KEY[:12] not in failed.message
    assert len(failed.message) < MOST_BYTES


async def test_a_hook_that_says_something_else_each_time_is_told_of_once(home: Path) -> None:
    class Counting(Recorder):
        def on_turn_complete(self, *_args: Any, **_kwargs: Any) -> None:
            self.compression_count += 1
            raise ValueError(f"the {self.compression_count}. time")

    shelve(home, Counting)
    with serving(chat(long)) as served:
        async with living(manifest(home, served.base_url, USE), home) as story:
            await story.turns("one", "two")

    assert len(story.of(EngineNotice)) == 1
