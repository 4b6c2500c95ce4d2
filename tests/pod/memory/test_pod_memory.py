"""The memory `file` in whole pods: it outlives sessions, compactions, restarts and crashes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from anyio import to_thread

from pod.memory.texts import CHANGED, RECALLED
from pod.protocol import Alert, CompactionDone, ToolResult
from session_store import FileSessionStore
from tests.fake_provider import Asked, Say, Script, serving
from tests.pod.pods import (
    COMPACT,
    KEY,
    Story,
    chat,
    living,
    log_of,
    manifest,
    pointer,
    prose,
    user_texts,
)

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).resolve().parents[3]

MEMORY = '[memory]\nprovider = "file"\n'
FACT = "The staging database is db-7."


def notes(home: Path, pod: str = "probe") -> Path:
    return home / "memory" / "file" / pod / "notes.md"


def put(home: Path, *lines: str) -> None:
    notes(home).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    notes(home).write_text("".join(f"- {line}\n" for line in lines))


def calling(*calls: tuple[str, dict[str, object]]) -> Script:
    """Answer the n-th request with the n-th call, and then in words."""

    def script(asked: Asked, number: int) -> Say:
        if number <= len(calls):
            name, arguments = calls[number - 1]
            return Say("noted", calls=((name, json.dumps(arguments)),))

        return Say(f"answer {number}")

    return script


def answering(_: Asked, number: int) -> Say:
    return Say(f"answer {number}")


def system_of(asked: Asked) -> str:
    return str(asked.body["messages"][0]["content"])


def alerts(story: Story) -> list[str]:
    return [alert.message for alert in story.of(Alert)]


async def test_what_the_model_remembers_is_in_the_next_sessions_prompt(home: Path) -> None:
    script = calling(("memory_remember", {"text": FACT}))
    with serving(chat(script)) as served:
        path = manifest(home, served.base_url, MEMORY)
        async with living(path, home) as story:
            await story.turns("Where is staging?")
            assert "It is empty so far." in system_of(served.asked[0])
            (result,) = story.of(ToolResult)
            assert FACT in result.summary + (result.content or "")
            assert not result.is_error
            assert FACT in notes(home).read_text()
            names = [tool["function"]["name"] for tool in served.asked[0].body["tools"]]
            assert names == [
                f"memory_{word}" for word in ("forget", "remember", "replace", "search")
            ]

        async with living(path, home) as story:
            await story.turns("And now?")
            assert FACT in system_of(served.asked[-1])
            assert alerts(story) == []


async def test_the_prompt_is_the_same_for_the_whole_launch_and_is_in_the_log(home: Path) -> None:
    script = calling(("memory_remember", {"text": FACT}))
    with serving(chat(script)) as served:
        async with living(manifest(home, served.base_url, MEMORY), home) as story:
            await story.turns("one", "two", "three")
            session_id = story.pod.session_id

        assert len({system_of(asked) for asked in served.asked}) == 1
        state = FileSessionStore(home).restore(session_id)
        assert state.system_prompt == system_of(served.asked[0])
        assert state.config["memory"] == "file"


async def test_a_fitting_note_is_in_the_log_before_the_request_that_has_it(home: Path) -> None:
    extra = MEMORY + "options = { prompt_max_bytes = 0 }\n"
    put(home, "Deploys go out on Tuesdays.", "毎朝九時に朝会がある。", "Roses are red.")
    with serving(chat(answering)) as served:
        async with living(manifest(home, served.base_url, extra), home) as story:
            await story.turns(
                "When do we deploy?", "朝会は何時から?", "And who deploys?", "thanks!"
            )
            entries = log_of(home, story.pod.session_id)

    first, second, third, fourth = map(user_texts, served.asked)
    assert "3 notes are not shown here" in system_of(served.asked[0])
    assert RECALLED in first[1]
    assert "Deploys go out on Tuesdays." in first[1]
    assert "Roses" not in first[1]
    assert "毎朝九時に朝会がある。" in second[-1]
    assert third[-1] == "And who deploys?"  # it has seen that note
    assert fourth[-1] == "thanks!"
    notes_at = [n for n, entry in enumerate(entries) if entry["kind"] == "system_item"]
    assert [entries[n - 1]["kind"] for n in notes_at] == ["user_input", "user_input"]
    assert [entries[n]["items"][0]["kind"] for n in notes_at] == ["memory", "memory"]


async def test_nothing_is_recalled_twice_after_a_restart_in_the_middle_of_a_run(home: Path) -> None:
    extra = MEMORY + "options = { prompt_max_bytes = 0 }\n"
    put(home, "Deploys go out on Tuesdays.")

    def script(asked: Asked, number: int) -> Say:
        return Say(status=500) if number <= 3 else Say("on Tuesday")

    with serving(chat(script)) as served:
        path = manifest(home, served.base_url, extra)
        async with living(path, home) as story:
            await story.pod.run("When do we deploy?")
            session_id = story.pod.session_id

        async with living(path, home, resume=session_id) as story:
            await story.pod.resume()

        said = user_texts(served.asked[-1])
        assert len([text for text in said if "Tuesdays" in text]) == 1


async def test_a_resumed_session_keeps_its_prompt_and_hears_what_changed(home: Path) -> None:
    put(home, "Old news.")
    with serving(chat(answering)) as served:
        path = manifest(home, served.base_url, MEMORY)
        async with living(path, home) as story:
            await story.turns("one")
            session_id = story.pod.session_id

        put(home, "New news.")
        for prompt in ("two", "three"):
            async with living(path, home, resume=session_id) as story:
                await story.turns(prompt)

        assert len({system_of(asked) for asked in served.asked}) == 1
        changed = [text for text in user_texts(served.asked[-1]) if CHANGED in text]
        assert len(changed) == 1
        gone, new = changed[0].splitlines()[-2:]
        assert gone.startswith("- - [")
        assert gone.endswith("] Old news.")
        assert new.startswith("+ - [")
        assert new.endswith("] New news.")
        async with living(path, home) as story:
            await story.turns("afresh")

        assert "New news." in system_of(served.asked[-1])


async def test_a_session_without_memory_gets_one_and_loses_it_again(home: Path) -> None:
    with serving(chat(answering)) as served:
        path = manifest(home, served.base_url)
        async with living(path, home) as story:
            await story.turns("one")
            session_id = story.pod.session_id
            bare = system_of(served.asked[0])

        manifest(home, served.base_url, MEMORY)
        async with living(path, home, resume=session_id) as story:
            await story.turns("two")

        manifest(home, served.base_url)
        async with living(path, home, resume=session_id) as story:
            await story.turns("three")

        assert [system_of(asked).startswith(bare) for asked in served.asked] == [True] * 3
        assert ["<memory" in system_of(asked) for asked in served.asked] == [False, True, False]


async def test_it_outlives_compactions_and_new_sessions(home: Path) -> None:
    put(home, "Kept since long ago.")

    def script(asked: Asked, number: int) -> Say:
        if number == 1:
            return Say("noted", calls=(("memory_remember", json.dumps({"text": FACT})),))

        return Say(f"answer {number} {prose(8_000)}")

    with serving(chat(script)) as served:
        async with living(manifest(home, served.base_url, MEMORY + COMPACT), home) as story:
            await story.turns("one", "two", "three", "four")
            assert story.of(CompactionDone)
            summaries = [asked for asked in served.asked if asked.wants_summary]
            assert FACT in summaries[0].text  # what was remembered must survive
            chats = [asked for asked in served.asked if not asked.wants_summary]
            assert len({system_of(asked) for asked in chats}) == 1
            await story.pod.new()
            await story.turns("five")
            assert FACT in system_of(served.asked[-1])
            assert "Kept since long ago." in system_of(served.asked[-1])
            session_id = story.pod.session_id

        state = FileSessionStore(home).restore(session_id)
        assert state.system_prompt == system_of(served.asked[-1])


async def test_a_fork_and_a_rewind_share_the_memory(home: Path) -> None:
    script = calling(
        ("memory_remember", {"text": FACT}), ("memory_search", {"query": "staging database"})
    )
    with serving(chat(script)) as served:
        async with living(manifest(home, served.base_url, MEMORY), home) as story:
            pod = story.pod
            start = log_of(home, pod.session_id)[0]["hash"]
            await story.turns("one")
            async with await pod.fork() as child:
                await child.run("two")
                assert child.session_id != pod.session_id

            await pod.rewind(start)
            await pod.run("three")
            assert FACT in system_of(served.asked[-1])
            assert notes(home).read_text().count(FACT) == 1


async def test_secrets_are_kept_out_of_the_notes(home: Path) -> None:
    script = calling(
        ("memory_remember", {"text": f"the key is {KEY}"}),
        ("memory_remember", {"text": "and ghp_0123456789abcdefghijklmnopqrstuvwxyz"}),
    )
    with serving(chat(script)) as served:
        async with living(manifest(home, served.base_url, MEMORY), home) as story:
            await story.turns("one")

    written = notes(home).read_text()
    assert "the key is [masked: " in written
    assert KEY not in written
    assert "ghp_" not in written


async def test_a_note_that_a_person_wrote_a_secret_into_reaches_no_model(home: Path) -> None:
    put(home, "the token is ghp_0123456789abcdefghijklmnopqrstuvwxyz")
    with serving(chat(answering)) as served:
        async with living(manifest(home, served.base_url, MEMORY), home) as story:
            await story.turns("one")

    sent = json.dumps(served.asked[0].body)
    assert "the token is [masked: " in sent
    assert "ghp_" not in sent


async def test_what_cannot_be_read_is_told_and_harms_nothing(home: Path) -> None:
    put(home, "Fine.")
    (notes(home).parent / "bad.md").mkdir()
    with serving(chat(answering)) as served:
        async with living(manifest(home, served.base_url, MEMORY), home) as story:
            await story.turns("one", "two")

    (told,) = alerts(story)
    assert told == (
        "memory provider file: bad.md cannot be read: it is not what the store put there"
    )
    assert "Fine." in system_of(served.asked[0])


async def test_several_that_cannot_be_read_are_told_in_one_line(home: Path) -> None:
    put(home, "Fine.")
    for n in range(5):
        (notes(home).parent / f"bad {n}.md").mkdir()
    with serving(chat(answering)) as served:
        async with living(manifest(home, served.base_url, MEMORY), home) as story:
            await story.turns("one", "two")

    line = (
        "5 files cannot be read: bad 0.md, bad 1.md, bad 2.md and 2 more "
        "(bad 0.md cannot be read: it is not what the store put there)"
    )
    assert alerts(story) == [f"memory provider file: {line}"]
    assert f"(Not readable: {line}.)" in system_of(served.asked[0])


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("memory_remember", {}, "text must be given"),
        ("memory_remember", {"text": 7}, "text must be given"),
        ("memory_remember", {"text": "x" * 5_000}, "at most 2,000"),
        ("memory_remember", {"text": "x", "topic": "../../etc"}, "no topic"),
        ("memory_replace", {"id": "nope", "text": "x"}, "no note has the id"),
        ("memory_forget", {"id": ["a"]}, "id must be given"),
        ("memory_search", {"query": None}, "query must be given"),
    ],
)
async def test_what_the_model_gets_wrong_is_an_error_in_words(
    home: Path, name: str, arguments: dict[str, object], said: str
) -> None:
    with serving(chat(calling((name, arguments)))) as served:
        async with living(manifest(home, served.base_url, MEMORY), home) as story:
            result = await story.pod.run("go")
            assert result.outcome == "finished"
            (told,) = story.of(ToolResult)
            assert told.is_error
            assert said in told.summary + (told.content or "")


async def test_pods_that_name_one_folder_share_it(home: Path) -> None:
    script = calling(("memory_remember", {"text": FACT}))
    extra = MEMORY + 'folder = "shared"\n'
    with serving(chat(script)) as served:
        async with living(manifest(home, served.base_url, extra, name="one"), home) as story:
            await story.turns("remember")
        async with living(manifest(home, served.base_url, extra, name="two"), home) as story:
            await story.turns("recall")

    assert FACT in (home / "shared" / "notes.md").read_text()
    assert FACT in system_of(served.asked[-1])
    assert not (home / "memory").exists()


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from pod import Pod
from pod.protocol import ToolResult

async def main():
    home = Path(sys.argv[1])
    pod = Pod.launch(home / "probe.toml", home=home, env={"FAKE_KEY": "k-123456", "NO_PROXY": "*"})
    async with pod:
        pod.on(ToolResult, lambda _: os.kill(os.getpid(), signal.SIGKILL))
        await pod.run("remember it")

asyncio.run(main())
"""


