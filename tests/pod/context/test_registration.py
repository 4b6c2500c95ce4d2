"""What `register(ctx)` is handed: every statement of the contract on discovery and registration."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from pod.context import ContextEngine
from pod.context.errors import EngineMissingInPlugin, EngineNotCopied, EngineUnavailable
from pod.context.hermes.plugin_slots import PluginContext, PluginManager
from pod.context.loader import load_engine, load_plugin
from pod.context.plugin_manifest import PluginManifest
from pod.context.registration import Registration

ENGINE = """
from agent.context_engine import ContextEngine

class Toy(ContextEngine):
    name = "toy"
    def update_from_response(self, usage): pass
    def should_compress(self, prompt_tokens=None): return False
    def compress(self, messages, current_tokens=None): return messages
"""
ONLY_ONE = (
    "Plugin 'toy' tried to register a context engine, but one is already registered. "
    "Only one context engine plugin is allowed."
)
WRONG_TYPE = (
    "Plugin 'toy' tried to register a context engine that does not inherit from ContextEngine. "
    "Ignoring."
)

Add = Callable[..., Path]


@pytest.fixture
def plugins(tmp_path: Path) -> Path:
    return tmp_path / "plugins"


@pytest.fixture
def add(plugins: Path) -> Add:
    def add_plugin(source: str, name: str = "toy", yaml: str = "name: toy\n") -> Path:
        folder = plugins / name
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(ENGINE + dedent(source), encoding="utf-8")
        (folder / "plugin.yaml").write_text(yaml, encoding="utf-8")
        return folder

    return add_plugin


# ------------------------------------------------------------------ one engine only


def test_a_second_engine_is_refused_word_for_word(
    add: Add, plugins: Path, caplog: pytest.LogCaptureFixture
) -> None:
    add(
        """
        def register(ctx):
            first = Toy()
            first.is_first = True
            ctx.register_context_engine(first)
            ctx.register_context_engine(Toy())
        """
    )
    loaded = load_plugin("toy", plugins)
    assert vars(loaded.engine) == {"is_first": True}
    assert loaded.notices == (ONLY_ONE,)
    assert not caplog.messages, "people are told by the pod, once"


@pytest.mark.parametrize("given", ["7", "'engine'", "None", "object()", "Toy"])
def test_what_is_no_engine_is_ignored_word_for_word(given: str, add: Add, plugins: Path) -> None:
    """The plugin's own class is made instead, if it has one."""
    add(f"def register(ctx): ctx.register_context_engine({given})")
    loaded = load_plugin("toy", plugins)
    assert type(loaded.engine).__name__ == "Toy"
    assert loaded.notices == (WRONG_TYPE,)


def test_a_plugin_with_nothing_but_what_is_no_engine_is_told_with_that(plugins: Path) -> None:
    folder = plugins / "toy"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("def register(ctx): ctx.register_context_engine(7)")
    with pytest.raises(EngineMissingInPlugin) as caught:
        load_plugin("toy", plugins)

    assert caught.value.notice == (
        f"Context engine 'toy' loaded but no engine instance found: {WRONG_TYPE}"
        " — falling back to built-in compressor"
    )


# ------------------------------------------------------------------ register, then the class


def test_a_register_that_raises_after_its_engine_keeps_the_engine_and_says_so(
    add: Add, plugins: Path
) -> None:
    add("def register(ctx):\n    ctx.register_context_engine(Toy())\n    import no_such_thing\n")
    loaded = load_plugin("toy", plugins)
    assert loaded.engine.name == "toy"
    (told,) = loaded.notices
    assert told == (
        "Plugin 'toy': register() failed (it needs the module 'no_such_thing', which is not "
        "installed); going on without it"
    )


def test_a_register_that_raises_before_any_engine_leaves_the_class_and_says_so(
    add: Add, plugins: Path
) -> None:
    add("def register(ctx): raise RuntimeError('x')")
    loaded = load_plugin("toy", plugins)
    assert type(loaded.engine).__name__ == "Toy"
    (told,) = loaded.notices
    assert told == "Plugin 'toy': register() failed (RuntimeError: x); going on without it"


