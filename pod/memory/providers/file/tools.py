"""The tools that the model keeps its memory with: what they are called, and what they take."""

from __future__ import annotations

from typing import Any

_ID = {"type": "string", "description": "The note's id, such as k3f9a2."}


def _tool(
    name: str, description: str, properties: dict[str, Any], *required: str
) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return {"name": name, "description": description, "parameters": parameters}


def schemas() -> list[dict[str, Any]]:
    """Return the tools as bare function objects."""
    return [
        _tool(
            "memory_remember",
            "Keep a note for later sessions. One fact a note, in a sentence that can be understood "
            "without this conversation.",
            {
                "text": {"type": "string", "description": "What to remember."},
                "topic": {
                    "type": "string",
                    "description": "The page it belongs to, one word; notes, if left out.",
                },
            },
            "text",
        ),
        _tool(
            "memory_replace",
            "Correct a note: the text takes the place of what it said, as of today.",
            {"id": _ID, "text": {"type": "string", "description": "What holds now."}},
            "id",
            "text",
        ),
        _tool("memory_forget", "Drop a note that no longer holds.", {"id": _ID}, "id"),
        _tool(
            "memory_search",
            "Find notes by words, those that are not shown in the system prompt too.",
            {
                "query": {"type": "string", "description": "Words; empty for the newest notes."},
                "limit": {"type": "integer", "description": "At most so many; 10, if left out."},
            },
            "query",
        ),
    ]
