"""`pod manifest init --from-hermes`: a manifest made from a Hermes configuration."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click
from attrs import frozen

from .failures import WRONG_USE
from .listing import padded, say

if TYPE_CHECKING:
    from manifests import LoadedManifest
    from pod.context.from_hermes import Mistake
    from pod.context.from_hermes.document import Document

NOT_BUILT = "not built in this version"


@frozen
class FromHermes:
    """A manifest made from a Hermes configuration."""

    text: str
    unset: Mapping[str, str]
    """The variables that it names in addresses and that are not set, with values to go on with."""


def manifest_from_hermes(
    source: Path, *, name: str, kind: str | None, env: Mapping[str, str]
) -> FromHermes:
    """Return the manifest that the configuration in `source` comes to.

    `kind` is a provider to take instead of the configuration's. What is wrong with the file is
    printed, and ends the command.
    """
    from pod.context.from_hermes import HermesFileUnusable, Wanted, convert, read_config

    try:
        config = read_config(source)
    except HermesFileUnusable as error:
        say(error.message, err=True)
        if error.hint:
            say(f"  {error.hint}", err=True)
        raise click.exceptions.Exit(WRONG_USE) from None

    wanted = Wanted(name, source.name, _provider_of(kind, name) if kind else None)
    made = convert(config, wanted, env=env, window=_window_of)
    if made.mistakes:
        _say_mistakes(source, made.mistakes)
        raise click.exceptions.Exit(WRONG_USE)

    unset = _unset(made.document.text(), env)
    return FromHermes(_right(source, made.document, {**env, **unset}), unset)


def _unset(text: str, env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of addresses that are not set, each with what makes the address one."""
    found = re.finditer(r'^base_url = "(.*?)\$\{(\w+)\}', text, re.MULTILINE)
    return {
        match[2]: "localhost" if match[1] else "http://localhost"
        for match in found
        if not env.get(match[2])
    }


def _provider_of(kind: str, name: str) -> Mapping[str, object]:
    """Return the keys of a provider as a manifest to start from has them."""
    from manifests import starter_manifest

    section = _loaded(starter_manifest(kind, name), {}).manifest.provider
    return section.model_dump(exclude_defaults=True)


def _window_of(section: Mapping[str, object]) -> int | None:
    """Return the window of a model, where its section or the table of models says it."""
    from pydantic import ValidationError

    from manifests import FallbackProvider
    from pod.model_table import ModelCard

    try:
        return ModelCard.of(FallbackProvider.model_validate(dict(section))).context_window
    except ValidationError:
        return None  # The manifest is checked as a whole, and says what is wrong.


def _right(source: Path, document: Document, env: Mapping[str, str]) -> str:
    """Return the text of a document that is a right manifest, what is not built commented out."""
    from manifests import ManifestError
    from pod.unbuilt import unbuilt_keys

    text = document.text()
    try:
        unbuilt = unbuilt_keys(_loaded(text, env).manifest)
        if unbuilt:
            text = document.without(unbuilt, NOT_BUILT).text()
            _loaded(text, env)
    except ManifestError as error:
        say(f"{source} comes to a manifest that is not right:", err=True)
        for mistake in error.mistakes:
            say(f"  {mistake.key}: {mistake.message}", err=True)
        raise click.exceptions.Exit(WRONG_USE) from None

    return text


def _loaded(text: str, env: Mapping[str, str]) -> LoadedManifest:
    from manifests import load_manifest

    with tempfile.TemporaryDirectory(prefix="pod-manifest-") as folder:
        path = Path(folder) / "pod.toml"
        path.write_text(text, encoding="utf-8")
        return load_manifest(path, env=env)


def _say_mistakes(source: Path, mistakes: tuple[Mistake, ...]) -> None:
    what = "a mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
    say(f"{source} has {what}", err=True)
    column = max(len(mistake.key) for mistake in mistakes)
    for mistake in mistakes:
        line = "" if mistake.line is None else f"line {mistake.line}"
        say(f"  {line:<9}{padded(mistake.key, column)}   {mistake.message}", err=True)
