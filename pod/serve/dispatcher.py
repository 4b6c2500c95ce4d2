"""From a request's method to what the pod does, and from what comes of it to an answer."""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import os
import time
from collections.abc import Awaitable, Callable, Collection
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Annotated, Any, TypeAlias, cast

import orjson
from attrs import asdict, define, field
from pydantic import ValidationError

from pod.errors import (
    EngineCommandFailed,
    PodBusy,
    PodClosed,
    UnknownApproval,
    UnknownEngineCommand,
)
from pod.failures import error_info
from pod.pod import Pod
from pod.protocol import EVENTS, ErrorInfo, methods
from pod.protocol.methods import METHODS, Answer, Params
from pod.protocol.wire import Request, WireError
from session_store import InvalidSessionId, SessionNotFound, UnknownEntry
from worker.items import Image, Text, UserMessage, new_uid
from worker.text import is_blank

from .connection import Connection
from .history import page_of
from .hub import Hub, Wish
from .replay import Replays

_log = logging.getLogger("pod.serve")
_CODES: tuple[tuple[type[Exception], str], ...] = (
    (PodBusy, "busy"),
    (PodClosed, "closed"),
    (UnknownApproval, "unknown_approval"),
    (UnknownEngineCommand, "unknown_command"),
    (EngineCommandFailed, "command_failed"),
    (UnknownEntry, "unknown_entry"),
    (SessionNotFound, "unknown_session"),
    (InvalidSessionId, "unknown_session"),
)
"""Codes of the protocol for errors that an event would say less of."""

_BEGIN_WORK = frozenset({"run", "resume", "new", "compact", "fork", "rewind", "engine_command"})
"""What a pod that is being shut down takes no more."""
_SERVE_AGAIN = "pod serve MANIFEST --continue goes on with it"
_MOST_PROBLEMS = 20
_DEEPEST = 4
_NAME_CHARS = 100
"""How much is looked at, and told, of a name that is unknown: it may be megabytes."""
_ACCEPTED_KEPT = 64
"""How many prompts are known again when they are sent a second time."""

Then: TypeAlias = Callable[[], None]
Outcome: TypeAlias = Answer | tuple[Answer, Then]
Handler: TypeAlias = Callable[[Any, Connection], Awaitable[Outcome]]


def told(error: Exception) -> ErrorInfo:
    """Return what a client is told of an error."""
    if isinstance(error, WireError):
        return ErrorInfo(code=error.code, message=error.message, hint=error.hint or None)

    info = error_info(error)
    code = next((code for cls, code in _CODES if isinstance(error, cls)), info.code)
    # What helps in process, `Pod.launch`, is not in a client's hands.
    hint = _SERVE_AGAIN if code == "closed" else info.hint
    return info.model_copy(update={"code": code, "hint": hint})


