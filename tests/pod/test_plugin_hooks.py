"""Hooks that an engine's plugin registers: each at its moment, none of them able to do harm."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from pod.protocol import ApprovalRequest, EngineNotice, RunEnd, ToolResult
from tests.fake_provider import Asked, Say, serving
from tests.pod.plugin_folders import install, notes, use
from tests.pod.pods import BIG_TOOL, Story, chat, living, log_of, manifest, pointer, user_texts
from worker.items import AssistantMessage, SystemNote
from worker.items import ToolResult as ResultItem

pytestmark = pytest.mark.anyio

REGISTER = """
def register(ctx):
    ctx.register_context_engine(Calm())
    ctx.register_hook({hook!r}, hook)
"""


@pytest.fixture
def noted(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that a plugin writes down what it is told in."""
    monkeypatch.setenv("NOTES", str(home / "notes.jsonl"))
    return home / "notes.jsonl"


def hooked(home: Path, hook: str, body: str) -> None:
    """Install a plugin with one hook, its body being of a function of keywords."""
    code = f"def hook(**kwargs):\n    {body}\n" if "def hook" not in body else body
    install(home, code + REGISTER.format(hook=hook))


def plain(asked: Asked, number: int) -> Say:
    return Say(f"answer {number}")


def one_call(asked: Asked, number: int) -> Say:
    return Say(calls=(("big", '{"n": 7}'),)) if number == 1 else Say("done")


def notices(story: Story) -> list[str]:
    return [notice.message for notice in story.of(EngineNotice)]


def results(story: Story) -> list[ResultItem]:
    return [item for item in story.pod.history if isinstance(item, ResultItem)]


# ------------------------------------------------------------------ pre_llm_call


@pytest.mark.parametrize(
    "answer", ["{'context': 'RECALLED'}", "'RECALLED'", "{'context': 'RECALLED', 'more': 1}"]
)
async def test_pre_llm_call_adds_a_note_that_is_in_the_log_before_it_is_sent(
    home: Path, answer: str
) -> None:
    hooked(home, "pre_llm_call", f"return {answer}")
    with serving(chat(plain)) as served:
        async with living(manifest(home, served.base_url, use()), home) as story:
            await story.turns("one", "two")
            added = [item for item in story.pod.history if isinstance(item, SystemNote)]
            assert [(item.text, item.kind) for item in added] == [("RECALLED", "plugin")] * 2
            kinds = [e["kind"] for e in log_of(home, story.pod.session_id)]
            assert kinds.index("system_item") < kinds.index("assistant_items")
            assert not notices(story)

        assert "RECALLED" in served.asked[0].text
        assert served.asked[1].text.count("RECALLED") == 2, "what was sent stays sent"


@pytest.mark.parametrize("answer", ["None", "''", "'  '", "{}", "{'context': ''}", "7", "['x']"])
async def test_pre_llm_call_that_has_nothing_to_say_adds_nothing(home: Path, answer: str) -> None:
    hooked(home, "pre_llm_call", f"return {answer}")
    with serving(chat(plain)) as served:
        async with living(manifest(home, served.base_url, use()), home) as story:
            await story.turns("one")
            assert len(story.pod.history) == 2

        assert user_texts(served.asked[0]) == ["one"]


async def test_pre_llm_call_is_told_of_the_turn_once(home: Path, noted: Path) -> None:
    """Once a turn, however many requests it takes."""
    hooked(
        home,
        "pre_llm_call",
        "note('pre', keys=sorted(kwargs), question=kwargs['user_message'],"
        " rows=[[m['role'], m['message_uid']] for m in kwargs['conversation_history']],"
        " first=kwargs['is_first_turn'], session=kwargs['session_id'], turn=kwargs['turn_id'],"
        " platform=kwargs['platform'], model=kwargs['model'])",
    )
    with serving(chat(one_call)) as served:
        async with living(manifest(home, served.base_url, use() + BIG_TOOL), home) as story:
            await story.turns("one", "two")
            first, second = notes(noted)
            items = story.pod.history
            assert first["question"] == "one"
            assert first["rows"] == [["user", items[0].uid]]
            assert (first["first"], second["first"]) == (True, False)
            assert first["session"] == story.pod.session_id
            assert first["turn"] == items[0].uid
            assert (first["platform"], first["model"]) == ("pod", "fake")
            assert [row[1] for row in second["rows"]] == [item.uid for item in items[:5]]
            expected = {"session_id", "task_id", "turn_id", "user_message", "conversation_history"}
            assert expected | {"is_first_turn", "model", "platform"} <= set(first["keys"])


