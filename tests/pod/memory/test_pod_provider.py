"""A provider written for Hermes, in a pod: every moment of the contract, in its order."""

from __future__ import annotations

import json
import stat
import sys
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest

from pod.compaction.plan import CompactionError
from pod.protocol import Alert, CompactionDone, ToolResult
from session_store import FileSessionStore
from tests.fake_provider import Asked, Say, serving
from tests.pod.memory.plugins import DIARY, diary, install, new_threads
from tests.pod.pods import (
    BIG_TOOL,
    COMPACT,
    Story,
    chat,
    living,
    log_of,
    manifest,
    prose,
    user_texts,
)
from tests.pod.test_pod_head_mismatch import foreign_line

pytestmark = pytest.mark.anyio


def answering(_: Asked, number: int) -> Say:
    return Say(f"answer {number}")


def long(_: Asked, number: int) -> Say:
    return Say(f"answer {number} {prose(8_000)}")


def calls(home: Path, *names: str) -> list[dict[str, Any]]:
    return [call for call in diary(home) if call["what"] in names]


async def test_a_run_has_its_moments_in_order(home: Path) -> None:
    before = threading.enumerate()
    use = install(home, "diary", DIARY)
    with serving(chat(answering)) as served:
        async with living(manifest(home, served.base_url, use), home) as story:
            await story.turns("What is new?")
            session_id = story.pod.session_id

    assert [call["what"] for call in diary(home)] == [
        "initialize",
        "on_turn_start",
        "prefetch",
        "sync_turn",
        "queue_prefetch",
        "on_session_end",
        "shutdown",
    ]
    (start,) = calls(home, "initialize")
    assert start["session"] == session_id
    assert start["kwargs"] == {
        "agent_context": "primary",
        "agent_identity": "probe",
        "agent_workspace": "pod",
        "hermes_home": str(home / "memory" / "diary"),
        "model": "fake",
        "options": {},
        "platform": "cli",
    }
    (sync,) = calls(home, "sync_turn")
    assert (sync["user"], sync["assistant"], sync["session"]) == (
        "What is new?",
        "answer 1",
        session_id,
    )
    assert sync["rows"][0] == ["user", "What is new?"]
    assert sync["rows"][-1] == ["assistant", "answer 1"]
    assert user_texts(served.asked[0])[1].endswith("DIARY-RECALL for What is new?")
    assert (
        served.asked[0]
        .body["messages"][0]["content"]
        .endswith('<memory provider="diary">\n# Diary\nDIARY-BLOCK\n</memory>')
    )
    assert not story.of(Alert)
    assert new_threads("memory", besides=before) == []


async def test_no_call_is_made_on_the_event_loop(home: Path) -> None:
    use = install(home, "diary", DIARY)
    with serving(chat(long)) as served:
        async with living(manifest(home, served.base_url, use + COMPACT), home) as story:
            await story.turns("one", "two", "three")
            await story.pod.new()

    assert {call["thread"].rsplit("-", 1)[0] for call in diary(home)} == {"memory", "memory-notes"}


async def test_its_tools_are_offered_but_for_names_that_are_taken(home: Path) -> None:
    use = install(home, "diary", DIARY)

    def script(asked: Asked, number: int) -> Say:
        return Say("…", calls=(("diary_read", '{"day": "Monday"}'),)) if number == 1 else Say("ok")

    with serving(chat(script)) as served:
        async with living(manifest(home, served.base_url, use + BIG_TOOL), home) as story:
            await story.turns("read it")
            names = [tool["function"]["name"] for tool in served.asked[0].body["tools"]]
            assert names == ["big", "diary_read"]
            (result,) = story.of(ToolResult)
            assert "DIARY-PAGE" in result.summary + (result.content or "")
            (told,) = story.of(Alert)
            assert told.message == (
                "memory provider diary: its tool big is left out: another tool has that name"
            )

    (call,) = calls(home, "tool")
    assert call["args"] == {"day": "Monday"}


