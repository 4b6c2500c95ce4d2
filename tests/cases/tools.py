"""The tools that the cases' manifests name."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path


def surrogate() -> str:
    """Return text with half a pair in it."""
    return "x\ud835y"


def status(n: int) -> str:
    """Return the same, whatever is asked."""
    return '{"status":"ok"}'


def echo(text: str) -> str:
    """Return what came."""
    return json.dumps({"text": text})


def background(folder: str) -> str:
    """Start a program, wait until it may end, and say how it ended."""
    place = Path(folder)
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"],
                          stdin=subprocess.PIPE) as child:  # fmt: skip
        (place / "started").write_text(str(child.pid))
        deadline = time.monotonic() + 20
        while not (place / "go").exists() and time.monotonic() < deadline:
            time.sleep(0.02)

        is_alive = child.poll() is None
        child.communicate()

    return f"child alive: {is_alive}, ended with {child.returncode}"
