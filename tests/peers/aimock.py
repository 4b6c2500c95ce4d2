"""aimock, a server that others wrote and that speaks every provider's API, as a process of ours."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from attrs import frozen

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build/peers/node_modules/@copilotkit/aimock/dist/cli.js"
_START_S = 15.0


def missing() -> str:
    """Why there is no peer to ask, or nothing."""
    if shutil.which("node") is None:
        return "NO PEER SERVER: node is not installed"

    return "" if PROGRAM.exists() else "NO PEER SERVER: run scripts/peers, which sets it up"


needs_aimock = pytest.mark.skipif(bool(missing()), reason=missing())


@frozen
class Peer:
    """A running server."""

    url: str

    def journal(self) -> list[dict[str, Any]]:
        """Every request that it was sent, oldest first."""
        found = httpx.get(f"{self.url}/__aimock/journal", timeout=10).json()
        assert isinstance(found, list)
        return found


@contextmanager
def aimock(folder: Path, fixtures: Sequence[Mapping[str, Any]], *options: str) -> Iterator[Peer]:
    """Serve `fixtures` on a free port of loopback until the block ends."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "fixtures.json").write_text(json.dumps({"fixtures": list(fixtures)}))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    log = folder / "aimock.log"
    command = ["node", str(PROGRAM), "-p", str(port), "-f", str(folder), "--validate-on-load"]
    with (
        log.open("w") as told,
        subprocess.Popen([*command, *options], stdout=told, stderr=told) as process,
    ):
        try:
            _wait_for(port, process, log)
            yield Peer(f"http://127.0.0.1:{port}")
        finally:
            process.kill()


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + _START_S
    while True:
        assert process.poll() is None, log.read_text()
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.05)
        else:
            return