@define(eq=False)
class Dispatcher:
    """Carries out the requests of all clients on one pod."""

    pod: Pod
    hub: Hub
    replays: Replays
    shutdown: Callable[[bool], None]
    """Ends the pod; whether what is going on may come to its end first."""
    since_ms: int
    manifest: str
    is_closing: bool = False
    _runs: set[asyncio.Task[Any]] = field(factory=set, init=False)
    _accepted_before: dict[str, methods.Accepted] = field(factory=dict, init=False)
    """What was answered to the newest prompts, by their uid."""
    _handlers: dict[str, Handler] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._handlers = {name: getattr(self, f"_{name}") for name in METHODS}

    async def handle(self, request: Request, connection: Connection) -> Outcome:
        """Carry out a request and return its answer, with what comes right after that, if anything.

        Raises:
            WireError: The method is unknown, or its parameters are wrong.
            Exception: Whatever the pod raised; `told` puts it into words.
        """
        method = METHODS.get(request.method)
        if method is None:
            raise _unknown_method(request.method)

        if self.is_closing and request.method in _BEGIN_WORK:
            message = "the pod is being shut down"
            raise PodClosed(message)

        params = _validated(method.params, request)
        return await self._handlers[request.method](params, connection)

    # ------------------------------------------------------------------ runs

    async def _run(self, params: methods.RunParams, _: Connection) -> Answer:
        images = tuple(map(_image, params.images))
        text = (Text(params.input),) if params.input else ()
        uid = params.uid or new_uid()
        if uid in self._accepted_before:
            return self._accepted_before[uid]

        if any(item.uid == uid for item in self.pod.history):
            message = "a message of that uid is in the history already"
            raise WireError("known_message", message, hint="resume goes on where its run stopped")

        if is_blank(params.input) and not images:
            raise WireError("bad_params", "run: the prompt is empty")

        output = _output_of(params.output_schema) if params.output_schema is not None else None
        accepted = self._accepted(UserMessage(uid=uid, parts=(*text, *images)), output)
        self._accepted_before[uid] = accepted
        if len(self._accepted_before) > _ACCEPTED_KEPT:
            del self._accepted_before[next(iter(self._accepted_before))]

        return accepted

    async def _resume(self, _: methods.NoParams, __: Connection) -> Answer:
        return self._accepted(None)

    def _accepted(
        self, message: UserMessage | None, output: type[Any] | None = None
    ) -> methods.Accepted:
        session_id, seq = self.pod.session_id, self.hub.seq
        task = self.pod.begin(message, output=output)
        self._runs.add(task)
        task.add_done_callback(self._ended)
        return methods.Accepted(session_id=session_id, seq=seq)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._runs.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            # Its events have told of it; nobody waits for the result.
            _log.error("a run failed: %s", error, exc_info=error)

    async def idle(self) -> None:
        """Return once no run is going on, no compaction, and none that a run has made due."""
        await self.pod.idle()
        while self._runs:
            await asyncio.wait(tuple(self._runs))

        await self.pod.idle()

    async def _cancel(self, _: methods.NoParams, __: Connection) -> Answer:
        self.pod.cancel()
        return methods.Done()

    async def _idle(self, _: methods.NoParams, __: Connection) -> Answer:
        await self.pod.idle()
        return methods.Done()

    async def _pause(self, _: methods.NoParams, __: Connection) -> Answer:
        self.pod.pause()
        return methods.Done()

    async def _approve(self, params: methods.ApproveParams, connection: Connection) -> Answer:
        by = params.by or connection.peer.label
        self.pod.approve(params.call_id, params.decision, scope=params.scope, by=by)
        return methods.Done()

    # ------------------------------------------------------------------ sessions

    async def _new(self, _: methods.NoParams, __: Connection) -> Answer:
        await self.pod.new()
        return methods.SessionAnswer(session_id=self.pod.session_id)

    async def _compact(self, params: methods.CompactParams, _: Connection) -> Answer:
        return methods.CompactAnswer(done=await self.pod.compact(params.focus))

    async def _fork(self, params: methods.ForkParams, _: Connection) -> Answer:
        return methods.SessionAnswer(session_id=await self.pod.fork_session(params.at))

    async def _rewind(self, params: methods.RewindParams, _: Connection) -> Answer:
        await self.pod.rewind(params.to)
        return methods.SessionAnswer(session_id=self.pod.session_id)

    async def _get_history(self, params: methods.HistoryParams, _: Connection) -> Answer:
        own = self.pod.session_id
        if params.session_id in {None, own}:
            return page_of(self.pod.history, params, session_id=own, seq=self.hub.seq)

        return await self.replays.page_of_session(params, seq=self.hub.seq)

    # ------------------------------------------------------------------ what is shown

    async def _status(self, _: methods.NoParams, __: Connection) -> Answer:
        fields = asdict(self.pod.status())
        # It comes from an engine, which may say anything.
        fields["engine_status"] = _as_json(fields["engine_status"])
        return methods.StatusAnswer(
            **fields,
            launch=self.hub.bus.launch,
            seq=self.hub.seq,
            pid=os.getpid(),
            since_ms=self.since_ms,
            manifest=self.manifest,
            subscribers=len(self.hub),
            approvals=self.pod.waiting_approvals(),
        )

    async def _ping(self, _: methods.NoParams, __: Connection) -> Answer:
        ts = int(time.time() * 1000)
        return methods.PingAnswer(launch=self.hub.bus.launch, seq=self.hub.seq, ts=ts)

    async def _engine_commands(self, _: methods.NoParams, __: Connection) -> Answer:
        offered = self.pod.engine_commands()
        return methods.CommandsAnswer(
            commands={name: command.description for name, command in offered.items()},
            hints={
                name: command.args_hint for name, command in offered.items() if command.args_hint
            },
        )

    async def _engine_command(self, params: methods.CommandParams, _: Connection) -> Answer:
        return methods.TextAnswer(text=await self.pod.engine_command(params.name, params.args))

    # ------------------------------------------------------------------ subscriptions

    async def _subscribe(self, params: methods.SubscribeParams, connection: Connection) -> Outcome:
        names = _names(params.events)
        asks = names is None or "approval_request" in names
        wish = Wish(names, self.pod.attended if asks and not params.observe else None)
        plan = await self.replays.plan(params.from_seq, params.launch)
        # Looked at now, as nothing comes between this and the beginning.
        if self.hub.is_subscribed(connection):
            message = "this connection is subscribed already"
            hint = "unsubscribe first, or use another connection"
            raise WireError("subscribed", message, hint=hint)

        answer = methods.SubscribeAnswer(
            launch=self.hub.bus.launch, seq=self.hub.seq, replay=plan.replay, reason=plan.reason
        )

        def begin() -> None:
            self.hub.subscribe(connection, wish, from_seq=plan.from_seq, before=plan.before)

        return answer, begin

    async def _unsubscribe(self, _: methods.NoParams, connection: Connection) -> Answer:
        place = self.hub.unsubscribe(connection)
        if place is None:
            raise WireError("not_subscribed", "this connection is not subscribed")

        return methods.UnsubscribeAnswer(launch=place[0], next_seq=place[1])

    async def _shutdown(self, params: methods.ShutdownParams, _: Connection) -> Outcome:
        return methods.Done(), lambda: self.shutdown(params.wait)