async def test_what_a_hook_does_to_the_history_it_is_given_stays_there(
    home: Path, noted: Path
) -> None:
    hooked(
        home,
        "pre_llm_call",
        "[m.update(content='SPOILED') for m in kwargs['conversation_history']]; "
        "note('spoiled', rows=len(kwargs['conversation_history']))",
    )
    with serving(chat(plain)) as served:
        async with living(manifest(home, served.base_url, use()), home) as story:
            await story.turns("one", "two")
            assert "SPOILED" not in str(log_of(home, story.pod.session_id))

        assert "SPOILED" not in served.asked[-1].text

    assert [entry["rows"] for entry in notes(noted)] == [1, 3]


async def test_a_resumed_turn_is_not_begun_again(home: Path, noted: Path) -> None:
    hooked(home, "pre_llm_call", "note('pre', question=kwargs['user_message'])")
    extra = use() + BIG_TOOL + '[[hooks]]\npoint = "PreToolCall"\npython = "tests.pod.big_tools:'
    with serving(chat(one_call)) as served:
        path = manifest(home, served.base_url, extra + 'pause_once"\n')
        async with living(path, home) as story:
            assert (await story.pod.run("one")).outcome == "paused"

        async with living(path, home, resume=pointer(home)) as story:
            assert (await story.pod.resume()).outcome == "finished"

    assert [entry["question"] for entry in notes(noted)] == ["one"]


async def test_a_long_text_is_cut(home: Path) -> None:
    hooked(home, "pre_llm_call", "return 'x' * 100_000")
    with serving(chat(plain)) as served:
        async with living(manifest(home, served.base_url, use()), home) as story:
            await story.turns("one")
            (added,) = [item for item in story.pod.history if isinstance(item, SystemNote)]
            assert len(added.text) < 40_000
            assert "67,232 characters left out" in added.text


# ------------------------------------------------------------------ post_llm_call, sessions


async def test_post_llm_call_is_told_of_a_whole_turn(home: Path, noted: Path) -> None:
    hooked(
        home,
        "post_llm_call",
        "note('post', keys=sorted(kwargs), said=kwargs['assistant_response'],"
        " question=kwargs['user_message'], n=len(kwargs['conversation_history']))",
    )
    with serving(chat(plain)) as served:
        async with living(manifest(home, served.base_url, use()), home) as story:
            await story.turns("one", "two")

    first, second = notes(noted)
    assert (first["question"], first["said"], first["n"]) == ("one", "answer 1", 2)
    assert (second["question"], second["said"], second["n"]) == ("two", "answer 2", 4)
    expected = {"session_id", "task_id", "turn_id", "user_message", "assistant_response"}
    assert expected | {"conversation_history", "model", "platform"} <= set(first["keys"])


async def test_post_llm_call_is_not_told_of_a_run_that_failed(home: Path, noted: Path) -> None:
    install(
        home,
        """
        def post(**kwargs):
            note("post")

        def end(**kwargs):
            note("end", **{k: kwargs[k] for k in ("completed", "failed", "turn_exit_reason")})

        def register(ctx):
            ctx.register_context_engine(Calm())
            ctx.register_hook("post_llm_call", post)
            ctx.register_hook("on_session_end", end)
        """,
    )
    with serving(Say(status=400)) as served:
        async with living(manifest(home, served.base_url, use()), home) as story:
            assert (await story.pod.run("one")).outcome == "error"

    ended = {"what": "end", "completed": False, "failed": True, "turn_exit_reason": "error"}
    assert notes(noted) == [ended]