def test_register_runs_for_every_load_and_each_load_has_its_own_registrations(
    add: Add, plugins: Path, caplog: pytest.LogCaptureFixture
) -> None:
    add(
        """
        RUNS = []
        def register(ctx):
            RUNS.append(ctx)
            ctx.register_command("toy", lambda raw, n=len(RUNS): n)
            ctx.register_hook("post_llm_call", print)
            ctx.register_context_engine(Toy())
        """
    )
    first, second = load_plugin("toy", plugins), load_plugin("toy", plugins)
    assert first.engine is not second.engine
    assert first.registration is not second.registration
    assert [r.registration.commands["toy"].handler("") for r in (first, second)] == [1, 2]
    assert second.registration.hooks == {"post_llm_call": [print]}
    assert not caplog.messages, "no command is in the way of the same one of another load"


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("a\ud800b", ["a\ufffdb"]),
        (7, ["7"]),
        (None, []),
        (["x"], []),
        ("Two  Words", ["two-words"]),
    ],
)
def test_a_command_has_a_name_that_can_be_told(name: Any, known: list[str]) -> None:
    ctx = Registration("toy")
    ctx.register_command(name, print, description="so\nso \ud800" + " much" * 1_000)
    assert list(ctx.commands) == known
    assert bool(ctx.told) is not bool(known)
    for command in ctx.commands.values():
        assert command.description.startswith("so so \ufffd much")
        assert len(command.description) < 600


def test_an_unknown_registration_breaks_nothing(add: Add, plugins: Path) -> None:
    add(
        """
        def register(ctx):
            assert ctx.register_thing("a", handler=print) is None
            assert callable(getattr(ctx, "register_platform", None))
            assert getattr(ctx, "spawn_task", None) is None
            assert (ctx.plugin_id, ctx.has_capability("tools.override")) == ("toy", False)
            ctx.register_context_engine(Toy())
        """
    )
    assert load_plugin("toy", plugins).notices == (
        "Plugin 'toy' registers what has no use here: thing a",
    )


def test_a_plugin_is_told_what_it_says_of_itself(add: Add, plugins: Path) -> None:
    folder = add(
        "def register(ctx):\n    engine = Toy()\n    engine.seen = ctx.manifest\n"
        "    ctx.register_context_engine(engine)\n",
        yaml="name: toy\nversion: 1.2\ndescription: d\nauthor: a\nprovides_tools: [x]\n",
    )
    seen = vars(load_engine("toy", plugins))["seen"]
    assert seen == PluginManifest(
        name="toy",
        version="1.2",
        description="d",
        author="a",
        provides_tools=("x",),
        path=folder,
        source="plugin",
        key="toy",
    )


def test_hooks_can_be_kept_by_the_caller(add: Add, plugins: Path) -> None:
    """So that a plugin which adds to them elsewhere is heard too."""
    add("def register(ctx):\n    ctx.register_hook('a', print)\n")
    hooks: dict[str, list[Callable[..., object]]] = {"b": [repr]}
    registration = load_plugin("toy", plugins, hooks=hooks).registration
    assert registration.hooks is hooks
    assert hooks == {"a": [print], "b": [repr]}


@pytest.mark.parametrize("callback", [None, 7, "print"])
def test_a_hook_without_code_is_refused(callback: object) -> None:
    ctx = Registration("toy")
    ctx.register_hook("post_llm_call", callback)
    assert not ctx.hooks
    assert "without code" in ctx.told[0]


def test_what_no_pod_tells_of_goes_to_the_log_of_engines(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "pod.context"):
        PluginContext(PluginManifest("toy"), PluginManager()).register_context_engine(7)

    assert [(record.name, record.levelname) for record in caplog.records] == [
        ("pod.context", "WARNING")
    ]


