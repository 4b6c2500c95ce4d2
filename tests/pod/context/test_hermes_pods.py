"""Plugins written for Hermes in whole pods: however they reach for its modules, they are served."""

from __future__ import annotations

import asyncio
import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from pod.protocol import CompactionDone, CompactionFailed, EngineNotice
from tests.fake_provider import SUMMARY, Asked, Say, serving
from tests.pod.pods import SYSTEM, Story, assert_paired, living, manifest, pointer, prose

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).resolve().parents[3]
USE = '[context]\nengine = "toy"\n'

ENGINE = """
import json
from agent.context_engine import ContextEngine


class Toy(ContextEngine):
    threshold_tokens = 4_000

    @property
    def name(self):
        return "toy"

    def update_model(self, model, context_length, **kwargs):
        self.context_length = context_length

    def update_from_response(self, usage):
        self.last_prompt_tokens = usage["prompt_tokens"]

    def should_compress(self, prompt_tokens=None):
        return (prompt_tokens or 0) > self.threshold_tokens

    def compress(self, messages, current_tokens=None):
        return messages

{more}


def register(ctx):
    ctx.register_context_engine(Toy())
"""


def install(home: Path, more: str = "", source: str | None = None) -> None:
    """Put a plugin where plugins are: `more` are methods of its engine, `source` all of it."""
    folder = home / "plugins" / "toy"
    folder.mkdir(parents=True, mode=0o700)
    body = "\n".join(f"    {line}" for line in more.strip("\n").split("\n"))
    (folder / "__init__.py").write_text(source or ENGINE.replace("{more}", body))
    (folder / "plugin.yaml").write_text("name: toy\nversion: 0.1.0\ndescription: a toy\n")


def is_chat(asked: Asked) -> bool:
    return SYSTEM in str(asked.body["messages"][0])


def script(asked: Asked, number: int) -> Say:
    """Long answers in the conversation; what plugins ask is answered by its last message."""
    if not is_chat(asked):
        said = str(asked.body["messages"][-1]["content"])
        return Say(SUMMARY if asked.wants_summary else f"MODEL SAID ({said[:40]})")

    said = str(asked.body["messages"][-1]["content"])
    wants = "use the tool" in said and asked.body["messages"][-1]["role"] == "user"
    return Say(calls=(("ask", "{}"),)) if wants else Say(f"answer {number} {prose(6_000)}")


def auxiliary(asked: list[Asked]) -> list[Asked]:
    return [one for one in asked if not is_chat(one)]


def chats(asked: list[Asked]) -> list[Asked]:
    return [one for one in asked if is_chat(one)]


def notices(story: Story) -> list[str]:
    return [notice.message for notice in story.of(EngineNotice)]


COMPRESSES = """
def compress(self, messages, current_tokens=None):
    from agent.auxiliary_client import call_llm
    answer = call_llm(task="compression", messages=[{"role": "user", "content": "sum up"}],
                      temperature=0.3, max_tokens=500, timeout=30)
    head = {"role": "user", "content": answer.choices[0].message.content}
    return [head] + messages[-2:]
"""


@pytest.mark.moves_prefix("an engine of its own compacts")
async def test_compress_asks_the_pod_s_model(home: Path) -> None:
    install(home, COMPRESSES)
    with serving(script) as served:
        async with living(manifest(home, served.base_url, USE), home) as story:
            await story.turns("one", "two", "three", "four")
            (done,) = story.of(CompactionDone)
            assert done.method == "engine"
            assert done.usage is not None
            assert done.usage.model == "fake"
            assert (done.usage.output_tokens or 0) > 0
            assert any("MODEL SAID (sum up)" in asked.text for asked in served.asked)
            assert not notices(story)

    (asked, *_) = auxiliary(served.asked)
    assert (asked.body["model"], asked.body["max_tokens"]) == ("fake", 500)
    assert asked.headers["authorization"].endswith("sk-test-0123456789abcdef")


async def test_a_summary_goes_to_the_model_for_summaries(home: Path) -> None:
    install(home, COMPRESSES)
    with serving(script) as served, serving(script) as other:
        extra = (
            f'{USE}[compaction.provider]\nkind = "openai_compatible"\nmodel = "small"\n'
            f'base_url = "{other.base_url}"\n'
        )
        async with living(manifest(home, served.base_url, extra), home) as story:
            await story.turns("one", "two", "three")
            assert story.of(CompactionDone)

    assert not auxiliary(served.asked)
    assert {asked.body["model"] for asked in other.asked} == {"small"}


