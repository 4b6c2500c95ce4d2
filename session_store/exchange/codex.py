"""Codex rollouts: response items and events in the order they came, one a line.

Response items make the history; events mostly repeat them, and are counted or kept. A `compacted`
record that says what the history was replaced by begins a new session. One whose summary only its
provider can read does not: then the history goes on whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from attrs import define, field

from worker.items import Reasoning, SummaryMessage, Text, UserMessage

from .blocks import (
    blocks_of,
    encrypted_reasoning,
    mapping,
    number,
    spoken,
    string,
    text_of,
    time_ms,
    tool_call,
    tool_output,
)
from .draft import Conversation, Draft, Mark, Part, Step
from .jsontext import JsonObject, compact_json
from .lines import BadLine, read_records
from .tally import Tally

NAME = "codex"
_KINDS = frozenset(
    {"session_meta", "response_item", "event_msg", "turn_context", "compacted", "world_state"}
)
_BARE_ITEMS = frozenset({"message", "reasoning", "function_call", "function_call_output"})
_REPEATS = frozenset(
    {"user_message", "agent_message", "agent_reasoning", "agent_reasoning_raw_content"}
)
_CALLS = {
    "function_call": ("name", "arguments"),
    "custom_tool_call": ("name", "input"),
    "local_shell_call": ("", "action"),
    "tool_search_call": ("", "arguments"),
}
_OUTPUTS = {
    "function_call_output": "output",
    "custom_tool_call_output": "output",
    "local_shell_call_output": "output",
    "tool_search_output": "tools",
}
_INJECTED = (
    "<environment_context>",
    "<user_instructions>",
    "<turn_aborted>",
    "<permissions",
    "<user_shell_command>",
    "<skill>",
    "<subagent_notification>",
    "# AGENTS.md instructions",
)


def recognises(record: JsonObject) -> bool:
    """Tell whether the record is one of a rollout."""
    if record.get("type") in _KINDS:
        return isinstance(record.get("payload"), dict)

    is_item = record.get("type") in _BARE_ITEMS and "message" not in record
    is_old_head = {"id", "timestamp", "instructions"} <= record.keys()
    return is_item or is_old_head or record.get("record_type") == "state"


def read(path: Path, tally: Tally) -> Iterator[Conversation]:
    """Yield the conversation of the file."""
    reader = _Reader(Draft(NAME, tally))
    for record in read_records(path):
        if isinstance(record, BadLine):
            tally.bad(record.line, record.why)
        else:
            tally.records += 1
            reader.take(record.line, record.value)

    reader.close_answer()
    yield reader.draft.finished()


@define
class _Reader:
    draft: Draft
    _model: str = ""
    _parts: list[Part] = field(factory=list)
    _at: int | None = None
    _answer: Step | None = None
    _measured: object = None

    def take(self, line: int, record: JsonObject) -> None:
        """Take one record."""
        payload, at = record.get("payload"), time_ms(record.get("timestamp"))
        kind = string(record.get("type"))
        if not isinstance(payload, dict):
            kind, payload = ("response_item" if kind in _BARE_ITEMS else kind), record

        match kind:
            case "response_item":
                self._take_item(line, payload, at)
            case "event_msg":
                self._take_event(line, payload)
            case "compacted":
                self._compact(line, payload)
            case "session_meta":
                self._note_source(payload)
            case "turn_context":
                self._model = string(payload.get("model")) or self._model
                self.draft.tally.left_out["turn setting"] += 1
            case _ if record.get("record_type") == "state":
                self.draft.tally.left_out["state record"] += 1
            case _ if {"id", "instructions"} <= record.keys():
                self._note_source(record)
            case _:
                self.draft.keep(f"{kind.replace('_', ' ') or 'unnamed'} record", line, record)

    def close_answer(self) -> None:
        """Add the answer whose parts came one after the other."""
        if self._parts:
            self._answer = self.draft.answer(
                self._parts, provider="openai_responses", model=self._model, mark=Mark(at=self._at)
            )

        self._parts = []

    def _note_source(self, payload: JsonObject) -> None:
        conversation = self.draft.conversation
        instructions = mapping(payload.get("base_instructions")).get("text")
        text = string(instructions) or string(payload.get("instructions"))
        conversation.system_prompt = conversation.system_prompt or text
        for key in ("id", "cwd", "cli_version", "originator", "model_provider"):
            if key not in conversation.source and isinstance(payload.get(key), str):
                conversation.source[key] = payload[key]

    def _take_item(self, line: int, item: JsonObject, at: int | None) -> None:
        kind = string(item.get("type"))
        if kind == "message":
            self._take_message(item, at)
        elif kind == "reasoning":
            self._add(_reasoning(item, self._model), at)
        elif kind in _CALLS:
            name, arguments = _CALLS[kind]
            called = string(item.get(name)) or kind.removesuffix("_call")
            self._add(tool_call(_call_id(item), called, item.get(arguments)), at)
        elif kind in _OUTPUTS:
            self._take_output(line, item, item.get(_OUTPUTS[kind]), at)
        elif kind == "agent_message":
            self.close_answer()
            self.draft.note(text_of(item.get("content")), "message of another agent", Mark(at=at))
        else:
            self.draft.keep(kind.replace("_", " ") or "unnamed item", line, item)

    def _add(self, part: Part, at: int | None) -> None:
        self._at = self._at if self._parts else at
        self._parts.append(part)

    def _take_message(self, item: JsonObject, at: int | None) -> None:
        said = spoken(item.get("content"), self.draft.tally)
        role = item.get("role")
        if role == "assistant":
            for part in said:
                if isinstance(part, Text):
                    self._add(part, at)

            return

        self.close_answer()
        if role == "user":
            text = text_of(item.get("content"))
            is_injected = text.lstrip().startswith(_INJECTED)
            self.draft.user(said, injected=is_injected, mark=Mark(at=at))
        else:
            self.draft.note(text_of(item.get("content")), string(role) or "system", Mark(at=at))

    def _take_output(self, line: int, item: JsonObject, output: object, at: int | None) -> None:
        self.close_answer()
        is_error = False
        if isinstance(output, dict) and "content" in output:
            is_error, output = output.get("success") is False, output["content"]
        elif item.get("type") == "tool_search_output":
            output = compact_json(output)

        told = tool_output(output, self.draft.tally)
        if not self.draft.result(_call_id(item), told, is_error=is_error, mark=Mark(at=at)):
            self.draft.keep("orphan result", line, item)

    def _take_event(self, line: int, event: JsonObject) -> None:
        kind = string(event.get("type"))
        if kind == "token_count":
            self._measure(mapping(mapping(event.get("info")).get("last_token_usage")))
        elif kind == "thread_rolled_back":
            self.close_answer()
            self.draft.drop_turns(number(event.get("num_turns")))
        elif kind == "thread_name_updated":
            name = string(event.get("thread_name")) or string(event.get("name"))
            self.draft.conversation.title = name
        elif kind in _REPEATS:
            self.draft.tally.left_out["repeating event"] += 1
        else:
            self.draft.keep(f"{kind.replace('_', ' ') or 'unnamed'} event", line, event)

    def _measure(self, usage: JsonObject) -> None:
        occupancy = number(usage.get("input_tokens"))
        # The same counts are told again when only the limits changed.
        if not occupancy or usage == self._measured:
            return

        self._measured = usage
        self.close_answer()
        fields = {
            "input_tokens": occupancy,
            "cache_read": number(usage.get("cached_input_tokens")),
            "cache_write": number(usage.get("cache_write_input_tokens")),
            "output_tokens": number(usage.get("output_tokens")),
            "model": self._model,
        }
        self.draft.measured(fields, self._answer)

    def _compact(self, line: int, payload: JsonObject) -> None:
        self.close_answer()
        replaced = payload.get("replacement_history")
        items = [mapping(one) for one in replaced] if isinstance(replaced, list) else []
        if any("compaction" in string(one.get("type")) for one in items):
            self.draft.keep("compaction", line, payload)
            self.draft.tally.note(
                "a compaction was passed over: only its provider can read the summary, "
                "so the history goes on whole"
            )
            return

        message = string(payload.get("message"))
        steps = self.draft.history_steps()
        base = self._replacement(items, message) if items else _what_people_said(steps)
        if message and not any(isinstance(step.item, SummaryMessage) for step in base):
            base.append(self.draft.summary(message))

        if base:
            self.draft.compact(base)

    def _replacement(self, items: list[JsonObject], message: str) -> list[Step]:
        """Return what the history was replaced by; what was said before stays what it was."""
        known = {
            step.item.text: step
            for step in self.draft.history_steps()
            if isinstance(step.item, UserMessage)
        }
        base: list[Step] = []
        for item in items:
            text = text_of(item.get("content"))
            step = known.pop(text, None)
            if step is None and message and text.endswith(message):
                step = self.draft.summary(text)
            elif step is None and item.get("role") in {"user", "assistant"} and text:
                step = self.draft.said(spoken(item.get("content"), self.draft.tally))

            base += [] if step is None else [step]

        return base


def _what_people_said(steps: list[Step]) -> list[Step]:
    return [step for step in steps if isinstance(step.item, UserMessage)]


def _reasoning(item: JsonObject, model: str) -> Reasoning:
    said = [*blocks_of(item.get("summary")), *blocks_of(item.get("content"))]
    return encrypted_reasoning(item, text_of(said), model)


def _call_id(item: JsonObject) -> str:
    return string(item.get("call_id")) or string(item.get("id"))
