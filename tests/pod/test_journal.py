"""The journal over a session: durable before it is true, masked, and never torn by impatience."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pod.journal import SessionJournal, in_thread
from session_store import FileSessionStore, StorageFailed
from session_store.masking import Masker
from tests.pod.pods import log_of
from worker.items import user_message
from worker.llm.types import Usage
from worker.ports import ItemsRecord, PruneRecord, TurnEndRecord, UsageRecord

pytestmark = pytest.mark.anyio

SECRET = "sk-verysecret-0123456789"


@pytest.fixture
def journal(home: Path) -> Iterator[SessionJournal]:
    with FileSessionStore(home).create(pod="probe", system_prompt="", config={}) as session:
        yield SessionJournal(session, Masker({"KEY": SECRET}))


async def test_every_record_becomes_its_entry(home: Path, journal: SessionJournal) -> None:
    refs = await journal.commit(
        ItemsRecord("user_input", (user_message("hello"),)),
        UsageRecord(1, Usage(10, 2, None, None), "m"),
        PruneRecord(1, "uid", 2, 900, "threshold"),
        TurnEndRecord(1),
    )
    session_id = journal.session.session_id
    assert refs == [(session_id, seq) for seq in (1, 2, 3, 4)]
    entries = log_of(home, session_id)[1:]
    assert [entry["kind"] for entry in entries] == [
        "user_input",
        "usage",
        "prune_advanced",
        "turn_end",
    ]
    assert entries[1]["input_tokens"] == 10
    assert entries[1]["cache_read"] is None
    assert (entries[2]["upto_index"], entries[2]["upto_uid"]) == (1, "uid")
    assert (entries[2]["items"], entries[2]["est_savings"]) == (2, 900)


async def test_words_are_masked(home: Path, journal: SessionJournal) -> None:
    await journal.append(("run_outcome", {"outcome": "error", "message": f"key {SECRET}"}))
    (_, entry) = log_of(home, journal.session.session_id)
    assert entry["message"] == "key [masked: KEY]"


async def test_what_cannot_be_written_is_raised(journal: SessionJournal) -> None:
    journal.session.close()
    with pytest.raises(StorageFailed):
        await journal.commit(TurnEndRecord(1))


async def test_cancelling_waits_for_what_the_thread_does() -> None:
    happened: list[str] = []

    def work() -> str:
        time.sleep(0.2)
        happened.append("written")
        return "ref"

    async def body() -> None:
        happened.append(await in_thread(work))
        await asyncio.sleep(1)
        happened.append("not cancelled")

    task = asyncio.create_task(body())
    await asyncio.sleep(0.05)
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
    assert happened == ["written", "ref"], "done, known of, and only then cancelled"
