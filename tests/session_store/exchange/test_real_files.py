"""Sessions that other agents really wrote, where they are at hand: they are not ours to ship."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from session_store.exchange import export_session, import_file
from tests.session_store.builders import a_store
from tests.session_store.exchange.sources import chat_request, is_sound, is_valid_chat, put
from worker.items import ToolResult

ROOT = Path(__file__).resolve().parents[3]
FOLDER = Path(os.environ.get("PODWORKER_REALDATA", ROOT.parent / "shared" / "realdata"))

pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(),
    reason=f"no real sessions in {FOLDER}; PODWORKER_REALDATA names their folder",
)

EXPECTED = {
    # name: (format, sessions, items of all, calls, unanswered)
    "claude_code_python_to_rust.jsonl": ("claude-code", 1, 80, 39, 0),
    "codex_rollout_small.jsonl": ("codex", 1, 10, 6, 1),
    "hermes_trajectory_samples.jsonl": ("hermes-trajectory", 13, 26, 0, 0),
    "pi_large_session.jsonl": ("pi", 1, 918, 391, 18),
    "swe_agent_marshmallow_1867.traj": ("swe-agent", 1, 27, 13, 0),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_real_session_is_imported_verified_sent_exported_and_imported_again(
    home: Path, tmp_path: Path, name: str
) -> None:
    store, source = a_store(home), FOLDER / name
    before = source.read_bytes()
    found = import_file(store, source)

    assert source.read_bytes() == before
    items, calls = sum(len(one.items) for one in found), sum(one.calls for one in found)
    unanswered = sum(one.unanswered for one in found)
    assert (found[0].format, len(found), items, calls, unanswered) == EXPECTED[name]
    assert not found[0].tally.bad_lines
    for one in found:
        for session_id in (*one.earlier, one.session_id):
            is_sound(store, session_id)

        exported = put(tmp_path, b"".join(export_session(store, one.session_id)))
        (again,) = import_file(store, exported)
        old, new = store.restore(one.session_id), store.restore(again.session_id)
        assert (new.history, new.usage, new.totals) == (old.history, old.usage, old.totals)


def test_a_session_with_aborted_answers_sends_neither_empty_messages_nor_open_calls(
    home: Path,
) -> None:
    store = a_store(home)
    (one,) = import_file(store, FOLDER / "pi_large_session.jsonl")
    state = store.restore(one.session_id)

    messages = chat_request(state.system_prompt, state.history)
    is_valid_chat(messages)
    assert one.tally.left_out["empty answer"] == 14
    assert (
        sum("interrupted" in r.summary[:11] for r in state.history if isinstance(r, ToolResult))
        >= 18
    )
    assert len(messages) == len(state.history)
    assert state.turns == 88
    assert round(state.totals.cost, 2) == 30.33
