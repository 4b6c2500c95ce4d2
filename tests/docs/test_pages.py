"""Every example of README and docs/ is carried out, and shows what the page says it shows."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from anyio import to_thread
from attrs import evolve

from pod.compaction.checks import SECTIONS
from tests.docs.pages import Command, blocks, carry_out, commands, matches, write_files
from tests.worker.llm.dialects import ANTHROPIC
from tests.worker.llm.wire import Reply, head, serving

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(ROOT.glob("docs/*.md"))
_SCRIPTED = '[provider]\nkind = "scripted"\nscript = "answers.jsonl"\n'
LIFECYCLES = ("turn", "append", "prune", "compact", "fork")


def _with_commands() -> list[Path]:
    return [page for page in PAGES if commands(blocks(page.read_text(encoding="utf-8")))]


def _environment(folder: Path) -> dict[str, str]:
    """What a person has who follows a page: `pod` and `python` on the PATH, and an empty home."""
    return {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "POD_HOME": str(folder / "pod-home"),
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "NO_COLOR": "1",
        "COLUMNS": "120",
    }


@pytest.mark.timeout(120)  # a page starts some ten processes, on a machine that may be busy
@pytest.mark.parametrize("page", _with_commands(), ids=lambda page: page.stem)
def test_the_examples_of_a_page_show_what_it_says(page: Path, tmp_path: Path) -> None:
    found = blocks(page.read_text(encoding="utf-8"))
    folder = tmp_path / "work"
    folder.mkdir()
    write_files(found, folder)
    todo = commands(found)

    for command, shown in zip(todo, carry_out(todo, folder, _environment(tmp_path)), strict=True):
        where = f"{page.name}, line {command.line}: {command.text}"
        assert shown.status == 0, f"{where}\nexit {shown.status}\n{shown.output}"
        assert matches(command.output, shown.output), f"{where}\nreally shows\n{shown.output}"


def test_every_lifecycle_has_a_page_with_an_example_that_runs() -> None:
    assert set(LIFECYCLES) <= {page.stem for page in _with_commands()}


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: page.stem)
def test_links_lead_to_files_that_are_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", text)
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert not missing


def test_output_is_compared_line_by_line_with_gaps_where_the_page_has_them() -> None:
    assert matches(("session …: 3 entries",), "session 0199aa: 3 entries\n")
    assert matches(("first", "…", "last"), "first\na\nb\nlast")
    assert matches((), "")
    assert not matches((), "something\n")
    assert not matches(("3 entries",), "4 entries")
    assert not matches(("first",), "first\nsecond")


def test_a_command_may_go_on_over_lines_and_keeps_its_output_apart() -> None:
    page = "```console\n$ cat <<X\n> one\n> X\none\n$ true\n```\n```console norun\n$ false\n```\n"
    assert commands(blocks(page)) == [
        Command("cat <<X\none\nX", 2, ("one",)),
        Command("true", 6),
    ]


@pytest.mark.anyio
@pytest.mark.timeout(120)
async def test_doctor_says_of_a_provider_what_the_page_shows(tmp_path: Path) -> None:
    found = blocks((ROOT / "docs/providers.md").read_text(encoding="utf-8"))
    write_files(found, tmp_path)
    (block,) = (block for block in found if block.words == "norun doctor")
    (shown,) = commands([evolve(block, words="")])
    said = (ANTHROPIC.hello("fi", "ne"), ANTHROPIC.call("blue"))
    async with serving(lambda number: Reply([head(), said[number - 1]])) as server:
        there = f"{shown.text} --set provider.base_url={server.base_url}"
        key = {"ANTHROPIC_API_KEY": "sk-made-up-0123456789"}
        env = {**_environment(tmp_path), **key}
        (really,) = await to_thread.run_sync(carry_out, [Command(there, 0)], tmp_path, env)

    assert really.status == 0, really.output
    assert matches(shown.output, really.output), really.output


@pytest.mark.timeout(120)
def test_the_program_of_the_readme_runs_with_its_manifest(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    write_files(blocks((ROOT / "README.md").read_text(encoding="utf-8")), folder)
    environment = _environment(tmp_path)
    (checked,) = carry_out([Command("pod manifest check pod.toml", 0)], folder, environment)
    assert checked.status == 0, checked.output

    # The same manifest, with a model from a script in the place of a server.
    manifest = folder / "pod.toml"
    kept = re.sub(r"(?s)\[provider\].*?(?=\n\[)", _SCRIPTED, manifest.read_text(encoding="utf-8"))
    manifest.write_text(kept, encoding="utf-8")
    summary = "\\n\\n".join(f"{section}\\nThe log was read." for section in SECTIONS)
    (folder / "answers.jsonl").write_text(
        f'{{"match": "{SECTIONS[0]}", "text": "{summary}"}}\n'
        '{"tool_calls": [{"name": "read_log"}]}\n{"text": "All is well."}\n{"text": "No."}\n',
        encoding="utf-8",
    )
    (shown,) = carry_out([Command("python watch.py", 0)], folder, environment)

    # The child is launched anew, and its script begins anew: it reads the log once more.
    assert shown.status == 0, shown.output
    assert matches(("All is well.", "goes on in …", "All is well."), shown.output), shown.output
