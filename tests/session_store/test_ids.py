from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from session_store import FileSessionStore, InvalidPodName, InvalidSessionId, check_session_id
from session_store.ids import uuid7
from tests.session_store.builders import a_store, told

HOSTILE = [
    *("../../x", "/abs", "a/b", "..", ".", "", "a\0b", "CON", "x" * 300, "-rf", "~root", "%2e%2e"),
    *("..\u2215x", "..\uff0fx", "cafe\u0301", "01a22e10-aaeb-7708-8b2f-e5eed8aadb69\n"),
    *("01A22E10-AAEB-7708-8B2F-E5EED8AADB69", "01a22e10aaeb77088b2fe5eed8aadb69"),
    *("../01a22e10-aaeb-7708-8b2f-e5eed8aadb69", "{01a22e10-aaeb-7708-8b2f-e5eed8aadb69}"),
    "\u0660\u0661a22e10-aaeb-7708-8b2f-e5eed8aadb69"[:36],
]
USES: list[Callable[[FileSessionStore, str], object]] = [
    lambda store, text: store.open(text),
    lambda store, text: store.restore(text),
    lambda store, text: list(store.entries(text)),
    lambda store, text: store.fork(text),
    lambda store, text: store.fork_point(text),
    lambda store, text: store.save_compacted(text, []),
    lambda store, text: store.children(text),
    lambda store, text: store.lineage(text),
    lambda store, text: store.verify(text),
    lambda store, text: store.holder(text),
    lambda store, text: store.set_pointer("probe", text),
]


def test_an_id_is_a_uuid_of_version_7_and_sorts_by_birth() -> None:
    made = uuid7(0x017F22E279B0, lambda size: b"\xff" * size)
    assert made == "017f22e2-79b0-7fff-bfff-ffffffffffff"
    assert uuid.UUID(made).version == 7
    assert uuid.UUID(made).variant == uuid.RFC_4122
    assert check_session_id(made) == made
    assert uuid7(5) < uuid7(6) < uuid7(1 << 40)
    assert len({uuid7(5) for _ in range(100)}) == 100


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_a_hostile_id_is_refused_by_everything_and_touches_nothing(
    home: Path, tmp_path: Path, text: str
) -> None:
    store = a_store(home)
    told(store, 1)
    before = sorted(tmp_path.rglob("*"))
    for use in USES:
        with pytest.raises(InvalidSessionId, match="not a session id") as caught:
            use(store, text)

        assert len(str(caught.value)) < 200
        assert str(caught.value).isprintable() or "\n" in str(caught.value)

    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("text", ["", "Bad Name!", "../x", "a/b", "a.b", "x" * 65, "ü", "a\n"])
def test_a_hostile_pod_name_is_refused(home: Path, text: str) -> None:
    store = a_store(home)
    session_id = told(store, 1)
    for use in (
        lambda: store.pointer(text),
        lambda: store.set_pointer(text, session_id),
        lambda: store.create(pod=text, system_prompt="", config={}),
    ):
        with pytest.raises(InvalidPodName, match="not a pod name"):
            use()

    assert not (home / "pods").exists()
