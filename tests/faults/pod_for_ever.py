"""A process that forks one child for each line it reads: a pod that runs until it is killed.

    pod_for_ever.py MANIFEST

The line is the home. A child goes on where the pod's pointer is there. It writes a line to stdout
whenever the model begins to ask for a call.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from manifests import load_manifest
from pod import Pod
from pod.home import Home
from pod.launching.preparing import prepare
from pod.protocol import ToolCallStart
from session_store import FileSessionStore

ENVIRONMENT = {"FAKE_KEY": "sk-test-0123456789abcdef", "NO_PROXY": "*"}


def tell(text: str) -> None:
    os.write(1, f"{text}\n".encode())


async def run_until_killed(manifest: Path, home: Path) -> None:
    resume = FileSessionStore(home).pointer("probe")
    async with Pod.launch(manifest, home=home, resume=resume, env=ENVIRONMENT) as pod:
        pod.on(ToolCallStart, lambda _: tell("calling"))
        parent = os.getppid()
        while os.getppid() == parent:  # else nobody is there who would kill it
            await pod.run("do the next thing")
            await pod.idle()


def main() -> None:
    manifest = Path(sys.argv[1])
    # Whatever loads late is loaded once, here, and not in every child.
    prepare(load_manifest(manifest, env=ENVIRONMENT), Home(manifest.parent), ENVIRONMENT)
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            asyncio.run(run_until_killed(manifest, Path(line.strip())))
            os._exit(1)

        tell(f"pid {pid}")
        os.waitpid(pid, 0)
        tell("gone")


main()
