"""A small language for the shape of JSON: required and optional keys, types and values.

A shape is a function of a value, the path to it and the report. What it refuses is entered under
the rules of the book `shape`, whose source is the one named by the object around.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeAlias

from .report import Book, Report, Rule

Shape: TypeAlias = "Callable[[object, str, Report], None]"

BOOK = Book("shape")
_SOURCE = "the provider's parameter types (see the module of its rules)"
REQUIRED = BOOK.rule("required", "a required key is there", _SOURCE)
UNKNOWN = BOOK.rule("unknown", "no key that the provider does not know", _SOURCE)
TYPE = BOOK.rule("type", "a value has the type of its key", _SOURCE)
VALUE = BOOK.rule("value", "a value is one of those allowed", _SOURCE)
SIZE = BOOK.rule("size", "a list or text is neither too short nor too long", _SOURCE)


def text(*, least: int = 0, most: int | None = None, pattern: str = "") -> Shape:
    """A string of so many characters that matches `pattern` as a whole."""

    def check(value: object, where: str, report: Report) -> None:
        if not isinstance(value, str):
            report.broke(TYPE, where, f"{value!r}, not a string")
        elif len(value) < least or (most is not None and len(value) > most):
            report.broke(SIZE, where, f"{len(value)} characters")
        elif pattern and re.fullmatch(pattern, value) is None:
            report.broke(VALUE, where, value)

    return check


def whole(least: int, most: int | None = None) -> Shape:
    """An integer of at least `least`."""

    def check(value: object, where: str, report: Report) -> None:
        if not isinstance(value, int) or isinstance(value, bool):
            report.broke(TYPE, where, f"{value!r}, not an integer")
        elif value < least or (most is not None and value > most):
            report.broke(VALUE, where, f"{value}, not {least} to {most}")

    return check


def number(least: float, most: float) -> Shape:
    """A number of that range."""

    def check(value: object, where: str, report: Report) -> None:
        if not isinstance(value, int | float) or isinstance(value, bool):
            report.broke(TYPE, where, f"{value!r}, not a number")
        elif not least <= value <= most:
            report.broke(VALUE, where, f"{value}, not {least} to {most}")

    return check


def one_of(*allowed: object) -> Shape:
    """One of these values, their type included."""

    def check(value: object, where: str, report: Report) -> None:
        if not any(type(value) is type(one) and value == one for one in allowed):
            report.broke(VALUE, where, f"{value!r}, not one of {allowed}")

    return check


def flag(value: object, where: str, report: Report) -> None:
    """True or false."""
    if not isinstance(value, bool):
        report.broke(TYPE, where, f"{value!r}, not true or false")


def mapping(value: object, where: str, report: Report) -> None:
    """Any JSON object."""
    if not isinstance(value, dict):
        report.broke(TYPE, where, f"{value!r}, not an object")


def schema(value: object, where: str, report: Report) -> None:
    """A JSON Schema of an object."""
    mapping(value, where, report)
    if isinstance(value, dict) and value.get("type") != "object":
        report.broke(VALUE, f"{where}.type", f"{value.get('type')!r}, not 'object'")


def array(item: Shape, *, least: int = 0, most: int | None = None) -> Shape:
    """A list of so many items."""

    def check(value: object, where: str, report: Report) -> None:
        if not isinstance(value, list):
            report.broke(TYPE, where, f"{value!r}, not a list")
            return

        if len(value) < least or (most is not None and len(value) > most):
            report.broke(SIZE, where, f"{len(value)} items")
        for index, one in enumerate(value):
            item(one, f"{where}[{index}]", report)

    return check


def nullable(shape: Shape) -> Shape:
    """`shape`, or null."""

    def check(value: object, where: str, report: Report) -> None:
        if value is not None:
            shape(value, where, report)

    return check


def either(**shapes: Shape) -> Shape:
    """The shape that goes with the value's type: `str`, `list`, `dict` or `bool`."""

    def check(value: object, where: str, report: Report) -> None:
        shape = shapes.get(type(value).__name__)
        if shape is None:
            report.broke(TYPE, where, f"{value!r}, not {' or '.join(shapes)}")
        else:
            shape(value, where, report)

    return check


def keys(required: Mapping[str, Shape], optional: Mapping[str, Shape] | None = None) -> Shape:
    """An object of these keys and of no others."""
    known = {**required, **(optional or {})}

    def check(value: object, where: str, report: Report) -> None:
        if not isinstance(value, dict):
            report.broke(TYPE, where, f"{value!r}, not an object")
            return

        for key in required:
            if key not in value:
                report.broke(REQUIRED, f"{where}.{key}".lstrip("."), "nothing")
        for key, one in value.items():
            place = f"{where}.{key}".lstrip(".")
            if key in known:
                known[key](one, place, report)
            else:
                report.broke(UNKNOWN, place, one)

    return check


def tagged(tag: str, shapes: Mapping[str, Shape]) -> Shape:
    """An object whose `tag` says which shape it has."""

    def check(value: object, where: str, report: Report) -> None:
        if not isinstance(value, dict):
            report.broke(TYPE, where, f"{value!r}, not an object")
            return

        shape = shapes.get(str(value.get(tag)))
        if shape is None:
            found = f"{value.get(tag)!r}, not one of {sorted(shapes)}"
            report.broke(VALUE if tag in value else REQUIRED, f"{where}.{tag}", found)
        else:
            shape(value, where, report)

    return check


def holds(rule: Rule, test: Callable[[object], bool], shape: Shape) -> Shape:
    """`shape`, and then `rule` where `test` is false."""

    def check(value: object, where: str, report: Report) -> None:
        before = len(report.broken)
        shape(value, where, report)
        if len(report.broken) == before and not test(value):
            report.broke(rule, where, value)

    return check
