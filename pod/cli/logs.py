"""`pod logs`: what a pod that was served in the background has printed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from .failures import debug_option, reported
from .listing import say

if TYPE_CHECKING:
    from pod.serve.places import Places

_LOOK_AGAIN_S = 0.2
_BLOCK_BYTES = 1 << 16


@click.command()
@click.argument("name", metavar="NAME")
@click.option("-f", "--follow", is_flag=True, help="Print what is added, until the pod ends.")
@click.option("-n", "--lines", type=click.IntRange(min=0), help="Only the last so many lines.")
@debug_option
def logs(name: str, *, follow: bool, lines: int | None) -> None:
    """Print what a served pod has printed.

    Those are its launches, runs, compactions and complaints; no conversations.
    """
    from pod.errors import PodError
    from pod.home import Home
    from pod.serve.places import Places

    with reported():
        places = Places.of(Home.from_env(os.environ), name)
        try:
            with places.log.open("rb", buffering=0) as file:
                _seek(file, lines)
                _print(file.read())
                if follow:
                    for data in _added(places, file):
                        _print(data)
        except FileNotFoundError:
            message = f"no log of a pod {name}"
            hint = "a pod has one once it was served in the background: pod serve MANIFEST"
            raise PodError(message, hint=hint) from None
        except (IsADirectoryError, NotADirectoryError, PermissionError) as error:
            message = f"cannot read {places.log}: {error.strerror}"
            raise PodError(
                message, hint="what is there is no log of ours; look, and move it"
            ) from None


def _print(data: bytes) -> None:
    if data:
        say(data.decode("utf-8", "replace").removesuffix("\n"))


def _seek(file: BinaryIO, lines: int | None) -> None:
    """Go to the beginning of the last `lines` lines, or stay at that of the file."""
    if lines is None:
        return

    at = file.seek(0, os.SEEK_END)
    tail = b""
    while at > 0 and tail.count(b"\n") <= lines:
        size = min(_BLOCK_BYTES, at)
        at = file.seek(at - size)
        tail = file.read(size) + tail
        file.seek(at)

    kept = tail.split(b"\n")[-lines - 1 :] if lines else [b""]
    file.seek(0, os.SEEK_END)
    file.seek(-len(b"\n".join(kept)), os.SEEK_END)


def _added(places: Places, file: BinaryIO) -> Iterator[bytes]:
    """Yield whole lines as they are added, until nobody serves the pod any more."""
    from pod.serve.claim import serving

    rest = b""
    is_served = True
    while is_served:
        # Asked first: what was written before the end is there then.
        is_served = serving(places) is not None
        whole, newline, rest = (rest + file.read()).rpartition(b"\n")
        yield whole + newline
        _follow_turn(places.log, file)
        if is_served:
            time.sleep(_LOOK_AGAIN_S)

    yield rest


def _follow_turn(path: Path, file: BinaryIO) -> None:
    """Go on with the file that is at the path now: a launch may have begun a new one."""
    with suppress(FileNotFoundError):  # about to be made
        if not os.path.samestat(path.stat(), os.fstat(file.fileno())):
            with path.open("rb", buffering=0) as new:
                os.dup2(new.fileno(), file.fileno(), inheritable=False)
