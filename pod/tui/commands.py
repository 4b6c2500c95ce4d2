"""The slash commands that any view has, whatever pod it shows. Where a pod lives adds its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Literal, Protocol

from attrs import frozen

from pod.compaction.plan import CompactionError
from pod.context.plugin_commands import EngineCommand

from .blocks import Block, Told, Tone
from .port import PodPort
from .reports import cost_lines, status_lines
from .state import ViewState

When = Literal["now", "in turn"]
"""At once, whatever the pod is doing, or after what was typed before it."""


class Front(Protocol):
    """What a command works on: the view that it was typed in. It is as wide as the commands are."""

    is_verbose: bool

    @property
    def pod(self) -> PodPort:
        """The pod that is shown."""

    @property
    def state(self) -> ViewState:
        """What is known of it."""

    @property
    def commands(self) -> Mapping[str, Command]:
        """Every command there is, the engine's apart."""

    @property
    def engine_commands(self) -> Mapping[str, EngineCommand]:
        """The engine's own commands, by name."""

    def tell(self, *blocks: Block) -> None:
        """Say something."""

    def gauge(self) -> str:
        """Return how full the context is, as one line."""

    def decide(self, key: str) -> Awaitable[None]:
        """Decide about the call that is asked about first; what is returned tells the pod."""

    def ask(self, question: str, work: Callable[[], Awaitable[None]]) -> None:
        """Ask whether to do something; it is done if the answer is yes."""

    def adopt(self, pod: PodPort, *, is_new: bool = True) -> None:
        """Show another pod from now on; tell of its last turn where that is new to the person."""

    def leave(self, code: int) -> None:
        """End the view."""


@frozen
class Command:
    """A slash command."""

    arguments: str
    does: str
    when: When
    carry_out: Callable[[Front, str], Awaitable[None]]


async def _new(view: Front, _: str) -> None:
    await view.pod.new()


async def _compact(view: Front, focus: str) -> None:
    with suppress(CompactionError):  # its event tells of it
        if await view.pod.compact(focus or None) is None:
            view.tell(Told("nothing to compact: there is too little history"))


async def _engine(view: Front, _: str) -> None:
    view.tell(Told(f"{view.pod.status().engine}; `pod engines list` shows which there are"))
    offered = view.engine_commands.values()
    view.tell(*(Told(f"  {_head(command)}  {command.description}") for command in offered))


async def _cost(view: Front, _: str) -> None:
    view.tell(Told("\n".join(cost_lines(view.state.spent))))


async def _status(view: Front, _: str) -> None:
    lines = status_lines(view.pod.status())
    view.tell(Told("\n".join([*lines, view.gauge()])))


async def _approve(view: Front, rest: str) -> None:
    await view.decide("s" if rest.strip().lower() == "session" else "y")


async def _deny(view: Front, _: str) -> None:
    await view.decide("n")


async def _verbose(view: Front, _: str) -> None:
    view.is_verbose = not view.is_verbose
    what = "on: thoughts, requests and prunes are told" if view.is_verbose else "off"
    view.tell(Told(f"verbose is {what}"))


async def _resume(view: Front, _: str) -> None:
    result = await view.pod.resume()
    if result.outcome == "finished" and not result.requests:
        view.tell(Told("nothing was left to do: the last run had finished"))

    await view.pod.idle()


async def _help(view: Front, _: str) -> None:
    commands = view.commands
    lines = [(f"/{name} {command.arguments}", command.does) for name, command in commands.items()]
    offered = view.engine_commands.values()
    lines += [(_head(command), f"{command.description} (the engine's)") for command in offered]
    cells = max(len(head.rstrip()) for head, _ in lines)
    told = [f"  {head.rstrip():<{cells}}  {does}" for head, does in lines]
    told.append("Ctrl-C stops an answer, Ctrl-D leaves, Alt-Enter begins a new line")
    told.append("a space before the slash sends a line as it is")
    view.tell(Told("\n".join(told)))


def _head(command: EngineCommand) -> str:
    return f"/{command.name} {command.args_hint}".rstrip()


async def _leave(view: Front, _: str) -> None:
    view.leave(0)


COMMANDS: Mapping[str, Command] = {
    "new": Command("", "begin a fresh session", "in turn", _new),
    "compact": Command("[focus]", "summarize the older part now", "in turn", _compact),
    "compress": Command("[focus]", "the same", "in turn", _compact),
    "resume": Command("", "go on with a run that stopped", "in turn", _resume),
    "engine": Command("", "show the context engine", "now", _engine),
    "cost": Command("", "what was used while this looked on", "now", _cost),
    "status": Command("", "where the pod stands", "now", _status),
    "approve": Command("[session]", "allow the call that is asked about", "now", _approve),
    "deny": Command("", "deny it", "now", _deny),
    "verbose": Command("", "show more, or less again", "now", _verbose),
    "help": Command("", "this list", "now", _help),
    "quit": Command("", "leave", "now", _leave),
}
"""By name, without the slash."""
_ORDER = (
    *("new", "compact", "compress", "fork", "rewind", "resume", "sessions", "model", "engine"),
    *("cost", "status", "approve", "deny", "verbose", "stop", "detach", "help", "quit"),
)


def all_commands(more: Mapping[str, Command]) -> Mapping[str, Command]:
    """Return the common commands and these, in the order in which they are listed."""
    found = {**COMMANDS, **more}
    known = [name for name in _ORDER if name in found]
    return {name: found[name] for name in (*known, *(n for n in found if n not in known))}


def not_here(text: str, hint: str) -> Callable[[Front, str], Awaitable[None]]:
    """Return what a command does where it cannot be done: it says what to do instead."""

    async def say(view: Front, _: str) -> None:
        view.tell(Told(f"{text}\n  {hint}", Tone.WARNING))

    return say
