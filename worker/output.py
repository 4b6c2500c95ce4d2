"""Typed output: an answer that is data of a given type, validated, and repaired once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_FENCE = re.compile(r"^```[a-zA-Z]*\s*\n(.*?)\n?```\s*$", re.DOTALL)


class NotTheOutput(Exception):
    """The text is not the asked-for data; the message is for the model."""


class OutputType:
    """A type that an answer must have: its schema, the words that ask for it, and its check."""

    def __init__(self, output: type[Any]) -> None:
        from pydantic import TypeAdapter

        self._adapter: TypeAdapter[Any] = TypeAdapter(output)
        self.schema: dict[str, object] = self._adapter.json_schema()

    @property
    def instruction(self) -> str:
        """What the model is told."""
        schema = orjson.dumps(self.schema).decode()
        return (
            "Give your final answer as one JSON value that fits this JSON Schema, and nothing "
            f"else: no prose, no code fence.\n{schema}"
        )

    def parse(self, text: str) -> object:
        """Return the validated value that `text` holds.

        Raises:
            NotTheOutput: The text is not JSON, or not of this type; the message says where.
        """
        from pydantic import ValidationError

        stripped = text.strip()
        fenced = _FENCE.match(stripped)
        try:
            return self._adapter.validate_json(fenced[1] if fenced else stripped)
        except ValidationError as error:
            lines = [
                f"{'.'.join(map(str, detail['loc'])) or 'answer'}: {detail['msg']}"
                for detail in error.errors(include_url=False, include_context=False)
            ]
            raise NotTheOutput("\n".join(lines)) from error

    def repair_request(self, problem: NotTheOutput) -> str:
        """Return what the model is told after an answer that did not fit."""
        return f"That answer does not fit the schema:\n{problem}\n{self.instruction}"
