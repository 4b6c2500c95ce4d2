"""Tools that a plugin registers beside its engine's own, as tools of a Worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from attrs import frozen

from worker.llm.types import ToolSpec
from worker.threads import call_in_daemon_thread
from worker.tools import Tool, render_output

from .answers import finished
from .attempt import tried
from .foreign_tools import BadToolSchema, spec_of
from .registration import RegisteredTool
from .signature import accepted_keywords
from .words import error_line


@frozen
class ToolSurroundings:
    """What a registered tool's handler is given beside its arguments, and what it runs in."""

    facts: Callable[[], Mapping[str, object]]
    """Makes the keywords that handlers may take: `session_id`, `task_id`, live `messages`."""
    around: Callable[[], AbstractContextManager[object]] = nullcontext


def why_unavailable(tool: RegisteredTool, env: Mapping[str, str]) -> str:
    """Return why a tool cannot be offered, or nothing. It runs what the plugin checks by."""
    try:
        _spec(tool)
    except BadToolSchema as error:
        return str(error)

    missing = [name for name in tool.requires_env if not env.get(name)]
    if missing:
        return f"it needs the variable{'s' * (len(missing) > 1)} {', '.join(missing)}"

    if tool.is_available is None:
        return ""

    is_available, failure = tried(tool.is_available)
    if failure is not None:
        return f"its check raised {error_line(failure)}"

    return "" if is_available else "its check says no"


def as_tool(registered: RegisteredTool, surroundings: ToolSurroundings) -> Tool:
    """Return a registered tool as one that a Worker calls, in a thread of its own.

    Raises `BadToolSchema` where it cannot be described to a model.
    """
    spec = _spec(registered)

    async def call(arguments: dict[str, Any]) -> Any:  # noqa: ANN401  rendered below
        def work() -> object:
            handler = registered.handler
            with surroundings.around():
                given = accepted_keywords(handler, surroundings.facts(), positional=1)
                return finished(handler(arguments, **given))

        return render_output(await call_in_daemon_thread(work, name=f"tool-{registered.name}"))

    return Tool(spec.name, spec.description, spec.parameters, call)


def _spec(registered: RegisteredTool) -> ToolSpec:
    function = registered.schema.get("function", registered.schema)
    given = function if isinstance(function, Mapping) else {}
    described = {"description": registered.description} if not given.get("description") else {}
    return spec_of({**given, "name": registered.name, **described})
