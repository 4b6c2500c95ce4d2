"""A tool, and how one is made of a plain function.

The function's name, docstring and annotations are what the model is told, and arguments are
validated against them before the function runs.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, overload

from attrs import field, frozen

from ..errors import ToolDefinitionError
from ..llm.types import ToolSpec
from ..threads import call_in_daemon_thread
from .arguments import Arguments, read_arguments, read_docstring
from .results import ToolOutput, render_output

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")


@frozen
class Tool:
    """A callable tool. `call` takes the parsed arguments and returns a `ToolOutput`.

    `call` may raise anything: the loop turns it into an error result. `timeout_s` overrides the
    worker's limit for one call.
    """

    name: str
    description: str
    parameters: Mapping[str, object]
    call: Callable[[dict[str, Any]], Awaitable[ToolOutput]] = field(repr=False)
    timeout_s: float | None = None

    @property
    def spec(self) -> ToolSpec:
        """The tool as the model is told of it."""
        return ToolSpec(self.name, self.description, self.parameters)


@overload
def tool(function: Callable[..., Any]) -> Tool: ...


@overload
def tool(
    *, name: str | None = None, description: str | None = None, timeout_s: float | None = None
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout_s: float | None = None,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a `Tool` of a function, as a decorator or a call.

    The name, the docstring and the annotations give the model its schema; `Args:` lines of the
    docstring describe the parameters. An ordinary function runs in a thread of its own.

    Raises:
        ToolDefinitionError: A parameter has no annotation, the name is not a tool name, or the
            annotations cannot be described as JSON Schema.
    """
    if function is None:
        return lambda decorated: _make_tool(decorated, name, description, timeout_s)

    return _make_tool(function, name, description, timeout_s)


def _make_tool(
    function: Callable[..., Any], name: str | None, description: str | None, timeout_s: float | None
) -> Tool:
    inner = function.func if isinstance(function, functools.partial) else function
    own_name: str = getattr(inner, "__name__", type(inner).__name__)
    tool_name = own_name if name is None else name
    if not _NAME.fullmatch(tool_name):
        message = f"{tool_name!r} is not a tool name: letters, digits, _ and - (at most 64)"
        raise ToolDefinitionError(message, hint="name it with tool(name=…)")

    if inspect.isasyncgenfunction(inner):
        message = f"tool {tool_name} is an async generator, which gives no single result"
        raise ToolDefinitionError(message, hint="collect its values and return them")

    told, described = read_docstring(inspect.getdoc(inner) or "")
    arguments = read_arguments(function, tool_name, described)
    told = told if description is None else description
    return Tool(
        tool_name, told, arguments.schema, _caller(function, tool_name, arguments), timeout_s
    )


def _caller(
    function: Callable[..., Any], tool_name: str, arguments: Arguments
) -> Callable[[dict[str, Any]], Awaitable[ToolOutput]]:
    def work(validated: dict[str, Any]) -> ToolOutput | Awaitable[object]:
        value = function(**validated)
        # Rendered here, off the event loop: it may be large, or a generator still to be run.
        return value if inspect.isawaitable(value) else render_output(value)

    async def call(given: dict[str, Any]) -> ToolOutput:
        validated = arguments.validate(given)
        if inspect.iscoroutinefunction(function):
            return render_output(await function(**validated))

        value = await call_in_daemon_thread(lambda: work(validated), name=f"tool-{tool_name}")
        return value if isinstance(value, ToolOutput) else render_output(await value)

    return call
