"""A view of one pod: events in, what is to be seen out; what is typed in, what is done out.

How it looks is the stage's affair, what happened the model's.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Mapping
from difflib import get_close_matches
from typing import Literal

from attrs import define, evolve, field, frozen

from pod.context.plugin_commands import EngineCommand
from pod.errors import PodBusy, PodClosed
from pod.protocol import (
    CompactionStart,
    EventData,
    RunStart,
)
from pod.status import PodStatus
from worker.text import is_blank

from .asking import Asking, Question
from .blocks import Block, Told, Tone
from .commands import Command, all_commands
from .draw import ColourSystem, Paper
from .follow import Follower, Follows
from .gauge import gauge_line
from .jobs import Job, Jobs
from .model import Step
from .port import PodPort
from .region import Scene
from .reports import header
from .stage import Stage
from .state import ViewState
from .text import one_line

INTERRUPTED = 130
_AGAIN = Told("(Ctrl-C once more leaves)")
_TOO_NEW = Told("this has only just been asked; please answer again", Tone.WARNING)
_NO_ANSWER = Told(
    "that is no answer: y once, s for this session, n deny\n"
    "  a space before it sends the line as a prompt",
    Tone.WARNING,
)
_BUSY_S = 0.1
_LATE_MS = 500
"""After how long what was typed is shown to wait, where the pod seemed to be free."""


async def nothing() -> None:
    """Do nothing."""


@frozen(kw_only=True)
class Manner:
    """How a view does things."""

    explain: Callable[[Exception], str]
    """Returns what went wrong, in words for a person."""
    commands: Mapping[str, Command] = field(factory=dict)
    """Those of the place where the pod lives, besides the common ones."""
    by: str = ""
    """Who decides about calls, as it is logged; empty: as the pod sees it."""
    colours: ColourSystem | None = None
    is_piped: bool = False
    """Whether nobody types: all lines are there at once, and each waits for those before it."""
    is_ascii: bool = False
    """Whether the terminal takes nothing but ASCII."""
    columns: Callable[[], int] = lambda: 80
    """Returns how many columns a line has."""
    retained_turns: int | None = None
    """How many turns a compaction keeps, where that is known."""
    catch_up: Callable[[], Awaitable[None]] = nothing
    """Returns once the pod's history, as it is seen here, has all that happened."""
    before_leaving: Callable[[], Awaitable[None]] = nothing
    """Called when the person has left, before what was being done is given up."""
    now_ms: Callable[[], int] = lambda: int(time.time() * 1000)


