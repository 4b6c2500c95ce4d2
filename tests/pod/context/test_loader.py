from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from textwrap import dedent

import pytest

from pod.context import ContextEngine
from pod.context.errors import (
    EngineMissingInPlugin,
    EngineNotCopied,
    EngineNotFound,
    EngineUnavailable,
)
from pod.context.loader import load_engine, load_plugin
from pod.context.ownership import release_engine

ENGINE = """
from agent.context_engine import ContextEngine

class Toy(ContextEngine):
    name = "toy"
    def update_from_response(self, usage): pass
    def should_compress(self, prompt_tokens=None): return False
    def compress(self, messages, current_tokens=None): return messages
"""
PLAIN = ENGINE.replace("class Toy(ContextEngine)", "class Toy")

Add = Callable[..., None]


@pytest.fixture
def plugins(tmp_path: Path) -> Path:
    return tmp_path / "plugins"


@pytest.fixture
def add(plugins: Path) -> Add:
    def add_plugin(name: str, *sources: str, **siblings: str) -> None:
        folder = plugins / name
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("\n".join(map(dedent, sources)), encoding="utf-8")
        for sibling, source in siblings.items():
            (folder / f"{sibling}.py").write_text(dedent(source), encoding="utf-8")

    return add_plugin


# ------------------------------------------------------------------ what is loaded


def test_the_first_concrete_class_is_the_engine(add: Add, plugins: Path) -> None:
    add(
        "toy",
        """
        from pod.context import ContextEngine
        class Abstract(ContextEngine): pass
        class Wants(ContextEngine):
            name = "wants"
            def __init__(self, model): pass
            def update_from_response(self, usage): pass
            def should_compress(self, prompt_tokens=None): return False
            def compress(self, messages): return messages
        """,
        ENGINE,
    )
    engine = load_engine("toy", plugins)
    assert engine.name == "toy"
    assert isinstance(engine, ContextEngine)


def test_what_is_registered_comes_before_the_class(add: Add, plugins: Path) -> None:
    add(
        "toy",
        ENGINE,
        """
        def register(ctx):
            engine = Toy()
            engine.registered = True
            ctx.register_context_engine(engine)
        """,
    )
    first, second = load_engine("toy", plugins), load_engine("toy", plugins)
    assert vars(first) == vars(second) == {"registered": True}
    assert first is not second, "register runs for every load"
    assert type(first) is type(second), "the module is loaded once"


def test_relative_imports_work_at_once_and_later(add: Add, plugins: Path) -> None:
    add(
        "my-engine.v2",
        "from .core import Toy\n",
        core=ENGINE
        + "    def get_status(self):\n        from . import late\n        return late.X\n",
        late="X = {'late': True}\n",
    )
    assert load_engine("my-engine.v2", plugins).get_status() == {"late": True}


def test_an_imported_base_class_is_not_the_plugin_s_engine(add: Add, plugins: Path) -> None:
    add("base", ENGINE)
    base = type(load_engine("base", plugins)).__module__
    add("derived", f"from {base} import Toy\nclass Mine(Toy):\n    name = 'mine'\n")
    assert load_engine("derived", plugins).name == "mine"


def test_an_engine_that_only_looks_like_one_is_taken(add: Add, plugins: Path) -> None:
    add("duck", PLAIN, "def register(ctx):\n    ctx.register_context_engine(Toy())\n")
    assert load_engine("duck", plugins).name == "toy"


def test_plugins_of_one_name_in_two_homes_are_two(add: Add, plugins: Path, tmp_path: Path) -> None:
    add("toy", ENGINE)
    other = tmp_path / "other"
    (plugins / "toy").rename(plugins / "moved")
    other.mkdir()
    (plugins / "moved").rename(other / "toy")
    add("toy", ENGINE, "Toy.name = 'here'\n")
    assert load_engine("toy", plugins).name == "here"
    assert load_engine("toy", other).name == "toy"


def test_nothing_of_a_plugin_is_imported_before_it_is_named(
    add: Add, plugins: Path, tmp_path: Path
) -> None:
    mark = tmp_path / "imported"
    add("toy", ENGINE)
    add("other", f"open({str(mark)!r}, 'w').close()\n")
    load_engine("toy", plugins)
    assert not mark.exists()