def _as_json(value: object) -> Any:  # noqa: ANN401  whatever JSON has
    return orjson.loads(orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS))


def _validated(model: type[Params], request: Request) -> Params:
    try:
        return model.model_validate(request.params)
    except ValidationError as error:
        message = f"{request.method}: {_problems(error, model)}"
        raise WireError("bad_params", message, hint=_takes(model)) from None


def _problems(error: ValidationError, model: type[Params]) -> str:
    count = error.error_count()
    if count > _MOST_PROBLEMS:
        return f"{count:,} mistakes in its parameters"

    found = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(_problem(one, model) for one in found)


def _problem(found: Any, model: type[Params]) -> str:  # noqa: ANN401  pydantic's own shape
    where = ".".join(str(part)[:_NAME_CHARS] for part in found["loc"][:_DEEPEST])
    if found["type"] == "extra_forbidden":
        return f"{where}: unknown" + _did_you_mean(where, model.model_fields, "; {}")

    return f"{where}: {found['msg'].lower()}"


def _did_you_mean(name: str, known: Collection[str], form: str = "{}") -> str:
    """Return a question about what is near to a name; empty where nothing is."""
    near = get_close_matches(name[:_NAME_CHARS], known, n=1)
    return form.format(f"did you mean {near[0]}?") if near else ""


def _takes(model: type[Params]) -> str:
    fields = model.model_fields
    return f"it takes {', '.join(fields)}" if fields else "it takes no parameters"


def _unknown_method(name: str) -> WireError:
    hint = _did_you_mean(name, METHODS) or f"there are {', '.join(METHODS)}"
    return WireError("unknown_method", f"no method {name[:_NAME_CHARS]!r}", hint=hint)


def _names(patterns: tuple[str, ...] | None) -> frozenset[str] | None:
    """Return the events that patterns name. Raises `WireError` for one that names none."""
    if patterns is None:
        return None

    names: set[str] = set()
    for pattern in patterns:
        found = {name for name in EVENTS if fnmatchcase(name, pattern)}
        if not found:
            hint = _did_you_mean(pattern, EVENTS) or f"there are {', '.join(EVENTS)}"
            raise WireError("bad_params", f"no event is called {pattern!r}", hint=hint)

        names |= found

    return frozenset(names)


def _output_of(schema: dict[str, Any]) -> type[Any]:
    """Return a type that says that schema of itself, and takes any JSON.

    What else the schema asks for is for whoever has the type: no part of ours checks schemas.
    """
    from pydantic import WithJsonSchema

    return cast("type[Any]", Annotated[Any, WithJsonSchema(schema)])


def _image(param: methods.ImageParam) -> Image:
    try:
        data = base64.b64decode(param.data, validate=True)
    except binascii.Error as error:
        message = f"run: images: not base64: {error}"
        raise WireError("bad_params", message) from None

    return Image(media_type=param.media_type, data=data)
