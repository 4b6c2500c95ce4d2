"""A pod goes back: its history is what it was, its pointer comes along, the log stays whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from pod.protocol import SessionChanged
from session_store import FileSessionStore, UnknownEntry
from tests.fake_provider import Say, counting, serving
from tests.pod.pods import (
    COMPACT,
    chat,
    kinds,
    living,
    log_of,
    manifest,
    pointer,
    prose,
    user_texts,
)

pytestmark = pytest.mark.anyio


def ends(home: Path, session_id: str) -> list[str]:
    """The hash of each entry at which a run ended."""
    return [e["hash"] for e in log_of(home, session_id) if e["kind"] == "run_outcome"]


async def test_the_pod_goes_on_from_an_earlier_entry(home: Path) -> None:
    with serving(counting) as served:
        path = manifest(home, served.base_url)
        async with living(path, home) as story:
            await story.turns("first", "second", "third")
            old = story.pod.session_id
            before = log_of(home, old)
            await story.pod.rewind(to=ends(home, old)[0][:12])
            assert len(story.pod.history) == 2
            assert story.pod.status().turns == 1
            await story.turns("another way")
            new = story.pod.session_id

        assert user_texts(served.asked[-1]) == ["first", "another way"]
        (changed,) = story.of(SessionChanged)
        assert changed == SessionChanged(old_session_id=old, new_session_id=new, reason="rewind")
        assert log_of(home, old) == before
        assert pointer(home) == new

        async with living(path, home, resume=new) as again:
            await again.turns("go on")

        assert user_texts(served.asked[-1]) == ["first", "another way", "go on"]
        assert pointer(home) == new, "a run on a rewound session moves the pointer as any other"


async def test_an_unknown_entry_changes_nothing(home: Path) -> None:
    with serving(counting) as served:
        async with living(manifest(home, served.base_url), home) as story:
            await story.turns("first")
            old = story.pod.session_id
            with pytest.raises(UnknownEntry):
                await story.pod.rewind(to="00" * 32)

            await story.turns("second")
            assert story.pod.session_id == old

        assert user_texts(served.asked[-1]) == ["first", "second"]
        assert not story.of(SessionChanged)
        assert FileSessionStore(home).ids() == [old]


async def test_the_pointer_follows_the_next_compaction_too(home: Path) -> None:
    def answers(_: object, number: int) -> Say:
        return Say(f"answer {number}")

    with serving(chat(answers)) as served:
        path = manifest(home, served.base_url, COMPACT)
        async with living(path, home) as story:
            await story.turns("one", "two")
            await story.pod.rewind(to=ends(home, story.pod.session_id)[0])
            rewound = story.pod.session_id
            await story.turns(*(f"{n} {prose(9_000)}" for n in "abc"))
            assert story.pod.session_id != rewound, "it was compacted"
            assert pointer(home) == story.pod.session_id
            assert kinds(home, story.pod.session_id)[1] == "compaction"


async def test_a_fork_that_goes_back_leaves_the_pointer_alone(home: Path) -> None:
    with serving(counting) as served:
        async with living(manifest(home, served.base_url), home) as story:
            await story.turns("one", "two")
            parent = story.pod.session_id
            async with await story.pod.fork() as child:
                await child.run("three")
                await child.rewind(to=ends(home, parent)[0])
                assert len(child.history) == 2
                await child.run("four")

        assert pointer(home) == parent
        assert user_texts(served.asked[-1]) == ["one", "four"]
