"""`plugin.yaml`: what a plugin says of itself, read without running any of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

from .words import one_line

MANIFEST = "plugin.yaml"
_MAX_BYTES = 65_536


@frozen
class PluginManifest:
    """A plugin in its own words. Every field may be empty."""

    name: str = ""
    version: str = ""
    description: str = ""
    author: str = ""
    kind: str = "standalone"
    requires_env: tuple[str, ...] = ()
    provides_tools: tuple[str, ...] = ()
    provides_hooks: tuple[str, ...] = ()
    path: Path | None = None
    """Its folder; None for one that comes with a distribution."""
    source: str = ""
    key: str = ""
    """What a manifest of a pod names it by."""


class BadManifest(Exception):
    """The `plugin.yaml` cannot be used; the text says why."""


def read_manifest(folder: Path, source: str) -> PluginManifest:
    """Return what the `plugin.yaml` of a plugin's folder says.

    Raises:
        BadManifest: There is none, it cannot be read, or it is no mapping.
    """
    fields = _read(folder / MANIFEST)
    return PluginManifest(
        name=one_line(fields.get("name")),
        version=one_line(fields.get("version")),
        description=one_line(fields.get("description")),
        author=one_line(fields.get("author")),
        kind=one_line(fields.get("kind")) or "standalone",
        requires_env=_names(fields.get("requires_env")),
        provides_tools=_names(fields.get("provides_tools")),
        provides_hooks=_names(fields.get("provides_hooks", fields.get("hooks"))),
        path=folder,
        source=source,
        key=folder.name,
    )


def _names(value: object) -> tuple[str, ...]:
    # An entry may be a mapping that has the name beside more, such as what to ask a person for.
    listed = value if isinstance(value, list) else []
    named = [entry.get("name") if isinstance(entry, Mapping) else entry for entry in listed]
    return tuple(name for name in map(one_line, named) if name)


def _read(path: Path) -> dict[str, Any]:
    import yaml

    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        raise BadManifest("missing") from None
    except OSError as error:
        raise BadManifest(error.strerror or str(error)) from error

    if len(data) > _MAX_BYTES:
        raise BadManifest(f"over {_MAX_BYTES:,} bytes")

    try:
        fields = yaml.safe_load(data)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f"line {mark.line + 1}: " if mark else ""
        raise BadManifest(f"{line}{error.problem or 'not YAML'}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadManifest(f"not YAML ({type(error).__name__})") from error

    if not isinstance(fields, dict):
        raise BadManifest("not a mapping of names to values")

    return fields
