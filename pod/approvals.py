"""Tool calls that wait for a person's decision: asked for, decided once, logged, told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Literal, Protocol

from attrs import define, field, frozen

from pod.errors import UnknownApproval
from pod.protocol import ApprovalRequest, ApprovalResolved, Envelope, EventData
from pod.protocol.methods import WaitingCall
from worker.hooks import ToolCallView
from worker.ports import NOBODY_TO_ASK, Ruling

Decision = Literal["allow", "deny"]
Scope = Literal["once", "session"]
Ref = tuple[str, int]

ASK_TIMEOUT_S = 300.0
"""How long a call waits for a decision before it is denied, unless the manifest says."""
_DECIDED_KEPT = 256


class Publish(Protocol):
    """Publishes an event of the pod."""

    def __call__(self, data: EventData, ref: Ref | None = None, /) -> Envelope:
        """Publish `data`, which `ref` makes durable, and return it as it was told."""


@frozen
class _Answer:
    decision: Decision
    scope: Scope
    by: str


@define(eq=False)
class _Waiting:
    call: WaitingCall
    answer: asyncio.Future[_Answer]


async def _no_record(_fields: dict[str, object]) -> Ref:
    message = "no session is open"
    raise RuntimeError(message)


@define(eq=False)
class _Session:
    """What belongs to the session that is being written."""

    record: Callable[[dict[str, object]], Awaitable[Ref]] = _no_record
    shown: Callable[[str], str] = str
    timeout_s: float = ASK_TIMEOUT_S
    allowed: set[str] = field(factory=set)
    """Tools that are not asked about again."""


@define(eq=False)
class ApprovalDesk:
    """Where a pod's calls are asked about. Somebody has to attend, else they are denied at once.

    A decision is bound to the one call that was shown, by its `call_uid`; the first one counts.
    With the scope `session` the tool of that name is not asked about again in this session, for as
    long as the pod lives. All calls come from the loop's thread.
    """

    publish: Publish
    is_watched: Callable[[], bool] = lambda: False
    """Tells whether somebody else than by `attended` is there to hear an `ApprovalRequest`."""
    _session: _Session = field(factory=_Session, init=False)
    _attending: int = field(default=0, init=False)
    _waiting: dict[str, _Waiting] = field(factory=dict, init=False)
    _decided: dict[str, str] = field(factory=dict, init=False)

    @contextmanager
    def attended(self) -> Iterator[None]:
        """Have somebody there to ask for as long as the block lasts."""
        self._attending += 1
        try:
            yield
        finally:
            self._attending -= 1

    @property
    def waiting(self) -> tuple[WaitingCall, ...]:
        """The calls that wait for a decision, oldest first."""
        return tuple(waiting.call for waiting in self._waiting.values())

    def open_session(
        self,
        record: Callable[[dict[str, object]], Awaitable[Ref]],
        *,
        shown: Callable[[str], str],
        timeout_s: float,
    ) -> None:
        """Serve a session from now on; what was allowed for the one before is forgotten.

        Args:
            record: Writes an `approval` entry and returns where it is, once it is durable.
            shown: Masks what may be secret in what people are shown.
            timeout_s: How long a call waits for a decision before it is denied.
        """
        self._session = _Session(record, shown, timeout_s)

    def decide(self, call: str, decision: Decision, *, scope: Scope = "once", by: str = "") -> None:
        """Decide about a call that waits, named by its `call_uid` or its `call_id`.

        Raises:
            UnknownApproval: No such call waits: it is decided, timed out, or was never asked about;
                or several of that `call_id` do.
        """
        waiting = self._named(call)
        if waiting is None or waiting.answer.done():
            message, hint = self._why_unknown(call)
            raise UnknownApproval(message, hint=hint)

        del self._waiting[waiting.call.call_uid]
        answer = _Answer(decision, scope, by or "somebody")
        self._note(waiting.call, f"{decision} by {answer.by}")
        waiting.answer.set_result(answer)

    async def ask(self, call: ToolCallView, reason: str) -> Ruling:
        """Have a call decided, and return how, once it is in the log.

        Raises what writing raises. A cancelled wait is told as `withdrawn` and leaves no entry.
        """
        session = self._session
        if call.name in session.allowed:
            return Ruling(allowed=True)

        if not self._attending and not self.is_watched():
            answer, why = _Answer("deny", "once", "nobody"), NOBODY_TO_ASK
        else:
            answer, why = await self._answered(call, reason)

        fields: dict[str, object] = {
            "call_uid": call.call_uid,
            "decision": answer.decision,
            "scope": answer.scope,
            "by": answer.by,
        }
        ref = await session.record(fields)
        if answer.decision == "allow" and answer.scope == "session":
            session.allowed.add(call.name)

        self._tell(call, answer, ref)
        return Ruling(answer.decision == "allow", why)

    async def _answered(self, call: ToolCallView, reason: str) -> tuple[_Answer, str]:
        """Ask whoever attends and wait; nobody's answer in time is a refusal."""
        session = self._session
        request = ApprovalRequest(
            call_id=call.call_id,
            call_uid=call.call_uid,
            name=call.name,
            arguments=session.shown(call.arguments),
            reason=session.shown(reason) or None,
            timeout_s=session.timeout_s,
        )
        future: asyncio.Future[_Answer] = asyncio.get_running_loop().create_future()
        # It waits before anybody hears of it: who does may decide at once.
        waiting = _Waiting(WaitingCall.of(request, int(time.time() * 1000)), future)
        self._waiting[call.call_uid] = waiting
        told = self.publish(request)
        waiting.call = WaitingCall.of(request, told.ts)
        answer: _Answer | None = None
        try:
            async with asyncio.timeout(session.timeout_s):
                answer = await future
        except TimeoutError:
            if future.cancelled():
                answer = _Answer("deny", "once", "time")
                return answer, f"nobody answered within {session.timeout_s:g} s"

            # Decided in this very moment: whoever did was told that it counts.
            answer = future.result()
        finally:
            if self._waiting.get(call.call_uid) is waiting:
                del self._waiting[call.call_uid]
            if answer is None:
                self._tell(call, None, None)

        return answer, f"{answer.by} denied it" if answer.decision == "deny" else ""

    def _tell(self, call: ToolCallView, answer: _Answer | None, ref: Ref | None) -> None:
        outcome: Literal["allow", "deny", "withdrawn"]
        outcome = answer.decision if answer is not None else "withdrawn"
        by = answer.by if answer is not None else "the end of the run"
        self._note(call, f"{outcome} by {by}")
        self.publish(
            ApprovalResolved(
                call_id=call.call_id,
                call_uid=call.call_uid,
                name=call.name,
                decision=outcome,
                scope=answer.scope if answer is not None else None,
                by=by,
            ),
            ref,
        )

    def _note(self, call: ToolCallView | WaitingCall, outcome: str) -> None:
        """Remember for a while what became of a call, for whoever comes too late."""
        for name in (call.call_uid, call.call_id):
            self._decided.pop(name, None)
            self._decided[name] = outcome

        while len(self._decided) > _DECIDED_KEPT:
            del self._decided[next(iter(self._decided))]

    def _named(self, call: str) -> _Waiting | None:
        """Return the call of that uid or id. Raises `UnknownApproval` where there are several."""
        if call in self._waiting:
            return self._waiting[call]

        named = [waiting for waiting in self._waiting.values() if waiting.call.call_id == call]
        if len(named) > 1:
            # A model may use an id twice in one answer: whichever is meant, it must not be guessed.
            uids = ", ".join(waiting.call.call_uid for waiting in named)
            message = f"{len(named)} calls of the id {call} wait"
            raise UnknownApproval(message, hint=f"name the one that is meant by its uid: {uids}")

        return named[0] if named else None

    def _why_unknown(self, call: str) -> tuple[str, str]:
        decided = self._decided.get(call)
        if decided is not None:
            return f"the call {call} was decided already: {decided}", "nothing was changed"

        waiting = ", ".join(one.call_id for one in self.waiting) or "none"
        return f"no call {call} waits for a decision", f"those that wait: {waiting}"
