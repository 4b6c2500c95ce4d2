from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pod.cli.engines import engines
from session_store import FileSessionStore
from tests.pod.desk import Desk, until
from tests.pod.plugin_folders import install, notes, use
from tests.pod.pods import log_of


@pytest.fixture
def plugins(home: Path) -> Path:
    return home / "plugins"


def add(plugins: Path, name: str, manifest: str | None) -> Path:
    folder = plugins / name
    folder.mkdir(parents=True)
    # Loading it would be noticed.
    (folder / "__init__.py").write_text("raise SystemExit('loaded')", encoding="utf-8")
    if manifest is not None:
        (folder / "plugin.yaml").write_text(manifest, encoding="utf-8")
    return folder


def run(*arguments: str) -> Result:
    return CliRunner().invoke(engines, arguments, catch_exceptions=False)


MANIFEST = '[pod]\nname = "p"\n[provider]\nkind = "scripted"\nscript = "s.jsonl"\n'
GOOD = "name: toy\nversion: 0.1\ndescription: a toy\n  engine\n"


def test_the_list_names_every_engine_and_loads_none(plugins: Path) -> None:
    folder = add(plugins, "toy", GOOD)
    add(plugins, "broken", "name: [unclosed\n")

    done = run("list")

    assert done.exit_code == 0
    lines = {line.split()[0]: line for line in done.output.splitlines()}
    assert lines["compressor"].startswith("compressor   built in")
    assert lines["compressor"].endswith("Prune + Compact to a new session   ← default")
    assert lines["toy"] == f"toy          plugin     {folder}   0.1   (not loaded)   a toy engine"
    assert "plugin.yaml: line 2:" in lines["broken"]


def test_the_list_as_json(plugins: Path) -> None:
    folder = add(plugins, "toy", GOOD)

    listed = json.loads(run("list", "--json").output)

    assert listed[0]["name"] == "compressor"
    assert listed[0]["default"] is True
    assert listed[-1] == {
        "name": "toy",
        "source": "plugin",
        "path": str(folder),
        "version": "0.1",
        "description": "a toy engine",
        "problem": None,
        "warning": None,
        "default": False,
        "loaded": False,
        "named": False,
    }


def test_a_home_without_plugins_has_the_built_in_engine() -> None:
    assert run("list").output.startswith("compressor")


def test_show_tells_what_is_known(plugins: Path) -> None:
    folder = add(plugins, "toy-engine", GOOD)

    for name in ("toy-engine", "toy"):
        done = run("show", name)
        assert done.exit_code == 0
        assert done.output.splitlines() == [
            "name         toy-engine",
            "calls itself toy",
            "source       plugin",
            f"place        {folder}",
            "version      0.1",
            "description  a toy engine",
            "state        (not loaded)",
        ]

    assert json.loads(run("show", "toy-engine", "--json").output)["path"] == str(folder)
    assert "the default" in run("show", "compressor").output


def test_show_tells_the_problem(plugins: Path) -> None:
    add(plugins, "bare", None)
    assert "problem      plugin.yaml: missing" in run("show", "bare").output


def test_an_unknown_engine_is_wrong_use(home: Path) -> None:
    done = run("show", "nothing")
    assert done.exit_code == 2
    assert "there is no engine 'nothing'" in done.output
    assert "pod engines list" in done.output


def test_the_engine_that_a_manifest_names_is_marked(plugins: Path, tmp_path: Path) -> None:
    add(plugins, "toy-engine", GOOD)
    path = tmp_path / "pod.toml"
    path.write_text(MANIFEST + '[context]\nengine = "toy"\n')

    done = run("list", "--manifest", str(path))

    marked = [line for line in done.output.splitlines() if line.endswith(f"← {path}")]
    assert [line.split()[0] for line in marked] == ["toy-engine"], "as a launch would find it"
    listed = json.loads(run("list", "--manifest", str(path), "--json").output)
    assert [entry["name"] for entry in listed if entry["named"]] == ["toy-engine"]


