"""Whole pods for tests: launched from a manifest, on a loopback provider, all events kept."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

from attrs import define, field

from pod import Pod
from pod.protocol import Envelope, EventData
from tests.fake_provider import SECTIONS, Asked, Say, Script

E = TypeVar("E", bound=EventData)

KEY = "sk-test-0123456789abcdef"
SYSTEM = "SYSTEM-PROMPT-MARKER. Be brief."
COMPACT = "[compaction]\ncompact_threshold = 5000\ncompact_retained_turns = 2\n"
BIG_TOOL = '[tools]\npython = ["tests.pod.big_tools:big"]\n'


def prose(size: int) -> str:
    """About `size` bytes of plain words."""
    words = ("the plan was read again", "and each part of it was kept", "as it stood before")
    return " ".join(words[n % len(words)] for n in range(size // 3))[:size].rstrip()


def summary(marker: str = "SUMMARY-MARKER") -> str:
    return "\n".join(f"{title}\n- {marker} {n}" for n, title in enumerate(SECTIONS, 1))


def chat(answers: Script, summaries: Script | str | None = None) -> Script:
    """A script that answers summary requests by themselves; their numbers count apart."""
    counts = {"chat": 0, "summary": 0}

    def script(asked: Asked, _: int) -> Say:
        kind = "summary" if asked.wants_summary else "chat"
        counts[kind] += 1
        if kind == "chat":
            return answers(asked, counts[kind])

        if callable(summaries):
            return summaries(asked, counts[kind])

        return Say(summaries if summaries is not None else summary())

    return script


def user_texts(asked: Asked) -> list[str]:
    return [str(m["content"]) for m in asked.body["messages"] if m["role"] == "user"]


@define
class Story:
    """A pod that runs, and everything that it told."""

    pod: Pod
    told: list[Envelope] = field(factory=list)

    def of(self, cls: type[E]) -> list[E]:
        return [envelope.data for envelope in self.told if isinstance(envelope.data, cls)]

    @property
    def names(self) -> list[str]:
        return [envelope.event for envelope in self.told]

    async def turns(self, *prompts: str) -> None:
        """Run the prompts one after the other, each with the compaction that follows it."""
        for prompt in prompts:
            await self.pod.run(prompt)
            await self.pod.idle()


def manifest(
    home: Path,
    base_url: str,
    extra: str = "",
    *,
    window: int | None = 200_000,
    system: str = SYSTEM,
    name: str = "probe",
) -> Path:
    """Write a manifest and return its path."""
    window_line = f"context_window = {window}\n" if window else ""
    path = home / f"{name}.toml"
    path.write_text(
        f'[pod]\nname = "{name}"\n\n[provider]\nkind = "openai_compatible"\nmodel = "fake"\n'
        f'base_url = "{base_url}"\napi_key_env = "FAKE_KEY"\n{window_line}\n'
        f"[worker]\nsystem_prompt = {json.dumps(system)}\n\n{extra}"
    )
    return path


@asynccontextmanager
async def living(path: Path, home: Path, *, resume: str | None = None) -> AsyncIterator[Story]:
    """Launch a pod and close it at the end of the block."""
    environment = {"FAKE_KEY": KEY, "NO_PROXY": "*"}
    pod = Pod.launch(path, home=home, resume=resume, env=environment)
    story = Story(pod)
    pod.listen(story.told.append)
    async with pod:
        yield story


def log_of(home: Path, session_id: str) -> list[dict[str, Any]]:
    """Read a session's log, its chain checked with nothing but hashlib."""
    data = (home / "sessions" / f"{session_id}.jsonl").read_bytes()
    entries, prev = [], "0" * 64
    for line in data.split(b"\n")[:-1]:
        entry = json.loads(line)
        assert entry["prev"] == prev
        prev = sha256(line[75:]).hexdigest()
        assert entry["hash"] == prev
        entries.append(entry)

    return entries


def kinds(home: Path, session_id: str) -> list[str]:
    return [entry["kind"] for entry in log_of(home, session_id)]


def logs(home: Path) -> list[str]:
    return sorted(path.stem for path in (home / "sessions").glob("*.jsonl"))


def pointer(home: Path, name: str = "probe") -> str:
    (found,) = json.loads((home / "pods" / f"{name}.json").read_text()).values()
    assert isinstance(found, str)
    return found


def assert_paired(asked: Sequence[Asked]) -> None:
    """Every request has each call's result right behind it, in call order."""
    for request in asked:
        waiting: list[str] = []
        for message in request.body["messages"]:
            if message["role"] == "tool":
                assert waiting, message
                assert message["tool_call_id"] == waiting.pop(0)
            else:
                assert not waiting, message
                waiting = [call["id"] for call in message.get("tool_calls") or []]

        assert not waiting
