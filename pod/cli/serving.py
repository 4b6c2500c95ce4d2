"""A process that serves a pod, from its launch to its end: the name, the signals, the exit code."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from attrs import define, field

from pod.launching.preparing import open_store
from pod.pod import Pod
from pod.serve.claim import Serving, claim
from pod.serve.ledger import Ledger
from pod.serve.places import Places, ensure_run_folder, usable
from pod.serve.server import PodServer
from pod.serve.stdio import Stdio

from .chronicle import Chronicle
from .complaints import complaints_on_stderr
from .failures import launching
from .interrupts import Interrupts
from .options import chosen_session
from .outlet import claimed_stdout

if TYPE_CHECKING:
    from manifests import LoadedManifest
    from pod.home import Home

    from .options import RunOptions

_MANY_DESCRIPTORS = 65_536


def serve_on_socket(
    options: RunOptions,
    loaded: LoadedManifest,
    home: Home,
    env: Mapping[str, str],
    *,
    ready_fd: int | None = None,
) -> int:
    """Serve the pod on its socket until it is stopped; return the exit code.

    `ready_fd`, once the socket takes clients, is told so and closed.

    Raises:
        AlreadyServed: A pod of that name is served.
        PodError, SessionStoreError, OSError: What launching raises.
    """
    ensure_run_folder(home)
    places = Places.of(home, loaded.manifest.pod.name)
    with usable(places.folder):
        held = claim(places)

    manifest = str(Path(loaded.path).absolute())
    serving = Serving(
        name=places.name,
        pid=os.getpid(),
        since_ms=time.time_ns() // 1_000_000,
        manifest=manifest,
        socket=str(places.socket),
    )
    held.publish(serving)
    try:
        pod = Pod(loaded, home=home, env=env, resume=chosen_session(options, loaded, home))
        _allow_many_clients()
        with complaints_on_stderr():
            server = PodServer(
                pod=pod,
                store=lambda: open_store(loaded, home),
                manifest=manifest,
                ledger_of=lambda launch: Ledger(places.ledger, launch),
            )
            return asyncio.run(_on_socket(server, places, _ready(ready_fd)))
    finally:
        held.release()


async def _on_socket(server: PodServer, places: Places, ready: Callable[[str], None]) -> int:
    pod = server.pod
    chronicle = Chronicle(pod.name)
    pod.listen(chronicle)
    life = _Life(server)
    with Interrupts(life.stop) as interrupts:
        if not await life.launch(server.manifest):
            return interrupts.exit_code or 1

        with usable(places.folder):
            server.listen(places)

        chronicle.say(f"serving {pod.name}: pid {os.getpid()}, session {pod.session_id}")
        ready(pod.session_id)
        await server.ended()

    chronicle.say(f"{pod.name} has ended")
    return 0


def serve_on_stdio(
    options: RunOptions, loaded: LoadedManifest, home: Home, env: Mapping[str, str]
) -> int:
    """Serve the pod to whoever started this process, until stdin ends; return the exit code.

    Raises what launching raises.
    """
    pod = Pod(loaded, home=home, env=env, resume=chosen_session(options, loaded, home))
    with complaints_on_stderr(), claimed_stdout() as outlet:
        server = PodServer(
            pod=pod,
            store=lambda: open_store(loaded, home),
            manifest=str(Path(loaded.path).absolute()),
        )
        return asyncio.run(_on_stdio(server, outlet.stream.fileno()))


async def _on_stdio(server: PodServer, stdout: int) -> int:
    life = _Life(server)
    with Interrupts(life.stop) as interrupts:
        if not await life.launch(server.manifest):
            return interrupts.exit_code or 1

        stdio = Stdio(server, sys.stdin.fileno(), stdout)
        stdio.start()
        await server.ended()
        await stdio.finish()

    return 0


@define
class _Life:
    """A server that can be stopped also while its pod is being launched."""

    server: PodServer
    _starting: asyncio.Task[Any] | None = field(default=None, init=False)

    async def launch(self, manifest: str) -> bool:
        """Launch the pod; tell whether it is, and was not stopped. Raises what launching raises."""
        self._starting = asyncio.current_task()
        try:
            with launching(manifest):
                await self.server.start()
        except asyncio.CancelledError:
            if self._starting is not None:
                raise

            return False

        self._starting = None
        return True

    def stop(self) -> None:
        """Give up the launch, or shut the pod down."""
        starting, self._starting = self._starting, None
        if starting is not None:
            starting.cancel()
        elif self.server.is_started:
            self.server.shutdown()


def _ready(number: int | None) -> Callable[[str], None]:
    def say_so(session_id: str) -> None:
        if number is None:
            return

        line = orjson.dumps({"pid": os.getpid(), "session_id": session_id}) + b"\n"
        with suppress(OSError):  # whoever waited for it has gone; the pod is served all the same
            os.write(number, line)

        os.close(number)

    return say_so


def _allow_many_clients() -> None:
    """Let the process have as many files open as it may: each client is one."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MANY_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MANY_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < most:
        with suppress(OSError, ValueError):  # then fewer clients have to do
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
