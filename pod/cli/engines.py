"""`pod engines`: which context engines there are, told without running any of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pod.home import Home

from .failures import WRONG_USE, reported
from .listing import padded, say, say_json
from .main import Known, LazyGroup

if TYPE_CHECKING:
    from pod.context.discovery import EngineInfo

NOT_LOADED = "(not loaded)"

json_flag = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")


class EngineGroup(LazyGroup):
    """The commands about engines; those that run a plugin are loaded when they are used."""

    known = {  # noqa: RUF012  read-only by its type in the base class
        "list": Known("pod.cli.engines:list_engines", "List the engines; none of them is loaded."),
        "show": Known("pod.cli.engines:show", "Show what is known of one, without loading it."),
        "check": Known("pod.cli.engine_check:check", "Hold an engine to the contract."),
        "command": Known("pod.cli.engine_command:command", "Run a slash command of an engine's."),
    }


@click.group(cls=EngineGroup)
def engines() -> None:
    """Context engines: which there are, and where they come from."""


@click.command("list")
@click.option("--manifest", "manifest", metavar="FILE", help="Mark the engine that FILE names.")
@json_flag
def list_engines(manifest: str | None, as_json: bool) -> None:
    """List the engines that a manifest can name. None of them is loaded for it."""
    infos = _known()
    with reported():
        wanted = _named_by(manifest) if manifest is not None else None

    named = _meant(wanted, infos) if wanted is not None else None
    if as_json:
        say_json([_fields(info) | {"named": info is named} for info in infos])
    else:
        _say_all(infos, named, manifest)

    if wanted is not None and named is None:
        say(f"{manifest} names the engine {wanted!r}, which is none of these", err=True)


def _say_all(infos: list[EngineInfo], named: EngineInfo | None, manifest: str | None) -> None:
    rows = [_cells(info) for info in infos]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    for info, (name, source, rest) in zip(infos, rows, strict=True):
        mark = f"   ← {manifest}" if info is named else ""
        say(f"{padded(name, widths[0])}   {padded(source, widths[1])}   {rest}".rstrip() + mark)


@click.command()
@click.argument("name")
@json_flag
def show(name: str, as_json: bool) -> None:
    """Show what is known of the engine NAME, without loading it."""
    infos = _known()
    info = _meant(name, infos)
    if info is None:
        say(f"there is no engine {name!r}", err=True)
        say("  which there are: pod engines list", err=True)
        raise click.exceptions.Exit(WRONG_USE)

    if as_json:
        say_json(_fields(info))
        return

    for label, value in _details(info):
        if value:
            say(f"{padded(label, 13)}{value}")


def _known() -> list[EngineInfo]:
    from pod.context.discovery import list_engines as known_engines

    return known_engines(Home.from_env(os.environ).plugins)


def _named_by(manifest: str) -> str:
    from manifests import load_manifest

    return load_manifest(manifest, env=os.environ).manifest.context.engine


def _meant(name: str, infos: list[EngineInfo]) -> EngineInfo | None:
    """Return the engine that `name` means, as a launch would find it."""
    by_name = (info for info in infos if info.name == name)
    declared = (info for info in infos if name and info.declared_name == name)
    return next(by_name, None) or next(declared, None)


def _cells(info: EngineInfo) -> tuple[str, str, str]:
    if info.source == "built in":
        return info.name, info.source, f"{info.description}   ← default"

    said = info.problem or info.description
    parts = (_short(info), info.version, NOT_LOADED, said)
    return info.name, info.source, "   ".join(part for part in parts if part)


def _details(info: EngineInfo) -> list[tuple[str, str]]:
    state = "the default" if info.source == "built in" else NOT_LOADED
    manifest = info.manifest
    return [
        ("name", info.name),
        ("calls itself", info.declared_name if info.declared_name != info.name else ""),
        ("source", info.source),
        ("place", info.place),
        ("leads to", _link(info)),
        ("version", info.version),
        ("author", manifest.author),
        ("description", info.description),
        ("tools", ", ".join(manifest.provides_tools)),
        ("hooks", ", ".join(manifest.provides_hooks)),
        ("needs", ", ".join(manifest.requires_env)),
        ("problem", info.problem),
        ("warning", _warning(info)),
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
        "warning": _warning(info) or None,
        "default": info.source == "built in",
        "loaded": False,
    }


def _link(info: EngineInfo) -> str:
    return str(info.path.resolve()) if info.path is not None and info.path.is_symlink() else ""


def _warning(info: EngineInfo) -> str:
    from pod.context.plugin_folder import writable_by_others

    return (writable_by_others(info.path) or "") if info.path is not None else ""


def _short(info: EngineInfo) -> str:
    """Return the place with the user's own folder as `~`; a bundled one needs no telling."""
    if info.source == "bundled":
        return ""

    home = str(Path.home())
    return f"~{info.place[len(home) :]}" if info.place.startswith(f"{home}/") else info.place
