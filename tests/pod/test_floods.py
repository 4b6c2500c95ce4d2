"""A provider's server that sends without end: the run ends, and the session goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pod.pods import living, log_of
from tests.pod.test_every_dialect import manifest
from tests.worker.llm.dialects import DIALECTS, Dialect
from tests.worker.llm.floods import FLOODS
from tests.worker.llm.wire import Reply, head, serving

pytestmark = pytest.mark.anyio

SENT = ("endless line", "endless keep-alives", "deep JSON", "a bomb of zeros")


def flood(dialect: Dialect, name: str) -> Reply:
    """As much of it as is needed, and a little more."""
    make, encoding, _ = FLOODS[name]
    data = bytearray(head(content_encoding=encoding) if encoding else head())
    for piece in make(dialect):
        data += piece
        if len(data) > 5 << 20:
            break
    return Reply([bytes(data)])


@pytest.mark.parametrize("dialect", DIALECTS, ids=str)
async def test_a_run_that_is_flooded_ends_and_the_session_goes_on(
    dialect: Dialect, home: Path
) -> None:
    floods = [flood(dialect, name) for name in SENT]
    hello = Reply([head(), dialect.hello()])
    async with (
        serving(lambda number: floods[number - 1] if number <= len(floods) else hello) as server,
        living(manifest(home, dialect, server.base_url), home) as story,
    ):
        for name in SENT:
            result = await story.pod.run(f"Say hello: {name}")
            assert (result.outcome, result.text) == ("error", "")
            assert FLOODS[name][2] in result.message
        result = await story.pod.run("Say hello once more")
        asked = server.requests[-1]
        entries = log_of(home, story.pod.session_id)

    assert result.outcome == "finished"
    assert len(server.requests) == len(SENT) + 1
    assert all(name.encode() in asked for name in SENT)
    assert [entry["kind"] for entry in entries].count("assistant_items") == 1
