from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).resolve().parents[3]


def run(code: str, *paths: Path) -> str:
    """What a fresh interpreter prints; `paths` come first on its path."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (*paths, ROOT)))}
    done = subprocess.run(
        [sys.executable, "-P", "-c", dedent(code)],
        capture_output=True,
        text=True,
        env=env,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def lay(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return folder


def test_the_served_modules_are_ours_under_their_names() -> None:
    out = run("""
        from pod.context import ContextEngine
        from pod.context import hermes
        hermes.install()
        hermes.install()
        import agent, agent.context_engine as served, importlib, sys
        for name in hermes.SERVED:
            assert importlib.import_module(name).__name__ == name
        assert served.ContextEngine is ContextEngine
        assert all(hasattr(served, name) for name in served.__all__)
        assert sum("Hermes" in type(finder).__name__ for finder in sys.meta_path) == 1
        print(served.MEMORY_CONTEXT_MAX_CHARS, agent.context_engine is served)
    """)
    assert out == "6000 True"


def test_every_served_name_has_its_file_and_every_file_its_name() -> None:
    served = ROOT / "pod" / "context" / "hermes" / "served"
    out = run("from pod.context.hermes import SERVED\nprint('\\n'.join(SERVED.values()))")
    files = {str(path.relative_to(served)) for path in served.rglob("*.py")}
    assert set(out.split("\n")) == files - {"__init__.py"}


def test_nothing_is_served_before_it_is_asked_for_and_no_more_than_there_is() -> None:
    out = run("""
        import pod.context.hermes, sys
        def missing(name):
            try:
                __import__(name)
            except ModuleNotFoundError as error:
                return error.name
        print(missing("agent"), end=" ")
        pod.context.hermes.install()
        print("agent" in sys.modules, missing("agent.usage_of_nothing"), missing("agents"))
    """)
    assert out == "agent False agent.usage_of_nothing agents"


def test_a_user_s_own_package_wins_whole(tmp_path: Path) -> None:
    mine = lay(tmp_path, {"agent/__init__.py": "", "agent/mine.py": "X = 1\n"})
    out = run(
        """
        from pod.context import hermes
        hermes.install()
        import agent.mine
        try:
            import agent.context_engine
        except ModuleNotFoundError as error:
            print(error.name, hermes.shadowed_by(error.name))
        """,
        mine,
    )
    assert out == f"agent.context_engine {mine / 'agent' / '__init__.py'}"


def test_a_user_s_namespace_package_wins_module_by_module(tmp_path: Path) -> None:
    mine = lay(tmp_path, {"agent/mine.py": "X = 1\n"})
    code = """
        from pod.context import hermes
        hermes.install()
        import agent.mine, agent.context_engine
        print(agent.__file__, agent.context_engine.__file__, hermes.shadowed_by("agent.mine"))
    """
    served = ROOT / "pod" / "context" / "hermes" / "served" / "agent" / "context_engine.py"
    assert run(code, mine) == f"None {served} None"

    lay(tmp_path, {"agent/context_engine.py": "Y = 2\n"})
    assert run(code, mine) == f"None {mine / 'agent' / 'context_engine.py'} None"


def test_a_user_s_package_that_appears_later_wins(tmp_path: Path) -> None:
    portion = lay(tmp_path / "portion", {"agent/mine.py": "X = 1\n"})
    whole = lay(tmp_path / "whole", {"agent/__init__.py": "Z = 3\n"})
    out = run(f"""
        import sys
        from pod.context import hermes
        hermes.install()
        from agent.context_engine import ContextEngine
        sys.path.append({str(portion)!r})
        import agent.mine
        print(agent.mine.X, len(agent.__path__))
        assert agent.__path__[0] == {str(portion / "agent")!r}
        sys.path.insert(0, {str(whole)!r})
        hermes.install()
        import agent
        print(agent.Z, "agent.context_engine" in sys.modules)
    """)
    assert out == "1 1\n3 False"


LAZY = """
def register(ctx):
    from agent.context_engine import ContextEngine

    class Lazy(ContextEngine):
        name = "lazy"
        def update_from_response(self, usage): pass
        def should_compress(self, prompt_tokens=None): return False
        def compress(self, messages): return messages
        def get_status(self):
            from agent.context_engine import sanitize_memory_context
            return {"said": sanitize_memory_context(" x ")}

    ctx.register_context_engine(Lazy())
"""


def test_lazy_imports_of_a_plugin_work_after_it_was_loaded(tmp_path: Path) -> None:
    folder = lay(tmp_path, {"lazy/__init__.py": LAZY})
    out = run(f"""
        import pathlib, sys
        from pod.context.loader import load_engine
        assert not any("Hermes" in type(finder).__name__ for finder in sys.meta_path)
        print(load_engine("lazy", pathlib.Path({str(folder)!r})).get_status())
    """)
    assert out == "{'said': 'x'}"


def test_a_plugin_whose_hermes_module_is_hidden_says_what_hides_it(tmp_path: Path) -> None:
    toy = "import agent.context_engine\n"
    folder = lay(tmp_path, {"plugins/toy/__init__.py": toy, "mine/agent/__init__.py": ""})
    out = run(
        f"""
        import pathlib
        from pod.context.errors import EngineUnavailable
        from pod.context.loader import load_engine
        try:
            load_engine("toy", pathlib.Path({str(folder / "plugins")!r}))
        except EngineUnavailable as error:
            print(error.reason)
        """,
        folder / "mine",
    )
    assert out == (
        "it needs the module 'agent.context_engine', which another package hides: "
        f"{folder / 'mine' / 'agent' / '__init__.py'}"
    )
