"""The parameters of a function: a JSON Schema for the model, and a check of what it sends."""

from __future__ import annotations

import functools
import inspect
import re
import typing
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import ToolDefinitionError
from ..text import first_line

if TYPE_CHECKING:
    from pydantic import BaseModel

# A prefix, with the real name as alias, keeps names that pydantic has uses for (`schema`, `_x`).
_PREFIX = "p_"
_SECTION = re.compile(r"(?:Args|Arguments|Parameters):\s*")
_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)")


class BadArguments(Exception):
    """The arguments do not fit the tool; the message is for the model."""


class Arguments:
    """What a function takes by name: as `schema` for the model, and as a check of what it sends."""

    def __init__(self, model: type[BaseModel]) -> None:
        self.schema = _schema(model)
        self._model = model

    def validate(self, given: Mapping[str, object]) -> dict[str, Any]:
        """Return the arguments as the function's types, defaults filled in.

        Raises:
            BadArguments: They do not fit; the message says where and how.
        """
        from pydantic import ValidationError

        try:
            instance = self._model.model_validate(given)
        except ValidationError as error:
            lines = [
                f"{'.'.join(map(str, detail['loc'])) or 'arguments'}: {detail['msg']}"
                for detail in error.errors(include_url=False, include_context=False)
            ]
            raise BadArguments("; ".join(lines)) from error

        return {name.removeprefix(_PREFIX): value for name, value in instance}


def read_arguments(
    function: Callable[..., Any], tool_name: str, described: Mapping[str, str]
) -> Arguments:
    """Return the parameters of `function`; those that a partial binds are not the model's to set.

    Raises:
        ToolDefinitionError: A parameter has no annotation or no name to be given by, or its type
            cannot be described as JSON Schema.
    """
    from pydantic import ConfigDict, create_model
    from pydantic.errors import PydanticUserError

    hints = _type_hints(function, tool_name)
    fields: dict[str, Any] = {
        _PREFIX + parameter.name: _field(parameter, hints[parameter.name], described)
        for parameter in _parameters(function, tool_name, hints)
    }
    try:
        model = create_model(tool_name, __config__=ConfigDict(extra="forbid"), **fields)
        return Arguments(model)
    except (PydanticUserError, TypeError) as error:
        message = f"tool {tool_name}: {first_line(str(error), 200)}"
        raise ToolDefinitionError(message, hint="use types that JSON can hold") from error


def _type_hints(function: Callable[..., Any], tool_name: str) -> dict[str, Any]:
    inner = function.func if isinstance(function, functools.partial) else function
    try:
        target = inner if inspect.isroutine(inner) else type(inner).__call__
        return typing.get_type_hints(target, include_extras=True)
    except (TypeError, ValueError, NameError, AttributeError, SyntaxError) as error:
        message = f"tool {tool_name}: its annotations cannot be read: {error}"
        hint = "the types must be importable names of the tool's module"
        raise ToolDefinitionError(message, hint=hint) from error


def _parameters(
    function: Callable[..., Any], tool_name: str, hints: Mapping[str, Any]
) -> list[inspect.Parameter]:
    """Return the parameters that a model may give, each checked."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        message = f"tool {tool_name}: its signature cannot be read: {error}"
        raise ToolDefinitionError(message, hint="wrap it in a function of your own") from error

    bound = function.keywords if isinstance(function, functools.partial) else {}
    free = [found for found in signature.parameters.values() if found.name not in bound]
    for parameter in free:
        where = f"tool {tool_name}: parameter {parameter.name}"
        if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}:
            message = f"{where} takes any number of values, which no schema can describe"
            raise ToolDefinitionError(message, hint="name each parameter")

        if parameter.kind is parameter.POSITIONAL_ONLY:
            message = f"{where} is positional only; models name their arguments"
            raise ToolDefinitionError(message, hint="remove the / from its signature")

        if parameter.name not in hints:
            message = f"{where} has no type annotation"
            raise ToolDefinitionError(message, hint="the annotations are what the model is told")

    return free


def _field(
    parameter: inspect.Parameter, hint: object, described: Mapping[str, str]
) -> tuple[object, Any]:
    from pydantic import Field
    from pydantic.fields import FieldInfo

    default: Any = ... if parameter.default is parameter.empty else parameter.default
    if isinstance(default, FieldInfo):  # written as `x: int = Field(ge=1)`
        hint = typing.Annotated[hint, default]
        default = ... if default.is_required() else default.get_default(call_default_factory=True)

    # Only what is known is passed on: a None here would hide what an Annotated says.
    text = described.get(parameter.name)
    told: dict[str, Any] = {} if text is None else {"description": text}
    return hint, Field(default, alias=parameter.name, **told)


def _schema(model: type[BaseModel]) -> dict[str, object]:
    from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind

    class Bare(GenerateJsonSchema):
        """Without titles, which only repeat names, and without defaults that JSON cannot hold."""

        def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
            """Say nothing: what JSON cannot hold is left out."""

        def field_title_should_be_set(self, schema: object) -> bool:
            """Never."""
            return False

    schema = model.model_json_schema(schema_generator=Bare)
    return {key: value for key, value in schema.items() if key not in {"title", "description"}}


def read_docstring(documentation: str) -> tuple[str, dict[str, str]]:
    """Split a Google-style docstring into what it says of the function and of each parameter."""
    told: list[str] = []
    entries: dict[str, list[str]] = {}
    lines: list[str] | None = None
    inside, depth = False, 0
    for line in documentation.split("\n"):
        text, indent = line.strip(), len(line) - len(line.lstrip())
        if inside and (indent or not text):
            entry = _ENTRY.fullmatch(text) if lines is None or indent <= depth else None
            if entry:
                depth, lines = indent, [entry[2]]
                entries[entry[1]] = lines
            elif lines is not None:
                lines.append(text)
        else:
            inside, lines = _SECTION.fullmatch(line) is not None, None
            told += [] if inside else [line]

    return "\n".join(told).strip(), {
        name: " ".join(filter(None, lines)) for name, lines in entries.items()
    }
