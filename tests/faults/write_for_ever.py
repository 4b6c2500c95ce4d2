"""A process that appends to one session until it is killed, or has appended enough.

    write_for_ever.py HOME SESSION UPTO PAUSE

It ends once the session has an entry of seq UPTO or more, or nobody is there who would kill it.
"""

from __future__ import annotations

import os
import random
import sys
import time

from session_store import FileSessionStore
from worker.items import AssistantMessage, ToolCall, ToolResult, new_uid


def main() -> None:
    home, session_id, upto, pause = sys.argv[1:]
    chance = random.Random()  # noqa: S311  no secret
    parent = os.getppid()
    with FileSessionStore(home).open(session_id) as session:
        while session.head.seq < int(upto) and os.getppid() == parent:
            payload = {"domain": "d", "payload": "x" * chance.choice((1, 50, 2000))}
            session.append_many([("extension", payload)] * chance.choice((1, 20, 200, 500)))
            if chance.random() < 0.2:
                call = ToolCall("call", "look", "{}", new_uid())
                asked = AssistantMessage(new_uid(), (call,), "fake", "m", "tool_calls")
                done = ToolResult(new_uid(), "call", call.call_uid, "done", None, is_error=False)
                session.append_items("assistant_items", [asked])
                session.append_items("tool_results", [done])

            time.sleep(float(pause))


main()
