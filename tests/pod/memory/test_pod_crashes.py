"""The process is killed inside a provider: the session is whole, and goes on where it was."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from anyio import to_thread

from session_store import FileSessionStore
from tests.fake_provider import Asked, Say, serving
from tests.pod.memory.plugins import install, noted, toy
from tests.pod.pods import COMPACT, chat, living, log_of, logs, manifest, pointer, prose, user_texts

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).resolve().parents[3]

# Kills its process the first time that it gets to the method which the file `kill` names.
KILLER = toy("""
def at(self, method):
    path = os.path.join(self.home, "kill")
    if os.path.exists(path) and open(path).read() == method:
        os.remove(path)
        os.kill(os.getpid(), 9)
    self.note(method)

def prefetch(self, query, **kwargs):
    self.at("prefetch")
    return "RECALLED"

def sync_turn(self, user, assistant, **kwargs):
    self.at("sync_turn")

def on_pre_compress(self, messages):
    self.at("on_pre_compress")

def on_session_switch(self, new_session_id, **kwargs):
    self.at("on_session_switch")

def shutdown(self):
    self.at("shutdown")
""")

PROGRAM = """
import asyncio, sys
from pathlib import Path
from pod import Pod

async def main():
    home = Path(sys.argv[1])
    pod = Pod.launch(home / "probe.toml", home=home, env={"FAKE_KEY": "k-123456", "NO_PROXY": "*"})
    async with pod:
        for prompt in ("one two", "two three", "three four"):
            await pod.run(prompt)
            await pod.idle()

asyncio.run(main())
"""


def long(_: Asked, number: int) -> Say:
    return Say(f"answer {number} {prose(8_000)}")


@pytest.mark.parametrize(
    "method", ["prefetch", "sync_turn", "on_pre_compress", "on_session_switch", "shutdown"]
)
async def test_a_kill_inside_of_it_loses_nothing_of_the_session(home: Path, method: str) -> None:
    use = install(home, "toy", KILLER)
    (home / "memory" / "toy").mkdir(parents=True)
    (home / "memory" / "toy" / "kill").write_text(method)
    with serving(chat(long)) as served:
        path = manifest(home, served.base_url, use + COMPACT)
        command = [sys.executable, "-c", PROGRAM, str(home)]
        done = await to_thread.run_sync(
            lambda: subprocess.run(command, check=False, cwd=ROOT, capture_output=True)
        )
        assert done.returncode == -signal.SIGKILL, done.stderr.decode()
        assert not (home / "memory" / "toy" / "kill").exists()
        store = FileSessionStore(home)
        assert all(store.verify(session_id).ok for session_id in logs(home))
        # A switch and what comes after it are told of a compaction that is committed.
        compacted = [s for s in logs(home) if log_of(home, s)[0].get("compacted_from")]
        assert bool(compacted) == (method in {"on_session_switch", "shutdown"})
        async with living(path, home, resume=pointer(home)) as story:
            result = await (story.pod.resume() if method == "prefetch" else story.pod.run("go on"))
            assert result.outcome == "finished"

        assert method in noted(home)
        said = user_texts(served.asked[-1])
        if method == "prefetch":
            assert sum("RECALLED" in text for text in said) == 1