@define(eq=False)
class View:
    """Shows a pod and hands on what a person says, until he leaves. It is the stage's listener."""

    _pod: PodPort
    stage: Stage
    manner: Manner
    is_verbose: bool = False
    following: Follower = field(init=False)
    """What is known of the pod, and what becomes known."""
    is_hurried: bool = field(default=False, init=False)
    """Whether the person left while something did not stop."""
    _jobs: Jobs = field(init=False)
    _asking: Asking = field(factory=Asking, init=False)
    _begun: Job | None = field(default=None, init=False)
    """The last of what was typed that is being done, or was."""
    _stands_back: bool = field(default=False, init=False)
    """Whether a run of somebody else's has to end first."""
    _group: asyncio.TaskGroup | None = field(default=None, init=False)
    _at_work: set[asyncio.Task[None]] = field(factory=set, init=False)
    """What is done beside the jobs."""
    _code: int | None = field(default=None, init=False)
    """The exit code, once the person has left."""
    _was_interrupted: bool = field(default=False, init=False)
    _is_stopping: bool = field(default=False, init=False)
    _has_ended: bool = field(default=False, init=False)
    _status: PodStatus | None = field(default=None, init=False)
    """Where the pod stood when it was last known."""

    def __attrs_post_init__(self) -> None:
        """Have the pod followed and the jobs done for this view."""
        self._jobs = Jobs(self._supervised, self._nothing_to_do)
        follows = Follows(
            show=self._shown,
            heard=self._has_begun,
            at_once=self._at_once,
            catch_up=self.manner.catch_up,
            now_ms=self.manner.now_ms,
            retained_turns=self.manner.retained_turns,
        )
        self.following = Follower(self._pod, follows)

    # ------------------------------------------------------------------ life

    async def run(self) -> int:
        """Show the pod until the person leaves; return the exit code. The pod stays open."""
        self.tell(Told(header(self._pod.status())))
        self.adopt(self._pod)
        async with asyncio.TaskGroup() as group:
            self._group = group
            working = group.create_task(self._jobs.run())
            try:
                await self.stage.run(self)
            finally:
                self._code = self._code or 0
                self.following.stop()
                await self.manner.before_leaving()
                for task in (working, *self._at_work):
                    task.cancel()

        return self._code

    def adopt(self, pod: PodPort, *, is_new: bool = True) -> None:
        """Show that pod from now on; tell of its last turn where that is new to the person."""
        self.following.adopt(pod, is_new=is_new)

    @property
    def pod(self) -> PodPort:
        """The pod that is shown."""
        return self.following.pod

    @property
    def state(self) -> ViewState:
        """What is known of it."""
        return self.following.state

    def leave(self, code: int) -> None:
        """End the view."""
        if self._code is None:
            self._code = code

        self.stage.close()

    # ------------------------------------------------------------------ what is shown

    def tell(self, *blocks: Block) -> None:
        """Say something that is not an event."""
        self.following.say(*blocks)

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

    def is_moving(self) -> bool:
        """Tell whether anything is shown that changes by itself, such as seconds."""
        now = self.state
        waits = bool(now.calls or now.approvals or now.retry) or now.lost_ms is not None
        return now.is_busy or waits or self._is_stopping or self._jobs.current is not None

    def scene(self, rows: int, columns: int) -> tuple[ViewState, Scene]:
        """Return what is to be drawn now on so much room."""
        question = self._asking.question
        scene = Scene(
            now_ms=self.manner.now_ms(),
            rows=rows,
            paper=Paper(columns, self.manner.colours),
            status=self._newest_status(),
            queued=[job.typed for job in self._waiting()],
            question="" if question is None else question.text,
            is_verbose=self.is_verbose,
            is_stopping=self._is_stopping,
        )
        return evolve(self.state, approvals=self._asking.undecided(self.state.approvals)), scene

    def _shown(self, step: Step) -> None:
        approvals = step.state.approvals
        is_other = self._asking.look_at(approvals, self.manner.now_ms())
        if self._code is not None:
            return

        if is_other:
            self.stage.ask_about(None)

        self.stage.update(step.state, step.said)
        if is_other:
            self.stage.ask_about(next(iter(self._asking.undecided(approvals)), None))

    def _newest_status(self) -> PodStatus | None:
        try:
            self._status = self.pod.status()
        except PodClosed:
            return self._status

        return self._status

    def _waiting(self) -> list[Job]:
        """Return what was typed and is not being done yet, as far as can be told."""
        current = self._jobs.current
        if current is None or current is self._begun:
            return [*self._jobs.waiting]

        # Something else is going on, or the pod has not heard of it, or does not answer.
        is_late = self.manner.now_ms() - current.asked_ms >= _LATE_MS
        waits = self.state.is_busy or self.state.lost_ms is not None or is_late
        return [*([current] if waits else []), *self._jobs.waiting]

    def _has_begun(self, data: EventData) -> None:
        """Take in whether this event is the beginning of what was typed last."""
        is_by_hand = isinstance(data, CompactionStart) and data.trigger == "manual"
        if is_by_hand or (isinstance(data, RunStart) and not self._stands_back):
            self._begun = self._jobs.current

    # ------------------------------------------------------------------ what the person does

    def entered(self, text: str) -> None:
        """Take what was typed: an answer, a command, or a prompt for its turn."""
        self._was_interrupted = False
        answer = self._asking.answer_in(text)
        if answer is not None:
            self.pressed(answer)
            return

        if self._asking.question is not None:
            self.pressed("n")

        if text.startswith("/"):
            self._command(text)
        elif not self.manner.is_piped and self._asking.is_near_miss(text):
            self.tell(_NO_ANSWER)
        elif not is_blank(text):
            self._queue(text.strip(), lambda: self._prompt(text.strip()))
        else:
            self._say_ready()

    def pressed(self, key: str) -> None:
        """Take the key that answers a question."""
        question = self._asking.taken(self.manner.now_ms())
        if question is None:
            self._at_once(self.decide(key))
            return

        self.stage.ask(None)
        if key == "y":
            self._at_once(question.work())
        else:
            self.tell(Told("left as it is"))

    def takes_keys(self) -> bool:
        """Tell whether a single key answers a question now."""
        return self._asking.takes_keys(self.manner.now_ms())

    def left(self) -> None:
        """Leave, whatever is going on."""
        self.leave(0)

    def ended(self) -> None:
        """Leave once all that was typed is done: no more is to come."""
        self._has_ended = True
        if self._jobs.are_done:
            self.leave(0)

    def interrupted(self) -> None:
        """Stop what goes on and give the prompt back; where nothing does, leave by the second."""
        is_busy = self._jobs.current is not None or self.state.is_busy
        if is_busy and not self._is_stopping:
            self._was_interrupted = self._is_stopping = True
            self._at_once(_settled(self.pod.cancel()))
            self._give_back()
        elif is_busy:
            self.is_hurried = True
            self.leave(INTERRUPTED)
        elif self.stage.drop_line() or not self._was_interrupted:
            self._was_interrupted = True
            self.tell(_AGAIN)
            self._say_ready()
        else:
            self.leave(INTERRUPTED)

    def ask(self, question: str, work: Callable[[], Awaitable[None]]) -> None:
        """Ask whether to do something; it is done if the answer is yes."""
        self._asking.question = Question(question, work)
        self.stage.ask(question)
        self.tell()

    def decide(self, key: str) -> Awaitable[None]:
        """Decide about the call that is asked about first; what is returned tells the pod.

        The next one is asked about from now on. One that has only just been asked about is not
        decided: the answer may have been meant for another. Raises `UnknownApproval` when it is
        awaited.
        """
        undecided = self._asking.undecided(self.state.approvals)
        if not undecided:
            self.tell(Told("no call waits for a decision"))
            return nothing()

        if self._asking.is_too_new(self.manner.now_ms()):
            self.tell(_TOO_NEW)
            return nothing()

        first = undecided[0]
        self._asking.decided(first)
        self.tell()
        return self._tell_pod(first.call_uid, key)

    @property
    def commands(self) -> Mapping[str, Command]:
        """Every command there is, the engine's apart."""
        return all_commands(self.manner.commands)

    @property
    def engine_commands(self) -> Mapping[str, EngineCommand]:
        """The engine's own commands, by name; those of the view come before them."""
        offered = self.pod.engine_commands()
        return {name: what for name, what in offered.items() if name not in self.commands}

    # ------------------------------------------------------------------ inside

    def _command(self, line: str) -> None:
        name, _, rest = line[1:].partition(" ")
        name, rest = name.strip(), rest.strip()
        command = self.commands.get(name.lower())
        if command is None:
            self._at_once(self._others(name, rest))
        elif command.when == "now" and not self.manner.is_piped:
            self._at_once(command.carry_out(self, rest))
        else:
            self._queue(line.strip(), lambda: command.carry_out(self, rest))

    async def _others(self, name: str, rest: str) -> None:
        """Carry out a command of the engine's, or say which one there is."""
        offered = self.engine_commands
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
                await self._stand_back()
            else:
                break

        await self.pod.idle()

    async def _tell_pod(self, call_uid: str, key: str) -> None:
        decision: Literal["allow", "deny"] = "deny" if key == "n" else "allow"
        scope: Literal["once", "session"] = "session" if key == "s" else "once"
        await _settled(self.pod.approve(call_uid, decision, scope=scope, by=self.manner.by))

    async def _stand_back(self) -> None:
        self._stands_back = True
        try:
            await self.pod.idle()
            await asyncio.sleep(_BUSY_S)
        finally:
            self._stands_back = False

    def _queue(self, typed: str, work: Callable[[], Awaitable[None]]) -> None:
        self._jobs.add(Job(typed, work, self.manner.now_ms()))
        self.tell()

    def _give_back(self) -> None:
        typed = self._jobs.take_back()
        if typed:
            self.stage.give_back("\n".join(typed))

        self.tell()

    def _at_once(self, work: Awaitable[object]) -> None:
        if self._group is not None:
            task = self._group.create_task(self._supervised(work))
            self._at_work.add(task)
            task.add_done_callback(self._done_at_once)

    def _done_at_once(self, task: asyncio.Task[None]) -> None:
        self._at_work.discard(task)
        self._say_ready()

    def _nothing_to_do(self) -> None:
        self._is_stopping = False
        self._say_ready()
        if self._has_ended:
            self.leave(0)

    def _say_ready(self) -> None:
        is_asked = self._asking.question is not None
        if self._code is None and self._jobs.are_done and not (self.state.is_busy or is_asked):
            self.stage.ready(self.gauge())

    async def _supervised(self, work: Awaitable[object]) -> None:
        """Carry something out. What goes wrong is told, and the view goes on."""
        try:
            await work
        # The supervision point of a view: no failure of one step ends it.
        except Exception as error:  # noqa: BLE001  each is told, and is the person's to judge
            self.tell(Told(self.manner.explain(error), Tone.ERROR))


async def _settled(value: object) -> None:
    """Wait where a pod behind a socket has to be waited for; one in this process did it at once."""
    if inspect.isawaitable(value):
        await value
