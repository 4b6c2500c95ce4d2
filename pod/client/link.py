"""The link: one connection after another, so that events go on without a gap."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from attrs import define, evolve, field, frozen

from pod.errors import PodClosed
from pod.protocol import Envelope, Lagged, Snapshot
from pod.protocol.methods import Replay, SubscribeAnswer, UnsubscribeAnswer
from pod.protocol.wire import Heartbeat, Hello
from pod.serve.claim import NotServed

from .backoff import Backoff
from .connection import Connection, EventLine
from .cursor import Cursor, Position
from .errors import ConnectionLost, ProtocolMismatch, RemoteError

STEADY_S = 1.0
"""How long a connection must last, if it brings nothing, for the next loss to be a new one."""
READ_AHEAD = 1_024
"""How many events of a replay may wait to be read before reading more of it is put off."""
STALL_S = 2.0
"""For how long reading is put off at most."""
_LOOK_AGAIN_S = 0.005

Phase: TypeAlias = Literal["connecting", "connected", "waiting", "closed"]
_log = logging.getLogger("pod.client")


@frozen
class LinkState:
    """How a client is connected."""

    phase: Phase
    """`waiting`: the connection is lost, and it is tried again after `wait_s`."""
    attempt: int = 0
    """How many tries have failed in a row."""
    wait_s: float = 0.0
    """How long until the next one."""
    reason: str = ""
    """Why the last connection ended, or could not be made."""
    replay: Replay = "none"
    """What was replayed of what was missed, when it was connected last."""
    hello: Hello | None = None
    """Who answered last."""


@frozen
class Patience:
    """How long, and how, a lost connection is tried again."""

    for_s: float | None = 30.0
    """For how long without success; None: for ever. 0: only once, at once."""
    first_for_s: float = 0.0
    """For how long the first connection is tried where nobody serves the pod yet."""
    backoff: Backoff = field(factory=Backoff)
    hello_s: float = 10.0
    """How long whoever answers may take to say that it is the pod."""
    silence_s: float = 60.0
    """After how long without a line a connection is given up; heartbeats come every 15 s."""
    clock: Callable[[], float] | None = None
    """Gives seconds; default: the event loop's time."""
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep


class Owner(Protocol):
    """What a link works for."""

    def deliver(self, envelope: Envelope) -> None:
        """Take the next event."""

    def passed_over(self, launch: str, seq: int, event: str) -> None:
        """Take in that there was an event that this version does not know."""

    def heard_of(self, launch: str) -> None:
        """Take in that everything up to now was delivered, in that launch."""

    async def meet(self, connection: Connection) -> None:
        """Look at the pod behind a new connection, before its events come."""

    def backlog(self) -> int:
        """Return how many events wait to be read."""

    def attends(self) -> bool:
        """Tell whether approvals would be answered."""


