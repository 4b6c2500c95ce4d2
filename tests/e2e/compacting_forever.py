"""A process that forks one child for each line it reads: a pod that compacts until it is killed.

    compacting_forever.py MANIFEST HOME

A child goes on where the pod's pointer is. It writes a line to stdout when a compaction begins.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import time
from pathlib import Path

from manifests import load_manifest
from pod import Pod
from pod.home import Home
from pod.launching.preparing import prepare
from pod.protocol import CompactionStart
from session_store import FileSessionStore


def tell(text: str) -> None:
    os.write(1, f"{text}\n".encode())


ENVIRONMENT = {"FAKE_KEY": "sk-test-0123456789abcdef", "NO_PROXY": "*"}


async def compact_until_killed(manifest: Path, home: Path) -> None:
    resume = FileSessionStore(home).pointer("probe")
    async with Pod.launch(manifest, home=home, resume=resume, env=ENVIRONMENT) as pod:
        pod.on(CompactionStart, lambda _: tell("compacting"))
        said = [int(n) for item in pod.history for n in re.findall(r"TURN-(\d+)", repr(item))]
        turn = max(said, default=0)
        while True:
            turn += 1
            await pod.run(f"TURN-{turn}")
            await pod.idle()


def main() -> None:
    manifest, home = map(Path, sys.argv[1:])
    # Whatever loads late is loaded once, here, and not in every child.
    prepare(load_manifest(manifest, env=ENVIRONMENT), Home(home), ENVIRONMENT)
    parent = os.getppid()
    for _ in sys.stdin:
        pid = os.fork()
        if pid == 0:
            asyncio.run(compact_until_killed(manifest, home))
            os._exit(1)

        tell(f"pid {pid}")
        while os.waitpid(pid, os.WNOHANG) == (0, 0):
            if os.getppid() != parent:  # nobody is there any more who would kill it
                os.kill(pid, signal.SIGKILL)

            time.sleep(0.002)

        tell("gone")


main()
