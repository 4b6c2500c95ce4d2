"""A provider cannot hurt a pod: it may raise, block, answer nonsense, or not be there at all."""

from __future__ import annotations

import json
import time
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from pod.protocol import Alert, CompactionDone, ToolResult
from tests.fake_provider import Asked, Say, serving
from tests.pod.memory.plugins import LEGACY, install, noted, toy, wait_for
from tests.pod.pods import COMPACT, Story, chat, kinds, living, manifest, prose, user_texts

pytestmark = pytest.mark.anyio

QUICK = "timeout_seconds = 1\n"


def answering(_: Asked, number: int) -> Say:
    return Say(f"answer {number}")


def long(_: Asked, number: int) -> Say:
    return Say(f"answer {number} {prose(8_000)}")


def alerts(story: Story) -> list[str]:
    return [alert.message for alert in story.of(Alert)]


BROKEN = {
    "raises in initialize": toy("def initialize(self, session_id, **kwargs): raise OSError('no')"),
    "exits in initialize": toy("def initialize(self, session_id, **kwargs): raise SystemExit(3)"),
    "is not available": toy(
        "def is_available(self): return False\ndef unavailable_reason(self): return 'set TOY_KEY'"
    ),
    "cannot be imported": "import no_such_module_at_all",
    "is no Python": "def (",
    "raises in register": "def register(ctx): raise ValueError('no')",
    "exits when imported": "raise SystemExit",
    "registers nothing": "def register(ctx): pass",
    "registers what is none": "def register(ctx): ctx.register_memory_provider(42)",
    "needs what is not served": "import agent.no_such_module",
    "never gets ready": toy("def initialize(self, session_id, **kwargs): time.sleep(60)"),
}


@pytest.mark.parametrize("kind", BROKEN)
async def test_a_provider_that_cannot_be_had_is_named_and_the_pod_runs(
    home: Path, kind: str
) -> None:
    use = install(home, "toy", BROKEN[kind])
    with serving(chat(answering)) as served:
        async with living(manifest(home, served.base_url, use + QUICK), home) as story:
            assert (await story.pod.run("one")).text == "answer 1"
            await story.pod.new()
            assert (await story.pod.run("two")).text == "answer 2"

    (told,) = alerts(story)
    assert told.startswith("Failed to load memory provider 'toy': ")
    assert told.endswith("going on without it")
    assert "engine" not in told
    assert "Traceback" not in told
    assert "<memory" not in served.asked[0].text


async def test_a_provider_that_is_not_there_is_named(home: Path) -> None:
    with serving(chat(answering)) as served:
        path = manifest(home, served.base_url, '[memory]\nprovider = "nowhere"\n')
        async with living(path, home) as story:
            assert (await story.pod.run("one")).outcome == "finished"

    assert alerts(story) == ["Memory provider 'nowhere' not found — going on without it"]


async def test_none_is_active_by_being_installed(home: Path) -> None:
    install(home, "toy", "raise SystemExit('imported')")
    with serving(chat(answering)) as served:
        async with living(manifest(home, served.base_url), home) as story:
            await story.turns("one")
            session_id = story.pod.session_id

    assert alerts(story) == []
    assert kinds(home, session_id) == [
        "session_start",
        "user_input",
        "assistant_items",
        "usage",
        "turn_end",
        "run_outcome",
    ]


HOOKS = (
    "system_prompt_block",
    "on_turn_start",
    "prefetch",
    "queue_prefetch",
    "sync_turn",
    "get_tool_schemas",
    "on_pre_compress",
    "on_session_switch",
    "on_session_end",
    "shutdown",
)


@pytest.mark.parametrize("how", ["raise ValueError('no')", "raise SystemExit(1)", "raise KeyError"])
async def test_one_that_raises_everywhere_harms_nothing_and_is_told_of_once(
    home: Path, how: str
) -> None:
    body = "\n".join(f"def {hook}(self, *args, **kwargs): {how}" for hook in HOOKS)
    use = install(home, "toy", toy(body))
    with serving(chat(long)) as served:
        async with living(manifest(home, served.base_url, use + COMPACT), home) as story:
            await story.turns("one two", "two three", "three four", "four five")
            assert story.of(CompactionDone)
            await story.pod.new()
            assert (await story.pod.run("five six")).outcome == "finished"

    told = alerts(story)
    assert len(told) == len(set(told)) == len(HOOKS)
    assert all(text.startswith("memory provider toy: ") for text in told)
    assert all(any(f" {hook} raised " in text for text in told) for hook in HOOKS)
    assert not any("engine" in text for text in told)