def test_an_engine_that_a_manifest_names_and_nobody_has_is_told(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "pod.toml"
    path.write_text(MANIFEST + '[context]\nengine = "nowhere"\n')
    done = run("list", "--manifest", str(path))
    assert done.exit_code == 0
    assert "pod.toml names the engine 'nowhere', which is none of these" in done.output


def test_a_manifest_with_mistakes_is_wrong_use(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "pod.toml"
    path.write_text(MANIFEST + "[context]\nengine = 7\n")
    assert run("list", "--manifest", str(path)).exit_code == 2


def test_show_tells_what_a_plugin_says_of_itself(plugins: Path, tmp_path: Path) -> None:
    folder = add(
        tmp_path / "work",
        "mine",
        "name: mine\nauthor: me\nprovides_tools: [grep, find]\nhooks: [post_llm_call]\n"
        "requires_env:\n  - name: MINE_KEY\n    description: a key\n",
    )
    plugins.mkdir()
    (plugins / "mine").symlink_to(folder)

    lines = run("show", "mine").output.splitlines()

    assert f"leads to     {folder}" in lines
    assert "author       me" in lines
    assert "tools        grep, find" in lines
    assert "hooks        post_llm_call" in lines
    assert "needs        MINE_KEY" in lines


def test_a_plugin_that_others_can_write_is_told_of(plugins: Path) -> None:
    add(plugins, "open", GOOD).chmod(0o777)
    add(plugins, "shut", GOOD)
    assert f"warning      {plugins}/open can be written by others" in run("show", "open").output
    assert "warning" not in run("show", "shut").output


def test_a_memory_provider_is_no_engine(plugins: Path) -> None:
    folder = add(plugins, "memo", GOOD)
    (folder / "__init__.py").write_text("def register(ctx): ctx.register_memory_provider(1)\n")
    assert "brings a memory provider and no engine" in run("list").output


# ------------------------------------------------------------------ command

COMMANDS = """
def register(ctx):
    engine = Calm()
    engine.sessions = []
    engine.on_session_start = lambda session_id, **kwargs: engine.sessions.append(session_id)
    ctx.register_context_engine(engine)
    ctx.register_command("calm", lambda raw: f"{engine.sessions} {raw}",
                         description="How calm it is.", args_hint="[status]")
    ctx.register_command("depth", lambda raw: ctx.options.get("depth", 1))
    ctx.register_command("fails", lambda raw: 1 / 0)
"""


@pytest.fixture
def desk(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return Desk(work, home)


def test_the_commands_of_an_engine_are_listed(desk: Desk) -> None:
    install(desk.home, COMMANDS)
    done = desk.pod("engines", "command", "calm")
    assert done.exit_code == 0
    assert done.stdout.splitlines() == ["/calm [status]   How calm it is.", "/depth", "/fails"]
    listed = json.loads(desk.pod("engines", "command", "calm", "--json").stdout)
    assert listed[0] == {
        "name": "calm",
        "description": "How calm it is.",
        "args_hint": "[status]",
    }


def test_a_command_without_a_manifest_knows_of_no_session(desk: Desk) -> None:
    install(desk.home, COMMANDS)
    done = desk.pod("engines", "command", "calm", "/calm", "status", "--deep", "now")
    assert (done.exit_code, done.stdout) == (0, "[] status --deep now\n")
    assert desk.logs() == [], "no session was made for it"


def test_a_command_of_a_pod_is_run_on_its_last_session(desk: Desk) -> None:
    install(desk.home, COMMANDS)
    path = desk.scripted({"text": "one"}, extra=use(more="options = { depth = 3 }\n"))
    done = desk.pod("engines", "command", "calm", "calm", "x", "--manifest", path)
    assert (done.exit_code, done.stdout) == (0, "[] x\n")
    assert "the pod probe has no session yet" in done.stderr

    assert desk.pod("run", path, "hello").exit_code == 0
    (log,) = desk.logs()
    before = log.read_bytes()
    done = desk.pod("engines", "command", "calm", "calm", "x", "--manifest", path)
    assert (done.exit_code, done.stdout) == (0, f"['{log.stem}'] x\n")
    assert desk.logs() == [log]
    assert log.read_bytes() == before, "nothing is written for it"
    assert log_of(desk.home, log.stem)[-1]["kind"] == "run_outcome"
    done = desk.pod("engines", "command", "calm", "depth", "--manifest", path, "--json")
    assert json.loads(done.stdout) == {"engine": "calm", "command": "depth", "text": "3"}


def test_an_engine_in_no_pod_keeps_to_its_folder_and_has_no_model(desk: Desk) -> None:
    install(
        desk.home,
        """
        def where(raw):
            from hermes_constants import get_hermes_home
            return str(get_hermes_home())

        def ask(raw):
            from agent.auxiliary_client import call_llm
            return call_llm(task="x", messages=[{"role": "user", "content": "hello"}])

        def register(ctx):
            ctx.register_context_engine(Calm())
            ctx.register_command("where", where)
            ctx.register_command("ask", ask)
        """,
    )
    done = desk.pod("engines", "command", "calm", "where")
    assert done.stdout == f"{desk.home / 'engines' / 'calm'}\n"
    done = desk.pod("engines", "command", "calm", "ask")
    assert done.exit_code == 1
    assert "this engine is in no pod, so there is no model: give --manifest FILE" in done.stderr


def test_a_command_tells_an_engine_of_no_message_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some engines keep what they are told of at a session's end, as often as they are told."""
    monkeypatch.setenv("NOTES", str(desk.home / "notes.jsonl"))
    install(
        desk.home,
        """
        class Ending(Calm):
            def on_session_end(self, session_id, messages):
                note("end", n=len(messages))

        def register(ctx):
            ctx.register_context_engine(Ending())
            ctx.register_command("calm", lambda raw: "calm")
        """,
    )
    path = desk.scripted({"text": "one"}, {"text": "two"}, extra=use())
    assert desk.pod("run", path, "hello").exit_code == 0
    for _ in range(2):
        assert desk.pod("engines", "command", "calm", "calm", "--manifest", path).exit_code == 0

    assert desk.pod("run", path, "again", "--continue").exit_code == 0
    assert [entry["n"] for entry in notes(desk.home / "notes.jsonl")] == [2, 0, 0, 4]


def test_a_session_may_be_named(desk: Desk) -> None:
    install(desk.home, COMMANDS)
    path = desk.scripted({"text": "one"}, extra=use())
    assert desk.pod("run", path, "hello").exit_code == 0
    assert desk.pod("run", path, "hello again").exit_code == 0
    first, _ = desk.logs()
    arguments = ("--manifest", path, "--session", first.stem[-12:])
    done = desk.pod("engines", "command", "calm", "calm", *arguments)
    assert done.exit_code == 2, "ids are shortened from their end nowhere"
    arguments = ("--manifest", path, "--session", first.stem)
    assert first.stem in desk.pod("engines", "command", "calm", "calm", *arguments).stdout


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("calm", "nothing"), 1, "the engine calm has no command /nothing\n  it has /calm, /depth"),
        (("calm", "fails"), 1, "/fails of the engine calm failed: ZeroDivisionError"),
        (("nowhere", "x"), 2, "the engine nowhere cannot be had: no engine of that name"),
        (("compressor", "x"), 2, "the engine compressor cannot be had: it is built in"),
        (("../calm", "x"), 2, "the engine ../calm cannot be had"),
        (("calm", "calm", "--session", "x"), 2, "--session needs --manifest"),
        (("other", "x", "--manifest", "probe.toml"), 2, "names the engine 'calm', not 'other'"),
    ],
)
def test_what_cannot_be_done_is_said(
    desk: Desk, arguments: tuple[str, ...], code: int, said: str
) -> None:
    install(desk.home, COMMANDS)
    desk.scripted({"text": "one"}, extra=use())
    done = desk.pod("engines", "command", *arguments)
    assert (done.exit_code, done.stdout) == (code, "")
    assert said in done.stderr