async def test_a_compaction_asks_first_commits_and_tells_afterwards(home: Path) -> None:
    use = install(home, "diary", DIARY)
    with serving(chat(long)) as served:
        async with living(manifest(home, served.base_url, use + COMPACT), home) as story:
            await story.turns("one", "two", "three")
            (done,) = story.of(CompactionDone)
            await story.turns("four")

    (summary,) = [asked for asked in served.asked if asked.wants_summary]
    assert "DIARY-MUST-SURVIVE" in summary.text
    assert "ghp_" not in summary.text
    moments = calls(home, "on_pre_compress", "on_session_end", "on_session_switch")
    assert [call["what"] for call in moments][:3] == [
        "on_pre_compress",
        "on_session_end",
        "on_session_switch",
    ]
    before, end, switch = moments[:3]
    assert before["rows"] == end["rows"] > 0
    assert end["session"] == done.old_session_id
    assert (switch["session"], switch["parent"]) == (done.new_session_id, done.old_session_id)
    assert (switch["reason"], switch["reset"], switch["rewound"]) == ("compression", False, False)
    assert calls(home, "sync_turn")[-1]["session"] == done.new_session_id
    assert calls(home, "prefetch")[-1]["session"] == done.new_session_id


@pytest.mark.moves_prefix("an engine of its own compacts")
async def test_an_engine_of_ones_own_is_handed_what_must_survive(home: Path) -> None:
    use = install(home, "diary", DIARY)
    engine = home / "plugins" / "keeper"
    engine.mkdir()
    (engine / "plugin.yaml").write_text("name: keeper\nversion: 1.0.0\ndescription: x\n")
    (engine / "__init__.py").write_text(
        "from agent.context_engine import ContextEngine\n"
        "class Keeper(ContextEngine):\n"
        "    name = 'keeper'\n"
        "    def update_from_response(self, usage): pass\n"
        "    def should_compress(self, prompt_tokens=None): return False\n"
        "    def compress(self, messages, current_tokens=None, memory_context=''):\n"
        "        return [{'role': 'user', 'content': 'KEPT ' + memory_context}, messages[-2],\n"
        "                messages[-1]]\n"
    )
    extra = f'{use}[context]\nengine = "keeper"\n'
    with serving(chat(long)) as served:
        async with living(manifest(home, served.base_url, extra), home) as story:
            await story.turns("one", "two", "three")
            assert await story.pod.compact() is not None
            await story.turns("four")

    assert "KEPT DIARY-MUST-SURVIVE" in served.asked[-1].text
    assert "ghp_" not in served.asked[-1].text


async def test_a_compaction_that_fails_switches_nothing(home: Path) -> None:
    use = install(home, "diary", DIARY)
    with serving(chat(long, "no summary at all")) as served:
        async with living(manifest(home, served.base_url, use), home) as story:
            await story.turns("one", "two", "three")
            with pytest.raises(CompactionError):
                await story.pod.compact()

            assert len(calls(home, "on_pre_compress")) == 1
            assert calls(home, "on_session_end", "on_session_switch") == []


async def test_new_ends_the_session_and_begins_another(home: Path) -> None:
    use = install(home, "diary", DIARY)
    with serving(chat(answering)) as served:
        async with living(manifest(home, served.base_url, use), home) as story:
            await story.turns("one")
            old_id = story.pod.session_id
            await story.pod.new()
            new_id = story.pod.session_id
            end, switch = calls(home, "on_session_end", "on_session_switch")
            assert (end["what"], end["session"]) == ("on_session_end", old_id)
            assert (switch["session"], switch["parent"]) == (new_id, old_id)
            assert (switch["reason"], switch["reset"]) == ("new_session", True)
            await story.turns("two")

    assert len(calls(home, "initialize")) == 1
    assert calls(home, "on_session_end")[-1]["session"] == new_id
    assert [call["what"] for call in diary(home)][-1] == "shutdown"


async def test_a_rewind_ends_nothing_and_says_that_it_is_one(home: Path) -> None:
    use = install(home, "diary", DIARY)
    with serving(chat(answering)) as served:
        async with living(manifest(home, served.base_url, use), home) as story:
            await story.turns("one")
            old_id = story.pod.session_id
            await story.pod.rewind(log_of(home, old_id)[0]["hash"])
            (switch,) = calls(home, "on_session_end", "on_session_switch")
            assert (switch["session"], switch["parent"]) == (story.pod.session_id, old_id)
            assert (switch["reason"], switch["reset"], switch["rewound"]) == ("rewind", False, True)


