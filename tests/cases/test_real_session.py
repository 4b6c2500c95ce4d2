"""A real, long and damaged session, sent to every provider: cases A11 and B09."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from session_store import FileSessionStore
from session_store.exchange import Imported, import_file
from tests.wire_rules.shared import dicts
from tests.wire_rules.targets import TARGETS, Target
from worker.items import AssistantMessage, Item, ToolResult
from worker.llm import LlmRequest
from worker.projection import repair

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(os.environ.get("PODWORKER_REALDATA", ROOT.parent / "shared" / "realdata"))
SOURCE = FOLDER / "pi_large_session.jsonl"

pytestmark = pytest.mark.skipif(
    not SOURCE.is_file(),
    reason=f"no {SOURCE.name} in {FOLDER}; PODWORKER_REALDATA names its folder",
)

CALLS, UNANSWERED, EMPTY_ANSWERS = 391, 18, 14


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Imported, list[Item]]:
    """The session as it was imported, and its history as it is sent."""
    store = FileSessionStore(tmp_path_factory.mktemp("home"))
    before = SOURCE.read_bytes()
    (one,) = import_file(store, SOURCE)
    assert SOURCE.read_bytes() == before, "its lines are untouched"
    return one, repair(store.restore(one.session_id).history)


def called_and_answered(value: object) -> Iterator[str]:
    """`call` and `result`, once for each that a request holds anywhere, in any dialect."""
    if isinstance(value, list):
        for one in value:
            yield from called_and_answered(one)
        return
    if not isinstance(value, dict):
        return

    kind, role = value.get("type"), value.get("role")
    yield from ("call" for _ in dicts(value.get("tool_calls")))
    if kind in ("tool_use", "function_call") or "functionCall" in value:
        yield "call"
    is_result = kind in ("tool_result", "function_call_output") or role == "tool"
    if is_result or "functionResponse" in value:
        yield "result"
    for key in ("messages", "input", "contents", "content", "parts"):
        yield from called_and_answered(value.get(key))


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_every_format_takes_it_with_a_result_of_each_call(
    imported: tuple[Imported, list[Item]], target: Target
) -> None:
    """A11: 391 calls, of which 18 have no result of their own."""
    one, items = imported
    assert (one.calls, one.unanswered) == (CALLS, UNANSWERED)
    synthetic = [
        item
        for item in items
        if isinstance(item, ToolResult) and item.is_error and "interrupted" in item.summary
    ]
    assert len(synthetic) == UNANSWERED

    sent = target.check(target.encoder().encode(LlmRequest("You help.", tuple(items))))

    found = list(called_and_answered(sent))
    assert found.count("call") == found.count("result") == CALLS


def test_empty_answers_are_left_out_and_counted(
    imported: tuple[Imported, list[Item]],
) -> None:
    """B09: 14 aborted answers hold nothing; none is sent, which each format above shows too."""
    one, items = imported
    assert one.tally.left_out["empty answer"] == EMPTY_ANSWERS
    assert all(item.parts for item in items if isinstance(item, AssistantMessage))

    sent = TARGETS["OpenAI, gpt-4.1"]
    body = sent.check(sent.encoder().encode(LlmRequest("", tuple(items))))
    answers = [m for m in dicts(body["messages"]) if m["role"] == "assistant"]
    assert len(answers) == sum(isinstance(item, AssistantMessage) for item in items)
    assert all(answer.get("content") or answer.get("tool_calls") for answer in answers)
