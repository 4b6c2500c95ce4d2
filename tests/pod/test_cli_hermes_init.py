"""`pod manifest init --from-hermes`: a Hermes configuration in, a manifest that runs out."""

from __future__ import annotations

from pathlib import Path

import pytest

from manifests import load_manifest
from tests.fake_provider import Say, serving
from tests.pod.desk import Desk
from tests.pod.plugin_folders import install

CONFIG = """\
model:
  default: my-model
  provider: custom
  base_url: {base_url}
  context_length: 100000
context:
  engine: calm
calm:
  depth: 3
agent:
  system_prompt: Be brief.
"""


@pytest.fixture
def desk(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return Desk(work, home)


def test_a_configuration_becomes_a_pod_that_answers(desk: Desk) -> None:
    install(desk.home, "def register(ctx):\n    ctx.register_context_engine(Calm())\n")
    with serving(Say("hello there")) as served:
        desk.write("config.yaml", CONFIG.format(base_url=served.base_url))
        done = desk.pod("manifest", "init", "--from-hermes", "config.yaml", "moved.toml")
        assert (done.exit_code, done.stderr) == (0, "")
        assert done.stdout == 'wrote moved.toml\n  try it: pod run moved.toml "Who are you?"\n'
        assert desk.pod("manifest", "check", "moved.toml").exit_code == 0
        done = desk.pod("run", "moved.toml", "hello")
        assert (done.exit_code, done.stdout) == (0, "hello there\n")
        assert "calm' did not take the option 'depth'" in done.stderr

    manifest = load_manifest(desk.work / "moved.toml", env={}).manifest
    assert (manifest.pod.name, manifest.context.engine) == ("moved", "calm")
    assert served.asked[0].body["messages"][0] == {"role": "system", "content": "Be brief."}
    assert served.asked[0].body["model"] == "my-model"


def test_what_the_manifest_needs_and_does_not_find_is_told(desk: Desk) -> None:
    text = "model:\n  default: m\n  base_url: ${PROXY_URL}/v1\n  key_env: MY_KEY\n"
    desk.write("config.yaml", text + "compression: {idle_compact_after_seconds: 60}\n")
    done = desk.pod("manifest", "init", "--from-hermes", "config.yaml", "--name", "mine")
    assert done.exit_code == 0
    assert "note: line 10  provider.api_key_env: the variable MY_KEY is not set\n" in done.stdout
    assert "note: base_url: the variable PROXY_URL is not set\n" in done.stdout
    written = (desk.work / "pod.toml").read_text()
    assert 'name = "mine"' in written
    assert 'base_url = "${PROXY_URL}/v1"' in written
    assert desk.pod("manifest", "check", "pod.toml", PROXY_URL="http://h").exit_code == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "model:\n  default: m\n  provider: nous\ncompression:\n  threshold: 3\n",
            (
                "config.yaml has 2 mistakes\n"
                "  line 3   model.provider          'nous' signs in by OAuth, which"
            ),
        ),
        ("model: {}\n", "config.yaml has a mistake\n           model.default   missing: which"),
        ("model: [1\n", "config.yaml, line 2: not YAML: "),
        ("- a\n", "config.yaml holds no table of keys\n  a Hermes configuration is ~/.hermes/"),
        (None, "config.yaml cannot be read: no such file or directory"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_written(
    desk: Desk, text: str | None, said: str
) -> None:
    if text is not None:
        desk.write("config.yaml", text)
    done = desk.pod("manifest", "init", "--from-hermes", "config.yaml")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(said)
    assert not (desk.work / "pod.toml").exists()


def test_another_provider_can_be_taken_where_hermes_signed_in(desk: Desk) -> None:
    desk.write("config.yaml", "model:\n  default: m\n  provider: nous\nagent: {max_turns: 9}\n")
    arguments = ("manifest", "init", "--from-hermes", "config.yaml", "--provider")
    assert desk.pod(*arguments, "anthropic", "p.toml").exit_code == 0
    manifest = load_manifest(desk.work / "p.toml", env={}).manifest
    assert (manifest.provider.kind, manifest.worker.max_requests) == ("anthropic", 9)
    assert desk.pod(*arguments, "nous").exit_code == 2


def test_a_file_that_is_there_is_not_overwritten(desk: Desk) -> None:
    desk.write("config.yaml", "model: {default: m, provider: xai}\n")
    desk.write("pod.toml", "mine")
    done = desk.pod("manifest", "init", "--from-hermes", "config.yaml")
    assert done.exit_code == 2
    assert (desk.work / "pod.toml").read_text() == "mine"
    assert desk.pod("manifest", "init", "--from-hermes", "config.yaml", "--force").exit_code == 0