async def test_a_fork_has_a_provider_of_its_own_that_knows_where_it_is_from(home: Path) -> None:
    use = install(home, "diary", DIARY)
    with serving(chat(answering)) as served:
        async with living(manifest(home, served.base_url, use), home) as story:
            await story.turns("one")
            async with await story.pod.fork() as child:
                begun = calls(home, "initialize")[-1]
                assert begun["session"] == child.session_id
                assert begun["kwargs"]["parent_session_id"] == story.pod.session_id
                (switch,) = calls(home, "on_session_switch")
                assert switch["session"] == child.session_id
                assert switch["parent"] == story.pod.session_id
                assert switch["reason"] == "branch"
                child_id = child.session_id
                await child.run("and on")

            assert len(calls(home, "shutdown")) == 1
            parent_id = story.pod.session_id

        path = manifest(home, served.base_url, use)
        for session_id in (child_id, parent_id):
            async with living(path, home, resume=session_id):
                pass

    reasons = [call["reason"] for call in calls(home, "on_session_switch")]
    assert reasons == ["branch", "resume", "resume"]


async def test_only_a_run_that_finished_is_handed_over(home: Path) -> None:
    use = install(home, "diary", DIARY)

    def script(asked: Asked, number: int) -> Say:
        return Say(status=400) if number == 1 else Say(f"answer {number}")

    with serving(chat(script)) as served:
        async with living(manifest(home, served.base_url, use), home) as story:
            assert (await story.pod.run("one")).outcome == "error"
            assert (await story.pod.run("two")).outcome == "finished"

    assert [call["user"] for call in calls(home, "sync_turn")] == ["two"]


async def test_nothing_is_recalled_for_a_word_of_assent(home: Path) -> None:
    use = install(home, "diary", DIARY)
    with serving(chat(answering)) as served:
        async with living(manifest(home, served.base_url, use), home) as story:
            await story.turns("thanks!", "好的。", "Tell me more")

    assert [call["query"] for call in calls(home, "prefetch")] == ["Tell me more"]
    assert [call["message"] for call in calls(home, "on_turn_start")] == [
        "thanks!",
        "好的。",
        "Tell me more",
    ]
    assert [call["user"] for call in calls(home, "sync_turn")][:2] == ["thanks!", "好的。"]


async def test_a_prompt_is_asked_for_once_however_many_requests_it_takes(home: Path) -> None:
    use = install(home, "diary", DIARY)

    def script(asked: Asked, number: int) -> Say:
        return Say("…", calls=(("diary_read", "{}"),)) if number < 4 else Say("done")

    with serving(chat(script)) as served:
        async with living(manifest(home, served.base_url, use), home) as story:
            await story.turns("go")

    assert len(calls(home, "prefetch")) == 1
    recalled = [text for text in user_texts(served.asked[-1]) if "DIARY-RECALL" in text]
    assert len(recalled) == 1


async def test_options_and_a_folder_reach_it(home: Path) -> None:
    use = install(home, "diary", DIARY)
    extra = use + 'folder = "kept"\noptions = { depth = 3, words = ["a", "b"] }\n'
    with serving(chat(answering)) as served:
        async with living(manifest(home, served.base_url, extra), home):
            pass

    assert (home / "kept" / "diary.jsonl").exists()
    assert (
        '"options": {"depth": 3, "words": ["a", "b"]}'
        in (home / "kept" / "diary.jsonl").read_text()
    )


async def test_a_session_that_is_resumed_without_a_change_logs_nothing_new(home: Path) -> None:
    use = install(home, "diary", DIARY)
    with serving(chat(answering)) as served:
        path = manifest(home, served.base_url, use)
        async with living(path, home) as story:
            await story.turns("one")
            session_id = story.pod.session_id

        before = len(log_of(home, session_id))
        async with living(path, home, resume=session_id):
            pass

    assert len(log_of(home, session_id)) == before
    assert "DIARY-BLOCK" in FileSessionStore(home).restore(session_id).system_prompt


SURROUNDED = """
import json, threading
from agent.memory_provider import MemoryProvider, is_trivial_prompt
from hermes_cli.config import cfg_get, load_config
from hermes_constants import get_hermes_home


class Extractor(MemoryProvider):
    name = "extractor"

    def __init__(self):
        self.depth = cfg_get(load_config(), "plugins", "extractor", "depth")

    def is_available(self):
        return cfg_get(load_config(), "memory", "provider") == "extractor"

    def initialize(self, session_id, **kwargs):
        self.path = get_hermes_home() / "facts.txt"

    def get_tool_schemas(self):
        return []

    def sync_turn(self, user_content, assistant_content, **kwargs):
        from agent.auxiliary_client import call_llm

        answer = call_llm(
            task="memory", messages=[{"role": "user", "content": "EXTRACT " + user_content}]
        )
        with self.path.open("a") as file:
            file.write(f"{self.depth} {answer.choices[0].message.content}\\n")


def register(ctx):
    ctx.register_memory_provider(Extractor())
"""