NONSENSE = ["42", "b'x'", "['a']", "{'a': 1}", "object()", "'\\ud800 \\x00'", "''", "' \\u200b '"]


@pytest.mark.parametrize("value", NONSENSE)
async def test_nonsense_for_an_answer_is_no_answer(home: Path, value: str) -> None:
    body = "\n".join(f"def {hook}(self, *args, **kwargs): return {value}" for hook in HOOKS)
    use = install(home, "toy", toy(body))
    with serving(chat(long)) as served:
        async with living(manifest(home, served.base_url, use + COMPACT), home) as story:
            await story.turns("one two", "two three", "three four")
            assert story.of(CompactionDone)

    assert len(served.asked) == 4
    assert all(isinstance(text, str) for asked in served.asked for text in user_texts(asked))


async def test_tools_that_are_neither_true_nor_false_are_none(home: Path) -> None:
    body = (
        "def get_tool_schemas(self):\n"
        "    class Unlike:\n"
        "        def __bool__(self): raise ValueError('neither')\n"
        "    return Unlike()\n"
    )
    use = install(home, "toy", toy(body))
    with serving(chat(long)) as served:
        async with living(manifest(home, served.base_url, use), home) as story:
            assert (await story.pod.run("one two")).outcome == "finished"

    assert alerts(story) == ["memory provider toy: get_tool_schemas returned Unlike, not a list"]


async def test_what_blocks_is_waited_for_once_and_then_passed_by(home: Path) -> None:
    use = install(home, "toy", toy("def prefetch(self, query, **kwargs): time.sleep(30)"))
    with serving(chat(answering)) as served:
        async with living(manifest(home, served.base_url, use + QUICK), home) as story:
            await story.pod.run("one two")
            began = time.monotonic()
            for _ in range(10):
                assert (await story.pod.run("three four")).outcome == "finished"

            assert time.monotonic() - began < 9, "waited for each time, it would have been 10 s"

    assert alerts(story) == [
        "memory provider toy: prefetch took over 1 s; going on without it",
    ]


async def test_a_run_does_not_wait_for_sync_turn_and_closing_waits_only_so_long(
    home: Path,
) -> None:
    use = install(home, "toy", toy("def sync_turn(self, *args, **kwargs): time.sleep(60)"))
    with serving(chat(answering)) as served:
        began = time.monotonic()
        async with living(manifest(home, served.base_url, use + QUICK), home) as story:
            for n in range(4):
                await story.pod.run(f"prompt number {n}")

        assert time.monotonic() - began < 15, "a call takes 60 s"

    (told,) = alerts(story)
    assert told == (
        "memory provider toy: was still busy 1 s after the end and is left behind; "
        "3 of the last runs were not handed over"
    )


async def test_recalling_does_not_wait_for_a_slow_sync(home: Path) -> None:
    use = install(
        home,
        "toy",
        toy(
            "def sync_turn(self, *args, **kwargs): time.sleep(1)\n"
            "def prefetch(self, query, **kwargs): return 'RECALLED ' + query"
        ),
    )
    with serving(chat(answering)) as served:
        async with living(manifest(home, served.base_url, use), home) as story:
            await story.pod.run("one two")
            await story.pod.run("two three")

    assert "RECALLED two three" in user_texts(served.asked[-1])[-1]
    assert alerts(story) == []


async def test_what_is_slow_is_handed_over_in_order_and_whole_at_the_end(home: Path) -> None:
    use = install(
        home,
        "toy",
        toy(
            "def sync_turn(self, user, assistant, **kwargs):\n"
            "    time.sleep(0.02)\n"
            "    self.note(json.dumps([user, assistant]))\n"
            "def shutdown(self): self.note('shutdown')"
        ),
    )
    with serving(chat(answering)) as served:
        async with living(manifest(home, served.base_url, use), home) as story:
            for n in range(20):
                await story.pod.run(f"prompt {n} x")

    *lines, last = noted(home)
    assert last == "shutdown"
    pairs = [json.loads(line) for line in lines]
    said = [part for user, _ in pairs for part in user.split("\n\n")]
    assert said == [f"prompt {n} x" for n in range(20)]
    heard = [part for _, answer in pairs for part in answer.split("\n\n")]
    assert heard == [f"answer {n}" for n in range(1, 21)]


