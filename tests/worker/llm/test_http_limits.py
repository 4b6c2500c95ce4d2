"""Floods: each ends with a typed error, in bounded memory, and the client goes on."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

import httpx
import pytest

from tests.worker.llm.client import ONCE, ask
from tests.worker.llm.dialects import ANTHROPIC, CHAT, DIALECTS, Dialect
from tests.worker.llm.floods import FLOODS, error_of
from tests.worker.llm.wire import call_delta, chunk, sse
from worker.errors import BadAnswer, StreamBroken
from worker.llm import Answered, StreamLimits

pytestmark = pytest.mark.anyio

MOST_GROWN_KIB = 80 * 1024


@pytest.mark.parametrize("name", FLOODS)
async def test_a_flood_ends_with_an_error_that_names_the_limit(dialect: Dialect, name: str) -> None:
    error = await error_of(dialect, name)
    assert isinstance(error, (BadAnswer, StreamBroken))
    assert FLOODS[name][2] in error.message
    assert isinstance(error, StreamBroken) == ("text" in name)


@pytest.mark.timeout(120)
def test_no_flood_takes_much_memory() -> None:
    command = [sys.executable, "-m", "tests.worker.llm.floods"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    assert list(found["told"]) == list(FLOODS)
    for name, (_, _, said) in FLOODS.items():
        assert all(said in told for told in found["told"][name]), name
    assert found["grown_kib"] <= MOST_GROWN_KIB


# --- arguments ----------------------------------------------------------------------------------

SMALL = StreamLimits(arguments_bytes=10_000)


@pytest.mark.parametrize("size", [9_000, 11_000])
async def test_the_arguments_of_a_call_are_bounded(dialect: Dialect, size: int) -> None:
    body = dialect.call("x" * size)
    asked = dialect.client(
        handler=lambda _: httpx.Response(200, content=body), retry=ONCE, limits=SMALL
    )
    if size < 10_000:
        assert isinstance((await ask(asked))[-1], Answered)
        return

    with pytest.raises((BadAnswer, StreamBroken), match="arguments of over 10,000 bytes"):
        await ask(asked)


@pytest.mark.parametrize("text", ["x", "世"])
async def test_arguments_in_pieces_add_up_for_each_call(text: str) -> None:
    pieces = [chunk(call_delta(0, "a", "look", '{"word":"'))]
    pieces += [chunk(call_delta(0, None, None, text * 100)) for _ in range(200)]
    body = sse(*pieces, chunk(finish="tool_calls"))
    asked = CHAT.client(handler=lambda _: httpx.Response(200, content=body), limits=SMALL)
    with pytest.raises(StreamBroken, match="arguments of over 10,000 bytes"):
        await ask(asked)


async def test_text_beside_arguments_hides_none() -> None:
    piece = chunk({"content": "a", **call_delta(0, None, None, "x" * 1000)})
    body = sse(chunk(call_delta(0, "a", "look", "")), *[piece] * 20, chunk(finish="stop"))
    asked = CHAT.client(handler=lambda _: httpx.Response(200, content=body), limits=SMALL)
    with pytest.raises(StreamBroken, match="arguments of over 10,000 bytes"):
        await ask(asked)


# --- what is no flood ---------------------------------------------------------------------------


async def test_a_long_answer_is_no_flood() -> None:
    texts = [ANTHROPIC.text("word " * 200) for _ in range(2000)]
    body = b"".join((ANTHROPIC.begin(), *texts, ANTHROPIC.end()))
    events = await ask(ANTHROPIC.client(handler=lambda _: httpx.Response(200, content=body)))
    assert isinstance(events[-1], Answered)
    assert len(events) == 2001


async def test_a_limit_is_told_for_each_client_alone() -> None:
    told = await asyncio.gather(*(error_of(dialect, "endless line") for dialect in DIALECTS))
    assert [error.provider for error in told if error] == [d.provider for d in DIALECTS]