async def test_it_reads_its_configuration_and_asks_the_pods_model(home: Path) -> None:
    use = install(home, "extractor", SURROUNDED) + "options = { depth = 3 }\n"

    def script(asked: Asked, number: int) -> Say:
        return Say("a fact") if "EXTRACT" in asked.text else Say(f"answer {number}")

    with serving(chat(script)) as served:
        async with living(manifest(home, served.base_url, use), home) as story:
            await story.turns("Where is it?")
            await story.turns("And who?")

    assert not story.of(Alert)
    facts = home / "memory" / "extractor" / "facts.txt"
    assert facts.read_text() == "3 a fact\n3 a fact\n"
    assert stat.S_IMODE(facts.parent.stat().st_mode) == 0o700


ANSWERING = """
from agent.memory_provider import MemoryProvider
from tools.registry import tool_error


class Answering(MemoryProvider):
    name = "answering"

    def is_available(self):
        return True

    def initialize(self, session_id, **kwargs):
        pass

    def get_tool_schemas(self):
        return [{"name": "recall_it", "description": "x"}]

    def handle_tool_call(self, tool_name, args, **kwargs):
        return tool_error("nothing there")


def register(ctx):
    ctx.register_memory_provider(Answering())
"""


async def test_what_is_served_to_it_takes_no_name_from_a_users_own_module(
    home: Path, tmp_path: Path
) -> None:
    """Hermes's `tools` is served to the one pod, and the next has a `tools.py` of its own."""
    use = install(home, "answering", ANSWERING)

    def script(asked: Asked, number: int) -> Say:
        calls = {1: "recall_it", 3: "mine"}
        return Say("…", calls=((calls[number], "{}"),)) if number in calls else Say("done")

    here = tmp_path / "project"
    here.mkdir()
    known = list(sys.path)
    with serving(chat(script)) as served:
        async with living(manifest(home, served.base_url, use), home) as story:
            await story.turns("one")
            (result,) = story.of(ToolResult)
            assert result.is_error
            assert "nothing there" in result.summary

        (here / "tools.py").write_text('def mine() -> str:\n    """x"""\n    return "MINE"\n')
        path = manifest(here, served.base_url, '[tools]\npython = ["tools:mine"]\n')
        try:
            async with living(path, home) as other:
                await other.turns("two")
                (result,) = other.of(ToolResult)
                assert result.summary == "MINE"
        finally:
            sys.path[:] = known
            for name in [name for name in sys.modules if name.split(".")[0] == "tools"]:
                del sys.modules[name]


async def test_it_follows_to_a_fork_that_the_writing_had_to_go_on_in(home: Path) -> None:
    use = install(home, "diary", DIARY)
    with serving(chat(answering)) as served:
        async with living(manifest(home, served.base_url, use), home) as story:
            await story.turns("one")
            old_id = story.pod.session_id
            log = home / "sessions" / f"{old_id}.jsonl"
            with log.open("ab") as file:
                file.write(foreign_line(log))

            await story.turns("two")
            new_id = story.pod.session_id

    (switch,) = calls(home, "on_session_switch")
    assert (switch["session"], switch["parent"], switch["reason"]) == (new_id, old_id, "branch")
    assert [call["session"] for call in calls(home, "sync_turn")] == [old_id, new_id]


async def test_two_pods_at_once_keep_each_others_notes(home: Path) -> None:
    """One folder, two pods, both writing in the same moments, through their models' tools."""
    extra = '[memory]\nprovider = "file"\nfolder = "shared"\n'

    def script(asked: Asked, number: int) -> Say:
        who = user_texts(asked)[-1]
        if number % 2:
            text = json.dumps({"text": f"{who} said {number}"})
            return Say("…", calls=(("memory_remember", text),))

        return Say("kept")

    async def talk(story: Story, who: str) -> None:
        for n in range(6):
            await story.pod.run(f"{who} {n}")

    with serving(chat(script)) as one, serving(chat(script)) as two:
        paths = [
            manifest(home, served.base_url, extra, name=name)
            for served, name in ((one, "one"), (two, "two"))
        ]
        async with (
            living(paths[0], home) as first,
            living(paths[1], home) as second,
            anyio.create_task_group() as group,
        ):
            group.start_soon(talk, first, "Ann")
            group.start_soon(talk, second, "Bob")

    kept = (home / "shared" / "notes.md").read_text()
    assert [kept.count(f"Ann {n}") + kept.count(f"Bob {n}") for n in range(6)] == [2] * 6
