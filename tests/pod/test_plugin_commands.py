"""Slash commands that an engine's plugin registers: told of, and run on a pod."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pod.context.registration import BUILT_IN_COMMANDS
from pod.errors import EngineCommandFailed, PodClosed, UnknownEngineCommand
from pod.protocol import EngineNotice
from pod.tui.commands import COMMANDS as OF_A_VIEW
from tests.fake_provider import counting, serving
from tests.pod.plugin_folders import install, use
from tests.pod.pods import KEY, living, manifest

pytestmark = pytest.mark.anyio

COMMANDS = """
import asyncio
import threading
import time


async def later(args):
    await asyncio.sleep(0)
    return f"later: {args}"


def register(ctx):
    engine = Calm()
    ctx.register_context_engine(engine)
    ctx.register_command("Calm", lambda raw: f"{engine.last_prompt_tokens} {raw!r}",
                         description="How calm\\nit is.", args_hint="[status]")
    ctx.register_command("later", later)
    ctx.register_command("bare", lambda: "bare")
    ctx.register_command("data", lambda raw: {"a": [1, None]})
    ctx.register_command("nothing", lambda raw: None)
    ctx.register_command("fails", lambda raw: 1 / 0)
    ctx.register_command("leaves", lambda raw: exit(3))
    ctx.register_command("where", lambda raw: threading.current_thread().name)
    ctx.register_command("tells", lambda raw: raw)
    slept = []
    ctx.register_command("sleeps", lambda raw: (time.sleep(float(raw)), slept.append(raw)))
    ctx.register_command("slept", lambda raw: " ".join(slept))
"""


async def test_commands_are_told_of_with_their_hints(home: Path) -> None:
    install(home, COMMANDS)
    with serving(counting) as served:
        async with living(manifest(home, served.base_url, use()), home) as story:
            commands = story.pod.engine_commands()
            assert list(commands) == sorted(commands)
            assert (commands["calm"].description, commands["calm"].args_hint) == (
                "How calm it is.",
                "[status]",
            )
            assert commands["later"].name == "later"
            assert not story.of(EngineNotice)


@pytest.mark.parametrize(
    ("name", "args", "said"),
    [
        ("calm", "  status  now ", "'  status  now '"),
        ("/CALM", "", "''"),
        ("later", "x", "later: x"),
        ("bare", "x", "bare"),
        ("data", "", '{\n  "a": [\n    1,\n    null\n  ]\n}'),
        ("nothing", "", ""),
    ],
)
async def test_whatever_a_command_returns_becomes_text(
    home: Path, name: str, args: str, said: str
) -> None:
    install(home, COMMANDS)
    with serving(counting) as served:
        async with living(manifest(home, served.base_url, use()), home) as story:
            assert (await story.pod.engine_command(name, args)).endswith(said)


async def test_no_secret_is_in_what_a_command_says(home: Path) -> None:
    install(home, COMMANDS)
    with serving(counting) as served:
        async with living(manifest(home, served.base_url, use()), home) as story:
            answer = await story.pod.engine_command("tells", f"with {KEY} in it")
            assert KEY not in answer
            assert answer.startswith("with ")


async def test_a_command_sees_the_engine_of_this_pod(home: Path) -> None:
    install(home, COMMANDS)
    with serving(counting) as served:
        async with living(manifest(home, served.base_url, use()), home) as story:
            assert await story.pod.engine_command("calm") == "0 ''"
            await story.pod.run("one")
            assert int((await story.pod.engine_command("calm")).split()[0]) > 0
            assert (await story.pod.engine_command("where")).startswith("engine-")


async def test_a_command_can_be_run_beside_a_run(home: Path) -> None:
    install(home, COMMANDS)
    with serving(counting) as served:
        async with living(manifest(home, served.base_url, use()), home) as story:
            run = asyncio.create_task(story.pod.run("one"))
            await asyncio.sleep(0)
            assert await story.pod.engine_command("tells", "hello") == "hello"
            assert (await run).outcome == "finished"


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("no", UnknownEngineCommand, "the engine calm has no command /no"),
        ("fails", EngineCommandFailed, "/fails of the engine calm failed: ZeroDivisionError: div"),
        ("leaves", EngineCommandFailed, "/leaves of the engine calm failed: .*SystemExit"),
    ],
)
async def test_a_command_that_fails_says_so(
    home: Path, name: str, error: type[Exception], message: str
) -> None:
    install(home, COMMANDS)
    with serving(counting) as served:
        async with living(manifest(home, served.base_url, use()), home) as story:
            with pytest.raises(error, match=message):
                await story.pod.engine_command(name)

            assert (await story.pod.run("one")).outcome == "finished"


async def test_a_command_that_takes_too_long_is_given_up(home: Path) -> None:
    install(home, COMMANDS)
    with serving(counting) as served:
        async with living(manifest(home, served.base_url, use()), home) as story:
            with pytest.raises(EngineCommandFailed, match=r"no answer in 0\.2 s") as caught:
                await story.pod.engine_command("sleeps", "1.5", timeout_s=0.2)

            assert caught.value.hint == "it may still be at work"
            assert await story.pod.engine_command("tells", "after") == "after"
            assert await story.pod.engine_command("slept") == "1.5", "one call after the other"


async def test_the_built_in_engine_has_none(home: Path) -> None:
    with serving(counting) as served:
        async with living(manifest(home, served.base_url), home) as story:
            assert story.pod.engine_commands() == {}
            with pytest.raises(
                UnknownEngineCommand, match="compressor has no command /lcm"
            ) as caught:
                await story.pod.engine_command("/lcm", "status")
            assert caught.value.hint == "it has none"

        with pytest.raises(PodClosed):
            story.pod.engine_commands()


def test_no_command_of_a_conversation_can_be_taken() -> None:
    of_a_view = {*OF_A_VIEW, "fork", "rewind", "sessions", "model", "exit", "stop", "detach"}
    assert of_a_view <= BUILT_IN_COMMANDS


async def test_names_that_are_taken_are_left_out_with_a_warning(home: Path) -> None:
    install(
        home,
        """
        def register(ctx):
            ctx.register_context_engine(Calm())
            ctx.register_command("compact", print)
            ctx.register_command("  ", print)
            ctx.register_command("/my thing", lambda raw: "first")
            ctx.register_command("my-thing", lambda raw: "second")
        """,
    )
    with serving(counting) as served:
        async with living(manifest(home, served.base_url, use()), home) as story:
            assert list(story.pod.engine_commands()) == ["my-thing"]
            assert await story.pod.engine_command("my-thing") == "first"
            named = "Plugin 'calm' tried to register"
            assert [notice.message for notice in story.of(EngineNotice)] == [
                f"{named} command '/compact' which conflicts with a built-in command. Skipping.",
                f"{named} a command with an empty name. Skipping.",
                f"{named} command '/my-thing', which is already registered. Skipping.",
            ]
