"""`pod manifest check`, `schema` and `init`, driven as a person drives them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from inline_snapshot import snapshot

from manifests import PROVIDER_KINDS, load_manifest
from pod.cli.manifest import manifest

RIGHT = '[pod]\nname = "reviewer"\n[provider]\nkind = "anthropic"\nmodel = "m"\napi_key_env = "K"\n'
WRONG = (
    '[pod]\nname = "Bad Name!"\n[provider]\nkind = "anthropik"\nmodel = "m"\n[worker]\n'
    "max_tokns = 5\n[compaction]\nprune_min_savings = -3\n"
)

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "right.toml").write_text(RIGHT)
    (tmp_path / "bad.toml").write_text(WRONG)

    def pod_manifest(*args: str, **env: str) -> Result:
        result = CliRunner().invoke(manifest, args, env=env)
        assert result.exception is None or isinstance(result.exception, SystemExit)
        return result

    return pod_manifest


def test_a_right_manifest_is_one_calm_line(run: Run) -> None:
    done = run("check", "right.toml", K="x")

    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == "right.toml: fine (pod reviewer, anthropic/m)\n"


def test_a_key_that_is_not_there_is_a_note_and_no_failure(run: Run) -> None:
    done = run("check", "right.toml")

    assert done.exit_code == 0
    assert done.stdout == snapshot("""\
right.toml: fine (pod reviewer, anthropic/m)
  note: line 6  provider.api_key_env: the variable K is not set
""")


def test_an_engine_that_is_not_here_is_a_note_and_no_failure(run: Run, tmp_path: Path) -> None:
    (tmp_path / "right.toml").write_text(RIGHT + '[context]\nengine = "mine"\n')
    done = run("check", "right.toml", K="x")
    assert done.exit_code == 0
    assert (
        "note: line 8  context.engine: there is no engine 'mine' here; the built-in" in done.stdout
    )

    folder = tmp_path / "home" / "plugins" / "mine"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("raise SystemExit('loaded')")
    done = run("check", "right.toml", K="x", POD_HOME=str(tmp_path / "home"))
    assert done.stdout == "right.toml: fine (pod reviewer, anthropic/m)\n"


def test_options_that_nobody_takes_are_a_note(run: Run, tmp_path: Path) -> None:
    (tmp_path / "right.toml").write_text(RIGHT + "[context.options]\ndepth = 3\n")
    done = run("check", "right.toml", K="x")
    assert done.exit_code == 0
    assert "context.options: the built-in compressor takes none" in done.stdout


def test_every_mistake_is_named_and_the_exit_code_is_two(run: Run) -> None:
    done = run("check", "bad.toml")

    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr == snapshot("""\
bad.toml has 4 mistakes
  line 2  pod.name = "Bad Name!"               must be made of a-z, 0-9, "-" and "_" only; did you mean "bad-name"?
  line 4  provider.kind = "anthropik"          not a provider; did you mean "anthropic"?
                                               (anthropic, openai, openai_responses, gemini, ollama, openai_compatible, local, scripted, replay)
  line 7  worker.max_tokns                     unknown key; did you mean "max_tokens"?
  line 9  compaction.prune_min_savings = -3    must be 0 or more
