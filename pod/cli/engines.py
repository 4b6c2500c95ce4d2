"""`pod engines`: which context engines there are, told without running any of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pod.home import Home

from .failures import WRONG_USE
from .listing import padded, say, say_json

if TYPE_CHECKING:
    from pod.context.discovery import EngineInfo

NOT_LOADED = "(not loaded)"

json_flag = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")


@click.group()
def engines() -> None:
    """Context engines: which there are, and where they come from."""


@engines.command("list")
@json_flag
def list_engines(as_json: bool) -> None:
    """List the engines that a manifest can name. None of them is loaded for it."""
    infos = _known()
    if as_json:
        say_json([_fields(info) for info in infos])
        return

    rows = [_cells(info) for info in infos]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    for name, source, rest in rows:
        say(f"{padded(name, widths[0])}   {padded(source, widths[1])}   {rest}".rstrip())


@engines.command()
@click.argument("name")
@json_flag
def show(name: str, as_json: bool) -> None:
    """Show what is known of the engine NAME, without loading it."""
    found = [info for info in _known() if name in (info.name, info.declared_name)]
    if not found:
        say(f"there is no engine {name!r}", err=True)
        say("  which there are: pod engines list", err=True)
        raise click.exceptions.Exit(WRONG_USE)

    info = next((info for info in found if info.name == name), found[0])
    if as_json:
        say_json(_fields(info))
        return

    for label, value in _details(info):
        if value:
            say(f"{padded(label, 13)}{value}")


def _known() -> list[EngineInfo]:
    from pod.context.discovery import list_engines as known_engines

    return known_engines(Home.from_env(os.environ).plugins)


def _cells(info: EngineInfo) -> tuple[str, str, str]:
    if info.source == "built in":
        return info.name, info.source, f"{info.description}   ← default"

    said = info.problem or info.description
    parts = (_short(info), info.version, NOT_LOADED, said)
    return info.name, info.source, "   ".join(part for part in parts if part)


def _details(info: EngineInfo) -> list[tuple[str, str]]:
    state = "the default" if info.source == "built in" else NOT_LOADED
    return [
        ("name", info.name),
        ("calls itself", info.declared_name if info.declared_name != info.name else ""),
        ("source", info.source),
        ("place", info.place),
        ("version", info.version),
        ("description", info.description),
        ("problem", info.problem),
        ("state", state),
    ]


def _fields(info: EngineInfo) -> dict[str, object]:
    return {
        "name": info.name,
        "source": info.source,
        "path": info.place or None,
        "version": info.version or None,
        "description": info.description or None,
        "problem": info.problem or None,
        "default": info.source == "built in",
        "loaded": False,
    }


def _short(info: EngineInfo) -> str:
    """Return the place with the user's own folder as `~`; a bundled one needs no telling."""
    if info.source == "bundled":
        return ""

    home = str(Path.home())
    return f"~{info.place[len(home) :]}" if info.place.startswith(f"{home}/") else info.place
