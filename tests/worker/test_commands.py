"""A program that a tool runs: what it printed, and that nothing of it is left behind."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
import time
import tracemalloc
from pathlib import Path

import pytest

from worker import run_command

pytestmark = pytest.mark.anyio


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False

    # A zombie whose parent does not fetch it is as dead as can be.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


async def gone(pid: int, seconds: float = 5.0) -> bool:
    deadline = time.monotonic() + seconds
    while is_alive(pid) and time.monotonic() < deadline:  # noqa: ASYNC110  nobody tells of it
        await asyncio.sleep(0.02)

    return not is_alive(pid)


async def pid_in(path: Path) -> int:
    async with asyncio.timeout(10):
        while not (path.exists() and path.read_text().endswith("\n")):  # noqa: ASYNC110  likewise
            await asyncio.sleep(0.01)

    return int(path.read_text())


@pytest.mark.parametrize(
    ("command", "summary", "is_error"),
    [
        ("echo hello", "hello", False),
        (["echo", "$HOME; ls"], "$HOME; ls", False),
        ("true", "(no output)", False),
        ("echo no >&2; exit 3", "exit 3: no", True),
        ("kill -KILL $$", "ended by SIGKILL: (no output)", True),
        (["no-such-program"], "the command cannot be started: No such file or directory", True),
        ("echo \0", "the command cannot be started: embedded null byte", True),
        ("printf '\\377\\376\\000'", "��\x00", False),
        ("printf '漢字と仮名'", "漢字と仮名", False),
        ("cat", "(no output)", False),
    ],
)
async def test_what_it_printed(command: str | list[str], summary: str, is_error: bool) -> None:
    output = await run_command(command)
    assert (output.summary, output.is_error) == (summary, is_error)


async def test_it_runs_where_and_with_what_it_is_told(tmp_path: Path) -> None:
    output = await run_command("pwd; echo $X", cwd=tmp_path, env={"X": "1", "PATH": os.defpath})
    assert output.summary == f"{tmp_path}\n1"


async def test_two_hundred_megabytes_leave_the_ends_and_little_memory(tmp_path: Path) -> None:
    size, whole = 200_000_000, tmp_path / "whole"
    printing = f"echo first; head -c {size} /dev/zero | tr '\\0' x; echo; echo last"
    tracemalloc.start()
    try:
        output = await run_command(printing, keep_bytes=100_000, whole=whole)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 5_000_000
    assert whole.stat().st_size == size + 12
    assert stat.S_IMODE(whole.stat().st_mode) == 0o600
    assert output.content is not None
    assert len(output.content) < 101_000
    assert output.content.startswith("first\nxxx")
    assert output.content.endswith("xxx\nlast\n")
    assert "[… 199,900,012 bytes left out …]" in output.content
    assert output.summary == (
        f"200,000,012 bytes of output, 199,900,012 of them left out; all of it is in {whole}"
    )


@pytest.mark.parametrize("size", [0, 1, 9, 10, 11, 19, 20, 21, 70_000])
async def test_nothing_is_lost_up_to_the_limit_and_the_count_is_right_beyond(size: int) -> None:
    output = await run_command(f"head -c {size} /dev/zero | tr '\\0' x", keep_bytes=20)
    text = output.content or output.summary
    left_out = max(0, size - 20)
    assert text.count("x") == min(size, 20)
    assert (f"{left_out:,} bytes left out" in text) == bool(left_out)


@pytest.mark.parametrize("how", ["plain", "deaf"])
async def test_cancelled_the_whole_group_is_gone_within_two_seconds(
    tmp_path: Path, how: str
) -> None:
    deaf = "trap '' TERM; " if how == "deaf" else ""
    script = f"{deaf}sh -c '{deaf}echo $$ > child; while :; do sleep 1; done' & wait"
    task = asyncio.create_task(run_command(script, cwd=tmp_path))
    child = await pid_in(tmp_path / "child")
    began = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert await gone(child, 2.0)
    assert time.monotonic() - began < 2.0


async def test_what_it_leaves_running_ends_with_it_and_nobody_waits(tmp_path: Path) -> None:
    began = time.monotonic()
    output = await run_command("sleep 60 & echo $! > child; echo done", cwd=tmp_path)
    assert output.summary == "done"
    assert time.monotonic() - began < 5
    assert await gone(int((tmp_path / "child").read_text()))


async def test_asked_to_end_it_may_tidy_up(tmp_path: Path) -> None:
    script = "trap 'echo tidy > tidied; exit 0' TERM; echo $$ > child; while :; do sleep 0.05; done"
    task = asyncio.create_task(run_command(script, cwd=tmp_path))
    await pid_in(tmp_path / "child")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert (tmp_path / "tidied").read_text() == "tidy\n"


async def test_it_has_a_group_and_a_session_of_its_own() -> None:
    code = "import os; print(os.getpid() == os.getpgid(0) == os.getsid(0))"
    output = await run_command([sys.executable, "-c", code])
    assert output.summary == "True"


async def test_one_that_left_the_group_holds_nobody_up(tmp_path: Path) -> None:
    output = await run_command("setsid sleep 60 & echo $! > child; echo done", cwd=tmp_path)
    os.kill(int((tmp_path / "child").read_text()), 9)
    assert output.summary == "done"


async def test_a_full_disk_ends_it_with_an_error() -> None:
    with pytest.raises(OSError, match="No space left"):
        await run_command("yes", whole=Path("/dev/full"))


async def test_where_the_whole_cannot_be_kept_is_told(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="missing"):
        await run_command("echo x", whole=tmp_path / "missing" / "file")
