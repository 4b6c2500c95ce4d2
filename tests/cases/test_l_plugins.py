"""Cases L: plugins that are missing, late or broken, and guards that fail."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result

from pod.errors import PluginFailed
from pod.protocol import Alert, EngineNotice, RunEnd, ToolResult
from tests.fake_provider import Asked, Say, counting, serving
from tests.pod.desk import Desk, events
from tests.pod.plugin_folders import install, use
from tests.pod.pods import BIG_TOOL, living, logs, manifest

TOOLED = """
import os


class Tooled(Calm):
    def get_tool_schemas(self):
        {body}


Calm = None
"""
LOOK = 'return [{"name": "look", "description": "d", "parameters": {}}]'
COUNTED_ON = '[permissions]\ntools = { look = "allow" }\n'


def line_of(path: Path, text: str) -> int:
    lines = path.read_text(encoding="utf-8").splitlines()
    return next(n for n, line in enumerate(lines, 1) if text in line)


# --- L04: tools that the manifest counts on ------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("body", "why"),
    [
        (None, "the engine 'calm', which might bring it, cannot be had: no engine of that name is"),
        ("import nowhere_at_all", "cannot be had: it needs the module 'nowhere_at_all', which is"),
    ],
)
async def test_l04_a_tool_of_a_plugin_that_is_missing_is_an_error_at_the_start(
    home: Path, body: str | None, why: str
) -> None:
    """L04: never a smaller set of tools than the manifest counts on."""
    if body is not None:
        install(home, body)
    with serving(counting) as served:
        path = manifest(home, served.base_url, use() + COUNTED_ON)
        with pytest.raises(PluginFailed) as caught:
            async with living(path, home):
                pass

        message = caught.value.message
        line = line_of(path, "tools = { look")
        assert message.startswith(f"{path}, line {line}: permissions.tools names the tool look")
        assert why in message
        assert "mend the plugin, or take look out" in caught.value.hint
        assert not served.asked
        assert logs(home) == [], "no session was begun"


@pytest.mark.anyio
@pytest.mark.parametrize(
    "body", ["return []", f"if os.environ.get('LATER'): {LOOK}\n        return []", "raise OSError"]
)
async def test_l04_a_tool_that_comes_too_late_is_an_error_too(home: Path, body: str) -> None:
    """L04: the plugin is there, and its tool is not when the pod starts."""
    install(home, TOOLED.format(body=body))
    with serving(counting) as served:
        with pytest.raises(PluginFailed, match="nor the engine 'calm' brings one of that name"):
            async with living(manifest(home, served.base_url, use() + COUNTED_ON), home):
                pass

        assert not served.asked


@pytest.mark.anyio
async def test_l04_a_tool_that_is_there_starts(home: Path) -> None:
    install(home, TOOLED.format(body=LOOK))
    with serving(counting) as served:
        path = manifest(home, served.base_url, use() + COUNTED_ON)
        async with living(path, home) as story:
            await story.pod.run("hello")

        assert [t["function"]["name"] for t in served.asked[0].body["tools"]] == ["look"]


@pytest.mark.parametrize("entry", ["no_such_package.tools:search", "tests.pod.big_tools:bigger"])
def test_l04_a_tool_of_a_package_that_is_not_installed_ends_the_command(
    desk: Desk, entry: str
) -> None:
    """L04: `[tools] python` names it; the line, the entry and what is missing are told."""
    path = desk.scripted({"text": "no"}, extra=f'[tools]\npython = ["{entry}"]\n')
    done = desk.pod("run", path, "hello")
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"probe.toml, line {line_of(desk.work / path, entry)}: the tool {entry} " in done.stderr
    missing = "no_such_package" if "no_such" in entry else "bigger"
    assert missing in done.stderr.partition("cannot be loaded: ")[2]
    assert "Traceback" not in done.stderr


def test_l04_the_command_says_what_to_do(desk: Desk) -> None:
    done = desk.pod("run", desk.scripted({"text": "no"}, extra=use() + COUNTED_ON), "hello")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "permissions.tools names the tool look, and the engine 'calm', which" in done.stderr
    assert "mend the plugin, or take look out of [permissions] tools" in done.stderr


# --- L05: what a plugin cannot import ------------------------------------------------------------

IMPORTS = {
    "in the plugin": ("import not_there_at_all", {}, "'not_there_at_all', which is not installed"),
    "of a package's part": (
        *("import json.not_there", {}),
        "'json.not_there', which is not installed",
    ),
    "in a module of its own": (
        *("from . import core", {"core": "import not_there_either"}),
        "'not_there_either', which is not installed",
    ),
    "a module of its own": ("from .lost import x", {}, "its own module 'lost' is missing"),
    "behind a bare except": (
        "try:\n    import not_there_at_all\nexcept Exception:\n    raise",
        *({}, "'not_there_at_all', which is not installed"),
    ),
    "in register": (
        "def register(ctx):\n    import not_there_at_all\nCalm = None",
        *({}, "'not_there_at_all', which is not installed"),
    ),
    "in the engine's constructor": (
        "class C(Calm):\n    def __init__(self):\n        import not_there_at_all\nCalm = None",
        *({}, "'not_there_at_all', which is not installed"),
    ),
}


def said_by(desk: Desk, path: str, *, as_json: bool) -> tuple[Result, str]:
    """Run a prompt, and return what was said of the engine."""
    done = desk.pod("run", path, "hello", *(["--json"] if as_json else []))
    if not as_json:
        return done, done.stderr

    named = [e["data"] for e in events(done.stdout) if e["event"] == "engine_notice"]
    return done, " ".join(data["message"] for data in named)


@pytest.mark.parametrize("where", IMPORTS)
@pytest.mark.parametrize("as_json", [False, True])
def test_l05_a_missing_package_is_named_with_the_plugin_and_the_manifests_line(
    desk: Desk, where: str, *, as_json: bool
) -> None:
    """L05: and the run goes on with the built-in engine."""
    source, siblings, reason = IMPORTS[where]
    install(desk.home, source, **siblings)
    path = desk.scripted({"text": "answered"}, extra=use())
    done, said = said_by(desk, path, as_json=as_json)
    assert done.exit_code == 0
    assert "answered" in done.stdout
    assert "Failed to load context engine 'calm': " in said
    assert reason in said
    assert "falling back to built-in compressor" in said
    assert f"probe.toml, line {line_of(desk.work / path, 'engine =')}" in said
    assert "Traceback" not in done.output


def test_l05_a_tools_module_that_lacks_one_of_its_own_says_which(desk: Desk) -> None:
    """L05: what is missing is the package that it imports, and not the module that was named."""
    desk.write("mine.py", "import deeply_missing\n\ndef look() -> str:\n    return ''\n")
    path = desk.scripted({"text": "no"}, extra='[tools]\npython = ["mine:look"]\n')
    done = desk.pod("run", path, "hello")
    assert done.exit_code == 2
    assert "mine:look cannot be loaded: no module named deeply_missing" in done.stderr
    assert f"line {line_of(desk.work / path, 'mine:look')}" in done.stderr


# --- L11: guards that fail -----------------------------------------------------------------------

RAISING = "tests.cases.guards:raising"
GUARD = '[[hooks]]\npoint = "{point}"\npython = "tests.cases.guards:{name}"\n{on_error}'


def one_call(_: Asked, number: int) -> Say:
    return Say(calls=(("big", '{"n": 1}'),)) if number == 1 else Say("done")


@pytest.mark.anyio
@pytest.mark.parametrize("on_error", ["", 'on_error = "fail"\n'])
@pytest.mark.parametrize("name", ["raising", "exiting", "talking", "raising_later"])
async def test_l11_a_guard_that_fails_stops_the_call_and_the_run(
    home: Path, name: str, on_error: str
) -> None:
    """L11: that is what happens where the manifest says nothing, too."""
    guard = GUARD.format(point="PreToolCall", name=name, on_error=on_error)
    with serving(one_call) as served:
        async with living(manifest(home, served.base_url, BIG_TOOL + guard), home) as story:
            result = await story.pod.run("go")
            assert result.outcome == "error"
            assert result.error is not None
            assert result.error.code == "hook_failed"
            assert f"tests.cases.guards:{name}" in result.error.message
            assert [r.is_error for r in story.of(ToolResult)] == [True], "it was not run"
            assert len(served.asked) == 1


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "raising",
            f"hook {RAISING} at PreToolCall raised ValueError: broken (guards.py, line 11)",
        ),
        ("talking", "hook tests.cases.guards:talking returned str"),
    ],
)
async def test_l11_a_hook_that_may_fail_is_told_of_and_the_call_runs(
    home: Path, name: str, said: str
) -> None:
    guard = GUARD.format(point="PreToolCall", name=name, on_error='on_error = "ignore"\n')
    with serving(one_call) as served:
        async with living(manifest(home, served.base_url, BIG_TOOL + guard), home) as story:
            assert (await story.pod.run("go")).outcome == "finished"
            assert [r.is_error for r in story.of(ToolResult)] == [False]
            assert [alert.message for alert in story.of(Alert)] == [said]


@pytest.mark.anyio
@pytest.mark.parametrize("point", ["OnPromptSubmit", "PreLlmRequest", "OnTurnEnd", "PostToolCall"])
async def test_l11_a_guard_fails_closed_at_every_point(home: Path, point: str) -> None:
    guard = GUARD.format(point=point, name="raising", on_error="")
    with serving(one_call) as served:
        async with living(manifest(home, served.base_url, BIG_TOOL + guard), home) as story:
            result = await story.pod.run("go")
            assert result.outcome == "error"
            assert [end.outcome for end in story.of(RunEnd)] == ["error"]
            asked = {"OnPromptSubmit": 0, "PreLlmRequest": 0, "PostToolCall": 1, "OnTurnEnd": 2}
            assert len(served.asked) == asked[point]


@pytest.mark.anyio
@pytest.mark.parametrize("body", ["raise ValueError('broken')", "import not_there_at_all"])
async def test_l11_a_guard_of_an_engines_plugin_fails_closed_too(home: Path, body: str) -> None:
    """L11: its call is refused with the reason; the run goes on, and people are told."""
    install(
        home,
        f"""
        def guard(tool_name, **kwargs):
            {body}

        def register(ctx):
            ctx.register_context_engine(Calm())
            ctx.register_hook("pre_tool_call", guard)
        """,
    )
    with serving(one_call) as served:
        async with living(manifest(home, served.base_url, use() + BIG_TOOL), home) as story:
            assert (await story.pod.run("go")).outcome == "finished"
            (result,) = story.of(ToolResult)
            assert result.is_error
            assert "not run: hook pre_tool_call (guard) raised" in json.dumps(
                [result.summary, result.content]
            )
            assert len(story.of(EngineNotice)) == 1
