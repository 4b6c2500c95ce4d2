"""Ollama's native chat: good requests, and bad ones of every kind."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from tests.wire_rules.examples.request import DROP, PIXEL, Bad, Sent, Table

HEADERS = {"content-type": "application/json"}
TABLE = Table()


def said(role: str, content: str, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def call(name: str = "read", **arguments: Any) -> dict[str, Any]:
    return {"function": {"name": name, "arguments": arguments}}


def result(name: str = "read", content: str = "done", **more: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_name": name, "content": content, **more}


def tool(name: str) -> dict[str, Any]:
    function = {"name": name, "description": "Does.", "parameters": {"type": "object"}}
    return {"type": "function", "function": function}


def sent(*messages: dict[str, Any], **more: Any) -> Sent:
    body = {"model": "qwen3", "messages": list(messages), "stream": True, **more}
    return Sent("/api/chat", body, HEADERS)


PLAIN = sent(said("user", "Hello"))
TALK = sent(
    said("system", "You help."),
    said("user", "See", images=[PIXEL]),
    said("assistant", "Yes?", thinking="Hm."),
    said("user", "Go on"),
    options={"temperature": 0.2, "num_predict": 100, "num_ctx": 8192},
    think="low",
)
TOOLS = sent(
    said("user", "Read a and write b"),
    said("assistant", "", tool_calls=[call(path="a"), call("write", path="b")]),
    result(),
    result("write"),
    said("assistant", "Done."),
    said("user", "Thanks"),
    tools=[tool("read"), tool("write")],
)
IDS = sent(
    said("user", "Read"),
    said("assistant", "", tool_calls=[{"id": "call_1", **call()}]),
    result(tool_call_id="call_1"),
)
TABLE.good.update(
    {
        "one message": PLAIN,
        "a talk with a picture": TALK,
        "calls": TOOLS,
        "calls with ids": IDS,
        "a picture alone": sent(said("user", "", images=[PIXEL]), think=False, format="json"),
    }
)

_bad = TABLE.breaks
_bad("shape.required", "no model", PLAIN, {"model": DROP})
_bad("shape.required", "a message without content", TOOLS, {"messages[1].content": DROP})
_bad("shape.required", "a tool message without its tool", TOOLS, {"messages[2].tool_name": DROP})
_bad("shape.unknown", "a key of the other API", PLAIN, {"max_tokens": 5})
_bad("shape.unknown", "a key of ours", TALK, {"messages[2].uid": "1"})
_bad(
    "shape.type",
    "arguments as a string",
    TOOLS,
    {
        "messages[1].tool_calls[0].function.arguments": "{}",
    },
)
_bad("shape.type", "content in parts", PLAIN, {"messages[0].content": [{"type": "text"}]})
_bad("shape.type", "content that is null", TOOLS, {"messages[1].content": None})
_bad("shape.value", "another role", TALK, {"messages[0].role": "developer"})
_bad("shape.value", "not streamed", PLAIN, {"stream": False})
_bad("shape.value", "a cap that is no number of tokens", TALK, {"options.num_predict": -3})
_bad("shape.size", "no messages", PLAIN, {"messages": []})
_bad("common.blank", "spaces only", PLAIN, {"messages[0].content": " "})
_bad("common.base64", "a picture that is no base64", TALK, {"messages[1].images": ["a"]})
_bad("common.tools_sorted", "tools as they came", TOOLS, {"tools": [tool("write"), tool("read")]})
_bad("common.tools_unique", "a tool twice", TOOLS, {"tools": [tool("read"), tool("read")]})
_bad("ollama.answered", "a tool message is missing", TOOLS, {"messages[3]": DROP})
_bad("ollama.answered", "calls at the end", IDS, {"messages[2]": DROP})
_bad("ollama.orphan", "a tool message too many", TOOLS, {"messages[4]": result()})
_bad("ollama.orphan", "a tool message of nothing", TALK, {"messages[3]": result()})
_bad(
    "ollama.names_match",
    "results as they came",
    TOOLS,
    {
        "messages[2]": result("write"),
        "messages[3]": result(),
    },
)
_bad("ollama.names_match", "another id", IDS, {"messages[2].tool_call_id": "call_2"})
_bad("ollama.says_something", "an empty message", PLAIN, {"messages[0].content": ""})
_bad(
    "ollama.system_first",
    "a system message in the middle",
    TALK,
    {
        "messages[2]": said("system", "Now this."),
    },
)
_bad(
    "ollama.bare_images",
    "a data URL",
    TALK,
    {
        "messages[1].images": [f"data:image/png;base64,{PIXEL}"],
    },
)
_bad("ollama.think", "a level that nobody knows", TALK, {"think": "minimal"})
_bad("ollama.options", "an option that nobody knows", TALK, {"options.max_tokens": 5})
TABLE.bad.append(Bad("common.headers", "no type", evolve(PLAIN, headers={})))
