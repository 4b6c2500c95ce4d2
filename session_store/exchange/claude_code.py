"""Claude Code sessions: a tree of records by `uuid` and `parentUuid`, one a line.

The file is read twice: first for the shape of the tree, then for what is on its way to the newest
message, which is what Claude Code itself would go on from. A compaction there (`compact_boundary`
and the summary after it) begins a new session.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from attrs import define, evolve, field

from worker.items import Image, Text

from .blocks import (
    blocks_of,
    mapping,
    number,
    spoken,
    string,
    text_of,
    thinking,
    time_ms,
    tool_call,
    tool_output,
)
from .claude_code_tree import ClaudeTree
from .draft import Conversation, Draft, Mark, Measured, Part, Step, own_uid
from .jsontext import JsonObject
from .lines import BadLine, read_records
from .tally import Tally

NAME = "claude-code"
_STOPS = {"end_turn": "end", "tool_use": "tool_calls"}
_NAMES = {
    "file-history-snapshot": "file snapshot",
    "queue-operation": "queue record",
    "summary": "title record",
    "progress": "progress record",
    "attachment": "attachment",
}
_NOT_SAID = (
    "<local-command-",
    "<system-reminder>",
    "<task-notification>",
    "<bash-",
    "[Request interrupted by user",
)


def recognises(record: JsonObject) -> bool:
    """Tell whether the record is one of a Claude Code session."""
    if record.get("type") == "summary" and "leafUuid" in record:
        return True

    if record.get("type") == "file-history-snapshot" and "snapshot" in record:
        return True

    return isinstance(record.get("sessionId"), str) and isinstance(record.get("type"), str)


def read(path: Path, tally: Tally) -> Iterator[Conversation]:
    """Yield the conversation of the file."""
    main, side = ClaudeTree(side=False), ClaudeTree(side=True)
    for record in read_records(path):
        if not isinstance(record, BadLine):
            main.take(record.line, record.value)
            side.take(record.line, record.value)

    # A file of its own that a sub-agent has holds no other records.
    ways = main.ways()
    tree, ways = (main, ways) if ways else (side, side.ways())
    reader = _Reader(Draft(NAME, tally), ways, is_of_sub_agent=tree.side)
    for record in read_records(path):
        if isinstance(record, BadLine):
            tally.bad(record.line, record.why)
        else:
            tally.records += 1
            reader.take(record.line, record.value)

    yield reader.draft.finished()


@define
class _Reader:
    draft: Draft
    ways: dict[int, frozenset[str]]
    """The lines that count, and what each keeps of what was before if it is a summary."""
    is_of_sub_agent: bool
    _answers: dict[str, tuple[Step, Measured | None]] = field(factory=dict)
    _last: Step | None = None

    def take(self, line: int, record: JsonObject) -> None:
        """Take one record."""
        kind = string(record.get("type"))
        self._note_source(record)
        if kind not in {"user", "assistant"} or not isinstance(record.get("message"), dict):
            self._take_other(line, kind, record)
        elif record.get("isSidechain") and not self.is_of_sub_agent:
            self.draft.keep("sub-agent record", line, record)
        elif line not in self.ways:
            self.draft.tally.left_out["other-branch record"] += 1
        elif kind == "assistant":
            self._take_answer(line, record)
        elif record.get("isCompactSummary"):
            self._take_summary(line, record)
        else:
            self._take_user(line, record)

    def _note_source(self, record: JsonObject) -> None:
        source = self.draft.conversation.source
        for key in ("sessionId", "cwd", "version", "gitBranch"):
            if key not in source and isinstance(record.get(key), str):
                source[key] = record[key]

    def _take_other(self, line: int, kind: str, record: JsonObject) -> None:
        attachment = mapping(record.get("attachment"))
        if kind == "custom-title" and string(record.get("customTitle")):
            self.draft.conversation.title = string(record["customTitle"])
        elif attachment.get("type") == "queued_command" and line in self.ways:
            # Typed while the model worked; it was put before the model where it stands.
            parts = spoken(attachment.get("prompt"), self.draft.tally)
            self.draft.user(parts, mark=_mark(record))
        else:
            self.draft.keep(_what(kind, record), line, record)

    def _take_answer(self, line: int, record: JsonObject) -> None:
        message = mapping(record.get("message"))
        if record.get("isApiErrorMessage") or message.get("model") == "<synthetic>":
            self.draft.keep("program notice", line, record)
            return

        model = string(message.get("model"))
        parts = list(self._answer_parts(line, message, model))
        message_id, mark = string(message.get("id")), _mark(record)
        known = self._answers.get(message_id)
        if known is not None and known[0] is self._last:
            # Claude Code writes one record for each block of an answer.
            self.draft.extend(known[0], parts, mark.uid)
            self._measure(message, known)
            return

        reason = string(message.get("stop_reason"))
        step = self.draft.answer(
            parts,
            provider="anthropic",
            model=model,
            stop_reason=_STOPS.get(reason, reason) or None,
            mark=mark,
        )
        if step is not None:
            self._last = step
            self._answers = {message_id: (step, self._measure(message, (step, None)))}

    def _measure(
        self, message: JsonObject, answer: tuple[Step, Measured | None]
    ) -> Measured | None:
        usage = mapping(message.get("usage"))
        read, written = (
            usage.get("cache_read_input_tokens"),
            usage.get("cache_creation_input_tokens"),
        )
        occupancy = number(usage.get("input_tokens")) + number(read) + number(written)
        fields = {
            "input_tokens": occupancy,
            "cache_read": number(read),
            "cache_write": number(written),
            "output_tokens": number(usage.get("output_tokens")),
            "model": string(message.get("model")),
        }
        step, measured = answer
        if measured is not None and occupancy:
            measured.fields.update(fields)
        elif occupancy:
            measured = self.draft.measured(fields, step)

        return measured

    def _answer_parts(self, line: int, message: JsonObject, model: str) -> Iterator[Part]:
        for block in blocks_of(message.get("content")):
            match block.get("type"):
                case "text":
                    yield Text(string(block.get("text")))
                case "thinking" | "redacted_thinking":
                    yield thinking(block, "anthropic", model)
                case "tool_use":
                    yield tool_call(block.get("id"), block.get("name"), block.get("input"))
                case kind:
                    self.draft.keep(f"{kind} block", line, block)

    def _take_user(self, line: int, record: JsonObject) -> None:
        message, mark = mapping(record.get("message")), _mark(record)
        if "toolUseResult" in record:
            self.draft.tally.left_out["structured tool detail"] += 1

        said: list[JsonObject] = []
        for block in blocks_of(message.get("content")):
            if block.get("type") != "tool_result":
                said.append(block)
                continue

            output = tool_output(block.get("content"), self.draft.tally)
            is_error = block.get("is_error") is True
            call_id = string(block.get("tool_use_id"))
            if self.draft.result(call_id, output, is_error=is_error, mark=mark):
                mark = evolve(mark, uid=None)
            else:
                self.draft.keep("orphan result", line, block)

        parts = spoken(said, self.draft.tally)
        if parts:
            injected = bool(record.get("isMeta")) or _is_not_said(parts)
            self.draft.user(parts, injected=injected, mark=mark)
            self._last = None

    def _take_summary(self, line: int, record: JsonObject) -> None:
        kept = self.ways[line]
        text = text_of(mapping(record.get("message")).get("content"))
        summary = self.draft.summary(text, _mark(record))
        retained = [step for step in self.draft.history_steps() if step.item.uid in kept]
        self.draft.compact([summary, *retained])


def _mark(record: JsonObject) -> Mark:
    return Mark(own_uid(record.get("uuid")), time_ms(record.get("timestamp")))


def _is_not_said(parts: tuple[Text | Image, ...]) -> bool:
    first = parts[0]
    return isinstance(first, Text) and first.text.lstrip().startswith(_NOT_SAID)


def _what(kind: str, record: JsonObject) -> str:
    subtype = string(record.get("subtype"))
    if "hook" in subtype or string(mapping(record.get("data")).get("type")).startswith("hook"):
        return "hook record"

    if subtype == "compact_boundary":
        return "compaction record"

    return _NAMES.get(kind, f"{kind or 'unnamed'} record")
