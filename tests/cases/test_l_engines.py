"""Cases L: context engines of others that cannot be copied, change what they are given, or fail."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from pathlib import Path

import pytest

from pod.protocol import CompactionDone, EngineNotice, RunEnd
from session_store import FileSessionStore
from tests.fake_provider import Asked, Say, counting, serving
from tests.pod.desk import Desk, until
from tests.pod.pods import (
    BIG_TOOL,
    Story,
    living,
    log_of,
    logs,
    manifest,
    pointer,
    prose,
    user_texts,
)

pytestmark = pytest.mark.anyio

ENGINE = """
import copy, sqlite3, threading
from agent.context_engine import ContextEngine


class Engine(ContextEngine):
    name = "case"

    def __init__(self):
        self.db = sqlite3.connect(":memory:", check_same_thread=False)
        self.db.execute("create table seen (text)")
        self.lock = threading.Lock()

    def update_from_response(self, usage):
        self.last_prompt_tokens = usage["prompt_tokens"]

    def should_compress(self, prompt_tokens=None):
        return False

    def compress(self, messages, **kwargs):
        with self.lock:
            return [{"role": "user", "content": "COMPRESSED"}] + messages[-2:]

    def on_turn_complete(self, messages, usage=None, **kwargs):
        with self.lock:
            rows = [(str(m["content"]),) for m in messages]
            self.db.executemany("insert into seen values (?)", rows)

    def get_status(self):
        seen = self.db.execute("select count(*) from seen").fetchone()[0]
        return super().get_status() | {"seen": seen, "who": id(self)}

"""
SHARED = """
THE_ONE = Engine()


def register(ctx):
    ctx.register_context_engine(THE_ONE)
"""
ANEW = """
def register(ctx):
    ctx.register_context_engine(Engine())
"""
CLONES = """
    def clone_for_agent(self):
        CLONED.append(self)
        return type(self)()

    def __deepcopy__(self, memo):
        raise RuntimeError("holds a connection")

CLONED = []
"""
USE = '[context]\nengine = "case"\n'
SELECTS = pytest.mark.moves_prefix("the engine selects what one request holds")


def install(home: Path, *parts: str) -> None:
    folder = home / "plugins" / "case"
    folder.mkdir(parents=True, mode=0o700)
    (folder / "__init__.py").write_text("".join((ENGINE, *parts)))
    (folder / "plugin.yaml").write_text("name: case\nversion: 0.1.0\ndescription: a case\n")


def notices(story: Story) -> list[str]:
    return [notice.message for notice in story.of(EngineNotice)]


def method(source: str) -> str:
    """Methods more of the engine."""
    return "\n".join(f"    {line}" for line in source.strip("\n").split("\n")) + "\n"


def seen(story: Story) -> object:
    return story.pod.status().engine_status["seen"]


# ------------------------------------------------------------------ L01


async def test_l01_a_copy_that_fails_is_told_of_and_harms_neither_pod(home: Path) -> None:
    """L01: one engine for all, with a connection and a lock; it cannot be copied by default."""
    install(home, SHARED)
    with serving(counting) as served:
        one = manifest(home, served.base_url, USE, name="one")
        two = manifest(home, served.base_url, USE, name="two")
        async with living(one, home) as first, living(two, home) as second:
            assert not notices(first)
            assert first.pod.status().engine == "case"
            (told,) = notices(second)
            assert "'case' could not be safely copied for this agent" in told
            assert "falling back to built-in compressor" in told
            assert "clone_for_agent" in told, "what would help"
            assert "not found" not in told
            assert second.pod.status().engine == "compressor", "never silently"
            assert (await first.pod.run("one")).outcome == "finished"
            assert (await second.pod.run("two")).outcome == "finished"
            await first.turns("three")
            until(lambda: seen(first) == 2 + 4)

        async with living(two, home) as third:
            assert third.pod.status().engine == "case", "it is free again"
            assert not notices(third)


@pytest.mark.parametrize("parts", [(ANEW,), (CLONES, SHARED)], ids=["anew", "clones"])
async def test_l01_each_pod_has_a_working_engine_of_its_own(
    home: Path, parts: tuple[str, ...]
) -> None:
    """L01: registered anew for each load, or copied by its own hook; a fork's child too."""
    install(home, *parts)
    with serving(counting) as served:
        path = manifest(home, served.base_url, USE)
        async with living(path, home) as first, living(path, home) as second:
            await first.turns("one")
            async with await first.pod.fork() as child:
                await child.run("of the fork")
                pods = (first.pod, second.pod, child)
                assert [pod.status().engine for pod in pods] == ["case"] * 3
                who = {pod.status().engine_status["who"] for pod in pods}
                assert len(who) == 3
                assert child.status().engine_status["seen"] in (0, 4), "a response old at most"

            assert not notices(first)
            assert not notices(second)
            assert seen(second) == 0, "what one sees is its own"


