"""What a view does with what a person types, on a pod and a stage that only remember."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from attrs import define, field

from pod import protocol
from pod.context.plugin_commands import EngineCommand
from pod.errors import PodBusy, PodError
from pod.pod import PodStatus
from pod.protocol import Envelope, EventData
from pod.protocol.methods import WaitingCall
from pod.runs import RunResult
from pod.tui.app import Manner, View
from pod.tui.asking import KEYS_AFTER_MS
from pod.tui.blocks import Asked, Block, Said, Told
from pod.tui.commands import Command, not_here
from pod.tui.stage import Listener
from pod.tui.state import Approval, ViewState
from tests.pod.tui.events import approval, compaction_start, resolved, run_end, run_start, status
from worker.items import AssistantMessage, Item, Text, UserMessage, user_message
from worker.llm.types import Usage

pytestmark = pytest.mark.anyio


@define(eq=False)
class RememberingPod:
    """A pod whose runs end when a test says so."""

    name: str = "probe"
    session: str = "s1"
    history: tuple[Item, ...] = ()
    did: list[str] = field(factory=list)
    goes: asyncio.Event = field(factory=asyncio.Event)
    runs: asyncio.Event = field(factory=asyncio.Event)
    """A run has begun."""
    busy: int = 0
    """How many times a run is refused."""
    is_stubborn: bool = False
    """Whether its runs cannot be stopped."""
    fails: Exception | None = None
    left_to_do: int = 1
    """How many requests it takes to go on with the last run."""
    commands: dict[str, EngineCommand] = field(factory=dict)
    listeners: list[Callable[[Envelope], None]] = field(factory=list)
    _seq: int = 0

    @property
    def session_id(self) -> str:
        return self.session

    def status(self) -> PodStatus:
        return status(10, session_id=self.session, turns=len(self.history) // 2)

    def listen(self, callback: Callable[[Envelope], None]) -> Callable[[], None]:
        self.listeners.append(callback)
        return lambda: self.listeners.remove(callback)

    def publish(self, data: EventData, ts: int = 1_000) -> None:
        self._seq += 1
        for listener in self.listeners:
            listener(Envelope(self._seq, "l", ts, data))

    async def run(self, prompt: str) -> Any:
        if self.busy:
            self.busy -= 1
            raise PodBusy("busy")

        self.did.append(f"run {prompt}")
        self.runs.set()
        self.publish(run_start(prompt))
        await self.goes.wait()
        self.goes.clear()
        if self.fails is not None:
            raise self.fails

        self.publish(run_end())

    async def resume(self) -> Any:
        self.did.append("resume")
        return RunResult("finished", "", Usage(), None, self.session, requests=self.left_to_do)

    def cancel(self) -> None:
        self.did.append("cancel")
        if not self.is_stubborn:
            self.goes.set()

    async def compact(self, focus: str | None = None) -> None:
        self.did.append(f"compact {focus}")

    async def new(self) -> None:
        self.did.append("new")

    async def rewind(self, to: str) -> None:
        self.did.append(f"rewind {to}")

    def approve(self, call_id: str, decision: str, *, scope: str = "once", by: str = "") -> object:
        async def later() -> None:
            self.did.append(f"{decision} {call_id} {scope} {by}")

        return later()

    def waiting_approvals(self) -> Sequence[WaitingCall]:
        return ()

    async def idle(self) -> None:
        await asyncio.sleep(0)

    def engine_commands(self) -> Mapping[str, EngineCommand]:
        return self.commands

    async def engine_command(self, name: str, args: str = "") -> str:
        return f"{name} did {args}"

    async def aclose(self) -> None:
        self.did.append("closed")


@define(eq=False)
class RememberingStage:
    """A stage that shows nothing."""

    said: list[Block] = field(factory=list)
    given_back: list[str] = field(factory=list)
    asked: list[str] = field(factory=list)
    question: str | None = None
    line: str = ""
    readies: int = 0
    _over: asyncio.Event = field(factory=asyncio.Event)

    async def run(self, listener: Listener) -> None:
        await self._over.wait()

    def update(self, state: ViewState, said: Sequence[Block]) -> None:
        self.said += said

    def ready(self, line: str) -> None:
        self.readies += 1

    def ask(self, question: str | None) -> None:
        self.question = question

    def ask_about(self, approval: Approval | None) -> None:
        if approval is not None:
            self.asked.append(approval.call_uid)

    def give_back(self, text: str) -> None:
        self.given_back.append(text)

    def drop_line(self) -> bool:
        had, self.line = bool(self.line), ""
        return had

    def close(self) -> None:
        self._over.set()

    @property
    def told(self) -> list[str]:
        return [block.text for block in self.said if isinstance(block, Told)]


@define(eq=False)
class Play:
    """A view that is shown."""

    view: View
    pod: RememberingPod
    stage: RememberingStage
    showing: asyncio.Task[int]
    clock: list[int]

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    async def enter(self, *lines: str) -> None:
        for line in lines:
            self.view.entered(line)

        await self.settle()

    async def ended(self) -> int:
        async with asyncio.timeout(5):
            return await self.showing

    def queued(self) -> list[str]:
        _, scene = self.view.scene(10, 80)
        return list(scene.queued)


@asynccontextmanager
async def playing(pod: RememberingPod | None = None, **manner: Any) -> AsyncIterator[Play]:
    pod, stage, clock = pod or RememberingPod(), RememberingStage(), [1_000]
    view = View(pod, stage, Manner(explain=str, by="ada", now_ms=lambda: clock[0], **manner))
    showing = asyncio.ensure_future(view.run())
    play = Play(view, pod, stage, showing, clock)
    try:
        await play.settle()
        yield play
    finally:
        view.leave(0)
        await play.ended()


# --- prompts ------------------------------------------------------------------------------------


async def test_prompts_are_run_one_after_the_other_in_the_order_they_were_typed() -> None:
    async with playing() as play:
        await play.enter("one", "two", "/new", "three")
        assert play.pod.did == ["run one"]
        assert play.queued() == ["two", "/new", "three"]
        play.pod.goes.set()
        await play.settle()
        assert play.pod.did == ["run one", "run two"]
        play.pod.goes.set()
        await play.settle()
        assert play.pod.did == ["run one", "run two", "new", "run three"]
        assert play.queued() == []


async def test_where_nobody_types_a_command_waits_for_what_was_said_before_it() -> None:
    async with playing(is_piped=True) as play:
        await play.enter("one", "/cost", "/quit")
        assert not any("request" in text for text in play.stage.told)
        play.pod.goes.set()
        await play.settle()
        assert any("request" in text for text in play.stage.told)
        assert await play.ended() == 0


async def test_a_prompt_waits_for_a_run_of_somebody_elses() -> None:
    async with playing(RememberingPod(busy=2)) as play:
        play.pod.publish(run_start("of another"))
        await play.enter("mine")
        assert play.queued() == ["mine"]
        assert Asked("of another") in play.stage.said
        async with asyncio.timeout(5):
            await play.pod.runs.wait()

        assert play.queued() == []


async def test_what_an_idle_pod_does_not_answer_is_seen_to_wait() -> None:
    class Silent(RememberingPod):
        async def run(self, prompt: str) -> Any:
            await self.goes.wait()
            return await super().run(prompt)

    async with playing(Silent()) as play:
        await play.enter("hello")
        assert play.queued() == []
        assert play.view.is_moving()
        play.clock[0] += 500
        assert play.queued() == ["hello"]
        play.pod.goes.set()
        await play.settle()
        assert play.queued() == [], "it has begun"


async def test_what_is_typed_without_a_connection_is_seen_to_wait() -> None:
    class Lost(RememberingPod):
        async def run(self, prompt: str) -> Any:
            await asyncio.Event().wait()

    async with playing(Lost()) as play:
        play.view.following.is_lost()
        await play.enter("hello", "again")
        assert play.queued() == ["hello", "again"]


async def test_what_waits_for_a_compaction_is_seen_to_wait() -> None:
    async with playing() as play:
        play.pod.publish(compaction_start())
        play.pod.publish(protocol.Status(state="compacting"))
        # As a pod does: its run begins when the compaction is over.
        play.pod.busy = 10_000
        await play.enter("typed meanwhile")
        assert play.queued() == ["typed meanwhile"]


async def test_a_failure_is_told_and_the_next_prompt_goes_on() -> None:
    async with playing(RememberingPod(fails=PodError("broken"))) as play:
        await play.enter("one", "two")
        play.pod.goes.set()
        await play.settle()
        assert "broken" in play.stage.told
        assert play.pod.did == ["run one", "run two"]


async def test_blank_lines_are_no_prompts_and_a_space_hides_a_slash() -> None:
    async with playing() as play:
        await play.enter("", "  \n", " /new x")
        assert play.pod.did == ["run /new x"]


async def test_when_no_more_comes_it_ends_after_what_was_typed() -> None:
    async with playing() as play:
        await play.enter("one", "two")
        play.view.ended()
        await play.settle()
        assert not play.showing.done()
        play.pod.goes.set()
        await play.settle()
        play.pod.goes.set()
        assert await play.ended() == 0
        assert play.pod.did == ["run one", "run two"]


async def test_leaving_asks_first_and_gives_up_what_is_done_then() -> None:
    order: list[str] = []

    async def before() -> None:
        order.append("before")

    async with playing(before_leaving=before) as play:
        await play.enter("one")
        play.view.left()
        assert await play.ended() == 0
        assert order == ["before"]
        assert play.pod.listeners == []


async def test_leaving_waits_for_no_command_that_does_not_end() -> None:
    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    async with playing(commands={"hang": Command("", "hang", "now", never)}) as play:
        await play.enter("/hang")
        play.view.left()
        assert await play.ended() == 0


# --- stopping -----------------------------------------------------------------------------------


async def test_ctrl_c_stops_what_goes_on_and_gives_back_what_waits() -> None:
    async with playing() as play:
        await play.enter("one", "two", "/compact x")
        play.view.interrupted()
        await play.settle()
        assert play.pod.did == ["run one", "cancel"]
        assert play.stage.given_back == ["two\n/compact x"]
        assert not play.showing.done()
        await play.enter("three")
        play.view.interrupted()
        await play.settle()
        assert not play.showing.done(), "it was the first one again"


async def test_a_second_ctrl_c_leaves_at_once_where_the_first_did_not_help() -> None:
    async with playing() as play:
        await play.enter("one")
        play.pod.is_stubborn = True
        play.view.interrupted()
        await play.settle()
        play.view.interrupted()
        assert await play.ended() == 130
        assert play.view.is_hurried


async def test_at_the_prompt_ctrl_c_first_drops_the_line_then_leaves() -> None:
    async with playing() as play:
        play.stage.line = "half a li"
        play.view.interrupted()
        assert play.stage.told[-1] == "(Ctrl-C once more leaves)"
        play.view.interrupted()
        assert await play.ended() == 130
        assert not play.view.is_hurried


# --- commands -----------------------------------------------------------------------------------


async def test_commands_that_only_look_do_not_wait() -> None:
    async with playing() as play:
        await play.enter("one", "/cost", "/status", "/help", "/engine", "/verbose")
        told = "\n".join(play.stage.told)
        assert "0 requests" in told
        assert "session     s1" in told
        assert "/rewind" not in told
        assert "/compress [focus]" in told
        assert play.view.is_verbose
        assert play.queued() == []


async def test_commands_that_change_something_reach_the_pod() -> None:
    async with playing() as play:
        await play.enter("/compress the names", "/compact", "/resume", "/new")
        assert play.pod.did == ["compact the names", "compact None", "resume", "new"]
        assert "nothing to compact: there is too little history" in play.stage.told


async def test_a_command_that_cannot_be_done_here_says_what_can() -> None:
    there = Command("", "another model", "now", not_here("a served pod keeps it", "do that"))
    async with playing(commands={"model": there}) as play:
        await play.enter("/model x")
        assert play.stage.told[-1] == "a served pod keeps it\n  do that"


async def test_the_engines_commands_are_run_listed_and_suggested() -> None:
    offered = {"grep": EngineCommand("grep", "Search summaries.", "PATTERN")}
    async with playing(RememberingPod(commands=offered)) as play:
        await play.enter("/grep two words", "/help", "/gerp x")
        told = play.stage.told
        assert "grep did two words" in told
        assert any("/grep PATTERN" in text and "(the engine's)" in text for text in told)
        assert "no command /gerp; did you mean /grep?" in told[-1]


async def test_resuming_what_had_finished_says_that_nothing_was_left() -> None:
    async with playing(RememberingPod(left_to_do=0)) as play:
        await play.enter("/resume")
        assert play.stage.told[-1] == "nothing was left to do: the last run had finished"


async def test_a_question_is_answered_by_y_alone() -> None:
    async with playing() as play:
        done: list[str] = []

        async def work() -> None:
            done.append("done")

        play.view.ask("really?", work)
        assert play.view.takes_keys()
        play.view.pressed("n")
        await play.settle()
        assert (done, play.stage.told[-1]) == ([], "left as it is")
        play.view.ask("really?", work)
        await play.enter("yes")
        assert done == ["done"]
        assert not play.view.takes_keys()


async def test_another_line_than_an_answer_leaves_what_was_asked_as_it_is() -> None:
    async with playing() as play:

        async def work() -> None:
            play.pod.did.append("done")

        play.view.ask("really?", work)
        assert play.stage.question == "really?"
        await play.enter("/status", "y")
        assert play.stage.question is None
        assert "left as it is" in play.stage.told
        assert play.pod.did == ["run y"]


async def test_an_answer_is_for_the_question_that_is_asked_and_not_for_the_call_behind_it() -> None:
    async with playing() as play:

        async def work() -> None:
            play.pod.did.append("done")

        play.pod.publish(approval("1"))
        play.clock[0] += KEYS_AFTER_MS
        play.view.ask("really?", work)
        play.view.pressed("y")
        assert not play.view.takes_keys(), "the call has only now come to be asked about"
        await play.enter("y")
        assert play.pod.did == ["done"]
        play.clock[0] += KEYS_AFTER_MS
        await play.enter("y")
        assert play.pod.did == ["done", "allow 1 once ada"]


# --- approvals ----------------------------------------------------------------------------------


async def test_calls_are_decided_one_by_one_by_a_key_that_comes_late_enough() -> None:
    async with playing() as play:
        play.pod.publish(approval("1"))
        play.pod.publish(approval("2"))
        assert not play.view.takes_keys(), "it may be the next letter of what is being typed"
        play.clock[0] += KEYS_AFTER_MS
        assert play.view.takes_keys()
        play.view.pressed("s")
        assert not play.view.takes_keys(), "the next question is new"
        await play.settle()
        play.clock[0] += KEYS_AFTER_MS
        play.view.pressed("n")
        await play.settle()
        assert play.pod.did == ["allow 1 session ada", "deny 2 once ada"]
        assert play.stage.asked == ["1", "2"]


async def test_calls_are_decided_by_commands_and_by_lines() -> None:
    async with playing() as play:
        for uid, line in (("1", "/approve"), ("2", "/approve session"), ("3", "/deny"), ("4", "Y")):
            play.pod.publish(approval(uid))
            play.clock[0] += KEYS_AFTER_MS
            await play.enter(line)

        await play.enter("/approve")
        assert play.pod.did == [
            "allow 1 once ada",
            "allow 2 session ada",
            "deny 3 once ada",
            "allow 4 once ada",
        ]
        assert play.stage.told[-1] == "no call waits for a decision"
        await play.enter("yes")
        assert play.pod.did[-1] == "run yes", "without a question it is a prompt"


async def test_an_answer_that_crosses_a_new_question_decides_nothing() -> None:
    async with playing() as play:
        play.pod.publish(approval("1"))
        play.pod.publish(approval("2"))
        play.clock[0] += KEYS_AFTER_MS
        play.pod.publish(resolved("1", by="bob"))
        for line in ("y", "/approve", "/approve session", "/deny"):
            await play.enter(line)
            assert play.pod.did == []
            assert "please answer again" in play.stage.told[-1]

        play.clock[0] += KEYS_AFTER_MS
        await play.enter("y")
        assert play.pod.did == ["allow 2 once ada"]


async def test_a_call_that_somebody_else_decided_is_asked_about_no_more() -> None:
    async with playing() as play:
        play.pod.publish(approval("1"))
        play.pod.publish(resolved("1", by="bob"))
        play.clock[0] += KEYS_AFTER_MS
        assert not play.view.takes_keys()
        assert play.stage.told[-1] == 'bash allowed by bob: command="ls"'


async def test_how_full_it_is_is_known_anew_after_everybodys_runs() -> None:
    looked: list[str] = []

    async def catch_up() -> None:
        looked.append("looked")

    async with playing(catch_up=catch_up) as play:
        play.pod.publish(run_start("of another"))
        before = play.stage.readies
        play.pod.publish(run_end())
        await play.settle()
        assert looked == ["looked"]
        assert play.stage.readies > before, "a plain terminal is asked for the next line"


async def test_a_pod_that_is_being_closed_is_not_complained_about_at_the_end_of_its_run() -> None:
    asked: list[str] = []

    async def catch_up() -> None:
        asked.append("catch up")
        raise PodError("the pod is not running")

    async with playing(catch_up=catch_up) as play:
        play.pod.publish(run_start("of another"))
        play.pod.publish(run_end())
        await play.settle()
        assert asked == ["catch up"]
        assert not any("not running" in text for text in play.stage.told)


# --- being away ---------------------------------------------------------------------------------


def exchange(number: int) -> tuple[UserMessage, AssistantMessage]:
    said = AssistantMessage(f"a{number}", (Text(f"answer {number}"),), "p", "m", "end")
    return user_message(f"question {number}"), said


async def test_what_was_missed_is_told_after_a_snapshot_once_the_history_is_there() -> None:
    pod = RememberingPod(history=exchange(1))

    async def catch_up() -> None:
        pod.history = (*pod.history, *exchange(2))

    async with playing(pod, catch_up=catch_up) as play:
        play.stage.said.clear()
        play.view.following.is_lost()
        assert play.stage.told == ["connection lost, reconnecting …"]
        play.clock[0] += 3_000
        play.pod.publish(
            protocol.Snapshot(session_id="s1", state="idle", history_len=4, occupancy=9)
        )
        await play.settle()
        assert play.stage.said[1:] == [Asked("question 2"), Said("answer 2")]


async def test_a_pod_that_came_back_on_another_session_is_told_of() -> None:
    pod = RememberingPod(history=exchange(1))
    async with playing(pod) as play:
        play.pod.publish(run_start("cut off"))
        play.view.following.is_lost()
        pod.session, pod.history = "s2", exchange(7)
        play.view.following.is_back()
        await play.settle()
        assert "session s2, 1 turn so far" in play.stage.told
        assert play.stage.said[-1] == Said("answer 7")
        assert not play.view.state.is_busy, "what ran there ended with it"


async def test_a_pod_that_came_back_with_nothing_is_told_of_too() -> None:
    pod = RememberingPod(history=exchange(1))
    async with playing(pod) as play:
        play.view.following.is_lost()
        pod.session, pod.history = "s2", ()
        play.view.following.is_back()
        await play.settle()
        assert play.stage.told[-1] == "the pod has begun a new session, s2"


async def test_connecting_at_first_is_nothing_to_tell() -> None:
    async with playing() as play:
        before = list(play.stage.said)
        play.view.following.is_back()
        await play.settle()
        assert play.stage.said == before
