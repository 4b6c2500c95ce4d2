"""A process that contends with others for some sessions, and appends to whichever it gets.

    contend.py HOME SEED APPENDS

Says on stdout, for each acknowledged entry: session, seq, hash; and at the end how often it had to
wait.
"""

from __future__ import annotations

import os
import random
import sys
import time

from session_store import FileSessionStore, SessionInUse


def main() -> None:
    home, seed, appends = sys.argv[1:]
    chance = random.Random(int(seed))  # noqa: S311  a repeatable choice, no secret
    store = FileSessionStore(home)
    left, refused = int(appends), 0
    while left > 0:
        session_id = chance.choice(store.ids())
        try:
            with store.open(session_id) as session:
                for number in range(min(left, chance.randint(1, 12))):
                    ref = session.append("extension", domain=seed, payload=number)
                    os.write(1, f"{session_id} {ref.seq} {ref.hash}\n".encode())
                    left -= 1
        except SessionInUse:
            refused += 1
            time.sleep(chance.random() * 0.002)

    os.write(1, f"refused {refused} 0\n".encode())


main()
