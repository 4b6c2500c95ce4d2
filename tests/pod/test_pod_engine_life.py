"""What an engine is told in its life, and that one pod's end leaves it to the next."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from pod.protocol import EngineNotice
from session_store import SessionStoreError
from tests.fake_provider import Asked, Say, serving
from tests.pod.desk import until
from tests.pod.full_disk import files_no_larger_than
from tests.pod.pods import chat, living, manifest, pointer, prose

pytestmark = pytest.mark.anyio

# One engine for every pod of the process, which cannot be copied.
ENGINE = '''
import json
import os
from pod.context import ContextEngine


class Diary(ContextEngine):
    """Writes down what it is told."""

    name = "diary"

    def note(self, what, **more):
        with open(os.environ["DIARY"], "a") as file:
            file.write(json.dumps({"what": what, **more}) + "\\n")

    def update_model(self, model, context_length, **kwargs):
        super().update_model(model, context_length, **kwargs)
        shares = getattr(self, "model_thresholds", None)
        self.note("model", shares=shares, threshold=self.threshold_tokens)

    def on_session_start(self, session_id, **kwargs):
        self.note("start", id=session_id, old=kwargs.get("old_session_id"))

    def on_session_end(self, session_id, messages):
        self.note("end", id=session_id)

    def on_session_reset(self):
        super().on_session_reset()
        self.note("reset")

    def update_from_response(self, usage):
        self.last_prompt_tokens = usage["prompt_tokens"]

    def should_compress(self, prompt_tokens=None):
        return False

    def compress(self, messages, **kwargs):
        return messages

    def clone_for_agent(self):
        raise ValueError("there is only one")


THE_ONE = Diary()


def register(ctx):
    ctx.register_context_engine(THE_ONE)
'''
USE = '[context]\nengine = "diary"\n'


@pytest.fixture
def diary(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install the engine and return the file that it writes."""
    folder = home / "plugins" / "diary"
    folder.mkdir(parents=True, mode=0o700)
    (folder / "__init__.py").write_text(ENGINE)
    (folder / "plugin.yaml").write_text("name: diary\nversion: 0.1.0\ndescription: a diary\n")
    monkeypatch.setenv("DIARY", str(home / "diary.jsonl"))
    return home / "diary.jsonl"


def read(diary: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in diary.read_text().splitlines()]


def short(asked: Asked, number: int) -> Say:
    return Say(f"answer {number}")


async def test_it_is_given_the_thresholds_by_model(home: Path, diary: Path) -> None:
    """They are the one part of `[compaction]` that is for every engine."""
    extra = USE + '[compaction.model_thresholds]\n"fake" = 0.25\n"openai_compatible:f" = 0.5\n'
    with serving(chat(short)) as served:
        async with living(manifest(home, served.base_url, extra), home):
            pass

    shares = {"fake": 0.25, "openai_compatible:f": 0.5}
    assert read(diary)[0] == {"what": "model", "shares": shares, "threshold": 50_000}


async def test_without_any_it_keeps_its_own(home: Path, diary: Path) -> None:
    with serving(chat(short)) as served:
        async with living(manifest(home, served.base_url, USE), home):
            pass

    assert read(diary)[0] == {"what": "model", "shares": None, "threshold": 150_000}


async def test_a_fresh_session_ends_the_old_one_and_resets_the_engine(
    home: Path, diary: Path
) -> None:
    with serving(chat(short)) as served:
        async with living(manifest(home, served.base_url, USE), home) as story:
            first = story.pod.session_id
            await story.pod.new()
            second = story.pod.session_id
            assert story.pod.status().engine == "diary"

    told = [entry for entry in read(diary) if entry["what"] != "model"]
    assert told == [
        {"what": "start", "id": first, "old": None},
        {"what": "end", "id": first},
        {"what": "reset"},
        {"what": "start", "id": second, "old": first},
        {"what": "end", "id": second},
    ]


async def test_a_launch_that_fails_leaves_the_engine_to_the_next_one(
    home: Path, diary: Path
) -> None:
    others = set(threading.enumerate())
    with serving(chat(short)) as served:
        async with living(manifest(home, served.base_url, USE), home) as story:
            await story.pod.run("one")

        changed = manifest(home, served.base_url, USE, system=prose(4_000))
        with files_no_larger_than(2_000), pytest.raises(SessionStoreError):
            async with living(changed, home, resume=pointer(home)):
                pass

        def engine_threads() -> list[threading.Thread]:
            ours = set(threading.enumerate()) - others
            return [thread for thread in ours if thread.name.startswith("engine-")]

        until(lambda: not engine_threads())
        async with living(changed, home, resume=pointer(home)) as story:
            assert story.pod.status().engine == "diary"
            assert not story.of(EngineNotice)


class Bare:
    """Duck-typed: what an engine must have, and nothing else."""

    name = "bare"

    def update_from_response(self, usage: dict[str, Any]) -> None:
        """Nothing."""

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        return False

    def compress(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return messages

    def select_context(self, messages: list[dict[str, Any]], **_: object) -> None:
        """Leave them."""


async def test_an_engine_needs_no_more_than_it_must_have(home: Path) -> None:
    folder = home / "plugins" / "bare"
    folder.mkdir(parents=True, mode=0o700)
    (folder / "plugin.yaml").write_text("name: bare\nversion: 0.1.0\ndescription: bare\n")
    (folder / "__init__.py").write_text(
        f"from {__name__} import Bare\n\n\n"
        "def register(ctx):\n    ctx.register_context_engine(Bare())\n"
    )
    with serving(chat(short)) as served:
        path = manifest(home, served.base_url, '[context]\nengine = "bare"\n')
        async with living(path, home) as story:
            await story.pod.new()
            assert story.pod.status().engine == "bare"
            assert (await story.pod.run("one")).outcome == "finished"
            assert not story.of(EngineNotice)
