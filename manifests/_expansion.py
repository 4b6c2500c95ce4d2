"""`${NAME}` in base_url, env tables and paths, replaced while the manifest is validated."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from attrs import Factory, frozen
from pydantic import AfterValidator, Field, ValidationInfo
from pydantic_core import PydanticCustomError

from ._patterns import VARIABLE

_REFERENCE = re.compile(r"\$\{([^}]*)\}?")


@frozen
class Expansion:
    """The environment a manifest is expanded with, and what came out of it into `env` tables.

    Handed to pydantic as its validation context; without one (a manifest made in Python) texts
    stay as they are.
    """

    variables: Mapping[str, str]
    secrets: set[str] = Factory(set)

    def expand(self, text: str) -> str:
        """Return `text` with every `${NAME}` replaced; a name that is not set is a mistake."""
        return _REFERENCE.sub(self._value, text)

    def _value(self, reference: re.Match[str]) -> str:
        name = reference[1]
        if not reference[0].endswith("}") or not VARIABLE.fullmatch(name):
            raise mistake('"${" must be followed by the name of a variable and "}"')

        if name not in self.variables:
            raise mistake(f"the variable {name} is not set")

        return self.variables[name]


def mistake(message: str) -> PydanticCustomError:
    """Return a validation error whose message reaches the reader word for word."""
    return PydanticCustomError("mistake", "{words}", {"words": message})


def expand(text: str, info: ValidationInfo) -> str:
    """Return `text` expanded with the environment of this validation, if it has one."""
    return info.context.expand(text) if isinstance(info.context, Expansion) else text


def _expand_path(text: str, info: ValidationInfo) -> str:
    path = expand(text, info)
    if not path or "\0" in path:
        raise mistake("must name a path")

    return path


def _expand_secret(text: str, info: ValidationInfo) -> str:
    value = expand(text, info)
    if value != text and isinstance(info.context, Expansion):
        info.context.secrets.update(info.context.variables[n] for n in _REFERENCE.findall(text))

    return value


PathText = Annotated[str, Field(min_length=1), AfterValidator(_expand_path)]
"""A path or path pattern, relative to the manifest; `~` and `${NAME}` are expanded."""

EnvText = Annotated[str, AfterValidator(_expand_secret)]
"""A value for a child process's environment; `${NAME}` is expanded."""
