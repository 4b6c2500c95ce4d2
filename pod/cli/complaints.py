"""What is logged while a command runs: its line on stderr, its traceback only under `--debug`."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from .failures import is_debugging
from .listing import say

_OURS = ("pod", "worker", "session_store", "manifests")


class _OnStderr(logging.Handler):
    def __init__(self, *, with_traceback: bool) -> None:
        super().__init__(logging.WARNING)
        self.with_traceback = with_traceback

    def emit(self, record: logging.LogRecord) -> None:
        if self.with_traceback:
            say(self.format(record), err=True)
        elif record.name.partition(".")[0] in _OURS:
            say(record.getMessage(), err=True)


@contextmanager
def complaints_on_stderr() -> Iterator[None]:
    """Let warnings of ours reach stderr as one line, and under `--debug` everybody's, whole.

    Without a handler the logging module would print tracebacks by itself.
    """
    handler = _OnStderr(with_traceback=is_debugging())
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