async def test_the_moments_of_a_session_come_in_order(home: Path, noted: Path) -> None:
    """Told by the hooks of these names, in the order that Hermes has them in."""
    moments = (
        *("on_session_start", "pre_llm_call", "post_llm_call", "on_session_end"),
        *("on_session_finalize", "on_session_reset"),
    )
    install(
        home,
        f"""
        def told(name):
            return lambda session_id, **kwargs: note(name, id=session_id)

        def register(ctx):
            ctx.register_context_engine(Calm())
            for name in {moments!r}:
                ctx.register_hook(name, told(name))
        """,
    )
    with serving(chat(plain)) as served:
        path = manifest(home, served.base_url, use())
        async with living(path, home) as story:
            await story.turns("one", "two")
            first = story.pod.session_id
            await story.pod.new()
            second = story.pod.session_id

        async with living(path, home, resume=first) as story:
            await story.turns("three")

    turn = ["pre_llm_call", "post_llm_call", "on_session_end"]
    assert [(entry["what"], entry["id"]) for entry in notes(noted)] == [
        *((name, first) for name in ["on_session_start", *turn, *turn, "on_session_finalize"]),
        *((name, second) for name in ["on_session_reset", "on_session_finalize"]),
        *((name, first) for name in [*turn, "on_session_finalize"]),
    ]


# ------------------------------------------------------------------ tools


@pytest.mark.parametrize(
    ("body", "runs", "told"),
    [
        ("return {'action': 'block', 'message': 'NOT TODAY'}", False, "not run: NOT TODAY"),
        ("return {'action': 'modify', 'args': {'n': 8}}", False, "only run as it is in the log"),
        ("return {'action': 'approve', 'message': 'WHY'}", False, "nobody is there to ask"),
        ("raise ValueError('guard is broken')", False, "ValueError: guard is broken"),
        ("time.sleep(3)", False, "took over 0.5 s"),
        ("return {'action': 'sing'}", True, ""),
        ("return 'block'", True, ""),
        ("return None", True, ""),
    ],
)
async def test_pre_tool_call_decides_whether_a_call_runs(
    home: Path, body: str, told: str, *, runs: bool
) -> None:
    """A guard that fails has not said that the call may run: it does not."""
    hooked(home, "pre_tool_call", f"import time; {body}")
    extra = use(more="timeout_seconds = 0.5\n") + BIG_TOOL
    with serving(chat(one_call)) as served:
        async with living(manifest(home, served.base_url, extra), home) as story:
            assert (await story.pod.run("go")).outcome == "finished"
            (result,) = results(story)
            assert ("CONTENT-7" in (result.content or "")) is runs
            assert result.is_error is not runs
            assert told in f"{result.summary} {result.content}"


async def test_a_hook_can_have_a_person_asked(home: Path) -> None:
    hooked(home, "pre_tool_call", "return {'action': 'approve', 'message': 'WHY'}")
    with serving(chat(one_call)) as served:
        async with living(manifest(home, served.base_url, use() + BIG_TOOL), home) as story:
            reasons = []

            def allow(request: ApprovalRequest) -> None:
                reasons.append(request.reason)
                story.pod.approve(request.call_id, "allow")

            story.pod.on(ApprovalRequest, allow)
            await story.pod.run("go")
            assert reasons == ["WHY"]
            assert not results(story)[0].is_error


async def test_a_block_wins_over_a_hook_that_asks(home: Path) -> None:
    install(
        home,
        """
        def register(ctx):
            ctx.register_context_engine(Calm())
            ctx.register_hook("pre_tool_call", lambda **k: {"action": "approve", "message": "ask"})
            ctx.register_hook("pre_tool_call", lambda **k: {"action": "block", "message": "NO"})
        """,
    )
    with serving(chat(one_call)) as served:
        async with living(manifest(home, served.base_url, use() + BIG_TOOL), home) as story:
            await story.pod.run("go")
            assert results(story)[0].summary == "not run: NO"


