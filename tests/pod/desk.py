"""A folder to work in, a home, manifests, and the `pod` command: what command-line tests use."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from attrs import define, field, frozen
from click.testing import CliRunner, Result

from pod.cli.main import cli

ROOT = Path(__file__).resolve().parents[2]
KEY = "sk-made-up-0123456789"
_ENTRY = "from pod.cli import main; main()"


@frozen
class Desk:
    """Everything happens below `work`."""

    work: Path
    home: Path

    def pod(self, *args: str, stdin: str | bytes | None = None, **env: str) -> Result:
        """Run the command in this process, its stdin no terminal."""
        return CliRunner(env={"FAKE_KEY": KEY, **env}).invoke(cli, args, input=stdin)

    def command(self, *args: str) -> list[str]:
        return [sys.executable, "-c", _ENTRY, *args]

    def environment(self, **env: str) -> dict[str, str]:
        mine = {"FAKE_KEY": KEY, "POD_HOME": str(self.home), "PYTHONPATH": str(ROOT)}
        return {**os.environ, **mine, **env}

    @contextmanager
    def start(self, *args: str, **env: str) -> Iterator[subprocess.Popen[bytes]]:
        """Start the command as a process of its own, which is gone when the block ends."""
        with subprocess.Popen(
            self.command(*args),
            cwd=self.work,
            env=self.environment(**env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def process(self, *args: str, **env: str) -> subprocess.CompletedProcess[bytes]:
        """Run the command as a process of its own, to its end."""
        with self.start(*args, **env) as process:
            out, err = process.communicate(timeout=15)

        return subprocess.CompletedProcess(args, process.returncode, out, err)

    def manifest(self, base_url: str, extra: str = "", name: str = "probe") -> str:
        """Write a manifest for a served model; return its name."""
        return self.write(
            f"{name}.toml",
            f'[pod]\nname = "{name}"\n[provider]\nkind = "openai_compatible"\nmodel = "fake"\n'
            f'base_url = "{base_url}"\napi_key_env = "FAKE_KEY"\ncontext_window = 100000\n{extra}',
        )

    def scripted(self, *answers: dict[str, Any], extra: str = "", name: str = "probe") -> str:
        """Write a manifest whose model answers from a script; return its name."""
        self.write(f"{name}.jsonl", "".join(json.dumps(answer) + "\n" for answer in answers))
        provider = f'[provider]\nkind = "scripted"\nscript = "{name}.jsonl"\n'
        window = "" if "context_window" in extra else "context_window = 100000\n"
        return self.write(f"{name}.toml", f'[pod]\nname = "{name}"\n{provider}{window}{extra}')

    def write(self, name: str, text: str | bytes) -> str:
        data = text if isinstance(text, bytes) else text.encode()
        (self.work / name).write_bytes(data)
        return name

    def logs(self) -> list[Path]:
        return sorted((self.home / "sessions").glob("*.jsonl"))

    def entries(self, kind: str) -> list[dict[str, Any]]:
        """Every entry of a kind, in all logs."""
        lines = [line for path in self.logs() for line in path.read_bytes().splitlines()]
        return [entry for entry in map(json.loads, lines) if entry["kind"] == kind]


def events(stdout: str | bytes) -> list[dict[str, Any]]:
    lines = stdout.decode() if isinstance(stdout, bytes) else stdout
    return [json.loads(line) for line in lines.split("\n") if line]


@define
class Terminal:
    """The command on a terminal of 80 by 24: what is typed goes in, what is shown comes out."""

    command: Sequence[str]
    cwd: Path
    env: dict[str, str]
    shown: str = ""
    code: int | None = None
    _pid: int = field(default=0, init=False)
    _fd: int = field(default=-1, init=False)

    def __enter__(self) -> Self:
        self._pid, self._fd = pty.fork()
        if self._pid == 0:
            os.chdir(self.cwd)
            size = {"COLUMNS": "80", "LINES": "24"}
            os.execvpe(  # noqa: S606  the child of a fork becomes the command
                self.command[0], list(self.command), {**self.env, **size}
            )

        return self

    def __exit__(self, *_: object) -> None:
        if self.code is None:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)

        os.close(self._fd)

    def see(self, text: str, seconds: float = 10.0) -> str:
        """Read on until `text` is shown; return what was shown up to then, and forget it."""
        self._until(lambda: text in self.shown, seconds, f"{text!r} was not shown")
        seen, _, self.shown = self.shown.partition(text)
        return seen + text

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def end(self, seconds: float = 10.0) -> int:
        """Wait for the end; return the exit code."""
        self._until(self._has_ended, seconds, "it did not end")
        assert self.code is not None
        return self.code

    def end_by(self, key: str, seconds: float = 10.0) -> int:
        """Press a key again and again, as a person does, until the end; return the exit code.

        Two signals that come before the first one was heard are one to the process.
        """
        pressed = 0.0

        def press() -> bool:
            nonlocal pressed
            if self._has_ended():
                return True

            if time.monotonic() - pressed > 0.5:
                pressed = time.monotonic()
                self.type(key)

            return False

        self._until(press, seconds, "it did not end")
        assert self.code is not None
        return self.code

    def _has_ended(self) -> bool:
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        if pid:
            self.code = os.waitstatus_to_exitcode(status)

        return bool(pid)

    def _until(self, is_so: Callable[[], bool], seconds: float, complaint: str) -> None:
        deadline = time.monotonic() + seconds
        while not is_so():
            assert time.monotonic() < deadline, f"{complaint}: {self.shown!r}"
            if select.select([self._fd], [], [], 0.05)[0]:
                try:
                    data = os.read(self._fd, 65_536)
                except OSError:  # the other side is gone
                    time.sleep(0.02)
                    continue

                self.shown += plain(data.decode("utf-8", "replace"))


def plain(text: str) -> str:
    """What a terminal would show, its control sequences taken out."""
    return re.sub(r"\x1b(\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07|[=>])", "", text).replace("\r", "")


def until(is_so: Callable[[], object], seconds: float = 10.0) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "it did not come to be so"
        time.sleep(0.02)
