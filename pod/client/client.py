"""`PodClient`: a served pod, used as one in this process is."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from pod.bus import Subscription
from pod.errors import PodClosed, PodError
from pod.home import Home
from pod.prompts import prompt_message
from pod.protocol import ApprovalRequest, CompactionDone, Envelope, EventData, event_name
from pod.protocol.methods import SessionAnswer, TextAnswer, WaitingCall
from pod.serve.places import Places
from worker.foreign import uninterrupted
from worker.items import Image, Item, UserMessage

from .cursor import Cursor, Position
from .errors import ConnectionLost, RemoteError
from .feed import Feed
from .fork import Fork
from .link import Link, LinkState, Patience
from .runs import RemoteRuns
from .sent import Sent
from .translate import raised, read

if TYPE_CHECKING:
    from pod.context.plugin_commands import EngineCommand
    from pod.runs import RunResult
    from pod.status import PodStatus

E = TypeVar("E", bound=EventData)
_REPEATED = frozenset(
    {
        *("idle", "ping", "status", "get_history", "engine_commands"),
        # Asked for twice they do what they do once; lost, a call would be denied by time.
        *("cancel", "pause", "approve"),
    }
)
"""What is asked again where the connection was lost before the answer."""
_NEEDED = ("run_*", "status", "session_changed", "compaction_*", "approval_*", "turn_*")
"""Events that a client itself goes by, whatever else is asked for."""
_log = logging.getLogger("pod.client")


class PodClient:
    """A served pod. `async with PodClient.connect("reviewer") as client:` uses it.

    It has what `Pod` has, under the same names. `status()`, `history` and `session_id` are those of
    a mirror: right when an operation has returned, and a moment behind while a run goes on. A lost
    connection is made anew by itself, and events go on where they were; see `connect`. Leaving
    the block ends the connection; the pod goes on.
    """

    def __init__(self, path: Path, *, name: str, home: Path | None, link: Link, feed: Feed) -> None:
        """Make a client that `start` will connect; see `connect`."""
        self._path = path
        self._name = name
        self._home = home
        self._link = link
        self._feed = feed
        self._runs = RemoteRuns(link, feed, self._soon)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._keeper: asyncio.Task[None] | None = None
        self._is_started = self._is_closed = False

    # ------------------------------------------------------------------ life

    @classmethod
    def connect(
        cls,
        pod: str | Path,
        *,
        home: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        since: Position | None = None,
        only: Sequence[type[EventData]] = (),
        patience: Patience | None = None,
    ) -> Self:
        """Return a client that is connected by `async with`, or by `await client.start()`.

        Args:
            pod: The name of a served pod, or the path of its socket.
            home: Where the pod's socket is, by name; default: `$POD_HOME`, else the user's folder.
            env: The environment that the home is looked up in; default: this process's.
            since: Where an earlier client's `position` was: the events from there on come first.
                Subscribe before connecting (`events` may be called at once) to be given them.
            only: The events that are wanted; default: all. The others are not sent.
            patience: For how long a lost connection is tried again; default: 30 seconds.

        Raises:
            InvalidPodName: That cannot be a pod's name.
        """
        environment = os.environ if env is None else env
        where = Home(Path(home)) if home is not None else Home.from_env(environment)
        if isinstance(pod, Path) or "/" in pod:
            path, name = Path(pod), Path(pod).stem
            known_home = path.parent.parent if path.parent.name == "run" else None
        else:
            path, name, known_home = Places.of(where, pod).socket, pod, where.root

        names = (*_NEEDED, *map(event_name, only)) if only else None
        feed = Feed()
        cursor = Cursor(since, is_filtered=names is not None)
        link = Link(path, feed, cursor, patience or Patience(), names)
        return cls(path, name=name, home=known_home, link=link, feed=feed)

    async def start(self) -> Self:
        """Connect; idempotent. What is shown is right from then on.

        Raises:
            NotServed: Nobody serves the pod.
            ProtocolMismatch: What answers is no pod, or speaks another protocol.
            ConnectionLost: It did not answer.
        """
        if self._is_closed:
            message = "the client is closed"
            raise PodClosed(message, hint="connect again")

        if self._is_started:
            return self

        self._is_started = True
        self._feed.on_attendance = self._attendance_changed
        self._link.watch(self._on_link)
        self._keeper = asyncio.create_task(self._feed.keep_fresh(self._link), name="pod-mirror")
        try:
            await self._link.start()
        except BaseException:  # a cancellation too: no task and no socket stays behind
            await self.aclose()
            raise

        return self

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End the connection; idempotent. The pod, and a run that is going on, go on without it.

        Subscriptions end once what they hold was read. Whoever is cancelled meanwhile hears of it
        after that.
        """
        self._is_closed = True
        await uninterrupted(self._close())

    async def _close(self) -> None:
        # What was asked for a moment ago, such as a cancellation, is still to leave.
        pending = [task for task in self._tasks if not task.done()]
        if pending and self._link.now() is not None:
            await asyncio.wait(pending, timeout=1.0)

        await self._link.aclose()
        rest = [task for task in (*self._tasks, self._keeper) if task is not None]
        for task in rest:
            task.cancel()

        if rest:
            await asyncio.wait(rest)

    def _on_link(self, state: LinkState) -> None:
        """Take in that there will be no more connections: then everything has an end."""
        if state.phase == "closed":
            why = self._link.ended_by or PodClosed("the client is closed")
            # Whoever stops a pod removes its socket; what only vanished is an error.
            is_orderly = self._is_closed or not self._path.exists()
            self._feed.close(None if is_orderly or not isinstance(why, PodError) else why, why)

    # ------------------------------------------------------------------ what it does

    async def run(
        self,
        prompt: str | UserMessage,
        *,
        output: type[Any] | None = None,
        images: tuple[Image, ...] = (),
    ) -> RunResult:
        """Run a prompt to its end and return how it ended; a provider's failure is in the result.

        Cancelling whoever waits here cancels the run; closing the client does not. The end of a run
        that goes on while the connection is lost is found when it is there again.

        Raises:
            ValueError: The prompt is empty.
            PodBusy: A run is going on already.
            RunUnknown: It cannot be told how it ended: it may still be going on.
        """
        return await self._runs.run(prompt_message(prompt, images), output)

    async def resume(self) -> RunResult:
        """Go on with a run that was paused, cancelled, interrupted or stopped at a limit."""
        return await self._runs.resume()

    async def compact(self, focus: str | None = None) -> CompactionDone | None:
        """Compact the history now, whatever its size; None where there is nothing to cut.

        Raises:
            CompactionError: It failed; the history is unchanged.
            ConnectionLost: It cannot be told whether it was done.
        """
        return await self._runs.compact(focus)

    async def new(self) -> None:
        """Begin a fresh session: the history is empty; the old session stays as it is."""
        await self.call("new")
        await self._runs.settled()

    async def rewind(self, to: str) -> None:
        """Go back to the entry `to`, a hash or 8 or more digits of it, in a new session."""
        await self.call("rewind", {"to": to})
        await self._runs.settled()

    async def fork(self, at: str | None = None) -> Fork:
        """Return a fork of the session, at its head or at an entry's hash; the pod stays on it.

        `async with` it to launch a pod on it in this process, or go on with its `session_id`.
        """
        params = {"at": at} if at is not None else {}
        answer = read(SessionAnswer, await self.call("fork", params))
        return Fork(answer.session_id, self._feed.mirror.manifest, self._home)

    def cancel(self) -> Awaitable[None]:
        """Stop the run or the compaction that is going on; what was done so far stays.

        It is asked for at once; what is returned may be awaited, to hear that the pod heard it.
        """
        return self._at_once("cancel", {})

    def pause(self) -> Awaitable[None]:
        """Stop the run before its next request; `resume` goes on. As `cancel`, else."""
        return self._at_once("pause", {})

    async def refresh(self) -> None:
        """Return once `status()` and `history` know all that the pod had when this was called.

        Raises `PodError` where the pod is lost.
        """
        await self._feed.fresh()

    async def idle(self) -> None:
        """Wait until no run and no compaction is going on."""
        await self.call("idle")
        await self._runs.settled()

    async def shutdown(self, *, wait: bool = False) -> None:
        """End the pod, for everybody; with `wait`, after what is going on. Closes the client."""
        # It may be gone before it could say that it heard.
        with suppress(ConnectionLost):
            await self.call("shutdown", {"wait": wait})

        connection = self._link.now()
        if connection is not None:
            await connection.lost()

        await self.aclose()

    async def call(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the pod's answer to a method of the protocol, as it is; see docs/protocol.md.

        Raises:
            RemoteError: The pod refused, or failed; `PodBusy`, `PodClosed` and `UnknownApproval`
                for what those say.
            ConnectionLost: No answer came; it may have been done or not.
        """
        return await self._answer(None, method, dict(params or {}))

    # ------------------------------------------------------------------ approvals

    @contextmanager
    def attended(self) -> Iterator[None]:
        """Say that somebody is there to decide about calls, for as long as the block lasts.

        So does whoever listens for `ApprovalRequest` by `on`, or names it in `events`.
        """
        self._feed.attending += 1
        self._attendance_changed()
        try:
            yield
        finally:
            self._feed.attending -= 1
            self._attendance_changed()

    def approve(
        self,
        call_id: str,
        decision: Literal["allow", "deny"],
        *,
        scope: Literal["once", "session"] = "once",
        by: str = "",
    ) -> Awaitable[None]:
        """Decide about a call that waits, named by its `call_id` or `call_uid`; the first counts.

        It is sent at once. Awaiting what is returned raises `UnknownApproval` where no such call
        waits; where nobody awaits it, that is logged.
        """
        params = {"call_id": call_id, "decision": decision, "scope": scope}
        return self._at_once("approve", params | {"by": by} if by else params)

    def waiting_approvals(self) -> tuple[WaitingCall, ...]:
        """Return the calls that wait for a decision, oldest first."""
        return self._feed.mirror.waiting

    # ------------------------------------------------------------------ what it shows

    @property
    def name(self) -> str:
        """The pod's name."""
        hello = self._link.state.hello
        return hello.pod if hello is not None else self._name

    @property
    def session_id(self) -> str:
        """The id of the session that is being written."""
        return self._feed.mirror.status.session_id

    @property
    def history(self) -> tuple[Item, ...]:
        """The items so far, oldest first."""
        return self._feed.mirror.history

    def status(self) -> PodStatus:
        """Return where the pod stands."""
        return self._feed.mirror.status

    @property
    def position(self) -> Position | None:
        """Where the next event will be, for `connect(since=…)`; None until it is connected."""
        return self._link.cursor.position

    @property
    def link(self) -> LinkState:
        """How it is connected just now."""
        return self._link.state

    def watch_link(self, callback: Callable[[LinkState], None]) -> Callable[[], None]:
        """Call `callback(state)` now, and on each change of the connection. Returns how to stop."""
        return self._link.watch(callback)

    def on(self, event: type[E], callback: Callable[[E], None]) -> Callable[[], None]:
        """Call `callback(data)` on every event of this type. Returns how to stop it.

        Callbacks run on the event loop and must not block; one that raises is logged.
        """
        stop = self._feed.bus.on(event, callback)
        self._asked_for(event)

        def stop_it() -> None:
            stop()
            self._asked_for(event)

        return stop_it

    def listen(self, callback: Callable[[Envelope], None]) -> Callable[[], None]:
        """Call `callback(envelope)` on every event, numbered as published. Returns how to stop."""
        return self._feed.bus.listen(callback)

    def events(self, *types: type[EventData]) -> Subscription:
        """Return the events of these types, or all, from now on.

        It ends when the client closes, or the pod was stopped and does not come back; it raises
        where the pod is lost. What could not be replayed after a lost connection is told by a
        `Snapshot`; a `Lagged` is the last event of whoever does not read what there is.
        """
        subscription = self._feed.bus.subscribe(*types)
        self._asked_for(*types)
        return subscription

    def engine_commands(self) -> dict[str, EngineCommand]:
        """Return the slash commands that the engine's plugin registered, by name."""
        from pod.context.plugin_commands import EngineCommand

        offered = self._feed.mirror.commands
        return {
            name: EngineCommand(name, said, offered.hints.get(name, ""))
            for name, said in offered.commands.items()
        }

    async def engine_command(self, name: str, args: str = "") -> str:
        """Run a slash command that the engine's plugin registered; returns what it has to say."""
        said = await self.call("engine_command", {"name": name, "args": args})
        return read(TextAnswer, said).text

    # ------------------------------------------------------------------ inside

    def _at_once(self, method: str, params: dict[str, Any]) -> Awaitable[None]:
        """Send a request now, after what was asked before, and return its answer to come."""
        connection = self._link.now()
        said = connection.send(method, params) if connection is not None else None
        return self._soon(self._answer(said, method, params), method)

    async def _answer(
        self, said: Awaitable[dict[str, Any]] | None, method: str, params: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the answer to what was sent; None: it is sent as soon as there is a connection.

        One that is lost is asked for again on the next connection, where that does no harm.
        """
        while True:
            if said is None:
                said = (await self._link.ready()).send(method, params)

            try:
                return await said
            except ConnectionLost:
                if method not in _REPEATED:
                    raise

                said = None
            except RemoteError as error:
                raise raised(error) from error

    def _soon(self, work: Awaitable[Any], what: str) -> Sent:
        """Have something done; a failure is logged where nobody waits for it."""

        async def carry_out() -> None:
            await work

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            error = None if task.cancelled() else task.exception()
            if error is not None and not sent.is_awaited:
                _log.warning("%s: %s", what, error)

        task = asyncio.create_task(carry_out(), name=f"pod-client {what}")
        sent = Sent(task)
        self._tasks.add(task)
        task.add_done_callback(ended)
        return sent

    def _asked_for(self, *types: type[EventData]) -> None:
        if ApprovalRequest in types:
            self._attendance_changed()

    def _attendance_changed(self) -> None:
        if self._link.now() is not None and self._link.is_attending != self._feed.attends():
            _ = self._soon(self._link.attend(), "attend")
