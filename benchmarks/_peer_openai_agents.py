"""The peer of prune.py: openai-agents' `ToolOutputTrimmer`, with its defaults."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from _peer import Pass, serve
from agents import Agent
from agents.extensions import ToolOutputTrimmer
from agents.run_config import CallModelData, ModelInputData


def prepare(history: list[dict[str, Any]]) -> dict[str, Pass]:
    """Return the pass over this history; it comes to the number of outputs that were trimmed."""
    trimmer = ToolOutputTrimmer()
    given = [_input(message) for message in history]
    model_data = ModelInputData(input=given, instructions=None)
    data = CallModelData(model_data=model_data, agent=Agent(name="bench"), context=None)
    trimmed = sum(a is not b for a, b in zip(given, trimmer(data).input, strict=True))

    def trim() -> int:
        trimmer(data)
        return trimmed

    return {"trim": trim}


def _input(message: dict[str, Any]) -> dict[str, Any]:
    if message["role"] == "tool":
        call_id, output = message["tool_call_id"], message["content"]
        return {"type": "function_call_output", "call_id": call_id, "output": output}

    if "tool_calls" in message:
        (call,) = message["tool_calls"]
        return {"type": "function_call", "call_id": call["id"], **call["function"]}

    return {"role": message["role"], "content": message["content"]}


if __name__ == "__main__":
    serve(prepare, f"openai-agents {version('openai-agents')} ToolOutputTrimmer")
