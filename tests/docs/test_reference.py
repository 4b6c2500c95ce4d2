"""The reference pages name every key, event, command and option, and none that is not there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from pod import NotBuilt, Pod
from pod.cli.main import cli
from tests.docs.reference import generated_parts, rewritten

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


@pytest.mark.parametrize("page", ["manifest", "events", "protocol", "engine-contract"])
def test_generated_parts_are_what_the_code_says(page: str) -> None:
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    assert generated_parts(text)
    assert rewritten(text) == text, "run: python tests/docs/reference.py"


def test_the_command_page_has_every_command_and_option() -> None:
    text = (DOCS / "cli.md").read_text(encoding="utf-8")
    real = dict(_commands("pod", cli))

    documented = _rows(text, "## Options")
    assert {name: _options_in(row) for name, row in documented.items()} == real
    assert {_name(cell) for cell in _rows(text, "## Commands")} == set(real) - {"pod"}


def _commands(name: str, command: click.Command) -> Iterator[tuple[str, set[str]]]:
    """Yield every command that does something, with the long names of its options."""
    context = click.Context(command)
    options = {
        next(o for o in names if o.startswith("--"))
        for parameter in command.get_params(context)
        if isinstance(parameter, click.Option) and not parameter.hidden
        for names in (parameter.opts, parameter.secondary_opts)
        if names
    } - {"--help"}
    if not isinstance(command, click.Group) or options:
        yield name, options

    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            assert found is not None
            yield from _commands(f"{name} {inner}", found)


def _rows(text: str, heading: str) -> dict[str, str]:
    """Return the rows of the table under a heading: the first cell's text to the second cell."""
    section = text.split(f"{heading}\n", 1)[1].split("\n## ", 1)[0]
    cells = re.findall(r"^\| `([^`]+)` \|(.*)\|$", section, re.MULTILINE)
    assert cells, f"no table under {heading}"
    return dict(cells)


def _name(cell: str) -> str:
    """Return the command's name without its arguments, which are in capitals or brackets."""
    return " ".join(word for word in cell.split() if word[0].islower())


def _options_in(cell: str) -> set[str]:
    return set(re.findall(r"`(--[a-z-]+)", cell))


NOT_BUILT = {
    "provider.kind": 'provider={kind="replay", script="r.jsonl"}',
    "tools.builtin": 'tools.builtin=["read"]',
    "tools.mcp": 'tools.mcp=[{name="m", command="c"}]',
    "budgets.session": "budgets.session.requests=5",
    "compaction.compact_idle_seconds": "compaction.compact_idle_seconds=60",
}


def test_the_manifest_page_lists_what_is_not_built() -> None:
    text = (DOCS / "manifest.md").read_text(encoding="utf-8")
    assert set(_rows(text, "## Not built yet")) == set(NOT_BUILT)


@pytest.mark.anyio
@pytest.mark.parametrize("override", NOT_BUILT.values())
async def test_what_the_manifest_page_calls_not_built_is_refused(
    override: str, home: Path, tmp_path: Path
) -> None:
    script = tmp_path / "answers.jsonl"
    script.write_text('{"text": "hello"}\n')
    manifest = tmp_path / "pod.toml"
    provider = f"kind = 'scripted'\nscript = '{script}'"
    if override.startswith("provider.kind"):
        provider = "kind = 'openai'\nmodel = 'm'"  # which an override can turn into another

    manifest.write_text(f"[pod]\nname = 'p'\n[provider]\n{provider}\n")
    with pytest.raises(NotBuilt):
        await Pod.launch(manifest, home=home, overrides=(override,)).start()