# ------------------------------------------------------------------ L02


async def test_l02_a_plugin_s_own_clone_hook_is_used_and_nothing_else(home: Path) -> None:
    """L02: `__deepcopy__` raises; the hook is what the contract asks for."""
    sizes = method(
        """
def update_model(self, model, context_length, **kwargs):
    self.context_length = context_length
    self.threshold_tokens = context_length // 2
"""
    )
    install(home, sizes, CLONES, SHARED)
    with serving(counting) as served:
        large = manifest(home, served.base_url, USE, name="large", window=100_000)
        small = manifest(home, served.base_url, USE, name="small", window=8_000)
        async with living(large, home) as first, living(small, home) as second:
            numbers = [story.pod.status().engine_status for story in (first, second)]
            assert [n["context_length"] for n in numbers] == [100_000, 8_000]
            assert [n["threshold_tokens"] for n in numbers] == [50_000, 4_000]
            assert not notices(first)
            assert not notices(second)
            assert (await second.pod.run("one")).outcome == "finished"
            assert first.pod.status().engine_status["context_length"] == 100_000


@pytest.mark.parametrize("made", ["None", "self"])
async def test_l02_a_clone_hook_that_gives_nothing_of_its_own_is_told_of(
    home: Path, made: str
) -> None:
    """L02: None, or the shared object itself, is no copy."""
    install(home, method(f"def clone_for_agent(self):\n    return {made}"), SHARED)
    with serving(counting) as served:
        path = manifest(home, served.base_url, USE)
        async with living(path, home) as first, living(path, home) as second:
            assert first.pod.status().engine == "case"
            assert second.pod.status().engine == "compressor"
            assert "could not be safely copied" in notices(second)[0]


# ------------------------------------------------------------------ L06

SPOIL = """
def spoil(messages):
    for message in list(messages):
        message["content"] = "SPOILED"
        for call in message.get("tool_calls") or []:
            call["function"]["arguments"] = "SPOILED"
    messages.pop()

"""
SPOILING = {
    "select_context": """
def select_context(self, request_messages, *, conversation_messages=None,
                   incoming_message=None, budget_tokens=0):
    if "SPOIL-ME" not in str(request_messages[-1]["content"]):
        return None
    spoil(conversation_messages)
    incoming_message["content"] = "SPOILED"
    request_messages[-1]["content"] = "EDITED"
    del request_messages[1:-1]
    return request_messages
""",
    "on_turn_complete": "def on_turn_complete(self, messages, **kwargs):\n    spoil(messages)",
    "on_session_end": "def on_session_end(self, session_id, messages):\n    spoil(messages)",
    "should_compress_preflight": (
        "def should_compress_preflight(self, messages):\n    spoil(messages)\n    return False"
    ),
    "handle_tool_call": """
def get_tool_schemas(self):
    return [{"name": "toy", "parameters": {"type": "object", "properties": {}}}]

def handle_tool_call(self, name, args, messages=None):
    spoil(messages)
    return "{}"
""",
    "compress": """
def compress(self, messages, **kwargs):
    spoil(messages)
    raise ValueError("after the damage")
""",
}


@pytest.mark.parametrize(
    "hook",
    [pytest.param(hook, marks=SELECTS if hook == "select_context" else ()) for hook in SPOILING],
)
async def test_l06_what_an_engine_does_to_its_messages_changes_nothing(
    home: Path, hook: str
) -> None:
    """L06: entries are as they were, the history too; only that one request differs."""
    install(home, method(SPOILING[hook]), SPOIL, ANEW)

    def script(asked: Asked, number: int) -> Say:
        tools = {tool["function"]["name"] for tool in asked.body.get("tools", ())}
        if number == 1:
            return Say(calls=(("toy" if "toy" in tools else "big", '{"n": 1}'),))

        return Say(f"answer {number}")

    with serving(script) as served:
        extra = USE if hook == "handle_tool_call" else USE + BIG_TOOL
        async with living(manifest(home, served.base_url, extra), home) as story:
            session_id = story.pod.session_id
            log = home / "sessions" / f"{session_id}.jsonl"
            await story.turns("one")
            before, history = log.read_bytes(), story.pod.history
            if hook == "compress":
                with pytest.raises(Exception, match="after the damage"):
                    await story.pod.compact()

            await story.turns("SPOIL-ME", "three")
            after = log.read_bytes()
            assert sha256(after[: len(before)]).digest() == sha256(before).digest()
            assert story.pod.history[: len(history)] == history

        assert FileSessionStore(home).verify(session_id).ok
        assert "SPOILED" not in str(log_of(home, session_id))
        assert "EDITED" not in str(log_of(home, session_id))

    texts = [user_texts(asked) for asked in served.asked]
    mine = ["EDITED"] if hook == "select_context" else ["one", "SPOIL-ME"]
    assert texts == [["one"], ["one"], mine, ["one", "SPOIL-ME", "three"]]
    assert not any("SPOILED" in asked.text for asked in served.asked)


