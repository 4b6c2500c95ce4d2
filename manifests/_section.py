"""What every section of a manifest has in common: strictness, and checks across its keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from ._expansion import mistake
from ._patterns import ENTRY_POINT

MOST = 10**15
"""No count in a manifest means anything above this; it also keeps numbers within JSON's reach."""

Count = Annotated[int, Field(ge=0, le=MOST)]
Positive = Annotated[int, Field(ge=1, le=MOST)]
Seconds = Annotated[float, Field(gt=0, le=MOST, allow_inf_nan=False)]
NonEmpty = Annotated[str, Field(min_length=1)]
EntryPoint = Annotated[str, Field(pattern=ENTRY_POINT)]

T = TypeVar("T")
Several = Annotated[tuple[T, ...], Field(strict=False)]
"""A TOML list, kept as a tuple; only the container is lax, its elements are strict."""

Rule = tuple[str, str]
"""A key of the section and what is wrong with it in view of the others."""


class Section(BaseModel):
    """A frozen table of the manifest that refuses keys and types it does not know."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
    )

    @classmethod
    def broken_rules(cls, given: Mapping[str, object]) -> Iterator[Rule]:
        """Yield what is wrong between keys, whatever else is wrong with each of them."""
        del given
        yield from ()

    @model_validator(mode="wrap")
    @classmethod
    def _report_rules_with_the_rest(
        cls, given: object, handler: ModelWrapValidatorHandler[Self]
    ) -> Self:
        # An ordinary "after" validator would only run once every field is right, and a person
        # mending a manifest would meet the mistakes in two rounds.
        broken = list(cls.broken_rules(given)) if isinstance(given, Mapping) else []
        try:
            section = handler(given)
        except ValidationError as error:
            found = error.errors(include_url=False)
            named = {detail["loc"][:1] for detail in found}
            raise ValidationError.from_exception_data(
                cls.__name__,
                [
                    *(_again(detail) for detail in found),
                    *(_line_error(rule, given) for rule in broken if rule[:1] not in named),
                ],
            ) from None

        if broken:
            raise ValidationError.from_exception_data(
                cls.__name__, [_line_error(rule, given) for rule in broken]
            )

        return section


def _line_error(rule: Rule, given: object) -> InitErrorDetails:
    key, message = rule
    value = given.get(key) if isinstance(given, Mapping) else None
    return InitErrorDetails(type=mistake(message), loc=(key,), input=value)


def _again(detail: ErrorDetails) -> InitErrorDetails:
    """Turn an error that was raised back into what an error is raised from."""
    context = detail.get("ctx", {})
    kind: str | PydanticCustomError = detail["type"]
    if kind == "mistake":
        kind = mistake(context["words"])

    return InitErrorDetails(type=kind, loc=detail["loc"], input=detail["input"], ctx=context)
