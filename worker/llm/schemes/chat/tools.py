"""Tools as Chat Completions and Ollama are told of them."""

from __future__ import annotations

import orjson

from worker.llm.types import ToolSpec


class ToolsWriter:
    """Writes the `tools` of one client's requests, anew only where they have changed."""

    def __init__(self) -> None:
        self._last: tuple[tuple[ToolSpec, ...], bytes] = ((), b"")

    def member(self, tools: tuple[ToolSpec, ...]) -> bytes:
        """Return the `tools` member with its comma, sorted by name; nothing without tools."""
        if self._last[0] is not tools:
            self._last = (tools, _member(tools))
        return self._last[1]


def _member(tools: tuple[ToolSpec, ...]) -> bytes:
    if not tools:
        return b""

    functions = [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": dict(tool.parameters),
            },
        }
        for tool in sorted(tools, key=lambda tool: tool.name)
    ]
    return b'"tools":' + orjson.dumps(functions) + b","
