"""Running a program for a tool: all that it started ends with it, and its output is bounded."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, BinaryIO

import anyio
from attrs import define, field

from ..text import clean_text
from ..threads import call_in_daemon_thread
from .results import ToolOutput, render_output

KEPT_BYTES = 1_048_576
"""How much output is kept, unless said otherwise: half from its beginning, half from its end."""
TERM_GRACE_S = 1.0
"""How long the programs have to end once they are asked to; then they are killed."""

_CHUNK = 65_536
_DRAIN_S = 0.2


async def run_command(
    command: str | Sequence[str],
    *,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    keep_bytes: int = KEPT_BYTES,
    whole: Path | None = None,
) -> ToolOutput:
    """Run a program to its end and return what it printed; what fails is an error result.

    It gets no input, and a process group of its own. When it ends, or the call is cancelled or out
    of time, everything that is left of the group is asked to end and killed after `TERM_GRACE_S`;
    only what has left the group (`setsid`) lives on. Output that is not UTF-8 is shown with
    replacement characters. Memory is bounded by about twice `keep_bytes`, however much is printed.

    Args:
        command: Text for the shell, or a program and its arguments.
        cwd: Where it runs; default: this process's folder.
        env: Its whole environment; default: this process's.
        keep_bytes: How much output is kept; of more, the middle is left out.
        whole: A file that takes all output (0600), named in the summary where any is left out.

    Raises:
        OSError: `whole` cannot be written.
    """
    output = _Output(keep_bytes)
    with nullcontext() if whole is None else _opened(whole) as file:
        try:
            process = _started(command, cwd, env)
        except (OSError, ValueError) as error:  # such as a command with a NUL in it
            reason = getattr(error, "strerror", None) or str(error)
            return ToolOutput(f"the command cannot be started: {reason}", is_error=True)

        ending = asyncio.ensure_future(call_in_daemon_thread(process.wait, name="command"))
        try:
            # Read also while it is being ended: one whose output nobody takes cannot tidy up.
            async with _reading(process, output, file) as reading:
                try:
                    await _ended(reading, ending)
                finally:
                    await _end_group(process, ending)
        finally:
            if process.returncode is None:
                _signal_group(process, signal.SIGKILL)

    return _result(process.returncode or 0, output, whole)


def _started(
    command: str | Sequence[str], cwd: str | Path | None, env: Mapping[str, str] | None
) -> subprocess.Popen[bytes]:
    words = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
    return subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=cwd,
        env=env,
        bufsize=0,
        start_new_session=True,
    )


@asynccontextmanager
async def _reading(
    process: subprocess.Popen[bytes], output: _Output, file: BinaryIO | None
) -> AsyncIterator[asyncio.Task[None]]:
    """Take what the program prints while the block lasts; the task ends with the output."""
    stream = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(stream), process.stdout
    )

    async def read() -> None:
        while chunk := await stream.read(_CHUNK):
            output.add(chunk)
            if file is not None:
                file.write(chunk)

    reading = asyncio.create_task(read())
    try:
        yield reading
    finally:
        reading.cancel()
        transport.close()


async def _ended(reading: asyncio.Task[None], ending: asyncio.Future[int]) -> None:
    """Wait for the end of the program: what it left running may hold its output open for ever."""
    first: set[asyncio.Future[Any]] = {reading, ending}
    await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
    if reading.done():
        reading.result()  # Where taking the output failed, the program would wait for ever.

    await asyncio.shield(ending)
    await asyncio.wait({reading}, timeout=_DRAIN_S)
    if reading.done():
        reading.result()


async def _end_group(process: subprocess.Popen[bytes], ending: asyncio.Future[int]) -> None:
    """Leave nothing of the group behind, also where this is cancelled once more."""
    with anyio.CancelScope(shield=True):
        try:
            if _signal_group(process, signal.SIGTERM):
                with suppress(TimeoutError):
                    async with asyncio.timeout(TERM_GRACE_S):
                        await asyncio.shield(ending)
                        await _until_gone(process)
        finally:
            _signal_group(process, signal.SIGKILL)

        await ending


async def _until_gone(process: subprocess.Popen[bytes]) -> None:
    # Its other members are not our children: nobody tells us when they end.
    while _signal_group(process, 0):  # noqa: ASYNC110  as said above
        await asyncio.sleep(0.02)


def _signal_group(process: subprocess.Popen[bytes], number: int) -> bool:
    """Send a signal to what is left of the group; return whether there is anything."""
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        return False

    return True


@define
class _Output:
    """The beginning and the end of what was printed, and how much that was."""

    keep_bytes: int
    total: int = 0
    _head: bytearray = field(factory=bytearray, init=False)
    _tail: deque[bytes] = field(factory=deque, init=False)
    _tail_bytes: int = field(default=0, init=False)

    def add(self, chunk: bytes) -> None:
        """Take more output."""
        self.total += len(chunk)
        room = self.keep_bytes // 2 - len(self._head)
        if room > 0:
            self._head += chunk[:room]
            chunk = chunk[room:]

        if chunk:
            self._tail.append(chunk)
            self._tail_bytes += len(chunk)
            while self._tail_bytes - len(self._tail[0]) >= self.keep_bytes // 2:
                self._tail_bytes -= len(self._tail.popleft())

    def text(self) -> tuple[str, int]:
        """Return what is kept, and how many bytes of the middle are left out."""
        tail = b"".join(self._tail)[-(self.keep_bytes // 2) :] if self._tail else b""
        left_out = self.total - len(self._head) - len(tail)
        head = self._head.decode("utf-8", "replace")
        if not left_out:
            return (self._head + tail).decode("utf-8", "replace"), 0

        mark = f"\n[… {left_out:,} bytes left out …]\n"
        return head + mark + tail.decode("utf-8", "replace"), left_out


def _opened(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")


def _result(code: int, output: _Output, whole: Path | None) -> ToolOutput:
    text, left_out = output.text()
    plain = render_output(clean_text(text))
    summary = plain.summary
    if left_out:
        where = f"; all of it is in {whole}" if whole is not None else ""
        summary = f"{output.total:,} bytes of output, {left_out:,} of them left out{where}"

    if code == 0:
        return ToolOutput(summary, plain.content)

    how = f"exit {code}" if code > 0 else f"ended by {_signal_name(-code)}"
    return ToolOutput(f"{how}: {summary}", plain.content, is_error=True)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