async def test_hooks_are_told_of_a_call_and_its_result(home: Path, noted: Path) -> None:
    install(
        home,
        """
        def pre(tool_name, args, tool_call_id, **kwargs):
            note("pre", tool=tool_name, args=args, call=tool_call_id)

        def post(tool_name, args, result, duration_ms, status, tool_call_id, **kwargs):
            note("post", tool=tool_name, args=args, result=result[:40], call=tool_call_id,
                 status=status, timed=duration_ms >= 0)

        def register(ctx):
            ctx.register_context_engine(Calm())
            ctx.register_hook("pre_tool_call", pre)
            ctx.register_hook("post_tool_call", post)
        """,
    )
    with serving(chat(one_call)) as served:
        async with living(manifest(home, served.base_url, use() + BIG_TOOL), home) as story:
            await story.pod.run("go")
            call_id = results(story)[0].call_id

    pre, post = notes(noted)
    assert pre == {"what": "pre", "tool": "big", "args": {"n": 7}, "call": call_id}
    assert post == pre | {
        "what": "post",
        "status": "ok",
        "result": "big result 7\nCONTENT-7 " + "x" * 17,
        "timed": True,
    }


async def test_post_tool_call_is_told_of_a_call_that_failed(home: Path, noted: Path) -> None:
    hooked(
        home,
        "post_tool_call",
        "note('post', status=kwargs['status'], error=kwargs['error_message'])",
    )

    def unknown(asked: Asked, number: int) -> Say:
        return Say(calls=(("nothing", "{"),)) if number == 1 else Say("done")

    with serving(chat(unknown)) as served:
        async with living(manifest(home, served.base_url, use()), home) as story:
            await story.pod.run("go")

    (post,) = notes(noted)
    assert post["status"] == "error"
    assert "unknown tool nothing" in post["error"]


async def test_transform_tool_result_replaces_what_the_model_is_sent_and_the_log_has(
    home: Path,
) -> None:
    hooked(home, "transform_tool_result", "return kwargs['result'].replace('x' * 29_000, '…')")
    with serving(chat(one_call)) as served:
        async with living(manifest(home, served.base_url, use() + BIG_TOOL), home) as story:
            await story.pod.run("go")
            (result,) = results(story)
            assert result.summary == "big result 7", "a summary that still begins it stays one"
            assert result.content == "CONTENT-7 …" + "x" * 1_000
            (event,) = story.of(ToolResult)
            assert event.content == result.content

        assert "x" * 1_001 not in served.asked[-1].text


async def test_transform_tool_result_takes_the_first_text(home: Path) -> None:
    install(
        home,
        """
        def register(ctx):
            ctx.register_context_engine(Calm())
            for answer in (None, {"result": "no"}, "FIRST", "SECOND"):
                ctx.register_hook("transform_tool_result", lambda answer=answer, **k: answer)
        """,
    )
    with serving(chat(one_call)) as served:
        async with living(manifest(home, served.base_url, use() + BIG_TOOL), home) as story:
            await story.pod.run("go")
            assert (results(story)[0].summary, results(story)[0].content) == ("FIRST", None)


# ------------------------------------------------------------------ harm


async def test_a_hook_that_raises_is_told_once_and_the_run_goes_on(home: Path) -> None:
    hooked(home, "pre_llm_call", "raise ValueError('no memory')")
    with serving(chat(plain)) as served:
        async with living(manifest(home, served.base_url, use()), home) as story:
            await story.turns("one", "two")
            await story.pod.new()
            await story.turns("three")
            assert {end.outcome for end in story.of(RunEnd)} == {"finished"}
            assert notices(story) == ["hook pre_llm_call (hook) raised ValueError: no memory"]


