"""A view of one pod: events in, what is to be seen out; what is typed in, what is done out.

It holds what a person typed and is not done yet: prompts and commands that wait for their turn.
How it looks is the stage's affair, what happened the model's.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from difflib import get_close_matches
from typing import cast

from attrs import define, evolve, field, frozen

from pod.errors import PodBusy, PodClosed
from pod.pod import PodStatus
from pod.protocol import CompactionDone, Envelope, RunStart, SessionChanged, Snapshot
from worker.text import is_blank

from .blocks import Block, Told, Tone
from .commands import COMMANDS, Command
from .draw import ColourSystem, Paper
from .gauge import gauge_line
from .model import Step, advance, connection_back, connection_lost
from .port import PodPort
from .recall import arrived, missed, pruned_tokens
from .region import Scene
from .reports import header
from .stage import Stage
from .state import Approval, ViewState
from .text import one_line

INTERRUPTED = 130
_AGAIN = Told("(Ctrl-C once more leaves)", Tone.DETAIL)
_KEYS_AFTER_MS = 700
"""How long a question is there before a single key answers it: such a key may be the next letter
of what is just being typed."""
_ANSWERS = {"y": "y", "yes": "y", "s": "s", "session": "s", "n": "n", "no": "n"}
_BUSY_S = 0.1


@frozen
class Job:
    """Something that was asked for and waits for its turn, as it was typed."""

    typed: str
    work: Callable[[], Awaitable[None]]


@frozen(kw_only=True)
class Manner:
    """How a view does things."""

    explain: Callable[[Exception], str]
    """Returns what went wrong, in words for a person."""
    commands: Mapping[str, Command] = field(factory=dict)
    """Those of the place where the pod lives, besides the common ones."""
    by: str = ""
    """Who decides about calls, as it is logged."""
    colours: ColourSystem | None = None
    is_ascii: bool = False
    """Whether the terminal takes nothing but ASCII."""
    columns: Callable[[], int] = lambda: 80
    """Returns how many columns a line has."""
    retained_turns: int | None = None
    """How many turns a compaction keeps, where that is known."""
    now_ms: Callable[[], int] = lambda: int(time.time() * 1000)


@define(eq=False)
class View:
    """Shows a pod and hands on what a person says, until he leaves. It is the stage's listener."""

    pod: PodPort
    stage: Stage
    manner: Manner
    is_verbose: bool = False
    state: ViewState = field(factory=ViewState, init=False)
    is_hurried: bool = field(default=False, init=False)
    """Whether the person left while something did not stop."""
    _jobs: deque[Job] = field(factory=deque, init=False)
    _job: Job | None = field(default=None, init=False)
    _wake: asyncio.Event = field(factory=asyncio.Event, init=False)
    _stop_listening: Callable[[], object] = field(default=lambda: None, init=False)
    _group: asyncio.TaskGroup | None = field(default=None, init=False)
    _code: int = field(default=0, init=False)
    _was_interrupted: bool = field(default=False, init=False)
    _is_stopping: bool = field(default=False, init=False)
    _has_ended: bool = field(default=False, init=False)
    _decided: set[str] = field(factory=set, init=False)
    _asked: tuple[str, int] = field(default=("", 0), init=False)
    """What is asked about first, and since when."""
    _question: tuple[str, Callable[[], Awaitable[None]]] | None = field(default=None, init=False)
    _status: PodStatus | None = field(default=None, init=False)
    _seen_uid: str | None = field(default=None, init=False)

    # ------------------------------------------------------------------ life

    async def run(self) -> int:
        """Show the pod until the person leaves; return the exit code. The pod stays open."""
        self.tell(Told(header(self.pod.status())))
        self.adopt(self.pod)
        async with asyncio.TaskGroup() as group:
            self._group = group
            working = group.create_task(self._work())
            try:
                await self.stage.run(self)
            finally:
                self._stop_listening()
                working.cancel()

        return self._code

    def adopt(self, pod: PodPort, *, is_new: bool = True) -> None:
        """Show that pod from now on: where it is, and what it does."""
        self._stop_listening()
        self.pod = pod
        stops = [pod.listen(self._heard)]
        watch = getattr(pod, "on_connection", None)
        if watch is not None:
            stops.append(watch(self._connection))

        self._stop_listening = lambda: [stop() for stop in stops]
        step = arrived(
            pod.status(),
            pod.history,
            self.manner.now_ms(),
            retained_turns=self.manner.retained_turns,
        )
        spent = self.state.spent
        self._show(Step(evolve(step.state, spent=spent), step.said if is_new else ()))

    def leave(self, code: int) -> None:
        """End the view."""
        self._code = code
        self.stage.close()

    # ------------------------------------------------------------------ what is shown

    def tell(self, *blocks: Block) -> None:
        """Say something that is not an event."""
        self._show(Step(self.state, blocks))

    def gauge(self) -> str:
        """Return how full the context is, as one line."""
        state, manner = self.state, self.manner
        return gauge_line(
            self.pod.status(),
            manner.columns(),
            in_ascii=manner.is_ascii,
            pruned=state.pruned_tokens,
            cost=state.cost,
        )

    def scene(self, rows: int, columns: int) -> tuple[ViewState, Scene]:
        """Return what is to be drawn now on so much room."""
        try:
            self._status = self.pod.status()
        except PodClosed:
            self._status = self._status  # the last one that was known

        waiting = [self._job] if self._job is not None and self._is_waiting() else []
        scene = Scene(
            now_ms=self.manner.now_ms(),
            rows=rows,
            paper=Paper(columns, self.manner.colours),
            status=self._status,
            queued=[job.typed for job in (*waiting, *self._jobs)],
            question=self._question[0] if self._question is not None else "",
            is_verbose=self.is_verbose,
            is_stopping=self._is_stopping,
        )
        return evolve(self.state, approvals=self._undecided()), scene

    def _heard(self, envelope: Envelope) -> None:
        data = envelope.data
        step = advance(self.state, data, envelope.ts)
        if isinstance(data, Snapshot):
            step = Step(step.state, (*step.said, *missed(self.pod.history, self._seen_uid)))

        if isinstance(data, Snapshot | CompactionDone | SessionChanged):
            step = Step(self._on_this_history(step.state), step.said)

        if isinstance(data, RunStart):
            self._is_stopping = False

        self._show(step)

    def _on_this_history(self, state: ViewState) -> ViewState:
        """Take from the pod what cannot be told from events, once its history is another one."""
        try:
            status, history = self.pod.status(), self.pod.history
        except PodClosed:
            return state

        gone = pruned_tokens(history, status.watermark)
        return evolve(state, turns=status.turns, pruned_tokens=gone)

    def _connection(self, is_there: bool) -> None:  # noqa: FBT001  as `on_connection` calls it
        now_ms = self.manner.now_ms()
        if is_there:
            self._show(connection_back(self.state, now_ms))
            return

        history = self.pod.history
        self._seen_uid = history[-1].uid if history else None
        self._show(connection_lost(self.state, now_ms))

    def _show(self, step: Step) -> None:
        self.state = step.state
        first = self._undecided()[:1]
        uid = first[0].call_uid if first else ""
        if uid != self._asked[0]:
            self._asked = (uid, self.manner.now_ms())

        self.stage.update(step.state, step.said)

    # ------------------------------------------------------------------ what the person does

    def entered(self, text: str) -> None:
        """Take what was typed: an answer, a command, or a prompt for its turn."""
        self._was_interrupted = False
        answer = _ANSWERS.get(text.strip().lower())
        if answer is not None and (self._question is not None or self._undecided()):
            self.pressed(answer)
        elif text.startswith("/"):
            self._command(text)
        elif not is_blank(text):
            self._queue(text.strip(), lambda: self._prompt(text.strip()))
        elif self._job is None:
            self.stage.ready(self.gauge())

    def pressed(self, key: str) -> None:
        """Take the key that answers a question."""
        if self._question is None:
            self._at_once(self.decide(key))
            return

        (_, work), self._question = self._question, None
        if key == "y":
            self._at_once(work())
        else:
            self.tell(Told("left as it is"))

    def takes_keys(self) -> bool:
        """Tell whether a single key answers a question now."""
        if self._question is not None:
            return True

        asked_for_ms = self.manner.now_ms() - self._asked[1]
        return bool(self._undecided()) and asked_for_ms >= _KEYS_AFTER_MS

    def left(self) -> None:
        """Leave, whatever is going on."""
        self.leave(0)

    def ended(self) -> None:
        """Leave once all that was typed is done: no more is to come."""
        self._has_ended = True
        if self._job is None and not self._jobs:
            self.leave(0)

    def interrupted(self) -> None:
        """Stop what goes on and give the prompt back; where nothing does, leave by the second."""
        is_busy = self._job is not None or self.state.is_busy
        if is_busy and not self._is_stopping:
            self._was_interrupted = self._is_stopping = True
            self._at_once(_settled(self.pod.cancel()))
            self._give_back()
        elif is_busy:
            self.is_hurried = True
            self.leave(INTERRUPTED)
        elif self.stage.drop_line() or not self._was_interrupted:
            self._was_interrupted = True
            self.stage.update(self.state, (evolve(_AGAIN, tone=Tone.INFO),))
            self.stage.ready(self.gauge())
        else:
            self.leave(INTERRUPTED)

    def ask(self, question: str, work: Callable[[], Awaitable[None]]) -> None:
        """Ask whether to do something; it is done if the answer is yes."""
        self._question = (question, work)
        self.tell()

    async def decide(self, key: str) -> None:
        """Decide about the call that is asked about first. Raises `UnknownApproval`."""
        undecided = self._undecided()
        if not undecided:
            self.tell(Told("no call waits for a decision"))
            return

        first = undecided[0]
        self._decided.add(first.call_uid)
        self._show(Step(self.state))
        await _settled(
            self.pod.approve(
                first.call_uid,
                "deny" if key == "n" else "allow",
                scope="session" if key == "s" else "once",
                by=self.manner.by,
            )
        )

    @property
    def commands(self) -> Mapping[str, Command]:
        """Every command there is, the engine's apart."""
        return {**COMMANDS, **self.manner.commands}

    async def engine_commands(self) -> Mapping[str, str]:
        """Return what the engine's own commands do, by name."""
        found = await _settled(self.pod.engine_commands())
        if not isinstance(found, Mapping):
            return {}

        return {name: str(getattr(what, "description", what)) for name, what in found.items()}

    # ------------------------------------------------------------------ inside

    def _undecided(self) -> tuple[Approval, ...]:
        return tuple(a for a in self.state.approvals if a.call_uid not in self._decided)

    def _command(self, line: str) -> None:
        name, _, rest = line[1:].partition(" ")
        command = self.commands.get(name.strip().lower())
        if command is None:
            self._at_once(self._others(name.strip(), rest.strip()))
        elif command.when == "now":
            self._at_once(command.carry_out(self, rest.strip()))
        else:
            self._queue(line.strip(), lambda: command.carry_out(self, rest.strip()))

    async def _others(self, name: str, rest: str) -> None:
        """Carry out a command of the engine's, or say which one there is."""
        offered = await self.engine_commands()
        if name in offered:
            self.tell(Told(await self.pod.engine_command(name, rest)))
            return

        near = get_close_matches(name.lower(), [*self.commands, *offered], 1)
        meant = f"did you mean /{near[0]}?" if near else "/help lists them"
        text = f"no command /{one_line(name)}; {meant}"
        self.tell(Told(f"{text}\n  a space before the slash sends the line as it is"))

    async def _prompt(self, text: str) -> None:
        while True:
            try:
                await self.pod.run(text)
            except PodBusy:  # somebody else was quicker
                await self.pod.idle()
                await asyncio.sleep(_BUSY_S)
            else:
                break

        await self.pod.idle()

    def _is_waiting(self) -> bool:
        """Tell whether what was typed last is not being done yet: a compaction comes first."""
        return self.state.state == "compacting"

    def _queue(self, typed: str, work: Callable[[], Awaitable[None]]) -> None:
        self._jobs.append(Job(typed, work))
        self._wake.set()
        self.tell()

    def _give_back(self) -> None:
        typed = [job.typed for job in self._jobs]
        self._jobs.clear()
        if typed:
            self.stage.give_back("\n".join(typed))

        self.tell()

    def _at_once(self, work: Awaitable[object]) -> None:
        if self._group is None:
            return

        task = self._group.create_task(self._supervised(work))
        task.add_done_callback(lambda _: self._after_command())

    def _after_command(self) -> None:
        if self._job is None and not self._jobs and not self.state.is_busy:
            self.stage.ready(self.gauge())

    async def _work(self) -> None:
        """Do what was typed, one after the other."""
        self.stage.ready(self.gauge())
        while True:
            self._wake.clear()
            while self._jobs:
                self._job = self._jobs.popleft()
                await self._supervised(self._job.work())
                self._job, self._is_stopping = None, False

            self.stage.ready(self.gauge())
            if self._has_ended:
                self.leave(0)

            await self._wake.wait()

    async def _supervised(self, work: Awaitable[object]) -> None:
        """Carry something out. What goes wrong is told, and the view goes on."""
        try:
            await work
        # The supervision point of a view: no failure of one step ends it.
        except Exception as error:  # noqa: BLE001  each is told, and is the person's to judge
            self.tell(Told(self.manner.explain(error), Tone.ERROR))


async def _settled(value: object) -> object:
    """Return what a pod gives at once, and what one behind a socket has to be asked for."""
    if inspect.isawaitable(value):
        return await cast("Coroutine[object, object, object]", value)

    return value