def test_what_else_is_registered_is_taken_down(add: Add, plugins: Path) -> None:
    add(
        "toy",
        ENGINE,
        """
        def register(ctx):
            assert not hasattr(ctx, "llm")
            ctx.register_skill("recall", "SKILL.md", description="d")
            ctx.register_auxiliary_task(name="summary")
            ctx.register_thing_of_tomorrow(object())
            ctx.register_hook("post_llm_call", print)
            ctx.register_hook("post_llm_call", repr)
            ctx.register_command("/LCM", print, description="d", args_hint="[x]")
            ctx.register_command("lcm", repr)
            ctx.register_command(" ", repr)
            ctx.register_hook("subagent_stop", print)
            ctx.register_tool(name="grep", handler=print)
            ctx.register_memory_provider(object())
            ctx.register_cli_command("lcm")
            ctx.register_context_engine(Toy())
            ctx.register_context_engine("a second one")
        """,
    )
    registration = load_plugin("toy", plugins).registration
    assert registration.hooks == {"post_llm_call": [print, repr], "subagent_stop": [print]}
    assert list(registration.tools) == ["grep"]
    assert [type(provider) for provider in registration.memory_providers] == [object]
    assert list(registration.commands) == ["lcm"]
    command = registration.commands["lcm"]
    assert (command.handler, command.description, command.args_hint) == (print, "d", "[x]")
    assert registration.unused == [
        "skill recall",
        "auxiliary task summary",
        "thing of tomorrow object",
        "command line command lcm",
        "hook subagent_stop",
    ]
    assert (
        "Plugin 'toy' tried to register a context engine, but one is already registered. "
        "Only one context engine plugin is allowed."
    ) in registration.told


def test_many_threads_all_get_an_engine_of_their_own(add: Add, plugins: Path) -> None:
    add(
        "toy",
        "import time\n",
        "from .core import Toy\n",
        core="import time; time.sleep(0.05)" + ENGINE,
    )
    start = threading.Barrier(16)

    def load_many(_: int) -> list[ContextEngine]:
        start.wait(10)
        return [load_engine("toy", plugins) for _ in range(32)]

    with ThreadPoolExecutor(16) as threads:
        engines = [engine for loaded in threads.map(load_many, range(16)) for engine in loaded]

    assert len({id(engine) for engine in engines}) == 16 * 32
    assert len({type(engine) for engine in engines}) == 1


@pytest.mark.parametrize("value", ["probe_loaded:Toy", "probe_loaded:register", "probe_loaded"])
def test_an_entry_point_names_a_class_a_function_or_a_module(
    value: str, plugins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "site" / "probe-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: probe\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[pod.context_engines]\nprobe = {value}\n")
    source = ENGINE + "def register(ctx): ctx.register_context_engine(Toy())\n"
    (info.parent / "probe_loaded.py").write_text(source)
    monkeypatch.syspath_prepend(str(info.parent))
    try:
        assert load_engine("probe", plugins).name == "toy"
    finally:
        sys.modules.pop("probe_loaded", None)


# ------------------------------------------------------------------ what does not load


def test_a_name_that_nobody_has(plugins: Path) -> None:
    with pytest.raises(EngineNotFound) as caught:
        load_engine("missing", plugins)
    assert caught.value.notice == (
        "Context engine 'missing' not found — falling back to built-in compressor"
    )
    assert str(plugins) in str(caught.value)


