"""Chat messages: OpenAI's, and what others made of them. A list, one a line, or in `messages`.

Understood as well: Anthropic's blocks in a content, reasoning fields of several servers, and the
identity fields of Hermes messages, which are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from attrs import define, evolve

from worker.items import Reasoning, Text

from .blocks import (
    blocks_of,
    encrypted_reasoning,
    mapping,
    provider_named,
    spoken,
    string,
    text_of,
    thinking,
    time_ms,
    tool_call,
    tool_output,
)
from .documents import Bad, Begin, Element, End, Member, is_one_a_line, read_documents
from .draft import Conversation, Draft, Mark, Part
from .jsontext import JsonObject, Malformed, parse
from .lines import BadLine, read_records
from .tally import Tally

NAME = "openai-chat"
_STOPS = {
    "stop": "end",
    "end_turn": "end",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "length": "max_tokens",
}


def recognises(record: JsonObject) -> bool:
    """Tell whether the record is a chat message or holds a list of them."""
    return isinstance(record.get("messages"), list) or isinstance(record.get("role"), str)


def read(path: Path, tally: Tally) -> Iterator[Conversation]:
    """Yield the conversations of the file: one for all its messages, or one for each list."""
    if is_one_a_line(path):
        first = next((one for one in read_records(path) if not isinstance(one, BadLine)), None)
        if first is not None and "messages" not in first.value:
            yield _one_a_line(path, tally)
            return

    yield from _from_documents(path, tally)


def _from_documents(path: Path, tally: Tally) -> Iterator[Conversation]:
    messages = Messages(Draft(NAME, tally))
    for event in read_documents(path, {"messages"}):
        match event:
            case Begin():
                pass
            case Element(_, {"messages": list(inner)}):  # a list of whole conversations
                yield from _conversation(inner, Messages(Draft(NAME, tally)))
            case Element(_, value):
                messages.count(value)
            case Member(key, value):
                messages.note(key, value)
            case Bad(line, why):
                tally.bad(line, why)
                yield from _conversation([], messages)
                messages = Messages(Draft(NAME, tally))
            case End():
                yield from _conversation([], messages)
                messages = Messages(Draft(NAME, tally))


def _conversation(more: list[object], messages: Messages) -> Iterator[Conversation]:
    for message in more:
        messages.count(message)

    if not messages.draft.is_empty:
        yield messages.draft.finished()


def _one_a_line(path: Path, tally: Tally) -> Conversation:
    messages = Messages(Draft(NAME, tally))
    for record in read_records(path):
        if isinstance(record, BadLine):
            tally.bad(record.line, record.why)
        else:
            messages.count(record.value, record.line)

    return messages.draft.finished()


@define
class Messages:
    """Puts chat messages into a draft."""

    draft: Draft
    model: str = ""

    def note(self, key: str, value: object) -> None:
        """Note what stands beside the messages."""
        if key == "model" and isinstance(value, str):
            self.model = self.model or value

        if key == "system":  # as Anthropic's requests have it
            self.draft.conversation.system_prompt = text_of(value)
        elif isinstance(value, (str, int, float)) and len(str(value)) <= 200:
            self.draft.conversation.source[key] = value
        else:
            self.draft.keep(f"{key} member", 0, {key: value})

    def count(self, value: object, line: int = 0) -> None:
        """Take one record of a file, which should be a message."""
        if isinstance(value, dict):
            self.draft.tally.records += 1
            self.take(line, value)
        else:
            self.draft.tally.bad(line, "not an object")

    def take(self, line: int, message: JsonObject) -> None:
        """Take one message."""
        match message.get("role"):
            case "system" | "developer" as role:
                self._take_system(message, role)
            case "user" | "human":
                self._take_user(line, message)
            case "assistant" | "model":
                self._take_answer(line, message)
            case "tool" | "function":
                self._take_result(line, message)
            case _:
                self.draft.keep("roleless message", line, message)

    def _take_system(self, message: JsonObject, role: str) -> None:
        text = text_of(message.get("content"))
        if self.draft.is_empty and not self.draft.conversation.system_prompt:
            self.draft.conversation.system_prompt = text
        else:
            self.draft.note(text, role, _mark(message))

    def _take_user(self, line: int, message: JsonObject) -> None:
        mark = _mark(message)
        if message.get("_compressed_summary"):
            summary = self.draft.summary(text_of(message.get("content")), mark)
            self.draft.segment.steps.append(summary)
            return

        said: list[JsonObject] = []
        for block in blocks_of(message.get("content")):
            if block.get("type") != "tool_result":
                said.append(block)
                continue

            output = tool_output(block.get("content"), self.draft.tally)
            call_id, is_error = string(block.get("tool_use_id")), block.get("is_error") is True
            if not self.draft.result(call_id, output, is_error=is_error, mark=mark):
                self.draft.keep("orphan result", line, block)
                continue

            mark = evolve(mark, uid=None)

        parts = spoken(said, self.draft.tally)
        self.draft.user(parts, mark=mark)

    def _take_answer(self, line: int, message: JsonObject) -> None:
        model = string(message.get("model")) or self.model
        reason = string(message.get("finish_reason")) or string(message.get("stop_reason"))
        self.draft.answer(
            self._parts(line, message, model),
            provider=provider_named(message.get("provider")),
            model=model,
            stop_reason=_STOPS.get(reason, reason) or None,
            mark=_mark(message),
        )

    def _parts(self, line: int, message: JsonObject, model: str) -> Iterator[Part]:
        yield from reasoning_of(message, model)
        for block in blocks_of(message.get("content")):
            match block.get("type"):
                case "thinking" | "redacted_thinking":
                    yield thinking(block, "anthropic", model)
                case "tool_use":
                    yield tool_call(block.get("id"), block.get("name"), block.get("input"))
                case "refusal":
                    yield Text(string(block.get("refusal")))
                case _:
                    said = spoken([block], self.draft.tally)
                    yield from (part for part in said if isinstance(part, Text))

        yield from self._calls(line, message)

    def _calls(self, line: int, message: JsonObject) -> Iterator[Part]:
        uids = _decoded(message.get("tool_call_uids") or message.get("_tool_call_uids"))
        calls = _decoded(message.get("tool_calls"))
        legacy = mapping(message.get("function_call"))
        for index, call in enumerate(calls if isinstance(calls, list) else []):
            function = mapping(mapping(call).get("function")) or mapping(call)
            call_id = string(mapping(call).get("id"))
            if not function:
                self.draft.keep("malformed call", line, call)
                continue

            uid = _call_uid(uids, call_id, index)
            yield tool_call(call_id, function.get("name"), function.get("arguments"), uid)

        if legacy:
            yield tool_call("", legacy.get("name"), legacy.get("arguments"))

    def _take_result(self, line: int, message: JsonObject) -> None:
        ids = message.get("tool_call_ids")
        call_id = string(message.get("tool_call_id")) or next(
            iter(map(string, ids)) if isinstance(ids, list) else iter(()), ""
        )
        taken = self.draft.result(
            call_id or None,
            tool_output(message.get("content"), self.draft.tally),
            is_error=message.get("is_error") is True,
            mark=_mark(message),
            name=string(message.get("name")) or string(message.get("tool_name")),
        )
        if not taken:
            self.draft.keep("orphan result", line, message)


def reasoning_of(message: JsonObject, model: str) -> Iterator[Reasoning]:
    """Yield the thoughts that stand beside a message's content, with their proofs."""
    details = _decoded(message.get("reasoning_details"))
    items = _decoded(message.get("codex_reasoning_items"))
    found = False
    for detail in map(mapping, details if isinstance(details, list) else []):
        kind = string(detail.get("type"))
        is_block = kind in {"thinking", "redacted_thinking"}
        named = "anthropic" if is_block else string(detail.get("format"))
        text = string(detail.get("summary")) or string(detail.get("text"))
        found = True
        yield thinking({**detail, "text": text}, provider_named(named), model)

    for item in map(mapping, items if isinstance(items, list) else []):
        found = True
        yield encrypted_reasoning(item, text_of(item.get("summary")), model)

    text = string(message.get("reasoning_content")) or string(message.get("reasoning"))
    if text and not found:
        yield Reasoning(text, model=model)


def _mark(message: JsonObject) -> Mark:
    uid = string(message.get("message_uid") or message.get("_message_uid")) or None
    named = message.get("absorbed_message_uids") or message.get("_absorbed_message_uids")
    absorbed = _decoded(named)
    uids = tuple(map(string, absorbed)) if isinstance(absorbed, list) else ()
    at = time_ms(message.get("timestamp") or message.get("created_at"))
    return Mark(uid, at, tuple(filter(None, uids)))


def _call_uid(uids: object, call_id: str, index: int) -> str:
    if isinstance(uids, dict):
        return string(uids.get(call_id))

    return string(uids[index]) if isinstance(uids, list) and index < len(uids) else ""


def _decoded(value: object) -> object:
    """Return what a text of JSON says; anything else is there as it is."""
    if not isinstance(value, str):
        return value

    try:
        return parse(value)
    except Malformed:
        return None
