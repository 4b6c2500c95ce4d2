"""Chat Completions: good requests to OpenAI and to its imitators, and bad ones of every kind."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from tests.wire_rules.examples.request import DROP, PIXEL, Bad, Sent, Table

HEADERS = {"content-type": "application/json", "authorization": "Bearer test-key"}
TABLE = Table()


def said(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def call(call_id: str, arguments: str = "{}", name: str = "read") -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


def called(*calls: dict[str, Any], content: Any = None) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


def result(call_id: str, content: Any = "done") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def tool(name: str) -> dict[str, Any]:
    function = {"name": name, "description": "Does.", "parameters": {"type": "object"}}
    return {"type": "function", "function": function}


def image(media_type: str = "image/png", data: str = PIXEL) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:{media_type};base64,{data}"}}


def sent(*messages: dict[str, Any], **more: Any) -> Sent:
    body = {
        "model": "gpt-4.1",
        "messages": list(messages),
        "stream": True,
        "stream_options": {"include_usage": True},
        **more,
    }
    return Sent("/v1/chat/completions", body, HEADERS, variant="official")


PLAIN = sent(said("user", "Hello"))
TALK = sent(
    said("system", "You help."),
    said("user", "Hello"),
    said("assistant", "Yes?"),
    said("user", [{"type": "text", "text": "See"}, image()]),
)
TOOLS = sent(
    said("user", "Read a and b"),
    called(call("call_a", '{"path":"a"}'), call("call_b")),
    result("call_a"),
    result("call_b", [{"type": "text", "text": "gone"}]),
    said("assistant", "One is gone."),
    said("user", "Thanks"),
    tools=[tool("read"), tool("write")],
)
LENIENT = evolve(TOOLS, variant="compatible", headers={"content-type": "application/json"})
STRICT = evolve(TALK, variant="strict")
MISTRAL = evolve(
    sent(
        said("user", "Read a"),
        called(call("abcdefgh1")),
        result("abcdefgh1"),
        said("assistant", "Done."),
        said("user", "Thanks"),
    ),
    variant="mistral",
)
TABLE.good.update(
    {
        "one message": PLAIN,
        "a talk with a picture": TALK,
        "parallel calls": TOOLS,
        "a reasoning model": sent(
            said("developer", "You help."),
            said("user", "Hello"),
            model="gpt-5.4",
            max_completion_tokens=100,
            reasoning_effort="low",
        ),
        "users in a row": sent(said("user", "one"), said("user", "two")),
        "an imitator, without a key": LENIENT,
        "an imitator's own id and reasoning": evolve(
            sent(
                said("user", "Read"),
                {**called(call("functions.read:0")), "reasoning_content": "Hm."},
                result("functions.read:0"),
                grammar="root ::= [a-z]",
            ),
            variant="compatible",
        ),
        "strict alternation": STRICT,
        "Mistral's way": MISTRAL,
        "an answer as JSON": sent(
            said("user", "Hello"),
            response_format={
                "type": "json_schema",
                "json_schema": {"name": "answer", "schema": {"type": "object"}, "strict": True},
            },
        ),
    }
)

_bad = TABLE.breaks
_bad("shape.required", "no model", PLAIN, {"model": DROP})
_bad("shape.required", "a call without its type", TOOLS, {"messages[1].tool_calls[0].type": DROP})
_bad("shape.required", "a result without its id", TOOLS, {"messages[2].tool_call_id": DROP})
_bad("shape.required", "not streamed", PLAIN, {"stream": DROP})
_bad("shape.unknown", "a key of an imitator", PLAIN, {"grammar": "root ::= x"})
_bad("shape.unknown", "reasoning for OpenAI", TALK, {"messages[2].reasoning_content": "Hm."})
_bad("shape.unknown", "a key of ours", TALK, {"messages[2].uid": "1"})
_bad("shape.unknown", "a misspelt key of an imitator", LENIENT, {"max_token": 5})
_bad(
    "shape.type",
    "arguments as an object",
    TOOLS,
    {
        "messages[1].tool_calls[0].function.arguments": {"path": "a"},
    },
)
_bad("shape.value", "an image in an answer", TALK, {"messages[2].content": [image()]})
_bad("shape.value", "an image in a result", TOOLS, {"messages[3].content": [image()]})
_bad("shape.value", "a dot in a name", TOOLS, {"tools[0].function.name": "fs.read"})
_bad(
    "shape.value",
    "a called name with a space",
    TOOLS,
    {
        "messages[1].tool_calls[0].function.name": "read it",
    },
)
_bad("shape.value", "no cap at all", PLAIN, {"max_completion_tokens": 0})
_bad("shape.value", "an unknown effort", PLAIN, {"reasoning_effort": "huge"})
_bad("shape.size", "no messages", PLAIN, {"messages": []})
_bad("shape.size", "an empty list of calls", TALK, {"messages[2].tool_calls": []})
_bad("shape.size", "an empty list of parts", TALK, {"messages[3].content": []})
_bad(
    "shape.size",
    "an id of 41 characters",
    TOOLS,
    {
        "messages[1].tool_calls[0].id": "c" * 41,
        "messages[2].tool_call_id": "c" * 41,
    },
)
_bad(
    "shape.value",
    "an id that Mistral does not take",
    MISTRAL,
    {
        "messages[1].tool_calls[0].id": "call_a-19",
        "messages[2].tool_call_id": "call_a-19",
    },
)
_bad("common.blank", "an empty message", PLAIN, {"messages[0].content": ""})
_bad("common.blank", "empty text beside calls", TOOLS, {"messages[1].content": ""})
_bad("common.blank", "an empty result", TOOLS, {"messages[2].content": " \n"})
_bad("common.blank", "an empty part", TALK, {"messages[3].content[0].text": ""})
_bad(
    "common.base64",
    "a picture elsewhere",
    TALK,
    {
        "messages[3].content[1].image_url.url": "https://host.test/a.png",
    },
)
_bad(
    "common.base64",
    "a picture that is no base64",
    TALK,
    {"messages[3].content[1]": image(data="a")},
)
_bad("common.media_type", "a drawing", TALK, {"messages[3].content[1]": image("image/svg+xml")})
_bad(
    "common.arguments",
    "arguments that are a list",
    TOOLS,
    {
        "messages[1].tool_calls[0].function.arguments": "[1]",
    },
)
_bad(
    "common.arguments",
    "arguments that are null",
    LENIENT,
    {
        "messages[1].tool_calls[0].function.arguments": "null",
    },
)
_bad("json.syntax", "no arguments", TOOLS, {"messages[1].tool_calls[0].function.arguments": ""})
_bad(
    "json.syntax",
    "arguments cut",
    TOOLS,
    {
        "messages[1].tool_calls[0].function.arguments": '{"path":"a',
    },
)
_bad("common.tools_sorted", "tools as they came", TOOLS, {"tools": [tool("write"), tool("read")]})
_bad("common.tools_unique", "a tool twice", TOOLS, {"tools": [tool("read"), tool("read")]})
_bad("chat.answered", "a result is missing", TOOLS, {"messages[3]": DROP})
_bad("chat.answered", "calls at the end", TOOLS, {"messages": TOOLS.body["messages"][:2]})
_bad("chat.answered", "two results of one call", TOOLS, {"messages[3]": result("call_a")})
_bad(
    "chat.answered",
    "a message between",
    TOOLS,
    {
        "messages": [*TOOLS.body["messages"][:2], said("user", "x"), *TOOLS.body["messages"][2:]],
    },
)
_bad("chat.orphan", "a result of nothing", TALK, {"messages[3]": result("call_z")})
_bad("chat.orphan", "a result that comes late", TOOLS, {"messages[5]": result("call_b")})
_bad(
    "chat.result_order",
    "results as they came",
    TOOLS,
    {
        "messages[2]": result("call_b"),
        "messages[3]": result("call_a"),
    },
)
_bad("chat.ids_unique", "an id twice", TOOLS, {"messages[1].tool_calls[1].id": "call_a"})
_bad("chat.says_something", "an answer of nothing", TALK, {"messages[2].content": None})
_bad(
    "chat.system_first",
    "a system message in the middle",
    TALK,
    {
        "messages[2]": said("system", "Now this."),
    },
)
_bad("chat.stream_options", "options without a stream", PLAIN, {"stream": False})
_bad("chat.one_cap", "two caps", PLAIN, {"max_tokens": 5, "max_completion_tokens": 5})
_bad(
    "chat.reasoning_model",
    "a temperature for a reasoning model",
    PLAIN,
    {
        "model": "gpt-5-mini",
        "temperature": 0,
    },
)
_bad(
    "chat.reasoning_model",
    "the old cap for a reasoning model",
    PLAIN,
    {
        "model": "o3",
        "max_tokens": 100,
    },
)
_bad("chat.alternation", "users in a row", STRICT, {"messages[2]": said("user", "two")})
_bad("chat.alternation", "the model begins", STRICT, {"messages[1]": DROP})
_bad(
    "chat.alternation",
    "a user behind the results of a user's calls",
    evolve(TOOLS, variant="strict"),
    {"messages[4]": DROP},
)
_bad("chat.after_tool", "a user behind a tool", MISTRAL, {"messages[3]": said("user", "And?")})
_bad("chat.last_role", "an answer at the end", MISTRAL, {"messages[4]": DROP})
TABLE.bad.append(
    Bad("common.headers", "no key", evolve(PLAIN, headers={"content-type": "application/json"}))
)
