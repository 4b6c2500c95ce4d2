from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pod.cli.engines import engines


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
        "default": False,
        "loaded": False,
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
