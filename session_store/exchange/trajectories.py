"""Hermes trajectories, and what else is written as ShareGPT: turns of `from` and `value`.

A record is a whole conversation. Thoughts, calls and results stand in the text between tags.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from attrs import define

from worker.items import Reasoning, Text

from .blocks import mapping, string, tool_call
from .documents import Bad, Begin, Element, End, Member, read_documents
from .draft import Conversation, Draft, Part
from .jsontext import JsonObject, Malformed, compact_json, parse
from .outputs import output_of
from .tally import Tally

NAME = "hermes-trajectory"
_LISTS = ("conversations", "trajectory")
_THOUGHT = re.compile(r"\A\s*<think>\n?(.*?)\n?</think>\n*", re.DOTALL)
_CALL = re.compile(r"\s*<tool_call>\s*(.*?)\s*</tool_call>\s*", re.DOTALL)
_RESPONSE = re.compile(r"<tool_response>\n?(.*?)\n?</tool_response>", re.DOTALL)


def recognises(record: JsonObject) -> bool:
    """Tell whether the record is a turn, or a list of them."""
    return isinstance(record.get("conversations"), list) or {"from", "value"} <= record.keys()


def read(path: Path, tally: Tally) -> Iterator[Conversation]:
    """Yield the conversations of the file, one a record."""
    turns = _Turns(Draft(NAME, tally))
    begun = 0
    for event in read_documents(path, _LISTS):
        match event:
            case Begin(line):
                begun = line
            case Element("", dict() as value) if "from" not in value:
                yield from _whole(value, tally)
            case Element(_, dict() as value):
                turns.take(begun, value)
            case Element():
                tally.bad(begun, "an element that is not an object")
            case Member(key, value):
                turns.note(key, value)
            case Bad(line, why):
                tally.bad(line, why)
                yield from turns.finished()
                turns = _Turns(Draft(NAME, tally))
            case End():
                yield from turns.finished()
                turns = _Turns(Draft(NAME, tally))


def _whole(record: JsonObject, tally: Tally) -> Iterator[Conversation]:
    turns = _Turns(Draft(NAME, tally))
    for key, value in record.items():
        if key in _LISTS and isinstance(value, list):
            for turn in filter(None, map(mapping, value)):
                turns.take(0, turn)
        else:
            turns.note(key, value)

    yield from turns.finished()


@define
class _Turns:
    draft: Draft

    def finished(self) -> Iterator[Conversation]:
        """Yield the conversation, if anything was said in it."""
        if not self.draft.is_empty:
            self.draft.tally.records += 1
            yield self.draft.finished()

    def note(self, key: str, value: object) -> None:
        """Note what stands beside the turns."""
        if isinstance(value, (str, int, float)):
            self.draft.conversation.source[key] = value
        else:
            self.draft.keep(f"{key} member", 0, {key: value})

    def take(self, line: int, turn: JsonObject) -> None:
        """Take one turn."""
        text = string(turn.get("value"))
        match turn.get("from"):
            case "system" if self.draft.is_empty:
                self.draft.conversation.system_prompt = text
            case "system":
                self.draft.note(text, "system")
            case "human" | "user":
                self.draft.user([Text(text)])
            case "gpt" | "assistant" | "model":
                self.draft.answer(self._parts(text))
            case "tool" | "observation" | "function" | "ipython":
                self._take_results(line, text)
            case _:
                self.draft.keep("unknown turn", line, turn)

    def _parts(self, text: str) -> Iterator[Part]:
        thought = _THOUGHT.match(text)
        if thought:
            yield Reasoning(thought[1])
            text = text[thought.end() :]

        done = 0
        for found in _CALL.finditer(text):
            call = _call(found[1])
            if call is not None:
                yield Text(text[done : found.start()])
                yield call
                done = found.end()

        yield Text(text[done:])

    def _take_results(self, line: int, text: str) -> None:
        found = [match[1] for match in _RESPONSE.finditer(text)] or [text]
        for told in found:
            result = _object(told)
            content = result.get("content") if "content" in result else told
            output = output_of(content if isinstance(content, str) else compact_json(content))
            call_id, name = string(result.get("tool_call_id")), string(result.get("name"))
            # The calls in the text have no ids, so an id here names none of them.
            taken = call_id and self.draft.result(call_id, output)
            if not taken and not self.draft.result(None, output, name=name):
                self.draft.keep("orphan result", line, told)


def _call(text: str) -> Part | None:
    value = _object(text)
    if not isinstance(value.get("name"), str):
        return None

    return tool_call(value.get("id"), value["name"], value.get("arguments"))


def _object(text: str) -> JsonObject:
    try:
        return mapping(parse(text))
    except Malformed:
        return {}
