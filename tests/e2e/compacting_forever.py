"""A process that forks one child for each line it reads: a pod that compacts until it is killed.

    compacting_forever.py MANIFEST HOME

A child goes on where the pod's pointer is. It writes a line to stdout when a compaction begins.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path

from pod import Pod
from pod.protocol import CompactionStart
from session_store import FileSessionStore


def tell(text: str) -> None:
    os.write(1, f"{text}\n".encode())


async def compact_until_killed(manifest: Path, home: Path) -> None:
    resume = FileSessionStore(home).pointer("probe")
    environment = {"FAKE_KEY": "sk-test-0123456789abcdef", "NO_PROXY": "*"}
    async with Pod.launch(manifest, home=home, resume=resume, env=environment) as pod:
        pod.on(CompactionStart, lambda _: tell("compacting"))
        said = [int(n) for item in pod.history for n in re.findall(r"TURN-(\d+)", repr(item))]
        turn = max(said, default=0)
        while True:
            turn += 1
            await pod.run(f"TURN-{turn}")
            await pod.idle()


def main() -> None:
    manifest, home = map(Path, sys.argv[1:])
    for _ in sys.stdin:
        pid = os.fork()
        if pid == 0:
            asyncio.run(compact_until_killed(manifest, home))
            os._exit(1)

        tell(f"pid {pid}")
        os.waitpid(pid, 0)
        tell("gone")


main()
