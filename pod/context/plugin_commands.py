"""Slash commands that an engine's plugin registers: what they are, and running one."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from attrs import frozen

from pod.errors import EngineCommandFailed, UnknownEngineCommand
from worker.text import clean_text
from worker.threads import call_in_daemon_thread

from .answers import finished
from .errors import EngineTimeout
from .words import error_line

if TYPE_CHECKING:
    from .host import EngineHost
    from .registration import Command

COMMAND_TIMEOUT_S = 120.0
"""How long a command may take before its caller goes on without it."""


@frozen
class EngineCommand:
    """A slash command that the engine of a pod offers, as people are told of it."""

    name: str
    description: str = ""
    args_hint: str = ""


def offered(commands: Mapping[str, Command]) -> dict[str, EngineCommand]:
    """Return what is told of commands, by name, in the order of their names."""
    return {
        name: EngineCommand(name, command.description, command.args_hint)
        for name, command in sorted(commands.items())
    }


async def run_command(
    host: EngineHost,
    commands: Mapping[str, Command],
    name: str,
    args: str,
    *,
    timeout_s: float = COMMAND_TIMEOUT_S,
) -> str:
    """Run a command on the engine's thread, and return what it has to say as text.

    Raises:
        UnknownEngineCommand: No such command was registered.
        EngineCommandFailed: It raised, or took longer than `timeout_s`.
    """
    errand = _errand(host.name, commands, name, args)
    return await errand.wait(host.call(errand.work, timeout_s=timeout_s), timeout_s)


async def run_alone(
    engine: str,
    commands: Mapping[str, Command],
    name: str,
    args: str,
    *,
    timeout_s: float = COMMAND_TIMEOUT_S,
) -> str:
    """Run a command of an engine that is in no pod, in a thread of its own. As `run_command`."""
    errand = _errand(engine, commands, name, args)

    async def work() -> str:
        deadline = asyncio.timeout(timeout_s)
        try:
            async with deadline:
                return await call_in_daemon_thread(errand.work, name="engine-command")
        except TimeoutError as error:
            if not deadline.expired():
                raise  # The command's own.

            raise EngineTimeout("the command did not answer", timeout_s) from error

    return await errand.wait(work(), timeout_s)


@frozen
class _Errand:
    """One call of one command."""

    engine: str
    name: str
    work: Callable[[], str]

    async def wait(self, answer: Awaitable[str], timeout_s: float) -> str:
        """Return the answer, or raise what is wrong with the command."""
        what = f"/{self.name} of the engine {self.engine}"
        try:
            return await answer
        except EngineTimeout as error:
            message = f"{what} gave no answer in {timeout_s:g} s"
            raise EngineCommandFailed(message, hint="it may still be at work") from error
        except Exception as error:  # supervision point of plugin code
            raise EngineCommandFailed(f"{what} failed: {error_line(error)}") from error


def _errand(engine: str, commands: Mapping[str, Command], name: str, args: str) -> _Errand:
    key = name.strip().lstrip("/").lower()
    command = commands.get(key)
    if command is None:
        raise UnknownEngineCommand(_unknown(engine, key), hint=_known(commands))

    return _Errand(engine, key, lambda: answer_of(command.handler, args))


def answer_of(handler: Callable[..., object], args: str) -> str:
    """Call a handler, plain or async, and return its answer as text. Raises what it raises."""
    answer = handler(args) if _takes_arguments(handler) else handler()
    return clean_text(as_text(finished(answer)))


def _takes_arguments(handler: Callable[..., object]) -> bool:
    try:
        inspect.signature(handler).bind("")
    except TypeError:
        return False
    except ValueError:
        return True  # It does not say; commands take their arguments.

    return True


def as_text(answer: object) -> str:
    """Return whatever a command came to as text: nothing as none, data as JSON."""
    if answer is None:
        return ""

    if isinstance(answer, bytes):
        return answer.decode("utf-8", "replace")

    if isinstance(answer, dict | list | tuple | bool | int | float):
        return json.dumps(answer, ensure_ascii=False, indent=2, default=str)

    return str(answer)


def _unknown(engine: str, name: str) -> str:
    return f"the engine {engine} has no command /{name}"


def _known(commands: Mapping[str, Command]) -> str:
    known = ", ".join(f"/{name}" for name in sorted(commands))
    return f"it has {known}" if known else "it has none"