""")  # noqa: E501 – rows are as wide as what they say


def test_one_bad_file_among_several_does_not_hide_the_others(run: Run) -> None:
    done = run("check", "bad.toml", "nowhere.toml", "right.toml")

    assert done.exit_code == 2
    assert "bad.toml has 4 mistakes" in done.stderr
    assert "cannot read nowhere.toml: there is no such file" in done.stderr
    assert "right.toml: fine" in done.stdout


def test_json_has_one_object_a_file_and_nothing_else(run: Run) -> None:
    done = run("check", "right.toml", "bad.toml", "nowhere.toml", "--json")
    right, bad, missing = json.loads(done.stdout)

    assert done.exit_code == 2
    assert done.stderr == ""
    assert (right["ok"], right["pod"], right["provider"], right["model"]) == (
        True,
        "reviewer",
        "anthropic",
        "m",
    )
    assert [n["key"] for n in right["notes"]] == ["provider.api_key_env"]
    assert [(m["line"], m["key"], m["suggestion"]) for m in bad["mistakes"]] == [
        (2, "pod.name", "bad-name"),
        (4, "provider.kind", "anthropic"),
        (7, "worker.max_tokns", "max_tokens"),
        (9, "compaction.prune_min_savings", None),
    ]
    assert (missing["ok"], missing["mistakes"]) == (False, [])
    assert missing["error"] == "there is no such file"


def test_check_without_a_file_is_wrong_use(run: Run) -> None:
    assert run("check").exit_code == 2


def test_the_schema_is_json_on_stdout(run: Run) -> None:
    done = run("schema")

    assert done.exit_code == 0
    assert json.loads(done.stdout)["properties"].keys() >= {"pod", "provider", "compaction"}


@pytest.mark.parametrize("kind", PROVIDER_KINDS)
def test_init_writes_a_manifest_that_is_right(run: Run, tmp_path: Path, kind: str) -> None:
    done = run("init", "My Pod.toml", "--provider", kind)
    loaded = load_manifest(tmp_path / "My Pod.toml", env={})

    assert done.exit_code == 0, done.stderr
    assert (loaded.manifest.pod.name, loaded.manifest.provider.kind) == ("my-pod", kind)
    assert "wrote My Pod.toml" in done.stdout
    assert run("check", "My Pod.toml").exit_code == 0


def test_what_is_not_built_is_a_note(run: Run, tmp_path: Path) -> None:
    (tmp_path / "tools.toml").write_text(RIGHT + '[tools]\nbuiltin = ["read"]\n')
    done = run("check", "tools.toml", K="x")
    assert done.exit_code == 0
    assert "  note: tools.builtin: is not built in this version\n" in done.stdout

    done = run("init", "replay.toml", "--provider", "replay")
    assert '  note: provider.kind: "replay" is not built in this version\n' in done.stdout


def test_init_says_what_is_missing_here(run: Run) -> None:
    wrote = "wrote mine.toml\n"
    note = "  note: line 10  provider.api_key_env: the variable OPENAI_API_KEY is not set\n"
    then = '  try it: pod run mine.toml "Who are you?"\n'
    assert run("init", "mine.toml", "--provider", "openai", OPENAI_API_KEY="").stdout == (
        wrote + note + then
    )
    done = run("init", "mine.toml", "--provider", "openai", "--force", OPENAI_API_KEY="x")
    assert done.stdout == wrote + then


@pytest.mark.parametrize("kind", ["local", "ollama", "openai_compatible"])
def test_the_threshold_shown_fits_a_small_window(run: Run, tmp_path: Path, kind: str) -> None:
    assert run("init", "--provider", kind).exit_code == 0
    (line,) = [n for n in (tmp_path / "pod.toml").read_text().splitlines() if "_threshold =" in n]
    assert int(line.rpartition(" ")[2]) <= 20_000


def test_init_has_defaults_and_every_example_in_it_is_right(run: Run, tmp_path: Path) -> None:
    assert run("init").exit_code == 0
    path = tmp_path / "pod.toml"
    text = path.read_text()
    assert "# What the model can do." in text

    # The commented-out sections are examples: each line that looks like TOML must be right too.
    shown = [line.removeprefix("# ") if _is_example(line) else line for line in text.split("\n")]
    path.write_text("\n".join(shown))
    manifest = load_manifest(path, env={}).manifest
    assert manifest.tools is not None
    assert manifest.compaction is not None
    assert manifest.budgets.run.requests == 50
    assert manifest.permissions.bash == "ask"


def _is_example(line: str) -> bool:
    return line.startswith("# [") or (line.startswith("# ") and " = " in line)


def test_init_keeps_what_is_there_unless_forced(run: Run, tmp_path: Path) -> None:
    before = (tmp_path / "right.toml").read_text()
    refused = run("init", "right.toml")
    assert refused.exit_code == 2
    assert "right.toml is there already; --force overwrites it" in refused.stderr
    assert (tmp_path / "right.toml").read_text() == before

    assert run("init", "right.toml", "--force", "--name", "other").exit_code == 0
    assert load_manifest(tmp_path / "right.toml", env={}).manifest.pod.name == "other"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("init", "--provider", "anthropik"), "not a provider (anthropic, openai"),
        (("init", "--name", "Bad Name"), "a-z, 0-9"),
        (("init", "--name", 'x"\n[evil]'), "a-z, 0-9"),
        (("init", "日本.toml"), "a-z, 0-9"),
        (("init", "no/such/folder.toml"), "cannot write no/such/folder.toml"),
        (("init", "."), "a-z, 0-9"),
        (("init", ".", "--name", "x"), "there already"),
        (("init", ".", "--name", "x", "--force"), "cannot write ."),
    ],
)
def test_init_refuses_what_it_cannot_do(run: Run, args: tuple[str, ...], words: str) -> None:
    done = run(*args)

    assert done.exit_code == 2
    assert words in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.output