async def test_what_was_remembered_is_there_after_a_kill(home: Path) -> None:
    with serving(chat(calling(("memory_remember", {"text": FACT})))) as served:
        path = manifest(home, served.base_url, MEMORY)
        command = [sys.executable, "-c", KILLED, str(home)]
        done = await to_thread.run_sync(
            lambda: subprocess.run(command, check=False, cwd=ROOT, capture_output=True)
        )
        assert done.returncode == -signal.SIGKILL, done.stderr.decode()
        assert FACT in notes(home).read_text()
        async with living(path, home, resume=pointer(home)) as story:
            await story.pod.resume()
            # The prompt of the session stays, and what changed is said beside it.
            assert any(FACT in text for text in user_texts(served.asked[-1]))


async def test_the_newest_notes_are_shown_and_any_length_of_a_persons_note_is_found(
    home: Path,
) -> None:
    extra = MEMORY + "options = { prompt_max_bytes = 85, recall_max_bytes = 0 }\n"
    put(
        home,
        "[aaaa11 2024-01-01] The first.",
        "[bbbb22 2026-01-01] The second.",
        "[cccc33 2026-01-01] The third.",
        "[dddd44 2025-01-01] The fourth.",
    )
    (notes(home).parent / "long.md").write_text("- giraffe " + "東" * 60_000 + "\n")
    script = calling(
        ("memory_search", {"query": "giraffe"}),
        ("memory_search", {"query": "bbbb22"}),
        ("memory_search", {"query": "", "limit": 2}),
    )
    with serving(chat(script)) as served:
        async with living(manifest(home, served.base_url, extra), home) as story:
            await story.turns("go")
            giraffe, second, latest = [
                json.loads(result.content or result.summary) for result in story.of(ToolResult)
            ]

    shown = system_of(served.asked[0])
    assert "The second." in shown
    assert "The third." in shown
    assert "3 notes are not shown" in shown
    assert (giraffe["found"], len(giraffe["notes"])) == (1, 1)
    assert "bytes left out" in giraffe["notes"][0]["text"]
    assert [note["text"] for note in second["notes"]] == ["The second."]
    assert latest["found"] == 5
    assert [note.get("topic") for note in latest["notes"]] == ["long", "notes"]
    assert latest["notes"][1]["text"] == "The third."


async def test_a_person_may_be_asked_before_anything_is_remembered(home: Path) -> None:
    extra = MEMORY + '[permissions]\ntools = { memory_remember = "ask", memory_forget = "deny" }\n'
    put(home, "[aaaa11 2026-01-01] Stays.")
    script = calling(
        ("memory_remember", {"text": FACT}),
        ("memory_forget", {"id": "aaaa11"}),
        ("memory_search", {"query": "stays"}),
    )
    with serving(chat(script)) as served:
        async with living(manifest(home, served.base_url, extra), home) as story:
            await story.turns("go")
            asked, denied, searched = story.of(ToolResult)

    assert asked.is_error
    assert "permission denied for memory_remember" in asked.summary
    assert denied.is_error
    assert not searched.is_error
    assert notes(home).read_text() == "- [aaaa11 2026-01-01] Stays.\n"
