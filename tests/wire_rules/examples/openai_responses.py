"""OpenAI's Responses API: good stateless requests, and bad ones of every kind."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from tests.wire_rules.examples.request import DROP, PIXEL, Bad, Sent, Table

HEADERS = {"content-type": "application/json", "authorization": "Bearer test-key"}
TABLE = Table()


def user(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": list(parts)}


def text(words: str) -> dict[str, Any]:
    return {"type": "input_text", "text": words}


def image(data: str = PIXEL, media_type: str = "image/png") -> dict[str, Any]:
    url = f"data:{media_type};base64,{data}"
    return {"type": "input_image", "image_url": url, "detail": "auto"}


def answer(words: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": words}]
    return {"type": "message", "role": "assistant", "content": content}


def call(call_id: str, arguments: str = "{}") -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": "read", "arguments": arguments}


def output(call_id: str, given: Any = "done") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": given}


def reasoning(item_id: str, *words: str, encrypted: str | None = "gAAA") -> dict[str, Any]:
    summary = [{"type": "summary_text", "text": one} for one in words]
    item = {"type": "reasoning", "id": item_id, "summary": summary}
    return item if encrypted is None else {**item, "encrypted_content": encrypted}


def tool(name: str) -> dict[str, Any]:
    return {"type": "function", "name": name, "parameters": {"type": "object"}, "strict": False}


def sent(*items: dict[str, Any], **more: Any) -> Sent:
    body = {
        "model": "gpt-5.4",
        "input": list(items),
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        **more,
    }
    return Sent("/v1/responses", body, HEADERS)


PLAIN = sent(user(text("Hello")))
TALK = sent(
    {"role": "user", "content": "Hello"},
    reasoning("rs_1", "Who is it?"),
    answer("Yes?"),
    user(text("See"), image()),
    instructions="You help.",
    reasoning={"effort": "low", "summary": "auto"},
)
TOOLS = sent(
    user(text("Read a and b")),
    reasoning("rs_1"),
    reasoning("rs_2", "First a.", "Then b."),
    call("call_a", '{"path":"a"}'),
    call("call_b"),
    output("call_a"),
    output("call_b", [text("it says"), image()]),
    reasoning("rs_3"),
    call("call_c"),
    output("call_c"),
    answer("Done."),
    user(text("Thanks")),
    tools=[tool("read"), tool("write")],
)
TABLE.good.update(
    {
        "one message": PLAIN,
        "a talk with reasoning and a picture": TALK,
        "two steps of calls": TOOLS,
        "an old model": sent(
            user(text("Hello")), model="gpt-4.1", include=[], temperature=0.5, max_output_tokens=16
        ),
        "calls and a message in one answer": sent(
            user(text("Read")), answer("Reading."), call("call_a"), output("call_a")
        ),
        "a call id that a later answer uses again": sent(
            user(text("Read")), call("c"), output("c"), call("c"), output("c"), user(text("So?"))
        ),
        "an answer as JSON": sent(
            user(text("Hello")),
            text={"format": {"type": "json_schema", "name": "a", "schema": {"type": "object"}}},
        ),
    }
)

_bad = TABLE.breaks
_bad("shape.required", "no input", PLAIN, {"input": DROP})
_bad("shape.required", "reasoning without a summary", TALK, {"input[1].summary": DROP})
_bad("shape.required", "a tool that leaves strict open", TOOLS, {"tools[0].strict": DROP})
_bad("shape.required", "a picture of no detail", TALK, {"input[3].content[1].detail": DROP})
_bad("shape.unknown", "messages of the other API", PLAIN, {"messages": []})
_bad("shape.unknown", "a key of ours", PLAIN, {"input[0].uid": "1"})
_bad(
    "shape.unknown",
    "a tool in the other API's shape",
    TOOLS,
    {
        "tools[0]": {**tool("read"), "function": {"name": "read"}},
    },
)
_bad("shape.value", "an answer as input", TALK, {"input[2].content": [text("Yes?")]})
_bad("shape.value", "a cap below the least", PLAIN, {"max_output_tokens": 15})
_bad("shape.value", "a dot in a name", TOOLS, {"input[3].name": "fs.read"})
_bad("shape.value", "an effort that nobody knows", TALK, {"reasoning.effort": "maximal"})
_bad(
    "shape.size",
    "an id of 65 characters",
    TOOLS,
    {
        "input[8].call_id": "c" * 65,
        "input[9].call_id": "c" * 65,
    },
)
_bad("shape.size", "an empty id", TOOLS, {"input[8].call_id": "", "input[9].call_id": ""})
_bad("shape.size", "no input items", PLAIN, {"input": []})
_bad("shape.size", "a key of 65 characters", PLAIN, {"prompt_cache_key": "k" * 65})
_bad("common.blank", "an empty text", PLAIN, {"input[0].content[0].text": ""})
_bad("common.blank", "an empty answer", TALK, {"input[2].content": " "})
_bad("common.blank", "an empty output", TOOLS, {"input[5].output": ""})
_bad("common.blank", "empty instructions", PLAIN, {"instructions": ""})
_bad("common.base64", "a picture that is no base64", TALK, {"input[3].content[1]": image("a")})
_bad("common.media_type", "a bitmap", TALK, {"input[3].content[1]": image(PIXEL, "image/bmp")})
_bad("common.arguments", "arguments that are text", TOOLS, {"input[3].arguments": '"a"'})
_bad("json.syntax", "arguments cut", TOOLS, {"input[3].arguments": '{"path"'})
_bad("common.tools_sorted", "tools as they came", TOOLS, {"tools": [tool("write"), tool("read")]})
_bad("common.tools_unique", "a tool twice", TOOLS, {"tools": [tool("read"), tool("read")]})
_bad("responses.stateless", "what is sent is stored", PLAIN, {"store": True})
_bad("responses.stateless", "an earlier response", PLAIN, {"previous_response_id": "resp_1"})
_bad("responses.include", "no encrypted reasoning wanted", PLAIN, {"include": DROP})
_bad(
    "responses.encrypted",
    "reasoning by its id alone",
    TALK,
    {
        "input[1]": reasoning("rs_1", encrypted=None),
    },
)
_bad("responses.followed", "reasoning at the end", TALK, {"input[+]": reasoning("rs_9")})
_bad("responses.followed", "reasoning before a user", TALK, {"input[2]": DROP})
_bad(
    "responses.followed",
    "reasoning whose call is gone",
    TOOLS,
    {
        "input[9]": DROP,
        "input[8]": user(text("Well?")),
    },
)
_bad("responses.reasoning_once", "an item twice", TOOLS, {"input[7]": reasoning("rs_1")})
_bad("responses.no_item_ids", "a message by its id", TALK, {"input[2].id": "msg_1"})
_bad("responses.no_item_ids", "a call by its id", TOOLS, {"input[3].id": "fc_1"})
_bad("responses.answered", "an output is missing", TOOLS, {"input[6]": DROP})
_bad("responses.answered", "calls at the end", TOOLS, {"input": TOOLS.body["input"][:5]})
_bad("responses.answered", "two outputs of one call", TOOLS, {"input[6]": output("call_a")})
_bad("responses.orphan", "an output of nothing", TALK, {"input[3]": output("call_z")})
_bad(
    "responses.orphan",
    "an output before its call",
    TOOLS,
    {
        "input[8]": output("call_c"),
        "input[9]": call("call_c"),
    },
)
_bad(
    "responses.result_order",
    "outputs as they came",
    TOOLS,
    {
        "input[5]": output("call_b"),
        "input[6]": output("call_a"),
    },
)
_bad("responses.ids_unique", "an id twice in one answer", TOOLS, {"input[4].call_id": "call_a"})
_bad("responses.sampling", "a temperature for a reasoning model", TALK, {"temperature": 0.5})
_bad("responses.effort", "an effort for a model that does not reason", TALK, {"model": "gpt-4.1"})
TABLE.bad.append(
    Bad("common.headers", "no key", evolve(PLAIN, headers={"content-type": "application/json"}))
)
