"""A process that reads what a served pod sends: many subscribers, or stalled ones, on one thread.

    _readers.py count PATH SOCKETS EVERY     prints a line for every EVERY lines that all have got
    _readers.py wait PATH SOCKETS            prints, at the end of stdin, what each event took
    _readers.py stall PATH SOCKETS           subscribes and reads nothing

Each prints "ready" once all are subscribed. It uses nothing of ours.
"""

from __future__ import annotations

import json
import selectors
import socket
import sys
import time

SUBSCRIBE = b'{"id":1,"method":"subscribe","params":{"observe":true}}\n'
BEFORE_EVENTS = 2
"""The hello, and the answer."""
CHUNK = 1 << 18


def main() -> None:
    mode, path, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    sockets = [subscribed(path) for _ in range(count)]
    print("ready", flush=True)
    if mode == "count":
        count_lines(sockets, int(sys.argv[4]))
    elif mode == "wait":
        time_lines(sockets)
    else:
        sys.stdin.read()


def subscribed(path: str) -> socket.socket:
    """Return a socket on which events are the next thing to come."""
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(path)
    sock.sendall(SUBSCRIBE)
    lines = 0
    while lines < BEFORE_EVENTS:
        lines += sock.recv(1).count(b"\n")

    sock.setblocking(False)  # noqa: FBT003  the socket's own name for it
    return sock


def count_lines(sockets: list[socket.socket], every: int) -> None:
    """Say so whenever all together have got so many lines more."""
    selector = selectors.DefaultSelector()
    for sock in sockets:
        selector.register(sock, selectors.EVENT_READ)

    due = step = every * len(sockets)
    lines = 0
    while True:
        for key, _ in selector.select():
            sock = key.fileobj
            assert isinstance(sock, socket.socket)
            data = sock.recv(CHUNK)
            if not data:
                return

            lines += data.count(b"\n")
            while lines >= due:
                due += step
                print(flush=True)


def time_lines(sockets: list[socket.socket]) -> None:
    """Note how old each event is when it comes, and print all that at the end of stdin."""
    selector = selectors.DefaultSelector()
    for sock in sockets:
        selector.register(sock, selectors.EVENT_READ, bytearray())

    selector.register(sys.stdin, selectors.EVENT_READ)
    ages: list[float] = []
    while True:
        for key, _ in selector.select():
            if key.fileobj is sys.stdin:
                print(json.dumps(ages), flush=True)
                return

            assert isinstance(key.fileobj, socket.socket)
            key.data.extend(key.fileobj.recv(CHUNK))
            now = time.monotonic()
            *lines, rest = key.data.split(b"\n")
            key.data[:] = rest
            ages.extend(now - float(json.loads(line)["data"]["text"].split()[0]) for line in lines)


if __name__ == "__main__":
    main()
