"""Tool calls out of Chat Completions fragments, as servers really send them.

Which call a fragment belongs to is decided here and nowhere else. Servers number parallel calls
all 0, repeat an id in every fragment, leave ids or indexes out, or send whole calls at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from worker.errors import BadAnswer
from worker.items import ToolCall, new_uid
from worker.llm.schemes.clean_stream import CleanStream
from worker.llm.schemes.received_json import arguments_text
from worker.llm.schemes.wording import is_json_object
from worker.llm.types import StreamEvent, ToolCallArgsDelta, ToolCallDone, ToolCallStart
from worker.text import clean_text

_MAX_ARGUMENTS_CHARS = 1 << 20


class _Call:
    """One call that is being received."""

    def __init__(self, index: int, call_id: str, name: str, *, has_own_id: bool) -> None:
        self.index = index
        self.call_id = call_id
        self.name = name
        self.has_own_id = has_own_id
        self.is_started = False
        self.is_kept = False
        self.arguments = CleanStream()
        self._size = 0

    @property
    def is_whole(self) -> bool:
        """Whether the arguments so far are one whole object."""
        return is_json_object(self.arguments.text)

    def add(self, text: str) -> list[StreamEvent]:
        """Take more arguments; what came before the name is told of once the name is there."""
        self._size += len(text)
        if self._size > _MAX_ARGUMENTS_CHARS:
            raise BadAnswer(f"the arguments of the call to {self.name!r} are over 1 MiB")

        piece = self.arguments.push(text)
        if not self.is_started:
            return self._start() if self.name else []
        return [ToolCallArgsDelta(self.call_id, piece)] if piece else []

    def close(self) -> list[StreamEvent]:
        """Take the end of the call, and tell of it."""
        events = [] if self.is_started else self._start()
        rest = self.arguments.close()
        if rest:
            events.append(ToolCallArgsDelta(self.call_id, rest))
        self.is_kept = True
        events.append(ToolCallDone(self.call_id, self.name, self.arguments.text))
        return events

    def _start(self) -> list[StreamEvent]:
        self.is_started = True
        events: list[StreamEvent] = [ToolCallStart(self.call_id, self.name)]
        if self.arguments.text:
            events.append(ToolCallArgsDelta(self.call_id, self.arguments.text))
        return events


class CallAssembler:
    """Puts the fragments of one answer's tool calls together, in the order the calls began."""

    def __init__(self, new_id: Callable[[], str] = new_uid) -> None:
        self._new_id = new_id
        self._calls: list[_Call] = []
        self._newest: dict[int, _Call] = {}
        self._uids: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def feed(
        self, fragment: Mapping[str, object], position: int
    ) -> tuple[int | None, list[StreamEvent]]:
        """Take one fragment; `position` is its place in its list, for servers without indexes.

        Returns:
            The number of the call that the fragment began, None where it went on with one; and
            what is to be told.
        """
        function = fragment.get("function")
        fields = function if isinstance(function, dict) else {}
        call_id = clean_text(_text(fragment.get("id")))
        name = clean_text(_text(fields.get("name")))
        arguments = arguments_text(fields.get("arguments"))
        index = fragment.get("index")
        if not isinstance(index, int):
            goes_on = bool(self._calls) and not call_id and not name
            index = self._calls[-1].index if goes_on else position

        call = self._find(index, call_id, name, arguments)
        began = None
        if call is None:
            began = len(self._calls)
            call = self._open(index, call_id, name)
        elif not call.name:
            call.name = name

        return began, call.add(arguments)

    def whole(self, call_id: str, name: str, arguments: str) -> tuple[int, list[StreamEvent]]:
        """Take a call that comes in one piece. Returns as `feed` does."""
        began = len(self._calls)
        call = self._open(began, clean_text(call_id), clean_text(name))
        return began, call.add(arguments)

    def _find(self, index: int, call_id: str, name: str, arguments: str) -> _Call | None:
        newest = self._newest.get(index)
        if newest is None:
            return None

        if not call_id:
            return None if _begins_another(newest, name, arguments) else newest

        same = [call for call in self._calls if call.index == index and call.call_id == call_id]
        if same:
            return None if _begins_another(same[-1], name, arguments) else same[-1]

        # An id that comes late belongs to the call that began without one; some servers make up
        # another id with each fragment.
        goes_on = not newest.has_own_id or (bool(newest.name) and not newest.is_whole)
        return newest if goes_on and not name else None

    def _open(self, index: int, call_id: str, name: str) -> _Call:
        own_id = call_id or f"call_{self._new_id()[:12]}"
        call = _Call(index, own_id, name, has_own_id=bool(call_id))
        self._calls.append(call)
        self._newest[index] = call
        return call

    def close(self, *, is_cut: bool) -> list[StreamEvent]:
        """Take the end of all calls; more may follow. With `is_cut`, only whole ones are kept.

        They were cut by the output cap; what is left of them must never run.
        """
        left = [call for call in self._calls if not call.is_kept]
        return [event for call in left if not is_cut or call.is_whole for event in call.close()]

    def all_whole(self) -> bool:
        """Tell whether every call has whole arguments, or none at all."""
        return all(call.is_whole or not call.arguments.text.strip() for call in self._calls)

    def kept(self) -> Iterator[tuple[int, ToolCall]]:
        """Yield the calls that were closed, each with its number. A repeated id keeps its uid."""
        for number, call in enumerate(self._calls):
            if call.is_kept:
                uid = self._uids.setdefault(call.call_id, self._new_id())
                yield number, ToolCall(call.call_id, call.name, call.arguments.text, uid)


def _begins_another(call: _Call, name: str, arguments: str) -> bool:
    """Tell whether a fragment that could go on with `call` is a call of its own.

    A fragment that names its tool is one if the tool is another, or if `call` has all its
    arguments already and these come on top.
    """
    if not name or not call.name:
        return False

    return name != call.name or (bool(arguments.strip()) and call.is_whole)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