@define(eq=False)
class Link:
    """Keeps a connection to the pod behind `path` subscribed, until it is closed or gives up."""

    path: Path
    owner: Owner
    cursor: Cursor
    patience: Patience = field(factory=Patience)
    events: tuple[str, ...] | None = None
    """The names of events that are asked for; None: all."""
    state: LinkState = field(default=LinkState("connecting"), init=False)
    ended_by: Exception | None = field(default=None, init=False)
    """Why there will be no more connections."""
    _connection: Connection | None = field(default=None, init=False)
    _held: list[EventLine | Heartbeat] | None = field(default=None, init=False)
    """What came while a subscription's answer was not looked at yet."""
    _ready: asyncio.Event = field(factory=asyncio.Event, init=False)
    _watchers: list[Callable[[LinkState], None]] = field(factory=list, init=False)
    _task: asyncio.Task[None] | None = field(default=None, init=False)
    _attempt: int = field(default=0, init=False)
    _failing_since: float | None = field(default=None, init=False)
    is_attending: bool = field(default=False, init=False)
    """Whether the pod was told that approvals would be answered here."""
    _brake: asyncio.Task[None] | None = field(default=None, init=False)
    _opening: Connection | None = field(default=None, init=False)
    """The newest connection, subscribed or not."""
    _changing: asyncio.Lock = field(factory=asyncio.Lock, init=False)

    # ------------------------------------------------------------------ life

    async def start(self) -> None:
        """Return once connected and subscribed.

        Raises:
            PodError: Nobody serves the pod, or what answers cannot be talked to.
        """
        self._task = asyncio.create_task(self._keep(), name="pod-client-link")
        try:
            await self.ready()
        except BaseException:  # a cancellation too: no task stays behind
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """End the connection and make no more; idempotent."""
        self._end(PodClosed("the client is closed", hint="connect again"))
        for task in (self._task, self._brake):
            if task is not None and task is not asyncio.current_task():
                task.cancel()
                await asyncio.wait({task})

    async def ready(self) -> Connection:
        """Return the connection, as soon as there is one.

        Raises `PodError` where there will be none.
        """
        while True:
            if self.ended_by is not None:
                raise self.ended_by

            connection = self._connection
            if self._ready.is_set() and connection is not None and not connection.is_lost:
                return connection

            self._ready.clear()
            await self._ready.wait()

    def now(self) -> Connection | None:
        """Return the connection if there is one at this moment."""
        connection = self._connection
        is_there = connection is not None and not connection.is_lost and self._ready.is_set()
        return connection if is_there else None

    def watch(self, callback: Callable[[LinkState], None]) -> Callable[[], None]:
        """Call `callback(state)` now and on every change. Returns how to stop it."""
        self._watchers.append(callback)
        callback(self.state)

        def stop() -> None:
            if callback in self._watchers:
                self._watchers.remove(callback)

        return stop

    # ------------------------------------------------------------------ one after the other

    async def _keep(self) -> None:
        try:
            while self.ended_by is None:
                await self._try_once()
        except asyncio.CancelledError:
            raise
        # The supervision point of the link: whoever waits for it must hear of its end.
        except Exception as error:  # noqa: BLE001  it is told to them
            _log.exception("the connection to a pod failed")
            self._end(error)

    async def _try_once(self) -> None:
        """Make a connection and keep it while it lasts; then wait, or give up."""
        started = self._clock()
        reached: Position | None = self.cursor.position
        try:
            why: Exception = ConnectionLost(await self._live())
        except (NotServed, ConnectionLost, RemoteError) as error:
            why = error
            if isinstance(error, RemoteError) and error.code != "closed":
                self._end(error)
        except ProtocolMismatch as error:
            why = error
            self._end(error)
        finally:
            self._ready.clear()

        was_of_use = self._connection is not None and (
            self.cursor.position != reached or self._clock() - started >= STEADY_S
        )
        self._connection = None
        if was_of_use:
            self._attempt, self._failing_since = 0, None

        if self.ended_by is None:
            await self._wait_or_give_up(why)

    async def _live(self) -> str:
        """Connect, subscribe, and return why the connection ended in the end."""
        self._show(evolve(self.state, phase="connecting", attempt=self._attempt, wait_s=0.0))
        self._opening = connection = await Connection.open(
            self.path, self, hello_s=self.patience.hello_s
        )
        try:
            # Before events come: they may be many, and nobody reads them before that is done.
            await self.owner.meet(connection)
            answer = await self._subscribe(connection)
            self._connection = connection
            self._ready.set()
            self._show(LinkState("connected", replay=answer.replay, hello=connection.hello))
            await self.attend()
            return await self._until_lost(connection)
        finally:
            connection.close()

    async def _until_lost(self, connection: Connection) -> str:
        """Wait for the end, and bring it about where nothing is heard any more."""
        loop, silence_s = asyncio.get_running_loop(), self.patience.silence_s
        while True:
            try:
                async with asyncio.timeout_at(connection.heard_at + silence_s):
                    return await connection.lost()
            except TimeoutError:
                if self._brake is not None:
                    connection.heard_at = loop.time()  # it was not listened to
                elif loop.time() - connection.heard_at >= silence_s:
                    connection.close(f"nothing was heard of the pod for {silence_s:g} s")

    async def _wait_or_give_up(self, why: Exception) -> None:
        now = self._clock()
        if self._failing_since is None:
            self._failing_since = now

        limit = self.patience.for_s if self.cursor.position else self.patience.first_for_s
        if self._attempt and limit is not None and now - self._failing_since >= limit:
            self._end(why)
            return

        # The first try comes at once: most often the pod is there, and only cut us off.
        wait_s = self.patience.backoff.wait_s(self._attempt) if self._attempt else 0.0
        self._attempt += 1
        self._show(LinkState("waiting", self._attempt, wait_s, str(why), hello=self.state.hello))
        await self.patience.sleep(wait_s)

    def _end(self, error: Exception) -> None:
        if self.ended_by is not None:
            return

        self.ended_by = error
        if self._connection is not None:
            self._connection.close("closed by this side")

        self._ready.set()
        self._show(LinkState("closed", reason=str(error), hello=self.state.hello))

    def _show(self, state: LinkState) -> None:
        self.state = state
        for watcher in tuple(self._watchers):
            try:
                watcher(state)
            except Exception:  # noqa: BLE001  supervision point of foreign callbacks
                _log.exception("a watcher of the link failed")

    def _clock(self) -> float:
        clock = self.patience.clock
        return clock() if clock is not None else asyncio.get_running_loop().time()

    # ------------------------------------------------------------------ subscribing

    async def _subscribe(self, connection: Connection) -> SubscribeAnswer:
        attending = self.owner.attends()
        params: dict[str, Any] = {"observe": not attending}
        if self.events is not None:
            params["events"] = self.events

        at = self.cursor.position
        if at is not None:
            params |= {"from_seq": at.seq, "launch": at.launch}

        # Its events may come in one go with the answer, which is to be looked at first.
        self._held = []
        try:
            said = await connection.send("subscribe", params)
            answer = SubscribeAnswer.model_validate(said)
        except ValueError as error:
            message = f"the pod's answer to subscribe cannot be read: {error}"
            raise ProtocolMismatch(message) from error
        finally:
            held, self._held = self._held, None

        self.is_attending = attending
        leaps = answer.replay in {"log", "snapshot"}
        self.cursor.subscribed(answer.launch, answer.seq, from_log=leaps)
        for line in held or ():
            self.receive(line)

        if answer.replay == "none":
            self.owner.heard_of(answer.launch)

        return answer

    async def attend(self) -> None:
        """Have the pod know whether approvals would be answered here."""
        async with self._changing:
            connection = self.now()
            if connection is None or self.is_attending == self.owner.attends():
                return  # a new connection says it anew

            try:
                said = await connection.send("unsubscribe", {})
                UnsubscribeAnswer.model_validate(said)
                await self._subscribe(connection)
            except (ConnectionLost, ProtocolMismatch, RemoteError, ValueError) as error:
                # What was subscribed is not any more: only a new connection is sure of it.
                connection.close(f"the subscription could not be changed: {error}")

    # ------------------------------------------------------------------ what comes in

    def receive(self, line: EventLine | Heartbeat) -> None:
        """Take in what the connection brings (it calls this)."""
        if self._held is not None:
            self._held.append(line)
            return

        match line:
            case Heartbeat():
                if self.cursor.is_behind(line.launch, line.seq):
                    self._reconnect(f"event {line.seq} never came")
                else:
                    self.cursor.leap(line.launch, line.seq)
                    self.owner.heard_of(line.launch)
            case Envelope():
                self._on_event(line)
            case _:
                self._on_unknown(line.value)

        is_fast = self.cursor.is_replaying and self.owner.backlog() > READ_AHEAD
        if is_fast and self._brake is None:
            self._brake = asyncio.create_task(self._slow_down(), name="pod-client-brake")

    def _on_event(self, envelope: Envelope) -> None:
        data = envelope.data
        if isinstance(data, Lagged):
            # Nothing is lost: the next connection begins where this one was cut off.
            self._reconnect("the pod cut this client off, which fell behind")
        elif isinstance(data, Snapshot):
            self.cursor.leap(envelope.launch, envelope.seq)
            self.owner.deliver(envelope)
        elif self._is_next(envelope.launch, envelope.seq, envelope.first_seq):
            self.owner.deliver(envelope)

    def _on_unknown(self, value: dict[str, Any]) -> None:
        """Pass over a line of a newer version; an event among them has its number all the same."""
        launch, seq = value.get("launch"), value.get("seq")
        if isinstance(launch, str) and isinstance(seq, int) and self._is_next(launch, seq):
            self.owner.passed_over(launch, seq, str(value.get("event")))

    def _is_next(self, launch: str, seq: int, first_seq: int | None = None) -> bool:
        verdict = self.cursor.take(launch, seq, first_seq)
        if verdict == "gap":
            self._reconnect(f"events before {seq} never came")

        return verdict == "new"

    def _reconnect(self, why: str) -> None:
        if self._connection is not None:
            self._connection.close(why)
        elif self._opening is not None:
            self._opening.close(why)

    async def _worked_on(self, is_enough: Callable[[int], bool]) -> None:
        """Return once no more events wait to be read than is fine."""
        while not is_enough(self.owner.backlog()):  # noqa: ASYNC110  to tell of each would cost more
            await asyncio.sleep(_LOOK_AGAIN_S)

    async def _slow_down(self) -> None:
        """Read nothing until what was read is worked on, for a while: then somebody is cut off.

        A replay comes faster than anybody works on events. But one who never does must not keep
        the others of this process waiting.
        """
        connection = self._opening
        try:
            if connection is None:
                return

            connection.pause()
            until = self._clock() + STALL_S
            await self._worked_on(
                lambda waiting: waiting <= READ_AHEAD // 2 or self._clock() >= until
            )
            connection.go_on()
            await self._worked_on(lambda waiting: waiting <= READ_AHEAD or connection.is_lost)
        finally:
            self._brake = None