SELECTS = """
def select_context(self, request_messages, **kwargs):
    from agent.auxiliary_client import call_llm
    answer = call_llm(messages=[{"role": "user", "content": "which"}], model="tiny")
    note = {"role": "user", "content": answer.choices[0].message.content}
    return request_messages[:-1] + [note] + request_messages[-1:]
"""


async def test_select_context_asks_another_model_while_the_run_waits(home: Path) -> None:
    install(home, SELECTS)
    with serving(script) as served:
        async with living(manifest(home, served.base_url, USE), home) as story:
            await story.turns("one")
            assert not notices(story)

    assert [asked.body["model"] for asked in auxiliary(served.asked)] == ["tiny"]
    (chat,) = chats(served.asked)
    assert "MODEL SAID (which)" in chat.text


TOOL = """
def get_tool_schemas(self):
    return [{"name": "ask", "description": "asks", "parameters": {"type": "object"}}]

def handle_tool_call(self, name, args, **kwargs):
    from agent.auxiliary_client import call_llm
    from threading import Thread
    found = []
    def work():
        found.append(call_llm("t", messages=[{"role": "user", "content": "from a thread"}]))
    mine = Thread(target=work)
    mine.start()
    mine.join(20)
    here = call_llm("t", messages=[{"role": "user", "content": "from the tool"}])
    return json.dumps([one.choices[0].message.content for one in (*found, here)])
"""


async def test_a_tool_and_a_thread_of_the_plugin_s_own_ask_it(home: Path) -> None:
    install(home, TOOL)
    with serving(script) as served:
        async with living(manifest(home, served.base_url, USE), home) as story:
            result = await story.pod.run("use the tool")
            assert result.outcome == "finished"

    assert "MODEL SAID (from a thread)" in served.asked[-1].text
    assert "MODEL SAID (from the tool)" in served.asked[-1].text


async def test_a_call_that_fails_is_the_engine_s_to_deal_with(home: Path) -> None:
    install(home, TOOL.replace("found.append(", "found.append(None and "))

    def refusing(asked: Asked, number: int) -> Say:
        return script(asked, number) if is_chat(asked) else Say(status=400, error="not this one")

    with serving(refusing) as served:
        async with living(manifest(home, served.base_url, USE), home) as story:
            assert (await story.pod.run("use the tool")).outcome == "finished"

    assert "Context engine tool 'ask' failed" in served.asked[-1].text


ASKS = """
def get_tool_schemas(self):
    return [{"name": "ask", "description": "asks"}]

def handle_tool_call(self, name, args, **kwargs):
    from agent.auxiliary_client import call_llm
    return call_llm(messages=[{"role": "user", "content": "HERE"}]).choices[0].message.content
"""


async def test_of_several_pods_each_asks_its_own_model_and_goes_on_doing_so(
    home: Path, tmp_path: Path
) -> None:
    """At once, in one process; and a new session is no other pod."""
    other_home = tmp_path / "other"
    other_home.mkdir(mode=0o700)
    for place in (home, other_home):
        install(place, ASKS.replace("HERE", f"in {place.name}"))

    with serving(script) as here, serving(script) as there:
        paths = manifest(home, here.base_url, USE), manifest(other_home, there.base_url, USE)
        async with living(paths[0], home) as one, living(paths[1], other_home) as other:
            await asyncio.gather(one.pod.run("use the tool"), other.pod.run("use the tool"))
            await one.pod.new()
            await one.pod.run("use the tool")

    for served, place in ((here, home), (there, other_home)):
        assert f"MODEL SAID (in {place.name})" in served.asked[-1].text
        own = [asked for asked in auxiliary(served.asked) if f"in {place.name}" in asked.text]
        assert len(own) == (2 if served is here else 1)


KEEPS_BY_SESSION = """
known = {}

def on_session_start(self, session_id, **kwargs):
    self.session_id = session_id

def compress(self, messages, current_tokens=None):
    self.known.setdefault(self.session_id, []).append("a summary")
    return [{"role": "user", "content": "SHORT"}] + messages[-2:]

def carry_over_new_session_context(self, old, new):
    self.known[new] = self.known.pop(old, [])

def get_tool_schemas(self):
    return [{"name": "ask", "description": "asks"}]

def handle_tool_call(self, name, args, **kwargs):
    return f"known here: {self.known.get(self.session_id)}"
"""


