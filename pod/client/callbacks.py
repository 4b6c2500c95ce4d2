"""Calling back on a thread of its own: what is called may use the client and wait for it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")
_log = logging.getLogger("pod.client")


class Callbacks:
    """A thread that calls one callback after the other, in the order in which they became due.

    It begins with the first that is asked for. What is due waits, however much that is, while one
    of them takes its time.
    """

    def __init__(self) -> None:
        self._due: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def later(self, callback: Callable[[T], object]) -> Callable[[T], None]:
        """Return what makes a call of `callback` due."""
        if self._thread is None:
            # A daemon: a client that is never closed must not keep its program from ending.
            self._thread = threading.Thread(target=self._run, name="pod-callbacks", daemon=True)
            self._thread.start()

        return lambda value: self._due.put(lambda: callback(value))

    def settle(self) -> None:
        """Return once all that was due was called; at once where one of those asks for it."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            is_done = threading.Event()
            self._due.put(is_done.set)
            is_done.wait()

    def close(self) -> None:
        """Return once all that was due was called, and end the thread; idempotent."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._due.put(None)
            if thread is not threading.current_thread():
                thread.join()

    def _run(self) -> None:
        while (call := self._due.get()) is not None:
            try:
                call()
            except Exception:  # noqa: BLE001  supervision point of foreign callbacks
                _log.exception("a callback failed")