@pytest.mark.parametrize("body", ["raise SystemExit(3)", "raise KeyboardInterrupt", "1 / 0"])
async def test_nothing_that_a_hook_raises_ends_the_process(home: Path, body: str) -> None:
    hooked(home, "post_llm_call", body)
    with serving(chat(plain)) as served:
        async with living(manifest(home, served.base_url, use()), home) as story:
            await story.turns("one")
            assert story.of(RunEnd)[0].outcome == "finished"
            assert len(notices(story)) == 1


async def test_a_hook_that_hangs_stalls_a_pod_once(home: Path) -> None:
    """It is left behind, and not asked again for a while."""
    hooked(home, "pre_llm_call", "import time; time.sleep(9)")
    extra = use(more="timeout_seconds = 0.4\n")
    with serving(chat(plain)) as served:
        began = time.monotonic()
        async with living(manifest(home, served.base_url, extra), home) as story:
            await story.turns("one", "two", "three")
            assert {end.outcome for end in story.of(RunEnd)} == {"finished"}
            assert notices(story) == ["hook pre_llm_call (hook) took over 0.4 s"]

        assert time.monotonic() - began < 7


async def test_an_async_hook_is_awaited(home: Path) -> None:
    hooked(
        home,
        "pre_llm_call",
        "import asyncio\nasync def hook(user_message):\n"
        "    await asyncio.sleep(0)\n    return f'ABOUT {user_message}'\n",
    )
    with serving(chat(plain)) as served:
        async with living(manifest(home, served.base_url, use()), home) as story:
            await story.turns("one")
            assert "ABOUT one" in served.asked[0].text


async def test_what_a_plugin_wants_called_at_the_end_is_called_once(
    home: Path, noted: Path
) -> None:
    install(
        home,
        """
        def register(ctx):
            ctx.register_context_engine(Calm())
            ctx.on_unload(lambda: note("first"))
            ctx.on_unload(lambda: note("second"))
            ctx.on_unload(7)
        """,
    )
    with serving(chat(plain)) as served:
        async with living(manifest(home, served.base_url, use()), home) as story:
            await story.pod.new()
            assert notes(noted) == []
            assert not notices(story)

    assert [entry["what"] for entry in notes(noted)] == ["second", "first"]


async def test_a_hook_that_is_added_later_is_heard(home: Path, noted: Path) -> None:
    """Some plugins add to the hooks when their engine is told of a session."""
    install(
        home,
        """
        class Late(Calm):
            def on_session_start(self, session_id, **kwargs):
                self.hooks.setdefault("post_llm_call", []).append(lambda **k: note("late"))

        def register(ctx):
            engine = Late()
            engine.hooks = ctx.hooks
            ctx.register_context_engine(engine)
        """,
    )
    with serving(chat(plain)) as served:
        async with living(manifest(home, served.base_url, use()), home) as story:
            await story.turns("one")

    assert notes(noted) == [{"what": "late"}]


async def test_hooks_without_a_moment_here_are_named(home: Path) -> None:
    install(
        home,
        """
        def register(ctx):
            ctx.register_context_engine(Calm())
            ctx.register_hook("subagent_start", print)
            ctx.register_hook("transform_terminal_output", print)
            ctx.register_cli_command("calm", "help", print)
            ctx.register_skill("sit", "SKILL.md")
        """,
    )
    with serving(chat(plain)) as served:
        async with living(manifest(home, served.base_url, use()), home) as story:
            (told,) = notices(story)
            assert told == (
                "Plugin 'calm' registers what has no use here: command line command calm, "
                "skill sit, hook subagent_start, hook transform_terminal_output"
            )


def tools_of(asked: Asked) -> list[Any]:
    return [tool["function"] for tool in asked.body.get("tools", [])]


# ------------------------------------------------------------------ register_tool

