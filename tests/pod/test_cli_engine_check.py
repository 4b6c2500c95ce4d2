from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pod.cli.engines import engines
from pod.testing.engine_contract import CHECKS

LEAKY = """
from agent.context_engine import ContextEngine

print("loaded")


class Leaky(ContextEngine):
    name = "leaky"
    def __init__(self, words=2):
        self.words = words
    def update_from_response(self, usage):
        type(self).last_prompt_tokens = usage.get("prompt_tokens") or 0
    def should_compress(self, prompt_tokens=None):
        return (prompt_tokens or self.last_prompt_tokens) > self.threshold_tokens > 0
    def compress(self, messages, current_tokens=None):
        return messages
"""

SICK = """
    def on_session_start(self, session_id, **kwargs):
        raise OSError("no disk")
"""


def put(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(text, encoding="utf-8")
    (folder / "plugin.yaml").write_text(f"name: {folder.name}\nversion: 0.1.0\n", encoding="utf-8")
    return folder


def run(*arguments: str, charset: str = "utf-8") -> Result:
    return CliRunner(charset=charset).invoke(engines, ["check", *arguments])


@pytest.mark.timeout(120)
def test_the_built_in_engine_keeps_the_whole_contract() -> None:
    done = run("compressor")
    assert done.exit_code == 0, done.output
    held, _, rest = done.stdout.partition(" contract checks hold; ")
    number = int(held.partition(" of ")[0])
    assert held == f"{number} of {number}"
    assert rest == f"{len(CHECKS) - number} do not apply to this engine\n"


@pytest.mark.timeout(120)
def test_a_plugin_is_told_what_it_breaks(home: Path) -> None:
    put(home / "plugins" / "leaky", LEAKY)
    done = run("leaky")
    assert done.exit_code == 1
    first, *others = done.stdout.splitlines()
    assert first.partition("; ")[0].endswith(" contract checks hold")
    assert "  ✗ clones  two sessions at once share last_prompt_tokens" in others
    assert not any(line.startswith("loaded") for line in done.stdout.splitlines())
    assert "loaded" in done.stderr


@pytest.mark.timeout(120)
def test_a_folder_is_checked_as_json_and_its_input_saved(tmp_path: Path) -> None:
    folder = put(tmp_path / "mine" / "emptier", LEAKY.replace("return messages", "return []"))
    done = run(str(folder), "--json", "--save", str(tmp_path / "saved"))
    assert done.exit_code == 1
    told = json.loads(done.stdout)
    assert told["engine"] == "emptier"
    assert told["holds"] + told["broken"] + told["not_applicable"] == len(told["checks"])
    found = next(one for one in told["checks"] if one["id"] == "returns-messages")
    assert found["outcome"] == "broken"
    assert found["found"] == "compress() returned an empty list"
    kept = json.loads(Path(found["saved"]).read_text(encoding="ascii"))
    assert len(kept["messages"]) == found["input_messages"] > 0


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("charset", "mark"), [("utf-8", "✗"), ("ascii", "x")])
def test_what_breaks_many_checks_is_told_once_in_any_encoding(
    home: Path, charset: str, mark: str
) -> None:
    put(home / "plugins" / "sick", LEAKY + SICK)
    done = run("sick", charset=charset)
    lines = [line for line in done.stdout.splitlines() if "no disk" in line]
    assert lines[0].startswith(f"  {mark} members   on_session_start() raised OSError: no disk")
    assert lines[0].endswith(" other checks)")
    assert len(lines) < 4


def test_an_unknown_engine_is_wrong_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = run("nothing")
    assert done.exit_code == 2
    assert "there is no engine 'nothing'" in done.stderr
    assert "pod engines list" in done.stderr

    put(tmp_path / "here", LEAKY)
    monkeypatch.chdir(tmp_path)
    assert "the folder here is checked by ./here" in run("here").stderr
    assert run("./gone").exit_code == 2


def test_an_engine_that_does_not_load_says_why(home: Path) -> None:
    put(home / "plugins" / "broken", "import nowhere_to_be_found\n")
    done = run("broken")
    assert done.exit_code == 1
    assert "the engine broken cannot be had: it needs the module 'nowhere_to_be_found'" in (
        done.stderr
    )


@pytest.mark.timeout(120)
def test_the_options_of_a_manifest_are_the_engine_s(home: Path, tmp_path: Path) -> None:
    put(home / "plugins" / "picky", LEAKY.replace("words=2", "words") + SICK)
    assert "cannot be had" in run("picky").stderr
    manifest = tmp_path / "pod.toml"
    manifest.write_text(
        '[pod]\nname = "p"\n[provider]\nkind = "scripted"\nscript = "s"\n'
        '[context]\nengine = "picky"\n[context.options]\nwords = 3\n',
        encoding="utf-8",
    )
    done = run("picky", "--manifest", str(manifest))
    assert "contract checks hold" in done.stdout


TWICE = (
    LEAKY
    + """

def register(ctx):
    ctx.register_context_engine(Leaky())
    ctx.register_context_engine(Leaky())
"""
)


@pytest.mark.timeout(120)
def test_what_a_plugin_registers_in_vain_is_told_once(home: Path) -> None:
    put(home / "plugins" / "twice", TWICE)
    assert run("twice").stderr.count("Only one context engine plugin is allowed") == 1


@pytest.mark.timeout(120)
def test_an_import_that_never_ends_is_given_up(home: Path) -> None:
    awaited = home / "go"
    sleepy = f"import os, time\nwhile not os.path.exists({str(awaited)!r}):\n    time.sleep(0.01)\n"
    put(home / "plugins" / "sleepy", sleepy)
    done = run("sleepy", "--timeout", "0.3")
    awaited.touch()
    assert done.exit_code == 1
    assert done.stderr == "the engine sleepy was not loaded and made within 0.3 s\n"
