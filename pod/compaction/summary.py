"""Writing a summary: prompts that fit the summarizer's window, folds, checks and one repair.

Everything here is a plain function over text; the model is called through a `Summarize` callable,
which blocks until the answer is there.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import TypeAlias

import orjson
from attrs import define, evolve, field, frozen

from pod.compaction.checks import SummaryProblem, summary_problem
from pod.compaction.plan import CompactionError
from pod.compaction.prompts import prompt
from pod.compaction.transcript import blocks, chunked, fence
from worker.errors import ContextOverflow, ProviderError, WorkerError
from worker.items import Item
from worker.llm.types import Usage
from worker.text import cut_middle, utf8_len

BYTES_PER_TOKEN = 2.5
"""Taken low, so that a record that was made to fit does fit."""
PROMPT_TOKENS = 900
"""Room for the instructions around the record."""
MAX_FOLDS = 16
"""The most requests for one summary, repairs and retries aside."""
SMALLEST_RECORD_BYTES = 1_000


@frozen
class SummaryCall:
    """One request to the summarizer."""

    system: str
    user: str
    max_tokens: int


@frozen
class SummaryAnswer:
    """What the summarizer answered: its visible text, and how it stopped."""

    text: str
    stop_reason: str
    usage: Usage
    model: str


Summarize: TypeAlias = Callable[[SummaryCall], SummaryAnswer]


@frozen
class Written:
    """A summary that passed all checks, and what it took."""

    text: str
    usage: Usage
    model: str


@frozen
class Assignment:
    """What is to be summarized, and within which sizes."""

    items: Sequence[Item]
    previous: str
    focus: str | None
    max_tokens: int
    window: int
    """The summarizer's own window, in tokens."""
    memory: str = ""
    """What a memory provider has to say; data like the record."""
    short: bool = False
    """Whether the model is held to the sections by a grammar: small models copy what they are told
    at length, so they are told little."""


def write_summary(assignment: Assignment, summarize: Summarize) -> Written:
    """Return a checked summary of the assignment, folding it in chunks where one is not enough.

    Raises:
        CompactionError: The summarizer failed, or what it wrote is no summary after one repair.
    """
    texts = blocks(assignment.items)
    if not texts:
        raise CompactionError("empty", "nothing that can be read is in what would be summarized")

    written = Written(_fitted_previous(assignment), Usage(), "")
    used = _Used(summarize)
    for record in _records(texts, utf8_len(written.text), assignment):
        answer = _attempt(record, written.text, assignment, used)
        written = Written(answer.text.strip(), used.usage, answer.model)

    return written


@define
class _Used:
    """A `Summarize` that adds up what every answer used, refused ones too."""

    summarize: Summarize
    usage: Usage = field(factory=Usage)

    def __call__(self, call: SummaryCall) -> SummaryAnswer:
        answer = self.summarize(call)
        self.usage += answer.usage
        return answer


def _fitted_previous(assignment: Assignment) -> str:
    """Return the summary so far; one that was made for a larger window gives up its middle."""
    room = max(SMALLEST_RECORD_BYTES, int(assignment.window * BYTES_PER_TOKEN / 3))
    return cut_middle(assignment.previous, room)


def _records(texts: list[str], previous_bytes: int, assignment: Assignment) -> list[str]:
    """Return the records to fold, at most `MAX_FOLDS`, none of them empty."""
    previous_tokens = max(previous_bytes / BYTES_PER_TOKEN, assignment.max_tokens)
    beside_tokens = PROMPT_TOKENS + utf8_len(assignment.memory) / BYTES_PER_TOKEN
    tokens = assignment.window - assignment.max_tokens - beside_tokens - previous_tokens
    room = max(SMALLEST_RECORD_BYTES, int(tokens * BYTES_PER_TOKEN))
    records = chunked(texts, room)
    if len(records) > MAX_FOLDS:
        # Too much for a bounded number of requests: every block gives up its middle.
        share = max(200, room * MAX_FOLDS // len(texts) - 80)
        records = chunked([cut_middle(text, share) for text in texts], room)

    if len(records) > MAX_FOLDS:
        left_out = f"[… {len(records) - MAX_FOLDS} parts of the record left out …]"
        newest = records[-(MAX_FOLDS - 2) :]
        records = [*records[:2], f"{left_out}\n{newest[0]}", *newest[1:]]

    return records


def _attempt(
    record: str, previous: str, assignment: Assignment, summarize: Summarize
) -> SummaryAnswer:
    """Ask once, and once more with what was wrong; the second request always differs."""
    call = _call(record, previous, assignment)
    problem: SummaryProblem | None = None
    for attempt in (1, 2):
        try:
            answer = summarize(call)
        except ContextOverflow as error:
            if attempt == 2:
                raise _provider_failed(error) from error

            shorter = cut_middle(record, max(SMALLEST_RECORD_BYTES, utf8_len(record) // 2))
            call = _call(shorter, previous, assignment)
            continue
        except WorkerError as error:
            raise _provider_failed(error) from error

        problem = summary_problem(answer.text, answer.stop_reason)
        if problem is None:
            return answer

        call = _call(record, previous, assignment, repair=problem)
        if problem.reason == "truncated":
            call = evolve(call, max_tokens=call.max_tokens * 2)

    assert problem is not None  # noqa: S101  every other way out was taken
    raise CompactionError(problem.reason, problem.message)


def _provider_failed(error: WorkerError) -> CompactionError:
    if isinstance(error, ProviderError) and error.code == "refusal":
        return CompactionError("refusal", "the summarizer refused")

    return CompactionError("provider_error", f"the summarizer's request failed: {error.message}")


def _call(
    record: str, previous: str, assignment: Assignment, *, repair: SummaryProblem | None = None
) -> SummaryCall:
    delimiter = f"=====record-{secrets.token_hex(8)}====="
    parts = [f"The record, between two lines {delimiter}:", fence(record, delimiter)]
    if previous:
        parts = [prompt("previous"), fence(previous, delimiter), *parts]

    if assignment.memory:
        # A JSON string has no line of its own and no quote that ends it: nothing in it stands out.
        memory = fence(orjson.dumps(assignment.memory).decode(), delimiter)
        parts = [prompt("memory"), memory, *parts]

    words = max(80, assignment.max_tokens // 2)
    wording = "summarize_short" if assignment.short else "summarize"
    parts.append(prompt(wording).replace("{words}", str(words)))
    if assignment.focus:
        parts.append(prompt("focus").replace("{focus}", assignment.focus))

    if repair is not None:
        parts.append(prompt("repair").replace("{problem}", repair.message))

    return SummaryCall(prompt("summarizer_system"), "\n\n".join(parts), assignment.max_tokens)


def output_cap(threshold: int, window: int) -> int:
    """Return the most tokens a summary may have: a quarter of what it must fit in, bounded."""
    return max(512, min(4_096, threshold // 4, window // 4))