REGISTERED = """
import asyncio
import json

def look(args, messages=None, session_id=None, **kwargs):
    return json.dumps({"seen": [m["role"] for m in messages], "args": args, "in": session_id})

async def later(params):
    await asyncio.sleep(0)
    return f"later {params}"

def broken(args, **kwargs):
    raise ValueError("no such luck")

SCHEMA = {"name": "look", "description": "Looks.",
          "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}}

def register(ctx):
    assert ctx.context_engine_tool_handlers_receive_messages
    ctx.register_context_engine(Calm())
    ctx.register_tool("look", "calm", SCHEMA, look, emoji="x")
    ctx.register_tool(name="later", toolset="calm", schema={"type": "function", "function":
                      {"name": "later", "description": "Later."}}, handler=later, is_async=True)
    ctx.register_tool(name="broken", toolset="calm", schema={}, handler=broken, description="Not.")
    ctx.register_tool(name="look", toolset="calm", schema={}, handler=broken)
    ctx.register_tool(name="big", toolset="calm", schema={}, handler=broken)
    ctx.register_tool(name="absent", toolset="calm", schema={}, handler=look,
                      check_fn=lambda: False)
    ctx.register_tool(name="keyed", toolset="calm", schema={}, handler=look,
                      requires_env=["NO_SUCH_KEY"])
"""


async def test_registered_tools_are_offered_and_given_the_live_messages(home: Path) -> None:
    install(home, REGISTERED)

    def script(asked: Asked, number: int) -> Say:
        calls = (("look", '{"at": "x"}'), ("later", "{}"), ("broken", "{}"))
        return Say(calls=calls) if number == 1 else Say("done")

    with serving(chat(script)) as served:
        async with living(manifest(home, served.base_url, use() + BIG_TOOL), home) as story:
            await story.pod.run("go")
            answer = next(i for i in story.pod.history if isinstance(i, AssistantMessage))
            by_call = {result.call_uid: result for result in results(story)}
            looked, later, broken = (by_call[call.call_uid] for call in answer.tool_calls)
            assert '"seen": ["user", "assistant"]' in looked.summary
            assert '"args": {"at": "x"}' in looked.summary
            assert story.pod.session_id in looked.summary
            assert later.summary == "later {}"
            assert (broken.is_error, "no such luck" in broken.summary) == (True, True)
            twice, *left_out = notices(story)
            assert "'look', which is already registered. Skipping." in twice
            assert left_out == [
                "the tool big is left out: another tool has its name",
                "the tool absent is left out: its check says no",
                "the tool keyed is left out: it needs the variable NO_SUCH_KEY",
            ]

        offered = {tool["name"]: tool for tool in tools_of(served.asked[0])}
        assert list(offered) == ["big", "broken", "later", "look"]
        assert offered["look"]["description"] == "Looks."
        assert offered["look"]["parameters"]["properties"] == {"at": {"type": "string"}}
        assert (offered["later"]["description"], offered["broken"]["description"]) == (
            *("Later.", "Not."),
        )


async def test_a_tool_that_the_engine_has_too_is_one_tool(home: Path) -> None:
    """Plugins register a tool both ways where the host hands registered ones the messages."""
    install(
        home,
        """
        class Tooled(Calm):
            def get_tool_schemas(self):
                return [{"name": "look", "description": "d", "parameters": {}}]

            def handle_tool_call(self, name, args, **kwargs):
                return "by the engine"

        def register(ctx):
            ctx.register_context_engine(Tooled())
            ctx.register_tool(name="look", schema={}, handler=lambda args, **k: "by the plugin")
        """,
    )

    def script(asked: Asked, number: int) -> Say:
        return Say(calls=(("look", "{}"),)) if number == 1 else Say("done")

    with serving(chat(script)) as served:
        async with living(manifest(home, served.base_url, use()), home) as story:
            await story.pod.run("go")
            assert results(story)[0].summary == "by the engine"
            assert not notices(story)

        assert [tool["name"] for tool in tools_of(served.asked[0])] == ["look"]
