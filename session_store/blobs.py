"""Blobs: payloads too large for a line, each in a file that is named by the hash of its bytes.

In an entry a text of more than 1 MiB in an item is replaced by `{"blob": <sha256>, "bytes": n}`;
image data, which is base64 in an item, is stored as the image's own bytes and marked as such. The
blob is durable before the entry that names it is written. Reading puts the payload back.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from worker.text import clean_text, utf8_len

from .atomic import read_file, write_file
from .disk import Disk
from .errors import UnsafePath
from .layout import Layout

INLINE_BYTES = 1 << 20
"""What is larger goes into a blob."""

LOGS_NOTE = ".logs-"
"""How the names of notes begin that say where else there are logs."""

BLOB_MARK = b'"blob":'
"""What every line has that names a blob, and few that do not."""

_DEEPEST = 32
"""How deep an item is looked into; none of ours is half as deep."""

_NAME = re.compile(r"[0-9a-f]{64}", re.ASCII)


class BlobUnusable(Exception):
    """A blob that an entry names is not there, or not as it was. The text ends a sentence."""


class Blobs:
    """The blobs of a store. Equal payloads share one file."""

    def __init__(self, disk: Disk, folder: Path, logs: Path | None = None) -> None:
        """Use the blobs in `folder`; `logs` is where the logs are, if not in the usual place."""
        self._disk = disk
        self._folder = folder
        self._logs = logs

    def put(self, data: bytes) -> str:
        """Store `data` durably and return its name. Raises `OSError`."""
        name = sha256(data).hexdigest()
        self._disk.make_folder(self._folder)
        self._note_logs()
        if not self._holds(name, data):
            write_file(self._disk, self._folder / name, data)

        return name

    def get(self, name: str) -> bytes:
        """Return the bytes of that name.

        Raises:
            BlobUnusable: There are none, or they are not those that were stored.
        """
        if not _NAME.fullmatch(name):
            raise BlobUnusable("names a blob that is none")

        try:
            self._disk.check_folder(self._folder)
            data = read_file(self._disk, self._folder / name)
        except FileNotFoundError as error:
            raise BlobUnusable(f"has lost its blob {name}") from error
        except UnsafePath as error:
            raise BlobUnusable(f"has a blob {name} that is {error.why}") from error

        if sha256(data).hexdigest() != name:
            raise BlobUnusable(f"has a blob {name} that does not match its hash")

        return data

    def _note_logs(self) -> None:
        """Leave word where else there are logs that name blobs, for whoever removes blobs."""
        if self._logs is not None:
            path = os.fsencode(self._logs)
            note = self._folder / f"{LOGS_NOTE}{sha256(path).hexdigest()[:16]}"
            if not note.exists():
                write_file(self._disk, note, path)

    def _holds(self, name: str, data: bytes) -> bool:
        try:
            # Before it is looked at: from now on nobody takes it for one that is not in use.
            self._disk.touch(self._folder / name)
            return self.get(name) == data
        except (FileNotFoundError, BlobUnusable):  # a damaged one is mended by writing it again
            return False


def blobs_of(disk: Disk, layout: Layout) -> Blobs:
    """Return the blobs of the store that has this layout."""
    elsewhere = layout.sessions != layout.home / "sessions"
    return Blobs(disk, layout.blobs, layout.sessions if elsewhere else None)


def names_blobs(raw: bytes) -> bool:
    """Tell whether the line may name a blob. A line that does never gets a no."""
    return raw.rfind(BLOB_MARK) >= 0  # which takes half as long as `in`, and every line is asked


def with_blobs_put_away(fields: dict[str, Any], put: Callable[[bytes], str]) -> dict[str, Any]:
    """Return `fields` with each large payload of an item stored by `put` and named in its place."""
    return _with_items(fields, lambda value: _put_away(value, put))


def with_blobs_put_back(fields: dict[str, Any], get: Callable[[str], bytes]) -> dict[str, Any]:
    """Return `fields` with each payload in its place. Raises what `get` raises."""
    return _with_items(fields, lambda value: _put_back(value, get))


def blob_names(fields: dict[str, Any]) -> list[str]:
    """Return the names of the blobs that an entry's items are made of."""
    names: list[str] = []

    def note(name: str) -> bytes:
        names.append(name)
        return b""

    with_blobs_put_back(fields, note)
    return names


def _with_items(fields: dict[str, Any], change: Callable[[object], object]) -> dict[str, Any]:
    keys = [key for key in ("items", "history", "item") if fields.get(key)]
    return {**fields, **{key: change(fields[key]) for key in keys}}


def _put_away(value: object, put: Callable[[bytes], str]) -> object:
    if isinstance(value, list):
        return [_put_away(member, put) for member in value]

    if isinstance(value, dict):
        is_image = value.get("type") == "image"
        return {
            key: _image_put_away(member, put)
            if is_image and key == "data" and isinstance(member, str)
            else _put_away(member, put)
            for key, member in value.items()
        }

    if isinstance(value, str) and utf8_len(value) > INLINE_BYTES:
        data = clean_text(value).encode()
        return {"blob": put(data), "bytes": len(data)}

    return value


def _image_put_away(text: str, put: Callable[[bytes], str]) -> object:
    if len(text) <= INLINE_BYTES:
        return text

    data = base64.b64decode(text)
    return {"blob": put(data), "bytes": len(data), "base64": True}


def _put_back(value: object, get: Callable[[str], bytes], depth: int = 0) -> object:
    # A log may come from anywhere, and nest further than calls can.
    if depth > _DEEPEST:
        return value

    if isinstance(value, list):
        return [_put_back(member, get, depth + 1) for member in value]

    if not isinstance(value, dict):
        return value

    name = value.get("blob")
    if isinstance(name, str) and "type" not in value and "bytes" in value:
        return _as_text(name, get(name), is_base64=bool(value.get("base64")))

    return {key: _put_back(member, get, depth + 1) for key, member in value.items()}


def _as_text(name: str, data: bytes, *, is_base64: bool) -> str:
    try:
        return base64.b64encode(data).decode() if is_base64 else data.decode()
    except UnicodeDecodeError as error:
        raise BlobUnusable(f"has a blob {name} that is no text") from error
