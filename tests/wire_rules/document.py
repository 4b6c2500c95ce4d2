"""Reading a body as strictly as RFC 8259 lets a receiver read it."""

from __future__ import annotations

import json
import math

from .report import Book, Report

BOOK = Book("json")
UTF8 = BOOK.rule("utf8", "a body is UTF-8 without a byte order mark", "RFC 8259, 8.1")
SYNTAX = BOOK.rule("syntax", "a body is one JSON value", "RFC 8259, 2")
NUMBERS = BOOK.rule("numbers", "no NaN and no infinity, which JSON does not have", "RFC 8259, 6")
SURROGATES = BOOK.rule("surrogates", "no half of a surrogate pair", "RFC 8259, 8.2")
DUPLICATES = BOOK.rule("duplicates", "no key twice in one object", "RFC 8259, 4")
OBJECT = BOOK.rule("object", "a body is an object", "every provider's API")


def read(body: bytes, report: Report) -> dict[str, object] | None:
    """The object that `body` is, or None where it is none."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        report.broke(UTF8, "", error)
        return None

    if text.startswith("\ufeff"):
        report.broke(UTF8, "", "a byte order mark")
        return None

    value = parse(text, "", report)
    if value is not None and not isinstance(value, dict):
        report.broke(OBJECT, "", value)
        return None

    return value


def parse(text: str, where: str, report: Report) -> object | None:
    """The value of a JSON text, or None where it is none; what it may not hold is noted."""

    def constant(name: str) -> None:
        report.broke(NUMBERS, where, name)

    def number(digits: str) -> float:
        value = float(digits)
        if math.isinf(value):
            report.broke(NUMBERS, where, digits)

        return value

    def pairs(found: list[tuple[str, object]]) -> dict[str, object]:
        names = [name for name, _ in found]
        for name in sorted({name for name in names if names.count(name) > 1}):
            report.broke(DUPLICATES, where, name)

        return dict(found)

    try:
        value = json.loads(
            text, parse_constant=constant, parse_float=number, object_pairs_hook=pairs
        )
    except (ValueError, RecursionError) as error:
        report.broke(SYNTAX, where, error)
        return None

    _look_for_surrogates(value, where, report)
    return value


def _look_for_surrogates(value: object, where: str, report: Report) -> None:
    match value:
        case str():
            if any("\ud800" <= character <= "\udfff" for character in value):
                report.broke(SURROGATES, where, ascii(value))
        case list():
            for index, one in enumerate(value):
                _look_for_surrogates(one, f"{where}[{index}]", report)
        case dict():
            for key, one in value.items():
                _look_for_surrogates(key, f"{where} (a key)", report)
                _look_for_surrogates(one, f"{where}.{key}".lstrip("."), report)
