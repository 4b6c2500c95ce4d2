"""Does one thing to a home, in children that are killed at its first step, its second, and so on.

    kill_at_step.py TEMPLATE COPIES OPERATION

Every child works on a copy of its own of TEMPLATE, and dies before its n-th operation of the disk,
in the middle of it where it is a write, or right after it. Says on stdout, one JSON a line, what
was acknowledged; then that the child is gone.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from session_store import Disk, FileSessionStore, Session
from worker.items import user_message

WHEN = ("before", "after")


def tell(**facts: object) -> None:
    os.write(1, json.dumps(facts).encode() + b"\n")


class KillingDisk(Disk):
    """Kills its own process at the n-th operation that changes anything."""

    def __init__(self, at: int, when: str) -> None:
        self._left = at
        self._when = when

    def _do(self, operation: Callable[[], int | None]) -> int:
        self._left -= 1
        if self._left == 0 and self._when == "before":
            os.kill(os.getpid(), signal.SIGKILL)

        done = operation()
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

        return done or 0

    def open(self, path: Path, flags: int) -> int:
        if not flags & os.O_CREAT:
            return super().open(path, flags)

        return self._do(lambda: Disk.open(self, path, flags))

    def write(self, fd: int, data: bytes | memoryview) -> int:
        half = memoryview(data)[: (len(data) + 1) // 2]
        return self._do(lambda: Disk.write(self, fd, half if self._left == 0 else data))

    def sync(self, fd: int) -> None:
        self._do(lambda: Disk.sync(self, fd))

    def truncate(self, fd: int, size: int) -> None:
        self._do(lambda: Disk.truncate(self, fd, size))

    def rename(self, source: Path, target: Path) -> None:
        self._do(lambda: Disk.rename(self, source, target))

    def unlink(self, path: Path) -> None:
        self._do(lambda: Disk.unlink(self, path))

    def sync_folder(self, path: Path) -> None:
        self._do(lambda: Disk.sync_folder(self, path))


def create(store: FileSessionStore, _: str) -> None:
    session = store.create(pod="probe", system_prompt="Be brief.", config={})
    tell_head(session)
    session.close()


def append(store: FileSessionStore, session_id: str) -> None:
    with store.open(session_id) as session:
        tell_head(session)
        session.append_items("user_input", [user_message("one")])
        tell_head(session)
        session.append_many([("extension", {"domain": "d", "payload": n}) for n in range(3)])
        tell_head(session)


def fork(store: FileSessionStore, session_id: str) -> None:
    tell(session=store.fork(session_id))


def compact(store: FileSessionStore, session_id: str) -> None:
    tell(session=store.save_compacted(session_id, [user_message("summary")]))


def replace(store: FileSessionStore, session_id: str) -> None:
    with store.open(session_id) as old:
        told = {"trigger": "manual", "engine": "compressor", "method": "summary"}
        new = store.publish_compacted(
            old, history=[user_message("summary")], watermark=0, compaction=told
        )
        tell_head(new)
        store.set_pointer("probe", new.session_id)
        tell(pointer=new.session_id)
        new.close()


def rewind(store: FileSessionStore, session_id: str) -> None:
    first = next(iter(store.entries(session_id)))
    new = store.rewind(session_id, first.hash)
    tell(session=new, pointer=new)


def tell_head(session: Session) -> None:
    tell(session=session.session_id, seq=session.head.seq, hash=session.head.hash)


OPERATIONS = {f.__name__: f for f in (create, append, fork, compact, replace, rewind)}
OPERATIONS |= {"recover": append}


def main() -> None:
    template, copies, name = sys.argv[1:]
    (session_id,) = [path.stem for path in Path(template, "sessions").glob("*.jsonl")]
    for when in WHEN:
        at, status = 0, 1
        while status:
            at += 1
            home = Path(copies, f"{when}-{at}")
            shutil.copytree(template, home)
            tell(home=str(home))
            child = os.fork()
            if child == 0:
                store = FileSessionStore(home, disk=KillingDisk(at, when))
                OPERATIONS[name](store, session_id)
                os._exit(0)

            status = os.waitpid(child, 0)[1]
            tell(killed=status == signal.SIGKILL, ended=status == 0)


if __name__ == "__main__":
    main()
