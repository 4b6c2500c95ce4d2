"""What a line that begins with a slash does in a conversation."""

from __future__ import annotations

import sys
from collections.abc import Callable
from difflib import get_close_matches
from typing import NamedTuple

from .chat_view import cost_lines, status_lines
from .conversation import Conversation
from .gauge import gauge
from .listing import is_utf8, quoted, say, width

_SESSIONS_SHOWN = 10
_PLACES_SHOWN = 10
_HASH_DIGITS = 12
_QUESTION_CELLS = 60


class Leave(Exception):
    """The person leaves."""


class Command(NamedTuple):
    """A command of a conversation."""

    arguments: str
    does: str
    carry_out: Callable[[Conversation, str], None]


def carry_out(conversation: Conversation, line: str) -> None:
    """Do what a line that begins with a slash says. Raises `Leave` for the one that leaves."""
    name, _, rest = line[1:].partition(" ")
    command = COMMANDS.get(name.strip().lower())
    if command is None:
        _unknown(name)
    else:
        command.carry_out(conversation, rest.strip())


def _unknown(name: str) -> None:
    near = get_close_matches(name, COMMANDS, 1)
    meant = f"did you mean /{near[0]}?" if near else "/help lists them"
    say(f"no command /{name}; {meant}", err=True)
    say("  a space before the slash sends the line as it is", err=True)


def _new(conversation: Conversation, _: str) -> None:
    conversation.perform(conversation.new())


def _compact(conversation: Conversation, focus: str) -> None:
    conversation.perform(conversation.compact(focus or None))


def _fork(conversation: Conversation, _: str) -> None:
    conversation.perform(conversation.fork())


def _rewind(conversation: Conversation, to: str) -> None:
    conversation.perform(conversation.rewind(to) if to else _show_places(conversation))


async def _show_places(conversation: Conversation) -> None:
    # The last one is where the conversation is now.
    found = conversation.places()[:-1][-_PLACES_SHOWN:]
    for place in found:
        question = quoted(place.question, _QUESTION_CELLS)
        say(f"  {place.hash[:_HASH_DIGITS]}  after {question}", err=True)

    say("/rewind HASH goes back there" if found else "there is nothing to go back to", err=True)


def _sessions(conversation: Conversation, _: str) -> None:
    from session_store.ids import now_ms

    from .session_tree import list_lines
    from .stored import open_index

    name = conversation.pod.name
    infos = [info for info in open_index().sessions() if info.pod == name]
    for line in list_lines(infos[:_SESSIONS_SHOWN], now_ms=now_ms(), columns=width()):
        say(line, err=True)

    if len(infos) > _SESSIONS_SHOWN:
        say(f"and {len(infos) - _SESSIONS_SHOWN} more: pod sessions list --pod {name}", err=True)


def _model(conversation: Conversation, model: str) -> None:
    if model:
        conversation.perform(conversation.use_model(model))
        return

    status = conversation.pod.status()
    say(f"{status.provider}/{status.model}; /model NAME goes on with another one", err=True)


def _engine(conversation: Conversation, _: str) -> None:
    say(f"{conversation.pod.status().engine}; `pod engines list` shows which there are", err=True)


def _cost(conversation: Conversation, _: str) -> None:
    for line in cost_lines(conversation.spent):
        say(line, err=True)


def _status(conversation: Conversation, _: str) -> None:
    status = conversation.pod.status()
    for line in (*status_lines(status), gauge(status, in_ascii=not is_utf8(sys.stderr.encoding))):
        say(line, err=True)


def _help(_: Conversation, __: str) -> None:
    heads = {name: f"/{name} {command.arguments}".rstrip() for name, command in COMMANDS.items()}
    cells = max(map(len, heads.values()))
    for name, command in COMMANDS.items():
        say(f"  {heads[name]:<{cells}}  {command.does}", err=True)

    say("Ctrl-C stops an answer, Ctrl-D leaves", err=True)


def _quit(_: Conversation, __: str) -> None:
    raise Leave


COMMANDS: dict[str, Command] = {
    "new": Command("", "begin a fresh session", _new),
    "compact": Command("[focus]", "summarize the older part now", _compact),
    "fork": Command("", "go on in a copy of this session", _fork),
    "rewind": Command("[hash]", "go back, or show where to", _rewind),
    "sessions": Command("", "this pod's newest sessions", _sessions),
    "model": Command("[name]", "show the model, or go on with another", _model),
    "engine": Command("", "show the context engine", _engine),
    "cost": Command("", "what this conversation used", _cost),
    "status": Command("", "where the pod stands", _status),
    "help": Command("", "this list", _help),
    "quit": Command("", "leave", _quit),
}
