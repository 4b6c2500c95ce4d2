"""Requests to the Messages API: some as they should be, and some of every way to be wrong."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from tests.wire_rules.examples.request import DROP, PIXEL, Bad, Sent, Table

HEADERS = {
    "content-type": "application/json",
    "x-api-key": "test-key",
    "anthropic-version": "2023-06-01",
}
IMAGE = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": PIXEL},
}
MARK = {"type": "ephemeral"}
TABLE = Table()


def said(role: str, *blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "content": list(blocks)}


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def call(call_id: str, name: str = "read", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def result(call_id: str, content: Any = "done", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def thinking(words: str = "Let me see.", signature: str = "c2lnbmVk") -> dict[str, Any]:
    return {"type": "thinking", "thinking": words, "signature": signature}


def tool(name: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    return {"name": name, "description": f"Does {name}.", "input_schema": schema}


def sent(*messages: dict[str, Any], **more: Any) -> Sent:
    body = {
        "model": "claude-sonnet-4-5",
        "max_tokens": 4096,
        "messages": list(messages),
        "stream": True,
        **more,
    }
    return Sent("/v1/messages", body, HEADERS)


PLAIN = sent(said("user", text("Hello")))
TALK = sent(said("user", text("Hello")), said("assistant", text("Yes?")), said("user", text("Go")))
TOOLS = sent(
    said("user", text("Read a and b")),
    said("assistant", text("Reading."), call("toolu_a", path="a"), call("toolu_b", path="b")),
    said("user", result("toolu_a"), result("toolu_b", "gone", is_error=True), text("And?")),
    said("assistant", text("One is gone.")),
    said("user", text("Thanks")),
    system=[text("You help.", cache_control=MARK)],
    tools=[tool("read"), tool("write")],
)
THINKS = sent(
    said("user", text("Read a")),
    said("assistant", thinking(), text("Reading."), thinking("Now."), call("toolu_a")),
    said("user", result("toolu_a", [text("it says"), IMAGE])),
    thinking={"type": "enabled", "budget_tokens": 1024},
    tools=[tool("read")],
)
ADAPTIVE = evolve(
    THINKS,
    body={
        **THINKS.body,
        "model": "claude-opus-4-8",
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "high"},
    },
)
TABLE.good.update(
    {
        "one message": PLAIN,
        "one message as a string": sent({"role": "user", "content": "Hello"}, system="You help."),
        "a talk": TALK,
        "parallel calls, one failed, text behind the results": TOOLS,
        "thinking with a budget, an image in a result": THINKS,
        "adaptive thinking": ADAPTIVE,
        "bound thinking, let go where the prompt changed": evolve(
            ADAPTIVE,
            body={
                **ADAPTIVE.body,
                "thinking": {
                    "type": "adaptive",
                    "block_binding": {"prefix_mismatch_behavior": "drop_block"},
                },
            },
            headers={**HEADERS, "anthropic-beta": "thinking-binding-controls-2026-08-01"},
        ),
        "thinking between tools only": evolve(
            PLAIN,
            body={
                **PLAIN.body,
                "model": "claude-sonnet-5-5",
                "thinking": {"type": "between_tools"},
            },
        ),
        "redacted thinking": sent(
            said("user", text("Hello")),
            said("assistant", {"type": "redacted_thinking", "data": "EqQB"}, text("Hi")),
            said("user", text("Go on")),
        ),
        "thinking behind a call, as it was received": sent(
            said("user", text("Read")),
            said("assistant", thinking(), call("toolu_a"), thinking("And then?")),
            said("user", result("toolu_a")),
        ),
        "a prefill that an old model continues": sent(
            said("user", text("Name a colour")), said("assistant", text("The colour is"))
        ),
        "a token in the place of the key": evolve(
            PLAIN, headers={**HEADERS, "x-api-key": "", "authorization": "Bearer t"}
        ),
        "four marks, the long ones first": sent(
            said("user", text("a", cache_control=MARK), text("b", cache_control=MARK)),
            system=[text("s", cache_control={**MARK, "ttl": "1h"})],
            tools=[{**tool("read"), "cache_control": {**MARK, "ttl": "1h"}}],
        ),
        "an answer as JSON": sent(
            said("user", text("Hello")),
            output_config={"format": {"type": "json_schema", "schema": {"type": "object"}}},
        ),
    }
)

_bad = TABLE.breaks
_bad("shape.required", "no model", PLAIN, {"model": DROP})
_bad("shape.required", "no cap", PLAIN, {"max_tokens": DROP})
_bad("shape.required", "a block without its type", PLAIN, {"messages[0].content[0].type": DROP})
_bad(
    "shape.required",
    "thinking without a signature",
    THINKS,
    {
        "messages[1].content[0].signature": DROP,
    },
)
_bad("shape.required", "a call without input", THINKS, {"messages[1].content[3].input": DROP})
_bad("shape.unknown", "a key of ours", PLAIN, {"messages[0].uid": "1"})
_bad("shape.unknown", "a key of another provider", PLAIN, {"prompt_cache_key": "s"})
_bad("shape.unknown", "a mark on thinking", THINKS, {"messages[1].content[0].cache_control": MARK})
_bad("shape.type", "arguments as a string", THINKS, {"messages[1].content[3].input": "{}"})
_bad("shape.type", "arguments that are null", THINKS, {"messages[1].content[3].input": None})
_bad("shape.type", "content that is null", TALK, {"messages[1].content": None})
_bad("shape.value", "no cap at all", PLAIN, {"max_tokens": 0})
_bad("shape.value", "a system role", TALK, {"messages[1].role": "system"})
_bad("shape.value", "a tool role", TALK, {"messages[1].role": "tool"})
_bad("shape.value", "not streamed", PLAIN, {"stream": False})
_bad(
    "shape.value",
    "a colon in an id",
    THINKS,
    {
        "messages[1].content[3].id": "functions.read:0",
        "messages[2].content[0].tool_use_id": "functions.read:0",
    },
)
_bad(
    "shape.value",
    "an id that is empty",
    THINKS,
    {
        "messages[1].content[3].id": "",
        "messages[2].content[0].tool_use_id": "",
    },
)
_bad("shape.value", "a dot in a call's name", THINKS, {"messages[1].content[3].name": "fs.read"})
_bad("shape.value", "a tool's name of 129 characters", THINKS, {"tools[0].name": "a" * 129})
_bad("shape.value", "a budget below the least", THINKS, {"thinking.budget_tokens": 1000})
_bad("shape.value", "a schema that is no object's", THINKS, {"tools[0].input_schema": {}})
_bad("shape.value", "a temperature above 1", PLAIN, {"temperature": 1.5})
_bad("shape.value", "thinking in a user message", TALK, {"messages[2].content[0]": thinking()})
_bad("shape.value", "a call in a user message", TALK, {"messages[2].content[0]": call("toolu_a")})
_bad("shape.value", "a result in an answer", TALK, {"messages[1].content[0]": result("toolu_a")})
_bad("shape.value", "an image in an answer", TALK, {"messages[1].content[0]": IMAGE})
_bad("shape.size", "no messages", PLAIN, {"messages": []})
_bad("shape.size", "a message without blocks", TALK, {"messages[1].content": []})
_bad("shape.size", "no tools in a list", PLAIN, {"tools": []})
_bad("common.blank", "an empty text", PLAIN, {"messages[0].content[0].text": ""})
_bad("common.blank", "spaces only", TALK, {"messages[1].content[0].text": " \n\t"})
_bad("common.blank", "an empty string", TALK, {"messages[1].content": ""})
_bad(
    "common.blank",
    "an empty text in a result",
    THINKS,
    {
        "messages[2].content[0].content[0].text": "",
    },
)
_bad("common.blank", "an empty system prompt", TOOLS, {"system[0].text": " "})
_bad("common.blank", "an empty result", TOOLS, {"messages[2].content[0].content": ""})
_bad(
    "common.base64",
    "an image that is no base64",
    THINKS,
    {
        "messages[2].content[0].content[1].source.data": "not base64!",
    },
)
_bad(
    "common.base64",
    "an image without padding",
    PLAIN,
    {
        "messages[0].content": [
            {**IMAGE, "source": {**IMAGE["source"], "data": "iVBORw"}},
        ]
    },
)
_bad(
    "common.base64",
    "an empty image",
    PLAIN,
    {
        "messages[0].content": [
            {**IMAGE, "source": {**IMAGE["source"], "data": ""}},
        ]
    },
)
_bad(
    "common.media_type",
    "a bitmap",
    PLAIN,
    {
        "messages[0].content": [
            {**IMAGE, "source": {**IMAGE["source"], "media_type": "image/bmp"}},
        ]
    },
)
_bad("common.tools_sorted", "tools as they came", TOOLS, {"tools": [tool("write"), tool("read")]})
_bad("common.tools_unique", "a tool twice", TOOLS, {"tools": [tool("read"), tool("read")]})
_bad("anthropic.roles", "the model begins", TALK, {"messages": TALK.body["messages"][1:]})
_bad("anthropic.alternation", "two user messages", TALK, {"messages[1]": said("user", text("b"))})
_bad(
    "anthropic.prefill",
    "a new model asked to continue",
    ADAPTIVE,
    {
        "messages[+]": said("assistant", text("So")),
    },
)
_bad(
    "anthropic.trailing_space",
    "a prefill with a space behind",
    TALK,
    {
        "messages[2]": DROP,
        "messages[1].content[0].text": "It is ",
    },
)
_bad("anthropic.answered", "calls at the end", TOOLS, {"messages": TOOLS.body["messages"][:2]})
_bad("anthropic.answered", "one result is missing", TOOLS, {"messages[2].content[1]": DROP})
_bad(
    "anthropic.answered",
    "two results of one call",
    TOOLS,
    {
        "messages[2].content": [result("toolu_a"), result("toolu_b"), result("toolu_b")],
    },
)
_bad(
    "anthropic.answered",
    "the results one message late",
    TOOLS,
    {
        "messages[2]": said("user", text("wait")),
        "messages[4]": said("user", result("toolu_a"), result("toolu_b")),
    },
)
_bad(
    "anthropic.results_first",
    "text before the results",
    TOOLS,
    {
        "messages[2].content": [text("So"), result("toolu_a"), result("toolu_b")],
    },
)
_bad(
    "anthropic.result_order",
    "results as they came",
    TOOLS,
    {
        "messages[2].content": [result("toolu_b"), result("toolu_a")],
    },
)
_bad("anthropic.orphan", "a result of nothing", TALK, {"messages[2].content": [result("toolu_z")]})
_bad(
    "anthropic.orphan",
    "a result in the first message",
    PLAIN,
    {
        "messages[0].content": [result("toolu_z")],
    },
)
_bad(
    "anthropic.ids_unique",
    "an id twice in one answer",
    TOOLS,
    {
        "messages[1].content[2].id": "toolu_a",
    },
)
_bad(
    "anthropic.ids_unique",
    "an id again in a later turn",
    THINKS,
    {
        "messages[+]": said("assistant", call("toolu_a")),
    },
)
_bad(
    "anthropic.calls_last",
    "text behind a call",
    TOOLS,
    {
        "messages[1].content": [call("toolu_a"), text("and"), call("toolu_b")],
    },
)
_bad(
    "anthropic.error_is_text",
    "an image in an error",
    THINKS,
    {
        "messages[2].content[0].is_error": True,
    },
)
_bad("anthropic.signature", "an empty signature", THINKS, {"messages[1].content[0].signature": ""})
_bad(
    "anthropic.thinking_last",
    "an answer of thinking alone",
    TALK,
    {
        "messages[1].content": [thinking()],
    },
)
_bad(
    "anthropic.thinking_last",
    "thinking behind the text",
    TALK,
    {
        "messages[1].content[+]": thinking(),
    },
)
_bad(
    "anthropic.thinking_first",
    "a call without its thinking",
    THINKS,
    {
        "messages[1].content": [text("Reading."), call("toolu_a")],
    },
)
_bad(
    "anthropic.budget",
    "a budget of all that may be written",
    THINKS,
    {
        "thinking.budget_tokens": 4096,
    },
)
_bad("anthropic.thinking_kind", "a budget for a new model", THINKS, {"model": "claude-opus-5"})
_bad(
    "anthropic.thinking_kind",
    "adaptive for an old one",
    ADAPTIVE,
    {
        "model": "claude-3-7-sonnet-20250219",
    },
)
_bad(
    "anthropic.binding",
    "bound thinking without its beta",
    ADAPTIVE,
    {"thinking.block_binding": {"prefix_mismatch_behavior": "drop_block"}},
)
_bad("anthropic.sampling", "a temperature with thinking", THINKS, {"temperature": 0})
_bad("anthropic.sampling", "top_k with thinking", THINKS, {"top_k": 5})
_bad(
    "anthropic.sampling",
    "a temperature for a new model",
    PLAIN,
    {
        "model": "claude-sonnet-5",
        "temperature": 1,
    },
)
_bad(
    "anthropic.forced_tool",
    "a forced tool with thinking",
    THINKS,
    {
        "tool_choice": {"type": "tool", "name": "read"},
    },
)
_bad(
    "anthropic.cache_marks",
    "five marks",
    PLAIN,
    {
        "messages[0].content": [text(c, cache_control=MARK) for c in "abcde"],
    },
)
_bad(
    "anthropic.cache_order",
    "an hour behind five minutes",
    PLAIN,
    {
        "messages[0].content": [
            text("a", cache_control=MARK),
            text("b", cache_control={**MARK, "ttl": "1h"}),
        ],
    },
)
_bad("anthropic.tools_defined", "a choice without tools", PLAIN, {"tool_choice": {"type": "auto"}})
TABLE.bad.extend(
    [
        Bad(
            "common.headers",
            "no version",
            evolve(
                PLAIN,
                headers={
                    "content-type": "application/json",
                    "x-api-key": "k",
                },
            ),
        ),
        Bad("common.headers", "no key", evolve(PLAIN, headers={**HEADERS, "x-api-key": ""})),
        Bad("common.headers", "no type", evolve(PLAIN, headers={**HEADERS, "content-type": ""})),
    ]
)
