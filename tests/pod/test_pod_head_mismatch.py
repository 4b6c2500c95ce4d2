"""A log that somebody changes while a pod writes it: the pod goes on in a fork, and says so."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from pod.protocol import Alert, SessionChanged
from session_store import FileSessionStore
from tests.fake_provider import Say, serving
from tests.pod.pods import living, log_of, logs, manifest, pointer

pytestmark = pytest.mark.anyio


def foreign_line(log: Path) -> bytes:
    """Return an entry that follows the last one of the log, as another writer would make it."""
    entries = log.read_bytes().split(b"\n")[:-1]
    prev = entries[-1][9:73].decode()
    rest = f'"prev":"{prev}","seq":{len(entries)},"ts":0,"kind":"extension","domain":"x"}}'.encode()
    return b'{"hash":"' + sha256(rest).hexdigest().encode() + b'",' + rest + b"\n"


async def test_the_pod_goes_on_in_a_fork_and_neither_side_is_lost(home: Path) -> None:
    with serving(Say("an answer")) as provider:
        path = manifest(home, provider.base_url)
        async with living(path, home) as story:
            await story.turns("QUESTION-1")
            old_id = story.pod.session_id
            log = home / "sessions" / f"{old_id}.jsonl"
            foreign = foreign_line(log)
            with log.open("ab") as file:
                file.write(foreign)
            before = log.read_bytes()

            await story.turns("QUESTION-2")

            new_id = story.pod.session_id
            (changed,) = story.of(SessionChanged)
            assert (changed.old_session_id, changed.new_session_id) == (old_id, new_id)
            assert changed.reason == "head_mismatch"
            assert any(old_id in alert.message for alert in story.of(Alert))
            assert story.pod.history[-1].text == "an answer"  # type: ignore[union-attr]  an answer

        assert log.read_bytes() == before, "what the other one wrote stays, and nothing joins it"
        assert logs(home) == sorted([old_id, new_id])
        assert log_of(home, new_id)[0]["forked_from"][0] == old_id
        assert pointer(home) == old_id, "the pointer never moves to a fork"
        store = FileSessionStore(home)
        assert store.verify(old_id).ok
        assert store.verify(new_id).ok
        texts = [getattr(item, "text", "") for item in store.restore(new_id).history]
        assert texts == ["QUESTION-1", "an answer", "QUESTION-2", "an answer"]
