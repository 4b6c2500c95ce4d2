"""A pod that goes on by itself: started in a session of its own, its messages in a log."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from pod.serve.claim import AlreadyServed, serving
from pod.serve.places import Places, ensure_run_folder, usable

from .failures import FAILED, is_debugging
from .listing import say

if TYPE_CHECKING:
    from pod.home import Home

    from .options import RunOptions

LOG_BYTES = 4 << 20
"""How large a log may be before a new one is begun, at a launch; one old one is kept."""
_PROGRAM = "import sys; sys.argv[0] = 'pod'; from pod.cli import main; main()"
_READ_BYTES = 1 << 16


def detach(options: RunOptions, name: str, home: Home) -> int:
    """Start the pod in a process of its own, wait until it is served, and return the exit code.

    Raises:
        AlreadyServed: A pod of that name is served.
        PodError: The folder of the sockets cannot be used.
        OSError: What the system said.
    """
    ensure_run_folder(home)
    places = Places.of(home, name)
    found = serving(places)
    if found is not None:
        raise AlreadyServed(name, found)

    with usable(places.folder):
        log, before = _open_log(places.log)

    reading, writing = os.pipe()
    try:
        pid = _spawn(_arguments(options, writing), writing, log)
    finally:
        os.close(log)
        os.close(writing)

    said = _waited_for(pid, reading)
    if said:
        _tell(name, said)
        return 0

    _, status = os.waitpid(pid, 0)
    found = serving(places)
    if found is not None:  # another one was quicker; the log they share has more than is of use
        raise AlreadyServed(name, found)

    _show(places.log, before, options.manifest)
    code = os.waitstatus_to_exitcode(status)
    return code if code > 0 else FAILED


def _arguments(options: RunOptions, ready_fd: int) -> list[str]:
    given = ["serve", options.manifest, "--foreground", "--ready-fd", str(ready_fd)]
    if options.resume is not None:
        given += ["--resume", options.resume]

    if options.fork is not None:
        given += ["--fork", options.fork]

    if options.go_on:
        given.append("--continue")

    if options.model is not None:
        given += ["--model", options.model]

    for assignment in options.sets:
        given += ["--set", assignment]

    if is_debugging():
        given.append("--debug")

    return given


def _spawn(arguments: list[str], ready_fd: int, log: int) -> int:
    os.set_inheritable(ready_fd, True)  # noqa: FBT003  the system's own name for it
    # -P: as the installed command, and unlike -c by itself, it finds nothing in this folder.
    command = [sys.executable, "-P", "-c", _PROGRAM, *arguments]
    actions: list[Any] = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, log, 1),
        (os.POSIX_SPAWN_DUP2, log, 2),
    ]
    return os.posix_spawn(sys.executable, command, os.environ, file_actions=actions, setsid=True)


def _open_log(path: Path) -> tuple[int, int]:
    """Return the log, open for appending, and how long it is."""
    with suppress(FileNotFoundError):  # the first launch
        if path.stat().st_size > LOG_BYTES:
            path.replace(path.with_name(path.name + ".old"))

    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    return number, os.fstat(number).st_size


def _waited_for(pid: int, reading: int) -> bytes:
    """Return what the pod says when it is served; nothing where it has ended."""
    try:
        return _read_all(reading)
    except KeyboardInterrupt:
        # Whoever gives up waiting does not want it any more. It is not ended by the terminal.
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)

        raise


def _read_all(number: int) -> bytes:
    """Return what comes until the other end is closed, at the latest by the end of its process."""
    data = b""
    try:
        while piece := os.read(number, _READ_BYTES):
            data += piece
    finally:
        os.close(number)

    return data


def _tell(name: str, said: bytes) -> None:
    ready = orjson.loads(said)
    say(f"{name} is served: pid {ready['pid']}, session {ready['session_id']}")
    say(f"  watch it: pod attach {name}      end it: pod stop {name}", err=True)


def _show(log: Path, before: int, manifest: str) -> None:
    """Print what the pod said before it gave up."""
    with log.open("rb") as file:
        file.seek(before)
        said = file.read().decode("utf-8", "replace").rstrip("\n")

    silent = f"the pod ended without a word\n  see: pod serve {manifest} --foreground"
    say(said or silent, err=True)
