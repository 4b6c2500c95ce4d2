"""What hooks and tools of a plugin are told of the pod, in the words of their contract. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import evolve, frozen

from worker.items import AssistantMessage, Item, ToolCall, ToolResult, UserMessage
from worker.tools import ToolOutput, render_output

from .bridge import to_messages

PLATFORM = "pod"
"""What plugins are told that they run in."""


@frozen
class Scene:
    """What is going on in a pod when a hook is called."""

    session_id: str
    model: str
    history: tuple[Item, ...]


# ------------------------------------------------------------------ what hooks are told


def identity(scene: Scene) -> dict[str, object]:
    """Return who and where: what every hook is told."""
    return {"session_id": scene.session_id, "model": scene.model, "platform": PLATFORM}


def turn_facts(scene: Scene, place: int) -> dict[str, object]:
    """Return what is told of the turn that the item at `place` began."""
    messages = to_messages(scene.history)
    return identity(scene) | {
        "task_id": scene.session_id,
        "turn_id": scene.history[place].uid,
        "user_message": messages[place]["content"],
        "conversation_history": messages,
    }


def call_facts(scene: Scene, call: ToolCall) -> dict[str, object]:
    """Return what is told of a tool call."""
    place = newest_question(scene.history)
    return {
        "tool_name": call.name,
        "args": _arguments(call),
        "session_id": scene.session_id,
        "task_id": scene.session_id,
        "turn_id": scene.history[place].uid if place is not None else "",
        "tool_call_id": call.call_id,
    }


def result_facts(
    scene: Scene, call: ToolCall, output: ToolOutput, duration_ms: float
) -> dict[str, object]:
    """Return what is told of a tool call and of what it came to."""
    text = _wire(output)
    return call_facts(scene, call) | {
        "result": text,
        "duration_ms": round(duration_ms),
        "status": "error" if output.is_error else "ok",
        "error_message": text if output.is_error else None,
    }


def _arguments(call: ToolCall) -> dict[str, Any]:
    try:
        value = json.loads(call.arguments or "{}")
    except ValueError:
        return {}  # It is not run either; its result says why.

    return value if isinstance(value, dict) else {}


def _wire(output: ToolOutput) -> str:
    """Return a result as the model is sent it."""
    return output.summary if output.content is None else f"{output.summary}\n{output.content}"


def output_of(result: ToolResult) -> ToolOutput:
    """Return what a result in the history came from."""
    return ToolOutput(result.summary, result.content, result.is_error)


def replaced(output: ToolOutput, text: str) -> ToolOutput:
    """Return an output with its text replaced; a summary that still begins it stays one."""
    beginning = f"{output.summary}\n"
    if text.startswith(beginning):
        return evolve(output, content=text[len(beginning) :] or None)

    fresh = render_output(text)
    return evolve(output, summary=fresh.summary, content=fresh.content)


# ------------------------------------------------------------------ places in a history


def newest_question(history: Sequence[Item]) -> int | None:
    """Return where the newest message of a person is."""
    for place in range(len(history) - 1, -1, -1):
        item = history[place]
        if isinstance(item, UserMessage) and item.origin == "user":
            return place

    return None


def call_and_result(
    history: Sequence[Item], call_uid: str
) -> tuple[ToolCall | None, ToolResult | None]:
    """Return the call of this uid and its result, as far as they are there."""
    result = None
    for item in reversed(history):
        if isinstance(item, ToolResult) and item.call_uid == call_uid:
            result = item
        elif isinstance(item, AssistantMessage):
            for call in item.tool_calls:
                if call.call_uid == call_uid:
                    return call, result

    return None, result


def open_call(
    history: Sequence[Item], name: str, arguments: Mapping[str, Any], done: Mapping[str, float]
) -> ToolCall | None:
    """Return the newest answer's first call of this name and arguments that is not in `done`."""
    for item in reversed(history):
        if isinstance(item, AssistantMessage):
            matching = (
                call
                for call in item.tool_calls
                if call.name == name and call.call_uid not in done and _arguments(call) == arguments
            )
            return next(matching, None)

    return None