def test_an_engine_that_a_pod_cannot_have_is_told_of(desk: Desk) -> None:
    install(desk.home, COMMANDS)
    path = desk.scripted({"text": "one"}, extra=use())
    assert desk.pod("run", path, "hello").exit_code == 0
    (desk.home / "plugins" / "calm" / "__init__.py").write_text("import no_such_thing")
    # In a process of its own: in this one the plugin was loaded already.
    done = desk.process("engines", "command", "calm", "calm", "--manifest", path)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"it needs the module 'no_such_thing', which is not installed" in done.stderr


def test_a_pod_that_is_served_is_asked_itself(desk: Desk) -> None:
    install(desk.home, COMMANDS)
    path = desk.scripted({"text": "one"}, extra=use())
    with desk.start("serve", path, "--foreground") as served:
        until((desk.home / "run" / "probe.sock").exists)
        assert desk.pod("send", "probe", "run", "input=hello").exit_code == 0
        assert desk.pod("send", "probe", "idle").exit_code == 0
        (log,) = desk.logs()
        arguments = ("--manifest", path)
        done = desk.pod("engines", "command", "calm", "calm", "a b", *arguments)
        assert (done.exit_code, done.stdout) == (0, f"['{log.stem}'] a b\n")
        done = desk.pod("engines", "command", "calm", *arguments)
        assert done.stdout.splitlines()[0] == "/calm [status]   How calm it is."
        done = desk.pod("engines", "command", "calm", "fails", *arguments)
        assert (done.exit_code, done.stdout) == (1, "")
        assert "/fails of the engine calm failed: ZeroDivisionError" in done.stderr
        assert served.poll() is None
        assert desk.pod("stop", "probe").exit_code == 0


def test_a_session_in_use_says_whom_to_ask(desk: Desk) -> None:
    install(desk.home, COMMANDS)
    path = desk.scripted({"text": "one"}, extra=use())
    assert desk.pod("run", path, "hello").exit_code == 0
    (log,) = desk.logs()
    store = FileSessionStore(desk.home)
    session = store.open(log.stem)
    try:
        done = desk.process("engines", "command", "calm", "calm", "a b", "--manifest", path)
    finally:
        session.close()

    assert done.returncode == 1
    asked = 'pod send probe engine_command \'{"name": "calm", "args": "a b"}\''
    assert asked in done.stderr.decode()
