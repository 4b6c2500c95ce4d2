"""The tools of a memory provider, as those of a Worker."""

from __future__ import annotations

import json
from typing import Any

from pod.context.foreign_tools import BadToolSchema, spec_of
from session_store.masking import Masker
from worker.tools import Tool, ToolOutput, render_output

from .calls import ProviderCalls, said


async def provider_tools(calls: ProviderCalls, masker: Masker) -> list[Tool]:
    """Return the tools that a provider offers, each name once; what is no tool is told of."""
    schemas = await calls.ask("get_tool_schemas")
    if schemas is None:
        return []

    if not isinstance(schemas, list | tuple):
        calls.warn("tools", f"get_tool_schemas returned {type(schemas).__name__}, not a list")
        return []

    made = (_tool(schema, calls, masker) for schema in schemas)
    return list({tool.name: tool for tool in made if tool is not None}.values())


def _tool(schema: object, calls: ProviderCalls, masker: Masker) -> Tool | None:
    try:
        spec = spec_of(schema)
    except BadToolSchema as error:
        calls.warn(f"tools: {error}", f"{error}; it is left out")
        return None

    async def call(arguments: dict[str, Any]) -> ToolOutput:
        masked = json.loads(masker.mask_json(json.dumps(arguments)))
        try:
            answer = await calls.answer("handle_tool_call", spec.name, masked)
        except Exception as error:  # noqa: BLE001  # supervision point of a provider's code
            text = json.dumps({"error": f"Memory tool '{spec.name}' failed: {said(error)}"})
            return ToolOutput(text, is_error=True)

        return _output(answer)

    return Tool(spec.name, spec.description, spec.parameters, call)


def _output(answer: object) -> ToolOutput:
    """Return a tool's answer as its output; a JSON object that is only an `error` is one."""
    output = render_output(answer)
    if not isinstance(answer, str) or '"error"' not in answer:
        return output

    try:
        value = json.loads(answer)
    except (ValueError, RecursionError):
        return output

    is_error = isinstance(value, dict) and value.keys() == {"error"}
    return ToolOutput(output.summary, output.content, is_error=True) if is_error else output
