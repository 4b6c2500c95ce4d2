"""What is logged while a command runs: its line on stderr, its traceback only under `--debug`."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from .failures import is_debugging
from .listing import say

_OURS = ("pod", "worker", "session_store", "manifests")
_TOLD_BY_A_POD = "pod.context"
"""What is logged of a plugin, as Hermes does; a pod tells the same by a notice."""


class _OnStderr(logging.Handler):
    def __init__(self, *, with_traceback: bool, once: bool) -> None:
        super().__init__(logging.WARNING)
        self.with_traceback = with_traceback
        self.said: set[str] | None = set() if once else None

    def emit(self, record: logging.LogRecord) -> None:
        if self.with_traceback:
            say(self.format(record), err=True)
        elif record.name.partition(".")[0] in _OURS and self._is_news(record):
            say(record.getMessage(), err=True)

    def _is_news(self, record: logging.LogRecord) -> bool:
        if self.said is None:
            return record.name != _TOLD_BY_A_POD

        line = record.getMessage()
        is_news = line not in self.said
        self.said.add(line)
        return is_news


@contextmanager
def complaints_on_stderr(*, once: bool = False) -> Iterator[None]:
    """Let warnings of ours reach stderr as one line, and under `--debug` everybody's, whole.

    Without a handler the logging module would print tracebacks by itself. `once` is for a command
    without a pod, which loads a plugin often: each line is told once, also what a pod would tell.
    """
    handler = _OnStderr(with_traceback=is_debugging(), once=once)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
