"""Large files are read in pieces: what is held is the items, and little more."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from session_store.exchange.formats import format_of
from session_store.exchange.tally import Tally
from tests.session_store.exchange.sources import claude, text

_RECORDS = 400
_BALLAST = "x" * 50_000


def a_session() -> Iterator[bytes]:
    for number in range(1, _RECORDS, 2):
        # What weighs most in such files is what no item holds.
        yield json.dumps(claude(number, "user", "go on", toolUseResult=_BALLAST)).encode() + b"\n"
        yield json.dumps(claude(number + 1, "assistant", [text("gone on")])).encode() + b"\n"


def a_document() -> Iterator[bytes]:
    yield b'{\n"trajectory": [\n'
    yield b",\n".join(
        json.dumps({"n": n, "messages": [_BALLAST]}).encode() for n in range(_RECORDS)
    )
    yield b'],\n"history": [{"role": "user", "content": "go"},\n'
    yield b'{"role": "assistant", "content": "gone"}]}'


@pytest.mark.parametrize("write", [a_session, a_document])
def test_what_is_not_kept_is_never_held_all_at_once(tmp_path: Path, write: object) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.writelines(write())  # type: ignore[operator]

    assert path.stat().st_size > 9_000_000
    tracemalloc.start()
    try:
        (conversation,) = format_of(path).read(path, Tally())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert conversation.segments[0].items()
    assert peak < 3_000_000
