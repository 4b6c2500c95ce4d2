"""A model of this machine, served to the ordinary OpenAI-compatible client; no key, no network.

The model runs in a child process (`llama_child.py`), since llama.cpp can take the whole process
down. The child listens on loopback only, behind a random key, and ends with its parent.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from pathlib import Path
from typing import IO, Self, cast

from worker.errors import WorkerError

from .chat_template import ToolsTold, added_template, tools_told
from .gguf import GgufInfo, GgufInvalid, read_gguf

DEFAULT_WINDOW_CAP = 32_768
"""Tokens of context at most where nobody asks for more: its cache is memory taken at once."""
REQUEST_HEADERS = {"Connection": "close"}
"""Of every request: the server closes connections when it likes, and a new one costs nothing."""

_MIN_SERVED_CONTEXT = 256
"""Below this llama.cpp rounds up, or aborts."""
_CHILD = Path(__file__).with_name("llama_child.py")
_DAMAGED_HINT = "bring it again (`pod models pull`), or name another GGUF file"
_GOODBYE_S = 2.0
_LOG_BYTES = 16_384
_QUANTIZATION = re.compile(r"[.\-_](I?Q\d\w*|BF16|F16|F32)$", re.IGNORECASE)
_LOG_PREFIX = re.compile(r"^([\d.]+ E (srv|cmn|slot|que)?\s*|/\S+/)")


class LocalModelError(WorkerError):
    """The local model cannot be used. `hint` says what to do."""


class LocalExtraMissing(LocalModelError):
    """The package that runs local models is not installed, or not for this machine."""


class ModelFileMissing(LocalModelError):
    """There is no file at the model's path, or it cannot be read."""


class ModelFileInvalid(LocalModelError):
    """The file is no GGUF file of a language model, or is damaged."""


class ModelLoadFailed(LocalModelError):
    """llama.cpp would not load the model, died doing it, or took too long."""


class LocalServer:
    """One GGUF model, served under `base_url` from `start()` to `close()`.

    Making one does nothing yet. `start` and `close` block and may be called from any thread, also
    at the same time; `close` ends a `start` that is under way.
    """

    def __init__(
        self, model_path: Path, *, context_window: int | None = None, threads: int | None = None
    ) -> None:
        self._path = model_path
        self._asked_window = context_window
        self._threads = threads
        self._starting = threading.Lock()
        self._state = threading.Lock()
        self._info: GgufInfo | None = None
        self._child: _Child | None = None
        self._base_url = ""
        self._is_closed = False
        self.api_key = secrets.token_urlsafe(32)
        """The bearer token that the server wants; random, so that no other user can ask it."""

    @property
    def model_name(self) -> str:
        """The file's name without what it says of its quantization."""
        return _QUANTIZATION.sub("", self._path.stem)

    @property
    def context_window(self) -> int:
        """Tokens that prompt and answer may take together; known before `start`.

        What was asked for, else `DEFAULT_WINDOW_CAP`, but never more than the model was trained
        for. Raises `ModelFileMissing` or `ModelFileInvalid`.
        """
        wanted = DEFAULT_WINDOW_CAP if self._asked_window is None else self._asked_window
        return min(wanted, self._read_info().context_length)

    @property
    def tools_told(self) -> ToolsTold:
        """What tells the model of a request's tools; known before `start`.

        With `never`, the tools of a request are lost, and calls of earlier answers too. Raises as
        `context_window` does.
        """
        return tools_told(self._read_info())

    @property
    def base_url(self) -> str:
        """Where the server answers, ending in /v1; empty before the first `start`."""
        return self._base_url

    def start(self, *, timeout_s: float = 600.0) -> str:
        """Load the model and return `base_url` once it answers.

        A server that runs is left alone; one that died is started anew, elsewhere. Raises a
        `LocalModelError`.
        """
        with self._starting:
            if self._child is not None and self._child.is_alive:
                return self._base_url

            child = self._launch()
            try:
                self._base_url = child.wait_ready(timeout_s)
            except BaseException:  # whatever ends the wait, no process may stay behind
                child.close()
                raise

            return self._base_url

    def close(self) -> None:
        """End the server for good. Calling it again does nothing."""
        with self._state:
            self._is_closed = True
            child = self._child

        if child is not None:
            child.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _launch(self) -> _Child:
        order = {
            "path": str(self._path.absolute()),
            "context": max(self.context_window, _MIN_SERVED_CONTEXT),
            "threads": self._threads,
            "chat_template": added_template(self._read_info()),
            "api_key": self.api_key,
        }
        # Under the lock, so that a `close` either sees this child or keeps it from being born.
        with self._state:
            if self._is_closed:
                raise LocalModelError("the local model has been closed")

            if self._child is not None:
                self._child.close()

            self._child = _Child(self._path, json.dumps(order))
            return self._child

    def _read_info(self) -> GgufInfo:
        if self._info is None:
            self._info = _read_checked(self._path)

        return self._info


