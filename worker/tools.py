"""Tools: what a model may call, and what a call gives back.

A tool is made of a plain function: its name, docstring and annotations are what the model is
told, and arguments are validated against them before the function runs.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, overload

from attrs import evolve, field, frozen

from worker.errors import ToolDefinitionError
from worker.items import Image
from worker.llm.types import ToolSpec
from worker.text import clean_text, first_line, utf8_len
from worker.threads import call_in_daemon_thread

if TYPE_CHECKING:
    from pydantic import BaseModel

SHORT_BYTES = 200
SUMMARY_MAX_BYTES = 1_000
NO_OUTPUT = "(no output)"

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")
_ARGUMENT_DOC = re.compile(r"^\s{2,}(\*{0,2}\w+)\s*(?:\([^)]*\))?:\s*(.+)$")


@frozen
class ToolOutput:
    """What a tool gives back: one or two lines that stay, and the detail that may be pruned later."""

    summary: str
    content: str | None = None
    is_error: bool = False
    attachments: tuple[Image, ...] = ()


class BadArguments(Exception):
    """The arguments do not fit the tool; the message is for the model."""


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


def render_output(value: object) -> ToolOutput:
    """Return what a tool returned as a `ToolOutput`, whatever it was; never a Python repr.

    Text up to 200 bytes of one line becomes the summary; longer text becomes the content under a
    summary of its first line and size. Bytes are decoded with replacement characters. Everything
    else is rendered as JSON.
    """
    if isinstance(value, ToolOutput):
        return _tidy(value)

    if value is None:
        return ToolOutput(NO_OUTPUT)

    if isinstance(value, bytes | bytearray | memoryview):
        text = bytes(value).decode("utf-8", "replace")
    elif isinstance(value, str):
        text = value
    else:
        text = _as_json(value)

    return _tidy(_from_text(text))


def _from_text(text: str) -> ToolOutput:
    text = clean_text(text)
    stripped = text.strip()
    if not stripped:
        return ToolOutput(NO_OUTPUT)

    if utf8_len(stripped) <= SHORT_BYTES and "\n" not in stripped:
        return ToolOutput(stripped)

    lines = text.count("\n") + (not text.endswith("\n"))
    size = f"{lines:,} line{'s' if lines != 1 else ''}, {utf8_len(text):,} bytes"
    return ToolOutput(f"{first_line(text)} ({size})", text)


def _tidy(output: ToolOutput) -> ToolOutput:
    """Clean the texts and keep the summary short: what is too long for one moves to the content."""
    summary = clean_text(str(output.summary)).strip()
    content = None if output.content is None else clean_text(str(output.content))
    if utf8_len(summary) > SUMMARY_MAX_BYTES:
        whole = summary if not content else f"{summary}\n{content}"
        short = _from_text(whole)
        summary, content = short.summary, short.content

    return evolve(output, summary=summary or NO_OUTPUT, content=content or None)


def _as_json(value: object) -> str:
    from pydantic_core import to_json

    def describe(unknown: object) -> str:
        return f"<{type(unknown).__name__}>"

    data = to_json(value, indent=None, bytes_mode="base64", inf_nan_mode="null", fallback=describe)
    return data.decode("utf-8", "replace")


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
    tool_name: str = name or getattr(function, "__name__", type(function).__name__)
    if not _NAME.fullmatch(tool_name):
        message = f"{tool_name!r} is not a tool name: letters, digits, _ and - (at most 64)"
        raise ToolDefinitionError(message, hint="name it with @tool(name=…)")

    documentation = inspect.getdoc(function) or ""
    model = _arguments_model(function, tool_name, documentation)
    schema = model.model_json_schema()
    schema.pop("title", None)
    schema.pop("description", None)

    async def call(arguments: dict[str, Any]) -> ToolOutput:
        validated = _validate(model, arguments)
        if inspect.iscoroutinefunction(function):
            return render_output(await function(**validated))

        result = await call_in_daemon_thread(
            lambda: function(**validated), name=f"tool-{tool_name}"
        )
        if inspect.isawaitable(result):
            result = await result

        return render_output(result)

    told = description if description is not None else _without_arguments(documentation)
    return Tool(tool_name, told, schema, call, timeout_s)


def _arguments_model(
    function: Callable[..., Any], tool_name: str, documentation: str
) -> type[BaseModel]:
    from pydantic import ConfigDict, Field, create_model
    from pydantic.errors import PydanticUserError

    try:
        signature = inspect.signature(function)
        target = function if inspect.isroutine(function) else type(function).__call__
        hints = typing.get_type_hints(target, include_extras=True)
    except (TypeError, ValueError, NameError) as error:
        message = f"tool {tool_name}: its signature cannot be read: {error}"
        raise ToolDefinitionError(message) from error

    described = _argument_docs(documentation)
    fields: dict[str, Any] = {}
    for parameter in signature.parameters.values():
        where = f"tool {tool_name}: parameter {parameter.name}"
        if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}:
            message = f"{where} takes any number of values, which no schema can describe"
            raise ToolDefinitionError(message, hint="name each parameter")

        if parameter.kind is parameter.POSITIONAL_ONLY or parameter.name not in hints:
            message = (
                f"{where} has no type annotation"
                if parameter.name not in hints
                else (f"{where} is positional only; models name their arguments")
            )
            raise ToolDefinitionError(message, hint="the annotations are what the model is told")

        required = parameter.default is parameter.empty
        default = ... if required else parameter.default
        text = described.get(parameter.name)
        # An alias keeps names that pydantic reserves (such as `schema` or `_x`) usable.
        info = Field(default, alias=parameter.name, description=text)
        fields[f"p_{parameter.name}"] = (hints[parameter.name], info)

    try:
        model = create_model(tool_name, __config__=ConfigDict(extra="forbid"), **fields)
        model.model_json_schema()
    except (PydanticUserError, TypeError) as error:
        message = f"tool {tool_name}: {first_line(str(error), 200)}"
        raise ToolDefinitionError(message, hint="use types that JSON can hold") from error

    return model


def _validate(model: type[BaseModel], arguments: dict[str, Any]) -> dict[str, Any]:
    from pydantic import ValidationError

    try:
        instance = model.model_validate(arguments)
    except ValidationError as error:
        lines = [
            f"{'.'.join(str(step) for step in detail['loc']) or 'arguments'}: {detail['msg']}"
            for detail in error.errors(include_url=False, include_context=False)
        ]
        raise BadArguments("; ".join(lines)) from error

    return {name.removeprefix("p_"): getattr(instance, name) for name in model.model_fields}


def _argument_docs(documentation: str) -> dict[str, str]:
    """Read the `Args:` section of a Google-style docstring: parameter name to its text."""
    found: dict[str, str] = {}
    inside = False
    for line in documentation.split("\n"):
        if re.match(r"^(Args|Arguments|Parameters):\s*$", line):
            inside = True
        elif inside and line.strip() and not line.startswith(" "):
            break
        elif inside and (match := _ARGUMENT_DOC.match(line)):
            found[match[1]] = match[2].strip()

    return found


def _without_arguments(documentation: str) -> str:
    return re.split(r"^(?:Args|Arguments|Parameters):\s*$", documentation, flags=re.MULTILINE)[
        0
    ].strip()