# ------------------------------------------------------------------ L08


@pytest.mark.parametrize(
    ("body", "warning"),
    [
        ("return None", ""),
        ("return []", "Context engine select_context returned an invalid value"),
        ("raise ValueError('no')", "select_context raised ValueError: no"),
        ("return 'text'", "Context engine select_context returned an invalid value"),
        ("return [{'role': 'wizard'}]", "select_context returned messages that hold no"),
        ("return [m for m in request_messages if m['role'] == 'system']", "holds no message"),
    ],
    ids=["none", "empty", "raises", "text", "no message", "system alone"],
)
async def test_l08_a_selection_that_is_none_leaves_the_request_as_it_is(
    home: Path, body: str, warning: str
) -> None:
    """L08: None silently, all else with a warning, told once; the turn runs."""
    hook = f"def select_context(self, request_messages, **kwargs):\n    {body}"
    install(home, method(hook), ANEW)
    with serving(counting) as served:
        async with living(manifest(home, served.base_url, USE), home) as story:
            await story.turns("one", "two")
            assert {end.outcome for end in story.of(RunEnd)} == {"finished"}
            told = notices(story)
            assert len(told) == bool(warning)
            assert all(warning in line for line in told)

    assert user_texts(served.asked[-1]) == ["one", "two"]


# ------------------------------------------------------------------ of the same kind


async def test_l_several_pods_compact_at_once_each_in_its_own_engine(home: Path) -> None:
    """Of the kind of L01: four pods on clones of one engine; nobody's rows end up elsewhere."""
    install(home, CLONES, SHARED)
    with serving(Say(f"answer {prose(4_000)}")) as served:
        path = manifest(home, served.base_url, USE)
        async with (
            living(path, home) as one,
            living(path, home) as two,
            living(path, home) as three,
            living(path, home) as four,
        ):
            stories = (one, two, three, four)
            for number, story in enumerate(stories):
                await story.turns(f"TASK-{number}", f"NEXT-{number}")

            compacted = await asyncio.gather(*(story.pod.compact() for story in stories))
            assert len({done.new_session_id for done in compacted if done}) == len(stories)
            for number, done in enumerate(compacted):
                assert done is not None
                said = str(log_of(home, done.new_session_id)[0]["history"])
                assert f"NEXT-{number}" in said
                assert not any(f"NEXT-{n}" in said for n in range(4) if n != number)

            assert not any(map(notices, stories))


@pytest.mark.moves_prefix("an engine of its own compacts without a summary")
async def test_l_after_a_compaction_the_engine_is_told_both_ids_and_goes_on_after_a_restart(
    home: Path,
) -> None:
    """Of the kind of hermes-lcm#68: an engine that lost the thread sees an unrelated session."""
    noting = method(
        """
def on_session_start(self, session_id, **kwargs):
    self.told = getattr(self, "told", []) + [[session_id, kwargs.get("old_session_id"),
                                              kwargs.get("conversation_id")]]

def get_status(self):
    return {"told": self.told}
"""
    )
    install(home, noting, ANEW)
    with serving(Say(f"answer {prose(4_000)}")) as served:
        path = manifest(home, served.base_url, USE)
        async with living(path, home) as story:
            first = story.pod.session_id
            await story.turns("one", "two", "three")
            assert await story.pod.compact() is not None
            second = story.of(CompactionDone)[0].new_session_id
            told = story.pod.status().engine_status["told"]
            assert told == [[first, None, first], [second, first, first]]
            await story.turns("four")

        async with living(path, home, resume=pointer(home)) as story:
            assert story.pod.status().engine_status["told"] == [[second, None, first]]
            assert (await story.pod.run("five")).outcome == "finished"

    assert logs(home) == sorted([first, second])


@pytest.mark.parametrize(("said", "shown"), [("'tidying up'", "tidying up"), ("None", "")])
def test_l_what_is_said_of_a_compaction_is_the_engine_s_to_choose(
    desk: Desk, said: str, shown: str
) -> None:
    """Of the kind of hermes-lcm#286: "accuracy may degrade", of an engine that keeps all."""
    speaking = method(
        f"""
def should_compress(self, prompt_tokens=None):
    return prompt_tokens > 900

def get_automatic_compaction_status_message(self, *, phase, default_message, **context):
    return {said}
"""
    )
    install(desk.home, speaking, ANEW)
    run = desk.scripted(*({"text": prose(2_000)} for _ in range(3)), extra=USE)
    first = desk.pod("run", run, "one")
    assert first.exit_code == 0, first.stderr
    done = desk.pod("run", run, "two", "--continue")
    assert done.exit_code == 0, done.stderr
    lines = done.stderr.splitlines()
    (before,) = (n for n, line in enumerate(lines) if line.startswith("compacted:"))
    assert lines[:before] == ([shown] if shown else [])
