"""`pod doctor` without a manifest: the interpreter, the extras, the home and what is in it."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pod.home import Home
from pod.tui.text import counted

from .findings import Finding, failed

EXTRAS: dict[str, tuple[str, ...]] = {
    "local": ("xllamacpp",),
    "tui": ("textual",),
    "mcp": ("mcp",),
    "acp": ("acp",),
    "prices": ("genai_prices",),
    "web": ("starlette", "uvicorn"),
    "otel": ("opentelemetry",),
}
"""Each extra, and the modules that are there when it is installed."""

OLDEST_PYTHON = (3, 11)
LITTLE_ROOM_BYTES = 1_000_000_000
TOO_LITTLE_ROOM_BYTES = 20_000_000
_OPEN_TO_OTHERS = 0o077
# Locks and syncs of these are not what they are on a local disk.
_NETWORK = ("nfs", "cifs", "smb", "9p", "virtiofs", "fuse", "ceph", "gfs", "lustre", "afs")
_IN_MEMORY = ("tmpfs", "ramfs")


def check_machine(home: Home) -> Iterator[Finding]:
    """Yield what there is to say of this machine and this home. Changes nothing."""
    yield _python()
    yield _platform()
    yield _extras()
    yield _home(home.root)
    yield from _file_system(home.root)
    yield from _sessions(home)


def installed_extras() -> list[str]:
    """Return the extras that are installed."""
    return [name for name, modules in EXTRAS.items() if all(map(_is_there, modules))]


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # half installed is not installed
        return False


def _python() -> Finding:
    told = f"{platform.python_version()} at {sys.executable}"
    with suppress(PackageNotFoundError):  # running from a folder that nobody installed
        told = f"{told}, podworker {version('podworker')}"

    if tuple(map(int, platform.python_version_tuple()[:2])) < OLDEST_PYTHON:
        return Finding("fail", "python", told, "podworker needs Python 3.11 or newer")

    return Finding("ok", "python", told)


def _platform() -> Finding:
    told = f"{platform.system()} {platform.release()} {platform.machine()}"
    if platform.system() == "Linux":
        return Finding("ok", "platform", told)

    if platform.system() == "Darwin":
        return Finding("warn", "platform", told, "macOS is meant to work and is not tested")

    return Finding("fail", "platform", told, "sessions need POSIX locks and modes: use Linux")


def _extras() -> Finding:
    there = installed_extras()
    missing = [name for name in EXTRAS if name not in there]
    told = ", ".join(there) or "none"
    if missing:
        told += f"; not installed: {', '.join(missing)}"

    return Finding("ok", "extras", told)


def _home(root: Path) -> Finding:
    existing = _nearest_existing(root)
    if not os.access(existing, os.W_OK | os.X_OK):
        told = f"{root} cannot be written ({existing})"
        return Finding("fail", "home", told, "mend its permissions, or set POD_HOME")

    if existing != root:
        return Finding("ok", "home", f"{root}, made by the first run")

    status = root.stat()
    if not stat.S_ISDIR(status.st_mode):
        return Finding("fail", "home", f"{root} is no folder", "move it away, or set POD_HOME")

    mode = stat.S_IMODE(status.st_mode)
    if mode & _OPEN_TO_OTHERS:
        told = f"{root} is open to others (mode {mode:04o})"
        return Finding("warn", "home", told, f"chmod 700 {root}")

    return Finding("ok", "home", f"{root}, writable, mode {mode:04o}")


def _file_system(root: Path) -> Iterator[Finding]:
    kind = file_system_of(root)
    if kind is not None:
        yield _kind(kind)

    free = shutil.disk_usage(_nearest_existing(root)).free
    told = f"{free / 1e9:,.1f} GB free"
    if free < TOO_LITTLE_ROOM_BYTES:
        yield Finding("fail", "disk", f"{free / 1e6:,.1f} MB free", "free some space")
    elif free < LITTLE_ROOM_BYTES:
        yield Finding("warn", "disk", told, "sessions only grow; free some space")
    else:
        yield Finding("ok", "disk", told)


def _kind(kind: str) -> Finding:
    if kind.startswith(_NETWORK):
        advice = "locks and syncs may not hold there: set POD_HOME to a local disk"
        return Finding("warn", "file system", f"{kind}, on a network or shared", advice)

    if kind in _IN_MEMORY:
        advice = "sessions are gone after a restart: set POD_HOME to a disk"
        return Finding("warn", "file system", f"{kind}, in memory", advice)

    return Finding("ok", "file system", kind)


def file_system_of(path: Path, mounts: Path = Path("/proc/self/mounts")) -> str | None:
    """Return the kind of file system that `path` is or would be on, or None where it is unknown."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:  # not Linux
        return None

    real, best, kind = path.resolve(), -1, None
    for line in lines:
        fields = line.split(" ")
        if len(fields) < 3:
            continue

        # Spaces and the like are written as octal escapes there.
        point = fields[1].encode("latin-1", "replace").decode("unicode_escape", "replace")
        # What was mounted last is on top.
        if real.is_relative_to(point) and len(point) >= best:
            best, kind = len(point), fields[2]

    return kind


def _sessions(home: Home) -> Iterator[Finding]:
    from session_store import SessionIndex, SessionStoreError
    from session_store.index import sqlite_facts

    sqlite, has_trigrams = sqlite_facts()
    if has_trigrams:
        yield Finding("ok", "sqlite", sqlite)
    else:
        told = f"{sqlite} cannot index parts of words"
        yield Finding("warn", "sqlite", told, "searching reads every log; 3.34 or newer can")

    if not home.sessions.is_dir():
        yield Finding("ok", "sessions", "none yet")
        return

    notices: list[str] = []
    try:
        infos = SessionIndex(home.root, on_notice=notices.append).sessions()
    except SessionStoreError as error:
        yield failed("sessions", error)
        return

    damaged = [info.session_id for info in infos if info.damaged]
    yield Finding("ok", "sessions", f"{counted(len(infos), 'session')}, indexed")
    for notice in notices:
        yield Finding("warn", "index", notice.replace("\n", "; "))

    if damaged:
        told = f"{counted(len(damaged), 'session')} damaged: {', '.join(damaged[:3])}"
        yield Finding("warn", "sessions", told, "pod sessions verify --all")


def _nearest_existing(path: Path) -> Path:
    return next(folder for folder in (path, *path.parents) if folder.exists())