def test_the_built_in_engine_is_nobody_s_plugin(add: Add, plugins: Path) -> None:
    add("compressor", ENGINE)
    with pytest.raises(EngineUnavailable, match="built in"):
        load_engine("compressor", plugins)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("raise RuntimeError('broken plugin')", "RuntimeError: broken plugin"),
        (
            "import no_such_module_at_all",
            "it needs the module 'no_such_module_at_all', which is not",
        ),
        ("from .core import X", "its own module 'core' is missing"),
        (
            "import agent.no_such_part",
            "the Hermes module 'agent.no_such_part', which is not served",
        ),
        ("x = = 1", "__init__.py, line 1: invalid syntax"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("raise ValueError", "ValueError"),
        ("raise ValueError('two\\nlines')", "ValueError: two lines"),
        ("def register(ctx): ctx.llm.complete('x')", "AttributeError: .*'llm'"),
        (ENGINE + "    def __init__(self): raise OSError('no disk')\n", "OSError: no disk"),
    ],
)
def test_a_broken_plugin_is_named_with_the_cause(
    source: str, reason: str, add: Add, plugins: Path
) -> None:
    add("broken", source)
    before = set(sys.modules)

    with pytest.raises(EngineUnavailable, match=reason) as caught:
        load_engine("broken", plugins)

    assert caught.value.name == "broken"
    assert caught.value.notice.startswith("Failed to load context engine 'broken': ")
    assert caught.value.notice.endswith("— falling back to built-in compressor")
    assert "\n" not in caught.value.notice
    failed_to_import = "def " not in source
    assert not (failed_to_import and {n for n in sys.modules if "broken" in n} - before)


def test_a_plugin_that_was_mended_loads(add: Add, plugins: Path) -> None:
    add("toy", "raise RuntimeError('broken')")
    with pytest.raises(EngineUnavailable):
        load_engine("toy", plugins)
    (plugins / "toy" / "__init__.py").write_text(ENGINE, encoding="utf-8")
    assert load_engine("toy", plugins).name == "toy"


def test_a_registration_that_fails_leaves_the_class(add: Add, plugins: Path) -> None:
    add("toy", ENGINE, "def register(ctx): raise RuntimeError('x')\n")
    assert load_engine("toy", plugins).name == "toy"


def test_a_plugin_without_an_engine(add: Add, plugins: Path) -> None:
    add("empty", "def register(ctx): pass\n")
    with pytest.raises(EngineMissingInPlugin) as caught:
        load_engine("empty", plugins)
    assert caught.value.notice.startswith(
        "Context engine 'empty' loaded but no engine instance found"
    )


# ------------------------------------------------------------------ one engine, one pod

SHARED = "ENGINE = Toy()\ndef register(ctx): ctx.register_context_engine(ENGINE)\n"
LOCKED = """
import threading
class Locked(Toy):
    def __init__(self): self.lock = threading.Lock()
"""
SHARED_LOCKED = SHARED.replace("Toy()", "Locked()")


def test_a_shared_engine_is_copied_for_each_pod(add: Add, plugins: Path) -> None:
    add("toy", ENGINE, SHARED)
    engines = [load_engine("toy", plugins) for _ in range(3)]
    assert len({id(engine) for engine in engines}) == 3


def test_the_clone_hook_is_used_instead_of_a_copy(add: Add, plugins: Path) -> None:
    hooks = (
        "    def __deepcopy__(self, memo): raise RuntimeError('not this way')\n"
        "    def clone_for_agent(self): return Locked()\n"
    )
    add("toy", ENGINE, LOCKED + hooks, SHARED_LOCKED)
    first, second = load_engine("toy", plugins), load_engine("toy", plugins)
    assert type(first) is type(second)
    assert first is not second


@pytest.mark.parametrize(
    ("hook", "cause"),
    [
        ("", "TypeError"),
        ("    def clone_for_agent(self): return self\n", "returned the engine itself"),
        ("    def clone_for_agent(self): return None\n", "returned None"),
    ],
)
def test_an_engine_that_cannot_be_copied_serves_one_pod_and_says_so_to_the_next(
    hook: str, cause: str, add: Add, plugins: Path
) -> None:
    add("toy", ENGINE, LOCKED + hook, SHARED_LOCKED)
    first = load_engine("toy", plugins)

    with pytest.raises(EngineNotCopied, match=cause) as caught:
        load_engine("toy", plugins)
    assert caught.value.notice.startswith(
        "Context engine 'toy' could not be safely copied for this agent ("
    )
    assert "falling back to built-in compressor." in caught.value.notice
    assert "clone_for_agent()" in caught.value.notice

    release_engine(first)
    assert load_engine("toy", plugins) is first
