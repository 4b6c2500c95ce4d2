"""From a file to a manifest: every mistake in it at once, or a value that is right throughout."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import tomli
from attrs import field, frozen
from pydantic import ValidationError

from ._expansion import Expansion
from ._mistakes import Source, mistakes_of
from ._overrides import OverrideRefused, apply_override
from ._positions import KeyPath, key_lines
from .errors import ManifestError, ManifestUnreadable, Mistake
from .schema import PodManifest

LARGEST_FILE = 1 << 20
BYTE_ORDER_MARK = "\ufeff"


@frozen(kw_only=True)
class LoadedManifest:
    """A manifest together with the place that its relative paths start from."""

    path: Path
    """The file as the caller named it."""
    manifest: PodManifest
    """What it says, `${NAME}` expanded where the design allows it."""
    base_dir: Path
    """The absolute folder of the file."""
    user_home: Path | None = None
    """What `~` stands for; None: what the operating system says."""
    secret_values: frozenset[str] = field(default=frozenset(), repr=False)
    """What `${NAME}` brought into `env` tables: to be masked wherever text is kept."""
    _source: Source = field(factory=lambda: Source({}), repr=False, eq=False)

    def resolve(self, path: str) -> Path:
        """Return `path` made absolute: `~` is the user's home, the rest starts at the manifest."""
        if path == "~" or path.startswith("~/"):
            return (self.user_home or Path.home()) / path[2:]

        return self.base_dir / path

    def line_of(self, *path: str | int) -> int | None:
        """Return the line of a key, given as its parts; None for a default or a `--set`."""
        return None if self._source.is_overridden(path) else self._source.lines.get(path)


def load_manifest(
    path: Path | str,
    *,
    overrides: Iterable[str] = (),
    env: Mapping[str, str],
) -> LoadedManifest:
    """Return the manifest in `path` with `overrides` ("KEY=VALUE") applied.

    `env` is what `${NAME}` and `~` are expanded from. No file besides `path` is read and no key is
    looked up. Raises ManifestUnreadable when there is no text to look at, else ManifestError with
    every mistake there is.
    """
    path = Path(path)
    text = _read(path)
    document, lines = _parse(path, text)
    refused: list[Mistake] = []
    written: list[KeyPath] = []
    for override in overrides:
        try:
            written.append(apply_override(document, override))
        except OverrideRefused as refusal:
            refused.append(refusal.mistake)

    source = Source(lines, tuple(written))
    expansion = Expansion(env)
    manifest, mistakes = _validate(document, expansion, source)
    if manifest is None or refused:
        raise ManifestError(path, (*mistakes, *refused))

    return LoadedManifest(
        path=path,
        manifest=manifest,
        base_dir=path.absolute().parent,
        user_home=Path(env["HOME"]) if env.get("HOME") else None,
        secret_values=frozenset(expansion.secrets - {""}),
        source=source,
    )


def _validate(
    document: dict[str, object], expansion: Expansion, source: Source
) -> tuple[PodManifest | None, tuple[Mistake, ...]]:
    try:
        return PodManifest.model_validate(document, context=expansion), ()
    except ValidationError as error:
        return None, mistakes_of(error.errors(include_url=False), source)


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
    except FileNotFoundError:
        hint = "`pod manifest init` writes one to start from"
        raise ManifestUnreadable(path, "there is no such file", hint) from None
    except IsADirectoryError:
        hint = "name the manifest inside it, a .toml file"
        raise ManifestUnreadable(path, "it is a folder", hint) from None
    except ValueError:
        # A NUL in the name never reaches the operating system.
        raise ManifestUnreadable(path, "that is no file name", "check the command line") from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ManifestUnreadable(path, reason, "check the path and its permissions") from error

    if len(data) > LARGEST_FILE:
        raise ManifestUnreadable(path, "it is larger than 1 MiB", "is this a manifest?")

    try:
        return data.decode("utf-8").removeprefix(BYTE_ORDER_MARK)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        reason = f"it is not UTF-8 (line {line})"
        raise ManifestUnreadable(path, reason, "save it as UTF-8") from None


def _parse(path: Path, text: str) -> tuple[dict[str, object], dict[KeyPath, int]]:
    try:
        return tomli.loads(text), key_lines(text)
    except tomli.TOMLDecodeError as error:
        mistake = Mistake(
            key="", message=f"not TOML: {error.msg}", line=error.lineno, column=error.colno
        )
    except RecursionError:
        mistake = Mistake(key="", message="is nested too deeply")
    except ValueError:
        # The interpreter refuses to read integers of more than a few thousand digits.
        mistake = Mistake(key="", message="has a number that is too long to read")

    raise ManifestError(path, (mistake,)) from None