def _read_checked(path: Path) -> GgufInfo:
    """Read the file's header. Raises `ModelFileMissing` or `ModelFileInvalid`."""
    try:
        return read_gguf(path)
    except OSError as error:
        raise ModelFileMissing(
            f"no model file at {path}: {error.strerror}",
            hint="`pod models list` shows what is here, `pod models pull` brings one",
        ) from error
    except GgufInvalid as error:
        raise ModelFileInvalid(
            f"{path} is not a usable model file: {error}", hint=_DAMAGED_HINT
        ) from error


class _Child:
    """The process of one server; it ends when this is closed or forgotten."""

    def __init__(self, path: Path, order: str) -> None:
        self._path = path
        # A file and no pipe: nobody has to read it for the child to go on.
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by wait_ready
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(_CHILD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            # A Ctrl-C at the terminal stops the run, not the model.
            start_new_session=True,
        )
        self._stdin = cast("IO[bytes]", self._process.stdin)
        self._stdout = cast("IO[bytes]", self._process.stdout)
        self._finalizer = weakref.finalize(self, _end, self._process, self._stdin)
        # After a fork the copy must not end the original's child; at exit the pipe does it.
        self._finalizer.atexit = False
        # A child that died before it read its order is told of by wait_ready.
        with contextlib.suppress(BrokenPipeError):
            self._stdin.write(f"{order}\n".encode())
            self._stdin.flush()

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        self._finalizer()

    def wait_ready(self, timeout_s: float) -> str:
        """Return the base URL. Raises `LocalExtraMissing` or `ModelLoadFailed`. Call it once."""
        with self._stdout, self._log:
            line = self._read_line(timeout_s)
            answer: dict[str, str] = json.loads(line) if line else {}
            if "base_url" in answer:
                return answer["base_url"]

            raise self._failure(answer)

    def _read_line(self, timeout_s: float) -> bytes:
        """Return the child's one line; empty where it died first."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._stdout, selectors.EVENT_READ)
            if selector.select(timeout_s):
                return self._stdout.readline()

        raise ModelLoadFailed(
            f"{self._path} was not loaded after {timeout_s:g} s",
            hint="a smaller model, or a smaller provider.context_window, loads faster",
        )

    def _failure(self, answer: dict[str, str]) -> LocalModelError:
        if not self._finalizer.alive:
            return LocalModelError("the local model was closed while it loaded")

        if answer.get("failure") == "extra":
            return LocalExtraMissing(
                f"local models need the extra `local`: {answer['reason']}",
                hint="pip install 'podworker[local]'",
            )

        reason = self._first_complaint() or answer.get("reason") or _ending(self._process)
        return ModelLoadFailed(f"{self._path} could not be loaded: {reason}", hint=_DAMAGED_HINT)

    def _first_complaint(self) -> str:
        """Return llama.cpp's first error, the most exact one; empty where there is none."""
        self._log.seek(0)
        text = self._log.read(_LOG_BYTES).decode("utf-8", "replace").strip()
        return _LOG_PREFIX.sub("", text.partition("\n")[0])


def _ending(process: subprocess.Popen[bytes]) -> str:
    code = process.wait(_GOODBYE_S)
    if code == -signal.SIGKILL:
        return "its process was killed, as happens when memory runs out"

    how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return f"its process ended ({how})"


def _end(process: subprocess.Popen[bytes], stdin: IO[bytes]) -> None:
    """Leave no process behind: the end of stdin tells the child to go, and it is made to."""
    with contextlib.suppress(BrokenPipeError):  # it was gone before it had read everything
        stdin.close()

    try:
        process.wait(_GOODBYE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