@pytest.mark.moves_prefix("an engine of its own compacts")
async def test_what_an_engine_keeps_by_session_goes_along_over_a_compaction(home: Path) -> None:
    """The id changes there, as it does not where a host compacts in place."""
    install(home, KEEPS_BY_SESSION)
    with serving(script) as served:
        async with living(manifest(home, served.base_url, USE), home) as story:
            await story.turns("one", "two", "three")
            assert story.of(CompactionDone)
            await story.pod.run("use the tool")

    assert "known here: ['a summary']" in served.asked[-1].text


PARTS = (
    TOOL.replace("from the tool", "x").replace("from a thread", "y")
    + """
def compress(self, messages, current_tokens=None):
    place = next((n for n, row in enumerate(messages) if row["role"] == "tool"), -2)
    return [{"role": "user", "content": "SHORT"}] + messages[place:]
"""
)


@pytest.mark.moves_prefix("an engine of its own compacts")
async def test_an_engine_that_cuts_between_a_call_and_its_result_still_compacts(
    home: Path,
) -> None:
    """As it does in Hermes, where what lost its other half is left out of each request."""
    install(home, PARTS)
    with serving(script) as served:
        async with living(manifest(home, served.base_url, USE), home) as story:
            await story.turns("one", "use the tool", "three", "four")
            assert story.of(CompactionDone)
            assert not story.of(CompactionFailed)
            (told,) = [line for line in notices(story) if "parted" in line]
            assert "(results: 1, calls: 0)" in told
            assert_paired(chats(served.asked))


# ------------------------------------------------------------------ configuration, home, manager


SURROUNDINGS = """
import json
from agent.context_engine import ContextEngine
from hermes_cli.plugins import PluginContext

try:
    from gateway.config import load_gateway_config
except ImportError:
    load_gateway_config = None


class Toy(ContextEngine):
    name = "toy"

    def update_from_response(self, usage): pass
    def should_compress(self, prompt_tokens=None): return False
    def compress(self, messages): return messages

    def get_tool_schemas(self):
        return [{"type": "function", "function": {"name": "ask", "description": "asks"}}]

    def handle_tool_call(self, name, args, **kwargs):
        from gateway.session_context import get_session_env
        from hermes_cli.config import cfg_get, get_hermes_home, load_config, load_config_readonly
        from hermes_cli.plugins import get_plugin_context_engine, get_plugin_manager
        from hermes_constants import get_hermes_home as constant
        config = load_config()
        config["context"]["engine"] = "changed by me alone"
        (get_hermes_home() / "mine.txt").write_text("kept")
        return json.dumps({
            "same home": get_hermes_home() == constant(),
            "engine": cfg_get(load_config_readonly(), "context", "engine"),
            "model": cfg_get(config, "model", "default"),
            "window": cfg_get(config, "model", "context_length"),
            "depth": cfg_get(config, "toy", "depth", default=0),
            "entry": cfg_get(config, "plugins", "entries", "toy", "depth"),
            "extraction": cfg_get(config, "auxiliary", "extraction", "model"),
            "trigger": cfg_get(config, "compression", "threshold_tokens"),
            "missing": cfg_get(config, "no", "such", default="default"),
            "key": "sk-test" in json.dumps(config),
            "session": get_session_env("HERMES_SESSION_ID"),
            "hooks": sorted(get_plugin_manager()._hooks),
            "engine of plugins": get_plugin_context_engine() is self,
            "gateway": load_gateway_config is None,
        })


def register(ctx: PluginContext):
    from hermes_cli.plugins import get_plugin_manager
    get_plugin_manager()._hooks.setdefault("post_llm_call", []).append(lambda **kwargs: None)
    ctx.register_hook("pre_llm_call", lambda **kwargs: None)
    ctx.register_context_engine(Toy())
"""


async def test_a_plugin_finds_its_configuration_its_home_and_its_hooks(home: Path) -> None:
    install(home, source=SURROUNDINGS)
    extra = (
        f"{USE}[context.options]\ndepth = 3\n"
        '[context.options.hermes.auxiliary.extraction]\nmodel = "tiny"\n'
        "[compaction]\ncompact_threshold = 5000\n"
    )
    with serving(script) as served:
        async with living(manifest(home, served.base_url, extra), home) as story:
            await story.pod.run("use the tool")
            session_id = story.pod.session_id

    shown = served.asked[-1].body["messages"][-1]["content"]
    said = json.loads(shown.split("\n", 1)[-1])  # under its first line, cut short
    assert said == {
        "same home": True,
        "engine": "toy",
        "model": "fake",
        "window": 200_000,
        "depth": 3,
        "entry": 3,
        "extraction": "tiny",
        "trigger": 5_000,
        "missing": "default",
        "key": False,
        "session": session_id,
        "hooks": ["post_llm_call", "pre_llm_call"],
        "engine of plugins": True,
        "gateway": True,
    }
    folder = home / "engines" / "toy"
    assert (folder / "mine.txt").read_text() == "kept"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


