"""A process that appends to one session until it is killed, or has appended enough.

    write_for_ever.py HOME SESSION UPTO

It ends once the session has an entry of seq UPTO or more.
"""

from __future__ import annotations

import random
import sys

from session_store import FileSessionStore


def main() -> None:
    home, session_id, upto = sys.argv[1:]
    chance = random.Random()  # noqa: S311  no secret
    with FileSessionStore(home).open(session_id) as session:
        while session.head.seq < int(upto):
            payload = {"domain": "d", "payload": "x" * chance.choice((1, 50, 2000))}
            session.append_many([("extension", payload)] * chance.choice((1, 20, 200, 500)))


main()