async def test_a_switch_that_blocks_holds_up_no_compaction(home: Path) -> None:
    """It is called after the commit, and not waited for longer than the limit."""
    use = install(home, "toy", toy("def on_session_switch(self, *a, **k): time.sleep(60)"))
    with serving(chat(long)) as served:
        began = time.monotonic()
        path = manifest(home, served.base_url, use + QUICK + COMPACT)
        async with living(path, home) as story:
            await story.turns("one two", "two three", "three four", "four five", "five six")
            dones = story.of(CompactionDone)
            assert len(dones) >= 2
            assert story.pod.session_id == dones[-1].new_session_id

        assert time.monotonic() - began < 15, "a call takes 60 s"

    (told,) = alerts(story)
    assert "was still busy 1 s after the end and is left behind" in told


async def test_one_that_gets_ready_too_late_is_shut_down(home: Path) -> None:
    body = (
        "def initialize(self, session_id, **kwargs):\n"
        "    self.home = kwargs['hermes_home']\n"
        "    time.sleep(4)\n"
        "    self.note('ready')\n"
        "def shutdown(self): self.note('shut down')"
    )
    use = install(home, "toy", toy(body))
    with serving(chat(answering)) as served:
        async with living(manifest(home, served.base_url, use + QUICK), home) as story:
            assert (await story.pod.run("one two")).outcome == "finished"
            await to_thread.run_sync(lambda: wait_for(home, "shut down"))

    assert noted(home) == ["ready", "shut down"]
    (told,) = alerts(story)
    assert "it was not ready after 3 s" in told


async def test_a_tool_that_fails_or_says_nonsense_is_a_result(home: Path) -> None:
    body = """
def get_tool_schemas(self):
    return [
        {"name": "bad"}, {"name": "odd", "parameters": "x", "description": 7},
        {"name": ""}, 42, {"name": "bad"}, {"type": "function", "function": None},
        {"name": "no way"}, {"name": "x" * 65}, {"name": "set", "parameters": {"a": {1}}},
        {"name": "nan", "parameters": {"a": float("nan")}}, {"name": "loop", "parameters": LOOP},
        {"name": "array", "parameters": {"type": "array"}},
        {"name": "list", "parameters": {"properties": []}},
        {"name": "large", "parameters": {"a": "x" * 100_000}},
        {"name": "torn", "description": "\\ud800", "parameters": {"a": "\\ud800"}},
    ]
def handle_tool_call(self, tool_name, args, **kwargs):
    if tool_name == "bad":
        raise ValueError("broken " + str(args))
    return {"not": "text"}
"""
    use = install(home, "toy", toy(body) + "\nLOOP = {}\nLOOP['me'] = LOOP\n")

    def script(asked: Asked, number: int) -> Say:
        if number == 1:
            return Say("…", calls=(("bad", '{"a": 1}'), ("odd", "{}")))

        return Say("done")

    with serving(chat(script)) as served:
        async with living(manifest(home, served.base_url, use), home) as story:
            assert (await story.pod.run("go")).outcome == "finished"
            bad, odd = sorted(story.of(ToolResult), key=lambda result: result.name)
            assert bad.is_error
            assert "Memory tool 'bad' failed: ValueError: broken {'a': 1}" in bad.summary
            assert (odd.is_error, odd.summary) == (False, '{"not":"text"}')
            offered = [tool["function"]["name"] for tool in served.asked[0].body["tools"]]
            assert offered == ["bad", "odd", "torn"]

    told = [text.removeprefix("memory provider toy: ") for text in alerts(story)]
    assert told == [
        f"{problem}; it is left out"
        for problem in (
            "one of its tools has no name",
            "its tool 'no way' has a name not of 1 to 64 letters, digits, - and _",
            f"its tool '{'x' * 60}' has a name not of 1 to 64 letters, digits, - and _",
            "the parameters of its tool set are no JSON (TypeError)",
            "the parameters of its tool nan are no JSON (ValueError)",
            "the parameters of its tool loop are no JSON (ValueError)",
            "the parameters of its tool array are no object",
            "the parameters of its tool list are no object",
            "the parameters of its tool large are over 65,536 bytes",
        )
    ]


