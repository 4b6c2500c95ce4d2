"""pi sessions: a tree of entries by `id` and `parentId`, one a line; older ones are a plain list.

What counts is the path from the root to the last entry. A compaction on it begins a new session,
of its summary and the entries that it kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from attrs import define, field

from worker.items import Reasoning, SummaryMessage, Text

from .blocks import (
    blocks_of,
    encrypted_reasoning,
    mapping,
    number,
    provider_named,
    spoken,
    string,
    time_ms,
    tool_call,
    tool_output,
)
from .draft import Conversation, Draft, Mark, Part, Step, own_uid
from .jsontext import JsonObject, Malformed, parse
from .lines import BadLine, read_records
from .tally import Tally

NAME = "pi"
_STOPS = {
    "stop": "end",
    "toolUse": "tool_calls",
    "length": "max_tokens",
    "error": "partial",
    "aborted": "partial",
}
_NAMES = {
    "thinking_level_change": "thinking level change",
    "model_change": "model change",
    "custom": "extension state",
    "label": "label",
}


def recognises(record: JsonObject) -> bool:
    """Tell whether the record is one of a pi session."""
    if record.get("type") == "session":
        return isinstance(record.get("id"), str) and "cwd" in record

    is_message = record.get("type") == "message" and isinstance(record.get("message"), dict)
    return is_message and "sessionId" not in record


def read(path: Path, tally: Tally) -> Iterator[Conversation]:
    """Yield the conversation of the file."""
    reader = _Reader(Draft(NAME, tally), _active_path(path))
    for record in read_records(path):
        if isinstance(record, BadLine):
            tally.bad(record.line, record.why)
            continue

        tally.records += 1
        entry_id = record.value.get("id")
        if record.value.get("type") == "session" or entry_id is None or entry_id in reader.path:
            reader.take(record.line, record.value)
        else:
            tally.left_out["other-branch entry"] += 1

    yield reader.draft.finished()


def _active_path(path: Path) -> set[str]:
    """Return the ids of the entries from the root to the last one."""
    parents: dict[str, tuple[str, str]] = {}
    last = ""
    for record in read_records(path):
        if isinstance(record, BadLine) or record.value.get("type") == "session":
            continue

        entry_id = string(record.value.get("id"))
        if entry_id and entry_id not in parents:
            parents[entry_id] = string(record.value.get("parentId")), last
            last = entry_id

    active: set[str] = set()
    while last and last not in active:
        active.add(last)
        parent, before = parents[last]
        # Where the parent was lost, what stands before is the nearest to it.
        last = parent if parent in parents or not parent else before

    return active


@define
class _Reader:
    draft: Draft
    path: set[str]
    _before: list[tuple[str, Step | None]] = field(factory=list)
    """Each entry's id, and the step that was the newest when it came."""

    def take(self, line: int, entry: JsonObject) -> None:
        """Take one entry."""
        kind, mark = string(entry.get("type")), _mark(entry)
        self._before.append((string(entry.get("id")), self.draft.newest))
        match kind:
            case "session":
                self._note_source(entry)
            case "message":
                self._take_message(line, entry, mapping(entry.get("message")), mark)
            case "compaction":
                self._compact(entry)
            case "branch_summary":
                self.draft.note(string(entry.get("summary")), "branch summary", mark)
            case "custom_message":
                parts = spoken(entry.get("content"), self.draft.tally)
                self.draft.user(parts, injected=True, mark=mark)
            case "session_info" if string(entry.get("name")):
                self.draft.conversation.title = string(entry["name"])
            case _:
                self.draft.keep(_NAMES.get(kind, f"{kind or 'unnamed'} entry"), line, entry)

    def _note_source(self, entry: JsonObject) -> None:
        known = ("id", "version", "cwd", "provider", "modelId", "thinkingLevel", "parentSession")
        source = self.draft.conversation.source
        source |= {key: entry[key] for key in known if isinstance(entry.get(key), (str, int))}

    def _take_message(self, line: int, entry: JsonObject, message: JsonObject, mark: Mark) -> None:
        match message.get("role"):
            case "user":
                self.draft.user(spoken(message.get("content"), self.draft.tally), mark=mark)
            case "assistant":
                self._take_answer(line, message, mark)
            case "toolResult":
                output = tool_output(message.get("content"), self.draft.tally)
                is_error = message.get("isError") is True
                call_id = string(message.get("toolCallId"))
                if not self.draft.result(call_id, output, is_error=is_error, mark=mark):
                    self.draft.keep("orphan result", line, entry)
            case "bashExecution" if not message.get("excludeFromContext"):
                self.draft.user([Text(_command_text(message))], injected=True, mark=mark)
            case "custom":
                parts = spoken(message.get("content"), self.draft.tally)
                self.draft.user(parts, injected=True, mark=mark)
            case "branchSummary" | "compactionSummary":
                self.draft.note(string(message.get("summary")), "summary", mark)
            case role:
                self.draft.keep(f"{role} message", line, entry)

    def _take_answer(self, line: int, message: JsonObject, mark: Mark) -> None:
        provider = provider_named(string(message.get("api")) or message.get("provider"))
        model = string(message.get("model"))
        reason = string(message.get("stopReason"))
        step = self.draft.answer(
            self._parts(line, message, provider, model),
            provider=provider,
            model=model,
            stop_reason=_STOPS.get(reason, reason) or None,
            mark=mark,
        )
        usage = mapping(message.get("usage"))
        read, written = number(usage.get("cacheRead")), number(usage.get("cacheWrite"))
        occupancy = number(usage.get("input")) + read + written
        if step is None or not occupancy:
            return

        cost = mapping(usage.get("cost")).get("total")
        fields = {
            "input_tokens": occupancy,
            "cache_read": read,
            "cache_write": written,
            "output_tokens": number(usage.get("output")),
            "model": model,
            "cost": cost if isinstance(cost, (int, float)) else None,
        }
        self.draft.measured(fields, step)

    def _parts(self, line: int, message: JsonObject, provider: str, model: str) -> Iterator[Part]:
        for block in blocks_of(message.get("content")):
            match block.get("type"):
                case "text":
                    yield Text(string(block.get("text")))
                case "thinking":
                    yield _thinking(block, provider, model)
                case "toolCall":
                    yield tool_call(block.get("id"), block.get("name"), block.get("arguments"))
                case kind:
                    self.draft.keep(f"{kind} block", line, block)

    def _compact(self, entry: JsonObject) -> None:
        kept = self._kept_from(entry.get("firstKeptEntryId"), entry.get("firstKeptEntryIndex"))
        summary = self.draft.summary(string(entry.get("summary")), _mark(entry))
        self.draft.compact([summary, *kept], entry.get("tokensBefore"))

    def _kept_from(self, entry_id: object, index: object) -> list[Step]:
        """Return what a compaction kept: the steps from an entry on, an older summary apart."""
        places = [number for number, (known, _) in enumerate(self._before) if known == entry_id]
        if isinstance(index, int) and not places:
            places = [index]

        if not places or not 0 <= places[-1] < len(self._before):
            return []

        steps = self.draft.history_steps()
        newest = self._before[places[-1]][1]
        start = steps.index(newest) + 1 if newest in steps else 0
        return [step for step in steps[start:] if not isinstance(step.item, SummaryMessage)]


def _mark(entry: JsonObject) -> Mark:
    return Mark(own_uid(entry.get("id")), time_ms(entry.get("timestamp")))


def _thinking(block: JsonObject, provider: str, model: str) -> Reasoning:
    signature = block.get("thinkingSignature")
    proof = signature if isinstance(signature, str) else None
    text = string(block.get("thinking"))
    if provider in {"openai", "openai_responses"} and proof is not None:
        # What pi keeps here is the provider's whole item; what is no JSON is the proof itself.
        with suppress(Malformed):
            return encrypted_reasoning(mapping(parse(proof)), text, model)

    return Reasoning(text, proof, None, provider, model)


def _command_text(message: JsonObject) -> str:
    output = string(message.get("output")) or "(no output)"
    code = message.get("exitCode")
    ended = f"\n\nExit code: {code}" if isinstance(code, int) and code else ""
    return f"Ran `{string(message.get('command'))}`\n```\n{output}\n```{ended}"
