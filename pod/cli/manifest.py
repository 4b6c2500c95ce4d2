"""`pod manifest`: check manifests, print their JSON Schema, write one to start from."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from manifests import LoadedManifest, ManifestError, Note

WRONG_MANIFEST = 2


@click.group()
def manifest() -> None:
    """Check manifests, print their schema, write one to start from."""


@manifest.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--json", "as_json", is_flag=True, help="Print a list with one object a file.")
@click.pass_context
def check(context: click.Context, files: tuple[str, ...], as_json: bool) -> None:
    """Name every mistake in each FILE; exit 2 when there is one.

    What a manifest needs from this machine and does not find here, such as the variable of a key,
    is told as a note; so is what it asks for and this version cannot do.
    """
    from manifests import ManifestError, launch_notes, load_manifest

    results: list[dict[str, object]] = []
    for name in files:
        try:
            loaded = load_manifest(name, env=os.environ)
        except ManifestError as error:
            results.append(_refused(name, error))
            if not as_json:
                click.echo(str(error), err=True)
        else:
            notes = (*launch_notes(loaded, os.environ), *_unbuilt(loaded), *_engine(loaded))
            results.append(_accepted(name, loaded, notes))
            if not as_json:
                _say_fine(name, loaded, notes)

    if as_json:
        click.echo(json.dumps(results, ensure_ascii=False))

    if not all(result["ok"] for result in results):
        context.exit(WRONG_MANIFEST)


@manifest.command()
def schema() -> None:
    """Print the JSON Schema, for editors and programs."""
    from manifests import manifest_json_schema

    click.echo(json.dumps(manifest_json_schema(), indent=2, ensure_ascii=False))


@manifest.command()
@click.argument("path", default="pod.toml", type=click.Path(path_type=Path))
@click.option(
    "--from-hermes",
    "hermes",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Carry over a Hermes configuration (config.yaml).",
)
@click.option(
    "--provider",
    "kind",
    metavar="KIND",
    help="The kind of provider, such as anthropic, openai, gemini, ollama [local].",
)
@click.option("--name", help="The pod's name; default: that of the file.")
@click.option("--force", is_flag=True, help="Overwrite a file that is there.")
def init(
    path: Path, hermes: Path | None, kind: str | None, name: str | None, *, force: bool
) -> None:
    """Write a manifest to start from to PATH [pod.toml].

    What it needs and does not find here, such as the variable of a key, is told as a note. Of a
    Hermes configuration no secret is copied, and what has no counterpart is named in the file.
    """
    from manifests import PROVIDER_KINDS, launch_notes, load_manifest

    if kind is not None and kind not in PROVIDER_KINDS:
        raise click.BadParameter(
            f"{kind!r} is not a provider ({', '.join(PROVIDER_KINDS)})", param_hint="--provider"
        )

    text, unset = _text_of(path, hermes, kind, name)
    _write(path, text, force=force)
    loaded = load_manifest(path, env={**os.environ, **unset})
    click.echo(f"wrote {path}")
    _say_notes((*launch_notes(loaded, os.environ), *_unbuilt(loaded), *_engine(loaded)))
    for variable in unset:
        click.echo(f"  note: base_url: the variable {variable} is not set")

    click.echo(f'  try it: pod run {path} "Who are you?"')


def _text_of(
    path: Path, hermes: Path | None, kind: str | None, name: str | None
) -> tuple[str, Mapping[str, str]]:
    """Return a manifest, and the variables of its addresses that are not set."""
    from manifests import starter_manifest, suggested_pod_name

    pod = name or suggested_pod_name(path.stem)
    try:
        text = starter_manifest(kind or "local", pod)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--name") from None

    if hermes is None:
        return text, {}

    from .hermes_init import manifest_from_hermes

    made = manifest_from_hermes(hermes, name=pod, kind=kind, env=os.environ)
    return made.text, made.unset


def _unbuilt(loaded: LoadedManifest) -> Iterator[Note]:
    """Yield a note for whatever a launch would refuse because this version cannot do it."""
    from manifests import Note
    from pod.unbuilt import unbuilt_keys

    for named in unbuilt_keys(loaded.manifest):
        key, _, value = named.partition(" = ")
        yield Note(key=key, message=f"{value} is not built in this version".lstrip())


def _engine(loaded: LoadedManifest) -> Iterator[Note]:
    """Yield a note for an engine that is not here, and for options that nobody is there to take.

    Nothing of a plugin is run for that.
    """
    from manifests import Note
    from pod.context.discovery import BUILT_IN, find_engine
    from pod.home import Home

    section = loaded.manifest.context
    if section.engine == BUILT_IN:
        if section.options:
            message = "the built-in compressor takes none; its settings are those of [compaction]"
            line = loaded.line_of("context", "options")
            yield Note(key="context.options", message=message, line=line)
    elif find_engine(section.engine, Home.from_env(os.environ).plugins) is None:
        message = f"there is no engine {section.engine!r} here; the built-in would take its place"
        line = loaded.line_of("context", "engine")
        yield Note(key="context.engine", message=message, line=line)


def _write(path: Path, text: str, *, force: bool) -> None:
    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise click.UsageError(f"{path} is there already; --force overwrites it") from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise click.UsageError(f"cannot write {path}: {reason}") from None


def _say_fine(name: str, loaded: LoadedManifest, notes: tuple[Note, ...]) -> None:
    shown = click.format_filename(name)
    pod, provider = loaded.manifest.pod, loaded.manifest.provider
    click.echo(f"{shown}: fine (pod {pod.name}, {provider.label})")
    _say_notes(notes)


def _say_notes(notes: tuple[Note, ...]) -> None:
    for note in notes:
        line = "" if note.line is None else f"line {note.line}  "
        click.echo(f"  note: {line}{note.key}: {note.message}")


def _accepted(name: str, loaded: LoadedManifest, notes: tuple[Note, ...]) -> dict[str, object]:
    return {
        "file": name,
        "ok": True,
        "pod": loaded.manifest.pod.name,
        "provider": loaded.manifest.provider.kind,
        "model": loaded.manifest.provider.model,
        "mistakes": [],
        "notes": [{"line": n.line, "key": n.key, "message": n.message} for n in notes],
    }


def _refused(name: str, error: ManifestError) -> dict[str, object]:
    from manifests import ManifestUnreadable

    return {
        "file": name,
        "ok": False,
        "error": error.reason if isinstance(error, ManifestUnreadable) else None,
        "mistakes": [
            {
                "line": m.line,
                "column": m.column,
                "key": m.key,
                "found": m.found,
                "message": m.message,
                "allowed": list(m.allowed),
                "suggestion": m.suggestion,
            }
            for m in error.mistakes
        ],
        "notes": [],
    }
