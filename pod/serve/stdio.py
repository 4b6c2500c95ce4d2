"""The protocol over stdin and stdout: one client, the one that started the process."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from contextlib import suppress

from .connection import Connection
from .peer import this_process
from .server import PodServer

_READ_BYTES = 1 << 16
_LAST_WORDS_S = 5.0


class Stdio:
    """Stands between the two streams and a socket of the server's, a thread for each direction.

    What is a file, a pipe or a terminal can only be waited for in a thread; the socket is as any
    other client's. When stdin ends, the pod ends after what is going on; when nobody reads stdout
    any more, at once.
    """

    def __init__(self, server: PodServer, stdin: int, stdout: int) -> None:
        self._server = server
        self._stdin = stdin
        self._stdout = stdout
        self._inner, self._outer = socket.socketpair()
        self._writing = threading.Thread(target=self._write, name="stdout", daemon=True)
        self._connection: Connection | None = None

    def start(self) -> None:
        """Begin to serve the streams; on the loop's thread."""
        self._connection = self._server.adopt(
            self._inner,
            this_process(),
            on_end=lambda: self._server.shutdown(wait=True),
            on_gone=self._server.shutdown,
        )
        self._writing.start()
        threading.Thread(target=self._read, name="stdin", daemon=True).start()

    async def finish(self) -> None:
        """Return once all that was sent is written, or nobody takes it."""
        await asyncio.to_thread(self._writing.join, _LAST_WORDS_S)
        self._outer.close()

    def _read(self) -> None:
        with suppress(OSError):  # the server has ended the connection
            while data := os.read(self._stdin, _READ_BYTES):
                self._outer.sendall(data)

            self._outer.shutdown(socket.SHUT_WR)

    def _write(self) -> None:
        try:
            while data := self._outer.recv(_READ_BYTES):
                view = memoryview(data)
                while view:
                    view = view[os.write(self._stdout, view) :]
        except OSError:
            # Nobody reads: then there is nobody to serve.
            with suppress(OSError):
                self._outer.shutdown(socket.SHUT_RDWR)
