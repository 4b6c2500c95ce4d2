"""What a client knows of its pod without asking: status, history, session, what waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from attrs import define, evolve, field, fields

from pod.errors import PodClosed
from pod.protocol import (
    ApprovalRequest,
    ApprovalResolved,
    CompactionDone,
    Envelope,
    EventData,
    RunEnd,
    SessionChanged,
    Status,
    TextDone,
    ToolCallDone,
    ToolResult,
    TurnStart,
    Usage,
)
from pod.protocol.methods import (
    HISTORY_LIMIT,
    CommandsAnswer,
    HistoryAnswer,
    StatusAnswer,
    WaitingCall,
)
from pod.status import PodStatus
from worker.items import Item, SystemNote
from worker.items_json import load_item

from .translate import read

Ask = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]

CHANGES: tuple[type[EventData], ...] = (
    TurnStart,
    TextDone,
    ToolCallDone,
    ToolResult,
    Usage,
    CompactionDone,
    SessionChanged,
    RunEnd,
)
"""After one of these the pod has more than what is mirrored."""
_KEPT = (Status, SessionChanged, CompactionDone, ApprovalRequest, ApprovalResolved)
"""What `Mirror.take` changes something by."""


@define(eq=False)
class Mirror:
    """The newest state of a pod that is known here. Reading it never waits.

    `take` keeps state and session right by the events themselves. The rest is asked for by
    `refresh`, and put in place at once: whoever reads sees the history of one moment.
    """

    _status: PodStatus | None = field(default=None, init=False)
    _as_of: tuple[str, int] = field(default=("", 0), init=False)
    """The launch and the last event that `_status` knows of."""
    _items_of: str = field(default="", init=False)
    """The session that `_items` are of."""
    _items: tuple[Item, ...] = field(default=(), init=False)
    _waiting: dict[str, WaitingCall] = field(factory=dict, init=False)
    _meanwhile: list[Envelope] | None = field(default=None, init=False)
    """What was taken in while a newer status is asked for."""
    _refreshing: asyncio.Lock = field(factory=asyncio.Lock, init=False)
    commands: CommandsAnswer = field(default=CommandsAnswer(commands={}), init=False)
    """The engine's own slash commands."""
    manifest: str = field(default="", init=False)
    """The path of the manifest that the pod was launched from."""

    # ------------------------------------------------------------------ reading

    @property
    def status(self) -> PodStatus:
        """Where the pod stands. Raises `PodClosed` before the first connection."""
        if self._status is None:
            message = "the client is not connected"
            raise PodClosed(message, hint="use it inside `async with PodClient.connect(…)`")

        return self._status

    @property
    def history(self) -> tuple[Item, ...]:
        """The items, oldest first. Raises `PodClosed` before the first connection."""
        return self._items if self.status else ()

    @property
    def waiting(self) -> tuple[WaitingCall, ...]:
        """The tool calls that wait for a decision, oldest first."""
        return tuple(self._waiting.values())

    # ------------------------------------------------------------------ events

    def take(self, envelope: Envelope) -> bool:
        """Take in an event; tell whether what is mirrored is out of date now."""
        data = envelope.data
        launch, seq = self._as_of
        if self._meanwhile is not None and isinstance(data, _KEPT):
            self._meanwhile.append(envelope)

        if self._status is None or (envelope.launch == launch and envelope.seq <= seq):
            return False  # the status that was asked for is newer

        match data:
            case Status(state=state):
                self._status = evolve(self._status, state=state)
            case SessionChanged(new_session_id=session_id):
                self._status = evolve(self._status, session_id=session_id)
            case CompactionDone(new_session_id=session_id):
                self._status = evolve(self._status, session_id=session_id)
            case ApprovalRequest():
                self._waiting[data.call_uid] = WaitingCall.of(data, envelope.ts)
            case ApprovalResolved(call_uid=call_uid):
                self._waiting.pop(call_uid, None)
            case _:
                pass

        return isinstance(data, CHANGES)

    # ------------------------------------------------------------------ asking

    async def refresh(self, ask: Ask) -> None:
        """Bring everything up to date. Raises what `ask` raises; then nothing has changed."""
        async with self._refreshing:
            self._meanwhile = []
            try:
                await self._refresh(ask)
            finally:
                meanwhile, self._meanwhile = self._meanwhile, None

            for envelope in meanwhile:  # those that came after the answer was given
                self.take(envelope)

    async def _refresh(self, ask: Ask) -> None:
        answer = read(StatusAnswer, await ask("status", {}))
        session_id, items = self._items_of, self._items
        if session_id != answer.session_id or len(items) != answer.history_len:
            session_id, items = await self._newer_items(ask)

        changed_session = session_id != self._items_of or answer.launch != self._as_of[0]
        commands = await _commands(ask) if changed_session else self.commands
        self._items_of, self._items, self.commands = session_id, items, commands
        self.manifest = answer.manifest
        launch, seq = self._as_of
        if answer.launch != launch or answer.seq >= seq:
            self._put(answer)

    def _put(self, answer: StatusAnswer) -> None:
        names = [attribute.name for attribute in fields(PodStatus)]
        known = {name: getattr(answer, name) for name in names if hasattr(answer, name)}
        self._status = PodStatus(**known)
        self._as_of = (answer.launch, answer.seq)
        self._waiting = {call.call_uid: call for call in answer.approvals}

    async def _newer_items(self, ask: Ask) -> tuple[str, tuple[Item, ...]]:
        """Return the session and its items; those that are here already are not asked for."""
        session_id, items = self._items_of, list(self._items)
        while True:
            params: dict[str, Any] = {"start": len(items), "limit": HISTORY_LIMIT}
            page = read(HistoryAnswer, await ask("get_history", params))
            if items and (page.session_id != session_id or page.total < len(items)):
                items = []  # another session: from its beginning
                continue

            session_id = page.session_id
            items += map(_item, page.items)
            if not page.items or len(items) >= page.total:
                return session_id, tuple(items)


async def _commands(ask: Ask) -> CommandsAnswer:
    return read(CommandsAnswer, await ask("engine_commands", {}))


def _item(value: dict[str, Any]) -> Item:
    """Return an item; one of a kind that only a newer version knows is a note that says so."""
    try:
        return load_item(value)
    except ValueError:
        kind = str(value.get("type"))
        text = f"(an item of the kind {kind!r}, which this version does not know)"
        return SystemNote(uid=str(value.get("uid")), text=text, kind="unknown")
