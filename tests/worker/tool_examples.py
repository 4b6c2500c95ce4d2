"""Functions as people write them, with their annotations as text (PEP 563)."""

from __future__ import annotations

import enum
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Optional

from pydantic import BaseModel, Field


class Point(BaseModel):
    """A point."""

    x: int
    title: str = "t"


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


NOTHING = object()


def plain(path: str, limit: int = 10) -> str:
    """Read a file.

    Only text files.

    Args:
        path: Where the file is,
            relative to the work folder: see docs.
        limit (int): How many lines.

    Returns:
        The text.
    """
    return f"{path}:{limit}"


def optional(a: Optional[int] = None, b: str | None = None) -> str:  # noqa: UP045
    return f"{a}/{b}"


def literal(mode: Literal["r", "w"], colour: Colour = Colour.RED) -> str:
    return f"{mode}/{colour.name}"


def models(points: list[Point]) -> int:
    return sum(point.x for point in points)


def annotated(
    count: Annotated[int, Field(ge=1, description="How many.")],
    size: int = Field(default=3, description="How big.", le=9),
) -> int:
    return count * size


def collections(names: Sequence[str], table: Mapping[str, int], where: Path = Path()) -> str:
    return f"{list(names)}{dict(table)}{where}"


def awkward(schema: str, model_config: int, json: bool, _x: int = 1, p_x: int = 2) -> str:
    return f"{schema}{model_config}{json}{_x}{p_x}"


def sentinel(a: Any = NOTHING) -> str:
    return "nothing" if a is NOTHING else str(a)


def keyword_only(*, title: str, self: int = 0) -> str:
    return f"{title}{self}"


def nothing() -> str:
    return "nothing"


async def asynchronous(a: int) -> int:
    return a


class Service:
    """A service.

    Args:
        word: What to look up.
    """

    prefix = "-"

    def method(self, word: str) -> str:
        """Look up."""
        return self.prefix + word

    @classmethod
    def of_class(cls, word: str) -> str:
        return cls.prefix + word

    @staticmethod
    def static(word: str) -> str:
        return word

    def __call__(self, word: str) -> str:
        return self.prefix + word


def traced(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


wrapped = traced(plain)
bound = functools.partial(plain, limit=3)
bound_first = functools.partial(plain, "fixed")


def no_annotation(a, b: int) -> str:  # type: ignore[no-untyped-def]  # noqa: ANN001
    return ""


def many(*args: str) -> str:
    return ""


def any_names(**kwargs: str) -> str:
    return ""


def positional(a: int, /) -> str:
    return ""


def unknown_type(a: NoSuchType) -> str:  # type: ignore[name-defined]  # noqa: F821
    return ""


def unspeakable_type(a: NothingJson) -> str:
    return ""


async def generator() -> Any:
    yield 1


class NothingJson:
    """No type that JSON can hold."""