async def test_a_home_that_nobody_asks_for_is_not_made(home: Path) -> None:
    install(home)
    with serving(script) as served:
        async with living(manifest(home, served.base_url, USE), home) as story:
            await story.pod.run("one")
            assert story.pod.status().engine == "toy"

    assert not (home / "engines").exists()


# ------------------------------------------------------------------ a compressor to build upon


SUBCLASS = """
import logging
from agent.context_compressor import (
    LEGACY_SUMMARY_PREFIX, SUMMARY_PREFIX, ContextCompressor, resolve_model_threshold,
)


class Toy(ContextCompressor):
    @property
    def name(self):
        return "toy"

    def __init__(self):
        super().__init__(model="", quiet_mode=True, config_context_length=200000,
                         protect_first_n=0, threshold_tokens_cap=4000)
        self.notes = []

    def compress(self, messages, current_tokens=None, focus_topic=None, force=False):
        result = super().compress(messages, current_tokens=current_tokens,
                                  focus_topic=focus_topic, force=force)
        self.notes += [m["content"] for m in result if str(m["content"]).startswith(SUMMARY_PREFIX)]
        return result

    def get_tool_schemas(self):
        return [{"name": "ask", "description": "asks"}]

    def handle_tool_call(self, name, args, **kwargs):
        times = self.compression_count
        return f"{len(self.notes)} notes; {times} times; {self._last_summary_error}"


def register(ctx):
    ctx.register_context_engine(Toy())
"""


async def test_an_engine_built_upon_the_compressor_compacts_and_goes_on(home: Path) -> None:
    install(home, source=SUBCLASS)
    with serving(script) as served:
        path = manifest(home, served.base_url, USE)
        async with living(path, home) as story:
            await story.turns("one", "two", "three", "four")
            dones = story.of(CompactionDone)
            assert dones
            assert {done.method for done in dones} == {"engine"}
            assert all(done.tokens_after < done.tokens_before for done in dones)
            await story.pod.run("use the tool")
            assert not notices(story)

        assert f"{len(dones)} notes; {len(dones)} times; None" in chats(served.asked)[-1].text
        (first, *_) = [asked for asked in auxiliary(served.asked) if asked.wants_summary]
        assert first.body["messages"][0]["role"] == "system"
        assert SYSTEM not in first.text
        async with living(path, home, resume=pointer(home)) as story:
            assert (await story.pod.run("five")).outcome == "finished"


# ------------------------------------------------------------------ the user's own package wins


GUARDED = """
def register(ctx):
    from pod.context import ContextEngine
    try:
        from agent.auxiliary_client import call_llm
        whose = call_llm()
    except ImportError as error:
        whose = f"missing {error.name}"

    class Toy(ContextEngine):
        name = "toy"
        def update_from_response(self, usage): pass
        def should_compress(self, prompt_tokens=None): return False
        def compress(self, messages): return messages
        def get_status(self): return {"whose": whose}

    ctx.register_context_engine(Toy())
"""
LIVE = """
import asyncio, sys
from pathlib import Path
from pod import Pod

async def main(manifest, home):
    async with Pod.launch(manifest, home=Path(home), env={"FAKE_KEY": "sk-test"}) as pod:
        status = await asyncio.to_thread(pod._launched.core.host.engine.get_status)
        print(status["whose"])

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("files", "whose"),
    [
        ({"agent/__init__.py": ""}, "missing agent.auxiliary_client"),
        ({"agent/auxiliary_client.py": "def call_llm(): return 'the user'"}, "the user"),
    ],
)
def test_a_user_s_own_package_wins_in_a_pod_too(
    home: Path, tmp_path: Path, files: dict[str, str], whose: str
) -> None:
    """In a process of its own: what is imported once stays."""
    install(home, source=GUARDED)
    for name, text in files.items():
        (tmp_path / "mine" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "mine" / name).write_text(text)

    path = manifest(home, "http://127.0.0.1:1/v1", USE)
    done = subprocess.run(
        [sys.executable, "-c", LIVE, str(path), str(home)],
        env={"PYTHONPATH": f"{tmp_path / 'mine'}:{ROOT}", "PATH": "/usr/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == whose, done.stderr
