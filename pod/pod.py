"""`Pod`: one agent, launched from a manifest, on one session at a time."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

import anyio

from pod.approvals import ApprovalDesk, Decision, Scope
from pod.bus import EventBus, Subscription
from pod.compaction.plan import CompactionError
from pod.context.plugin_commands import (
    COMMAND_TIMEOUT_S,
    EngineCommand,
    offered,
    run_command,
)
from pod.errors import PodBusy, PodClosed
from pod.failures import error_info
from pod.home import Home
from pod.journal import in_thread
from pod.launching.launch import Launched, launch
from pod.launching.preparing import prepare
from pod.prompts import prompt_message
from pod.protocol import (
    ApprovalRequest,
    CompactionDone,
    Envelope,
    Error,
    EventData,
    SessionChanged,
)
from pod.protocol.methods import WaitingCall
from pod.runs import RunDriver, RunResult, Steering
from pod.status import PodStatus, status_of
from worker.foreign import uninterrupted
from worker.items import Image, Item, UserMessage
from worker.threads import call_in_daemon_thread

if TYPE_CHECKING:
    from manifests import LoadedManifest, PodManifest

E = TypeVar("E", bound=EventData)
_log = logging.getLogger("pod")


class Pod:
    """A pod. `async with Pod.launch("reviewer.toml") as pod:` runs it; leaving the block closes it.

    Operations are carried out one after the other. A run while another is going on is refused;
    anything that arrives while history is compacted waits for it.
    """

    def __init__(
        self,
        loaded: LoadedManifest,
        *,
        home: Home,
        env: Mapping[str, str],
        resume: str | None = None,
    ) -> None:
        """Make a pod that `start` will launch; see `launch`."""
        self._loaded = loaded
        self._home = home
        self._env = env
        self._resume = resume
        self._bus = EventBus()
        self._approvals = ApprovalDesk(
            self._bus.publish, is_watched=lambda: self._bus.wants(ApprovalRequest)
        )
        self._gate = asyncio.Lock()
        self._steering: Steering | None = None  # that of the run that is going on
        self._launched: Launched | None = None
        self._after_run: asyncio.Task[None] | None = None
        self._closed = False

    # ------------------------------------------------------------------ life

    @classmethod
    def launch(
        cls,
        manifest: str | Path | PodManifest,
        *,
        resume: str | None = None,
        home: str | Path | None = None,
        overrides: tuple[str, ...] = (),
        env: Mapping[str, str] | None = None,
    ) -> Pod:
        """Return a pod that is launched by `async with`, or by `await pod.start()`.

        Args:
            manifest: The path of a manifest, or a manifest.
            resume: The id of a session to go on with; a new one is begun otherwise.
            home: Where everything is kept; default: `$POD_HOME`, else the user's state folder.
            overrides: Manifest keys to set, each as "KEY=VALUE".
            env: The environment that keys and paths are looked up in; default: this process's.

        Raises:
            ManifestError: The manifest has mistakes, all of which are named.
        """
        from manifests import LoadedManifest, load_manifest

        environment = dict(os.environ) if env is None else env
        if isinstance(manifest, str | Path):
            loaded = load_manifest(manifest, overrides=overrides, env=environment)
        else:
            here = Path.cwd()
            loaded = LoadedManifest(path=here / "(given)", manifest=manifest, base_dir=here)

        where = Home(Path(home)) if home is not None else Home.from_env(environment)
        return cls(loaded, home=where, env=environment, resume=resume)

    async def start(self) -> Self:
        """Launch the pod; idempotent.

        Raises:
            PodError: A key, model file, tool or hook that the manifest names cannot be used.
            SessionStoreError: The session is unknown, damaged or in use, or cannot be written.
        """
        async with self._gate:
            if self._closed:
                message = "the pod is closed"
                raise PodClosed(message, hint="launch it again")

            if self._launched is None:
                self._launched = await self._launch()

        return self

    async def _launch(self) -> Launched:
        # Nothing durable happens in there: whoever gives up does not wait for it, at exit neither.
        prepared = await call_in_daemon_thread(
            lambda: prepare(self._loaded, self._home, self._env), name="launch"
        )
        try:
            return await launch(prepared, self._bus, self._approvals, resume=self._resume)
        except BaseException:  # a cancellation too: a local server must not stay behind
            with anyio.CancelScope(shield=True):
                await prepared.aclose()
            raise

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.cancel()

        await self.aclose()

    async def aclose(self) -> None:
        """Wait for a compaction that is going on, then close the pod; idempotent.

        Subscriptions end once what they hold was read. `cancel` first to close at once.
        """
        if self._closed:
            return

        self._closed = True
        try:
            with anyio.CancelScope(shield=True):
                await self.idle()
                if self._launched is not None:
                    await self._launched.aclose()
        finally:
            self._bus.close()

    async def idle(self) -> None:
        """Wait until no run and no compaction is going on."""
        task = self._after_run
        if task is not None and not task.done():
            await asyncio.wait({task})

        async with self._gate:
            return

    @staticmethod
    def run_sync(
        manifest: str | Path | PodManifest,
        prompt: str,
        **options: Any,  # noqa: ANN401  as `launch`
    ) -> RunResult:
        """Launch a pod, run one prompt, close the pod. For programs without an event loop.

        `options` are those of `launch`. Raises as `launch`, `start` and `run` do.
        """

        async def main() -> RunResult:
            async with Pod.launch(manifest, **options) as pod:
                return await pod.run(prompt)

        return asyncio.run(main())

    # ------------------------------------------------------------------ what it does

    async def run(
        self,
        prompt: str | UserMessage,
        *,
        output: type[Any] | None = None,
        images: tuple[Image, ...] = (),
    ) -> RunResult:
        """Run a prompt to its end and return how it ended; a provider's failure is in the result.

        A compaction that the run made due goes on in the background; the next operation, and
        closing, wait for it.

        Raises:
            ValueError: The prompt is empty.
            PodBusy: A run is going on already.
        """
        message = prompt_message(prompt, images)
        return await self._exclusively(lambda driver, asked: driver.run(message, output, asked))

    async def resume(self) -> RunResult:
        """Go on with a run that was paused, cancelled, interrupted or stopped at a limit."""
        return await self._exclusively(lambda driver, asked: driver.resume(asked))

    def begin(
        self, prompt: UserMessage | None, *, output: type[Any] | None = None
    ) -> asyncio.Task[RunResult]:
        """Begin a run, or with None go on with the last one; the task comes to how it ended.

        `output` is that of `run`. What is asked of the pod from here on, such as `cancel`, is
        asked of this run. Raises as `run` does, at once.
        """
        if prompt is None:
            work = self._exclusively(lambda driver, asked: driver.resume(asked))
        else:
            message = prompt_message(prompt)
            work = self._exclusively(lambda driver, asked: driver.run(message, output, asked))

        return asyncio.create_task(work, name="run")

    async def compact(self, focus: str | None = None) -> CompactionDone | None:
        """Compact the history now, whatever its size; None where there is nothing to cut.

        Raises:
            CompactionError: It failed; the history is unchanged.
        """
        async with self._turn() as launched:
            return await launched.compactor.compact("manual", focus=focus)

    async def fork(self, at: str | None = None) -> Pod:
        """Return a launched pod on a fork of this session, at its head or at an entry's hash.

        The parent goes on as before. Raises `UnknownEntry` for a hash that is not in the session.
        """
        child_id = await self.fork_session(at)
        child = Pod(self._loaded, home=self._home, env=self._env, resume=child_id)
        return await child.start()

    async def fork_session(self, at: str | None = None) -> str:
        """Return the id of a fork of this session, as `fork` makes it, that nobody runs yet."""
        async with self._turn() as launched:
            core = launched.core
            session_id = core.session.session_id
            return await in_thread(lambda: core.store.fork(session_id, at))

    async def new(self) -> None:
        """Begin a fresh session: the history is empty; the old session stays as it is."""
        async with self._turn() as launched:
            await uninterrupted(self._go_on(launched, None, "new"))

    async def rewind(self, to: str) -> None:
        """Go back to the entry `to`: go on in a new session that begins as the history was there.

        `to` is a hash, or the first 8 or more digits of it, of an entry of this session or of one
        that it began from. The old session stays as it is, and the pod's pointer comes along.
        Raises `UnknownEntry` for a hash that is in none of them; then nothing has changed.
        """
        async with self._turn() as launched:
            core = launched.core
            session_id = core.session.session_id
            new_id = await in_thread(lambda: core.store.rewind(session_id, to))
            await uninterrupted(self._go_on(launched, new_id, "rewind"))

    def cancel(self) -> None:
        """Stop the run or the compaction that is going on; what was done so far stays.

        That includes a run that waits for a compaction, and a compaction that is only due.
        """
        if self._steering is not None:
            self._steering.cancel()

        if self._launched is None:
            return

        self._launched.core.worker.cancel()
        if self._launched.compactor.running:
            self._launched.compactor.cancel()
        elif self._after_run is not None:
            self._after_run.cancel()

    def pause(self) -> None:
        """Stop the run before its next request; `resume` goes on."""
        if self._steering is not None:
            self._steering.pause()

        if self._launched is not None:
            self._launched.core.worker.pause()

    # ------------------------------------------------------------------ approvals

    def attended(self) -> AbstractContextManager[None]:
        """Say that somebody is there to decide about calls, for as long as the block lasts.

        So does whoever listens for `ApprovalRequest` by `on`, or names it in `events`. With nobody
        there, a call that has to be asked about is denied.
        """
        return self._approvals.attended()

    def approve(
        self, call_id: str, decision: Decision, *, scope: Scope = "once", by: str = ""
    ) -> None:
        """Decide about a call that waits, named by its `call_id` or `call_uid`; the first counts.

        `scope="session"` allows the tool of that name for as long as the pod is on this session.
        Raises `UnknownApproval` where no such call waits.
        """
        self._approvals.decide(call_id, decision, scope=scope, by=by)

    def waiting_approvals(self) -> tuple[WaitingCall, ...]:
        """Return the calls that wait for a decision, oldest first."""
        return self._approvals.waiting

    async def engine_command(
        self, name: str, args: str = "", *, timeout_s: float = COMMAND_TIMEOUT_S
    ) -> str:
        """Run a slash command that the engine's plugin registered; returns what it has to say.

        It may be run beside a run. `args` is the rest of the line, as typed.

        Raises:
            UnknownEngineCommand: The engine has no such command.
            EngineCommandFailed: It raised, or took too long.
        """
        core = self._alive().core
        commands = core.plugin.registration.commands if core.plugin else {}
        said = await run_command(core.host, commands, name, args, timeout_s=timeout_s)
        return core.masked(said)

    # ------------------------------------------------------------------ what it shows

    @property
    def name(self) -> str:
        """The pod's name."""
        return self._loaded.manifest.pod.name

    @property
    def session_id(self) -> str:
        """The id of the session that is being written."""
        return self._alive().core.session.session_id

    @property
    def history(self) -> tuple[Item, ...]:
        """The items so far, oldest first."""
        return tuple(self._alive().core.worker.history)

    def status(self) -> PodStatus:
        """Return where the pod stands."""
        return status_of(self._alive().core)

    def engine_commands(self) -> dict[str, EngineCommand]:
        """Return the slash commands that the engine's plugin registered, by name."""
        plugin = self._alive().core.plugin
        return offered(plugin.registration.commands) if plugin else {}

    @property
    def bus(self) -> EventBus:
        """Where the pod's events are numbered and published, in this launch."""
        return self._bus

    def on(self, event: type[E], callback: Callable[[E], None]) -> Callable[[], None]:
        """Call `callback(data)` on every event of this type. Returns how to stop it.

        Callbacks run on the event loop and must not block; one that raises is logged.
        """
        return self._bus.on(event, callback)

    def listen(self, callback: Callable[[Envelope], None]) -> Callable[[], None]:
        """Call `callback(envelope)` on every event, numbered as published. Returns how to stop."""
        return self._bus.listen(callback)

    def events(self, *types: type[EventData]) -> Subscription:
        """Return the events of these types, or all, from now on; it ends when the pod closes."""
        return self._bus.subscribe(*types)

    # ------------------------------------------------------------------ inside

    def _alive(self) -> Launched:
        if self._launched is None or self._closed:
            message = "the pod is not running"
            raise PodClosed(message, hint="use it inside `async with Pod.launch(…) as pod:`")

        return self._launched

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[Launched]:
        """Wait for this operation's turn, and give what is running then.

        That may be another session than when it was asked for, or, at the end, none.
        """
        self._alive()
        await self._wait_for_compaction()
        async with self._gate:
            yield self._alive()

    def _exclusively(
        self, work: Callable[[RunDriver, Steering], Awaitable[RunResult]]
    ) -> Coroutine[None, None, RunResult]:
        """Take the place of the one run that may go on, and return what carries it out."""
        self._alive()
        if self._steering is not None:
            message = "a run is going on already"
            raise PodBusy(message, hint="wait for its run_end, or cancel it")

        self._steering = Steering()
        return self._carried_out(work, self._steering)

    async def _carried_out(
        self, work: Callable[[RunDriver, Steering], Awaitable[RunResult]], steering: Steering
    ) -> RunResult:
        try:
            async with self._turn() as launched:
                result = await work(launched.driver, steering)
        finally:
            self._steering = None

        if result.outcome in {"finished", "limit_reached"}:
            self._after_run = asyncio.create_task(self._compact_after_run(), name="after-run")

        return result

    async def _go_on(
        self, launched: Launched, session_id: str | None, reason: Literal["new", "rewind"]
    ) -> None:
        """Leave the session for another one, or for a fresh one, and tell so.

        Where that cannot be opened the pod goes on in the old one, and the error is raised.
        """
        old_id = launched.core.session.session_id
        left = await launched.leave(carries_over=reason == "rewind")
        try:
            self._launched = await launch(
                launched.prepared, self._bus, self._approvals, resume=session_id, left=left
            )
        except Exception:  # whatever it was, it goes on: the pod is not left without a session
            self._launched = await launch(
                launched.prepared, self._bus, self._approvals, resume=old_id, left=left.back()
            )
            raise

        new_id = self._launched.core.session.session_id
        self._bus.publish(
            SessionChanged(old_session_id=old_id, new_session_id=new_id, reason=reason)
        )

    async def _wait_for_compaction(self) -> None:
        """Let the check after the last run, and the compaction it may bring, come first."""
        task = self._after_run
        if task is not None and not task.done() and task is not asyncio.current_task():
            await asyncio.wait({task})

    async def _compact_after_run(self) -> None:
        """Compact where the run made it due. Its failure is told, and is no failure of the run."""
        async with self._gate:
            launched = self._launched
            if launched is None:
                return

            compactor = launched.compactor
            try:
                trigger = await compactor.due_after_run()
                # A failure was told by its event already; the history stays as it is.
                with suppress(CompactionError):
                    if trigger is not None:
                        await compactor.compact(trigger)
            except Exception as error:  # noqa: BLE001  supervision point of a background task
                _log.exception("compaction after a run failed")
                info = error_info(error)
                self._bus.publish(Error(code=info.code, message=info.message, hint=info.hint))