# ------------------------------------------------------------------ one engine, one pod

SHARED = """
class Mine(Toy):
    made = 0
    def __deepcopy__(self, memo):
        Mine.made += 1
        return type(self)()
    {hook}

THE_ONE = Mine()
def register(ctx): ctx.register_context_engine(THE_ONE)
"""
NOTICE = "Context engine 'toy' could not be safely copied for this agent ("


@pytest.mark.parametrize(
    ("hook", "cause"),
    [
        ("def clone_for_agent(self): return None", "ValueError: clone_for_agent returned None"),
        (
            "def clone_for_agent(self): return self",
            "ValueError: clone_for_agent returned the engine itself",
        ),
        ("def clone_for_agent(self): raise OSError('busy')", "OSError: busy"),
        ("def clone_for_agent(self): raise SystemExit(1)", "SystemExit: 1"),
    ],
)
def test_a_clone_hook_that_fails_is_not_followed_by_a_copy(
    hook: str, cause: str, add: Add, plugins: Path
) -> None:
    add(SHARED.format(hook=hook))
    first = load_engine("toy", plugins)
    with pytest.raises(EngineNotCopied) as caught:
        load_engine("toy", plugins)

    assert caught.value.notice.startswith(f"{NOTICE}{cause}) — falling back to built-in compressor")
    assert "not found" not in caught.value.notice
    assert type(first).made == 0  # type: ignore[attr-defined]  # the plugin's own


def test_an_engine_that_is_shared_is_copied_by_default(add: Add, plugins: Path) -> None:
    add(SHARED.format(hook=""))
    engines = [load_engine("toy", plugins) for _ in range(3)]
    assert len({id(engine) for engine in engines}) == 3
    assert all(isinstance(engine, ContextEngine) for engine in engines)


# ------------------------------------------------------------------ names


@pytest.mark.parametrize(
    "name", ["../toy", "toy/", "./toy", "/etc", "", ".", "..", "toy/../toy", "toy\0", "TOY"]
)
def test_a_name_is_never_a_path(name: str, add: Add, plugins: Path) -> None:
    add("")
    with pytest.raises(EngineUnavailable) as caught:
        load_plugin(name, plugins)

    assert "not found" in caught.value.notice


# ------------------------------------------------------------------ who else can write


@pytest.mark.parametrize("which", ["folder", "module", "plugins"])
def test_a_plugin_that_anybody_can_change_is_loaded_with_a_warning(
    which: str, add: Add, plugins: Path
) -> None:
    folder = add("")
    path = {"folder": folder, "module": folder / "__init__.py", "plugins": plugins}[which]
    path.chmod(0o777)
    try:
        (told,) = load_plugin("toy", plugins).notices
    finally:
        path.chmod(0o700)

    assert told.startswith(f"{path} can be written by others (mode 0777): whoever that is can run")
    assert load_plugin("toy", plugins).notices == ()


def test_a_plugin_behind_a_link_is_judged_by_where_it_leads(
    add: Add, plugins: Path, tmp_path: Path
) -> None:
    folder = add("")
    real = tmp_path / "elsewhere"
    folder.rename(real)
    folder.symlink_to(real)
    assert load_plugin("toy", plugins).notices == ()
    real.chmod(0o777)
    (told,) = load_plugin("toy", plugins).notices
    assert str(real) in told


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("on_session_strat", "hook on_session_strat (did you mean on_session_start?)"),
        ("post_tool_calls", "hook post_tool_calls (did you mean post_tool_call?)"),
        ("pre_api_request", "hook pre_api_request"),
        ("transform_llm_output", "hook transform_llm_output"),
        ("subagent_stop", "hook subagent_stop"),
    ],
)
def test_a_hook_whose_name_is_a_slip_is_asked_about(name: str, said: str) -> None:
    ctx = Registration("toy")
    ctx.register_hook(name, print)
    ctx.register_hook("pre_llm_call", print)
    assert ctx.unused == [said]