async def test_what_it_raises_in_halves_of_characters_can_be_told(home: Path) -> None:
    use = install(home, "toy", toy("def prefetch(self, *a, **k): raise ValueError('\\ud800 no')"))
    with serving(chat(answering)) as served:
        async with living(manifest(home, served.base_url, use), home) as story:
            await story.pod.run("one two")

    assert [alert.model_dump_json() for alert in story.of(Alert)]


async def test_huge_answers_are_cut(home: Path) -> None:
    body = "\n".join(
        f"def {hook}(self, *args, **kwargs): return '東' * 2_000_000"
        for hook in ("system_prompt_block", "prefetch", "on_pre_compress")
    )
    use = install(home, "toy", toy(body))
    with serving(chat(long)) as served:
        async with living(manifest(home, served.base_url, use), home) as story:
            await story.turns("one two", "two three", "three four")
            assert await story.pod.compact() is not None

    assert max(len(asked.text.encode()) for asked in served.asked) < 200_000
    (summary,) = [asked for asked in served.asked if asked.wants_summary]
    assert 1_000 < summary.text.count("東") < 20_000


async def test_a_block_cannot_pretend_to_be_over(home: Path) -> None:
    use = install(home, "toy", toy("def system_prompt_block(self): return 'a</memory>\\nb'"))
    with serving(chat(answering)) as served:
        async with living(manifest(home, served.base_url, use), home) as story:
            await story.turns("one")

    assert str(served.asked[0].body["messages"][0]["content"]).count("</memory>") == 1


async def test_one_of_an_older_contract_is_called_with_what_it_takes(home: Path) -> None:
    use = install(home, "toy", LEGACY)

    def script(asked: Asked, number: int) -> Say:
        return Say("…", calls=(("old_lines", "{}"),)) if number == 2 else Say(prose(4_000))

    with serving(chat(script)) as served:
        async with living(manifest(home, served.base_url, use), home) as story:
            await story.turns("one two", "two three", "three four")
            assert await story.pod.compact() is not None
            (result,) = story.of(ToolResult)
            assert "one two" in result.summary

    assert alerts(story) == []
    assert "OLD-RECALL one two" in user_texts(served.asked[0])[-1]


async def test_pods_at_once_have_an_object_each(home: Path) -> None:
    shared = toy("def system_prompt_block(self): return 'ID ' + str(id(self))")
    use = install(
        home,
        "toy",
        shared + "\nONE = Toy()\ndef register(ctx): ctx.register_memory_provider(ONE)\n",
    )
    with serving(chat(answering)) as served:
        path = manifest(home, served.base_url, use)
        async with living(path, home) as first, living(path, home) as second:
            await first.turns("one")
            await second.turns("two")

    one, two = (str(asked.body["messages"][0]["content"]) for asked in served.asked)
    assert one != two
    assert alerts(first) == alerts(second) == []


async def test_a_prompt_that_was_cancelled_while_it_recalled_is_recalled_for_when_resumed(
    home: Path,
) -> None:
    body = """
def prefetch(self, query, **kwargs):
    self.note("asked")
    if not os.path.exists(os.path.join(self.home, "go")):
        open(os.path.join(self.home, "go"), "w").close()
        time.sleep(0.5)
    return "RECALLED"
"""
    use = install(home, "toy", toy(body))
    with serving(chat(answering)) as served:
        async with living(manifest(home, served.base_url, use), home) as story:
            async with anyio.create_task_group() as group:

                async def cancel() -> None:
                    await to_thread.run_sync(lambda: wait_for(home, "asked"))
                    story.pod.cancel()

                group.start_soon(cancel)
                assert (await story.pod.run("one two")).outcome == "cancelled"

            assert (await story.pod.resume()).outcome == "finished"

    said = user_texts(served.asked[-1])
    assert sum("RECALLED" in text for text in said) == 1
