"""`[tools]`, `[[hooks]]` and `[permissions]`: what a pod can do, and what it may."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import Field, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from ._expansion import EnvText, PathText, mistake
from ._patterns import PLAIN_NAME
from ._section import EntryPoint, NonEmpty, Rule, Seconds, Section, Several

BuiltinTool = Literal["read", "write", "edit", "glob", "grep", "bash", "recall"]
HookPoint = Literal[
    "OnPromptSubmit", "PreLlmRequest", "PreToolCall", "PostToolCall", "OnTurnEnd", "OnAbort"
]
Permission = Literal["allow", "ask", "deny"]


class McpServer(Section):
    """One MCP server, started as a child process."""

    name: Annotated[str, Field(pattern=PLAIN_NAME, max_length=32)]
    """What its tools are prefixed with."""
    command: NonEmpty
    """The program to start."""
    args: Several[str] = ()
    """Its arguments."""
    env: dict[str, EnvText] = Field(default={}, repr=False)
    """Variables for the server beside the inherited ones; `${NAME}` expands."""


class ToolsSection(Section):
    """What the model may be offered; with the section absent, nothing but the engine's tools."""

    builtin: Several[BuiltinTool] = ()
    """Tools that come with podworker; `recall` reads back what a summary stands for."""
    python: Several[EntryPoint] = ()
    """Functions or Tool objects as "package.module:name"; listing one is the permission to call
    it."""
    mcp: Several[McpServer] = ()
    """MCP servers whose tools are offered too."""

    @classmethod
    def broken_rules(cls, given: Mapping[str, object]) -> Iterator[Rule]:
        """Yield tools and servers that are listed twice."""
        for key in ("builtin", "python"):
            for name in _repeated(_elements(given.get(key))):
                yield key, f'lists "{name}" twice'

        servers = (s.get("name") for s in _elements(given.get("mcp")) if isinstance(s, Mapping))
        for name in _repeated(servers):
            yield "mcp", f'has two servers named "{name}"'


class HookSection(Section):
    """A function that is asked at one point of every run."""

    point: HookPoint
    """When it is asked."""
    python: EntryPoint
    """The function, as "package.module:name"."""
    on_error: Literal["fail", "ignore"] = "fail"
    """What an exception in it means: `fail` stops what it guards, `ignore` reports and goes on."""


def _bash_permission(given: object, handler: ValidatorFunctionWrapHandler) -> object:
    try:
        permission: object = handler(given)
    except ValidationError:
        raise mistake('must be "allow", "ask" or "deny", or a list of command patterns') from None

    return permission


class PermissionsSection(Section):
    """What tools may do unasked; built-in tools that write or run are denied by default."""

    tools: dict[str, Permission] = {}
    """Any tool by its name: allow, ask or deny."""
    ask_timeout_seconds: Seconds = 300
    """How long a call waits for somebody's decision before it is denied."""
    read: Several[PathText] = ("./**",)
    """Patterns of the files that built-in tools may read, relative to the manifest."""
    write: Several[PathText] = ()
    """Patterns of the files that built-in tools may write, relative to the manifest."""
    bash: Annotated[Permission | Several[NonEmpty], WrapValidator(_bash_permission)] = "deny"
    """Commands: allow, ask, deny, or a list of patterns that are allowed. Without anybody to ask,
    ask means deny."""


def _elements(given: object) -> list[object] | tuple[object, ...]:
    return given if isinstance(given, list | tuple) else ()


def _repeated(names: Iterator[object] | list[object] | tuple[object, ...]) -> list[str]:
    counts = Counter(name for name in names if isinstance(name, str))
    return [name for name, count in counts.items() if count > 1]
