"""Holds requests to the parameter types of the vendors' own SDKs: a program, run where those are.

Reads lines of `[api, body]` and writes one line for each that a type refuses: `[line number, why]`.
It runs in an environment of its own (scripts/peers makes it), since the SDKs' demands and ours
differ, and imports nothing of ours.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pydantic
from anthropic.types.beta.message_create_params import MessageCreateParamsStreaming as Messages
from google.genai import types as gemini
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming as Chat
from openai.types.responses.response_create_params import (
    ResponseCreateParamsStreaming as Responses,
)

TYPED = {
    "anthropic": pydantic.TypeAdapter(Messages),
    "chat": pydantic.TypeAdapter(Chat),
    "responses": pydantic.TypeAdapter(Responses),
}
SCHEMAS = frozenset({"input_schema", "parameters", "schema"})
"""Keys whose values are JSON Schemas: the types name some of their keys, the APIs take them all."""
OLDER = frozenset({".temperature", ".top_k", ".top_p"})
"""What Anthropic's types no longer have, since new models refuse it. Older ones take it."""


def consume(value: Any) -> Any:
    """Return `value` with every lazily checked list read to its end, which is what checks it."""
    if isinstance(value, str | bytes | int | float | None):
        return value
    if isinstance(value, Mapping):
        return {key: consume(one) for key, one in value.items()}

    return [consume(one) for one in value]


def lost(sent: Any, taken: Any, where: str = "") -> Iterator[str]:
    """What was sent and is not in what the type took: keys that it does not know."""
    if isinstance(sent, dict) and isinstance(taken, dict):
        for key, value in sent.items():
            if key in SCHEMAS:
                continue
            place = f"{where}.{key}"
            yield from lost(value, taken[key], place) if key in taken else [place]
    elif isinstance(sent, list) and isinstance(taken, list):
        for index, (one, two) in enumerate(zip(sent, taken, strict=True)):
            yield from lost(one, two, f"{where}[{index}]")


def check_gemini(body: dict[str, Any]) -> None:
    """Check the parts of a request that the SDK has types of; they refuse unknown keys."""
    for content in body["contents"]:
        gemini.Content.model_validate(content)
    for tool in body.get("tools", []):
        gemini.Tool.model_validate(tool)
    gemini.GenerationConfig.model_validate(body.get("generationConfig", {}))
    if "systemInstruction" in body:
        gemini.Content.model_validate(body["systemInstruction"])
    if "toolConfig" in body:
        gemini.ToolConfig.model_validate(body["toolConfig"])
    known = {"contents", "tools", "generationConfig", "systemInstruction", "toolConfig"}
    if set(body) - known:
        raise ValueError(f"unknown: {sorted(set(body) - known)}")


def check(api: str, body: dict[str, Any]) -> None:
    """Raise ValueError where the SDK's type would not take the request."""
    if api == "gemini":
        check_gemini(body)
        return

    if api == "responses":
        body = {**body, "input": [stored(item) for item in body["input"]]}
    taken = consume(TYPED[api].validate_python(body))
    unknown = [place for place in lost(body, taken) if api != "anthropic" or place not in OLDER]
    if unknown:
        raise ValueError(f"unknown: {unknown}")


def stored(item: dict[str, Any]) -> dict[str, Any]:
    """Return an item of a stateless request with what its type demands of a stored one.

    Codex, OpenAI's own client, leaves it out where nothing is stored.
    """
    if item.get("type") == "reasoning":
        return {"id": "rs_0", **item}
    if item.get("role") != "assistant" or isinstance(item["content"], str):
        return item

    parts = [
        {"annotations": [], **part} if part["type"] == "output_text" else part
        for part in item["content"]
    ]
    return {"id": "msg_0", "status": "completed", **item, "content": parts}


def main() -> None:
    """Check every line of standard input."""
    for number, line in enumerate(sys.stdin):
        api, body = json.loads(line)
        try:
            check(api, body)
        except (ValueError, TypeError) as error:
            print(json.dumps([number, str(error)[:2000]]))  # noqa: T201  it is what it is for


if __name__ == "__main__":
    main()
