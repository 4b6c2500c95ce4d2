"""A process that forks children, lets each append to a session, and kills it with -9.

    kill_children.py HOME SESSION FIRST_SEED KILLS

A child says on stdout what was acknowledged: the kernel keeps what a pipe was given, whoever dies.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time

from session_store import FileSessionStore

SIZES = (10, 100, 3000, 70_000, 70_000, 700_000)


def append_for_ever(home: str, session_id: str, seed: int, started: int) -> None:
    parent = os.getppid()
    chance = random.Random(seed)  # noqa: S311  a repeatable choice, no secret
    with FileSessionStore(home).open(session_id) as session:
        os.write(1, f"{session.head.seq} {session.head.hash}\n".encode())
        os.write(started, b"x")
        while os.getppid() == parent:  # else nobody is there who would kill it
            payload = {"domain": "d", "payload": "x" * chance.choice(SIZES)}
            many = [("extension", payload)] * chance.choice((1, 1, 1, 3))
            told = "".join(f"{seq} {digest}\n" for seq, digest in session.append_many(many))
            os.write(1, told.encode())
            if chance.random() < 0.1:
                session.write_anchor()


def main() -> None:
    home, session_id, first, kills = sys.argv[1:]
    waiting, started = os.pipe()
    for seed in range(int(first), int(first) + int(kills)):
        child = os.fork()
        if child == 0:
            append_for_ever(home, session_id, seed, started)
            os._exit(1)

        os.read(waiting, 1)
        time.sleep(random.Random(-seed).random() * 0.012)  # noqa: S311  as above
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


main()
