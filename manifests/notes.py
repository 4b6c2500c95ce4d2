"""What a manifest leaves to the machine it runs on, and what of that is not there now."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from attrs import frozen

from ._positions import KeyPath
from ._render import dotted
from .loader import LoadedManifest
from .schema_provider import FallbackProvider, ProviderSection


@frozen(kw_only=True)
class Note:
    """Something that is no mistake in the manifest but would stop a launch here and now."""

    key: str
    """The dotted key it is about."""
    message: str
    """What is not there."""
    line: int | None = None
    """The line of the key, where the file has it."""


def launch_notes(loaded: LoadedManifest, env: Mapping[str, str]) -> tuple[Note, ...]:
    """Return what is missing on this machine: key variables that are not set, files not there.

    Looks only whether files exist; reads none and runs nothing.
    """
    notes = [note for path, p in _providers(loaded) for note in _key_notes(loaded, path, p, env)]
    files = (note for path, name in _files(loaded) for note in _file_notes(loaded, path, name))
    return (*notes, *files)


def _providers(loaded: LoadedManifest) -> Iterator[tuple[KeyPath, FallbackProvider]]:
    manifest = loaded.manifest
    yield from _with_fallbacks(("provider",), manifest.provider)
    if manifest.compaction is not None and manifest.compaction.provider is not None:
        yield from _with_fallbacks(("compaction", "provider"), manifest.compaction.provider)


def _with_fallbacks(
    path: KeyPath, provider: ProviderSection
) -> Iterator[tuple[KeyPath, FallbackProvider]]:
    yield path, provider
    for index, fallback in enumerate(provider.fallbacks):
        yield (*path, "fallbacks", index), fallback


def _key_notes(
    loaded: LoadedManifest, path: KeyPath, provider: FallbackProvider, env: Mapping[str, str]
) -> Iterator[Note]:
    variable = provider.api_key_env
    if variable is not None and not env.get(variable):
        yield _note(loaded, (*path, "api_key_env"), f"the variable {variable} is not set")

    if provider.lacks_key:
        message = "names no key: api_key_env, api_key_file or api_key_command"
        yield _note(loaded, path, message)


def _files(loaded: LoadedManifest) -> Iterator[tuple[KeyPath, str | None]]:
    """Yield every key that names a file to be read at launch."""
    yield ("worker", "system_prompt_file"), loaded.manifest.worker.system_prompt_file
    for index, name in enumerate(loaded.manifest.pod.instructions):
        yield ("pod", "instructions", index), name

    for path, provider in _providers(loaded):
        yield (*path, "api_key_file"), provider.api_key_file
        yield (*path, "script"), provider.script


def _file_notes(loaded: LoadedManifest, path: KeyPath, name: str | None) -> Iterator[Note]:
    # os.path.exists answers False where Path.exists would raise, such as for too long a name.
    if name is not None and not os.path.exists(loaded.resolve(name)):  # noqa: PTH110 - see above
        yield _note(loaded, path, f"there is no file {name}")


def _note(loaded: LoadedManifest, path: KeyPath, message: str) -> Note:
    return Note(key=dotted(path), message=message, line=loaded.line_of(*path))
