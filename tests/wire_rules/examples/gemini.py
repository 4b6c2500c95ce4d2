"""Gemini's generateContent: good requests, and bad ones of every kind."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from tests.wire_rules.examples.request import DROP, PIXEL, Bad, Sent, Table

HEADERS = {"content-type": "application/json", "x-goog-api-key": "test-key"}
TABLE = Table()


def said(role: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "parts": list(parts)}


def call(name: str = "read", signature: str = "", call_id: str = "", **args: Any) -> dict[str, Any]:
    called = {"name": name, "args": args, **({"id": call_id} if call_id else {})}
    return {"functionCall": called, **({"thoughtSignature": signature} if signature else {})}


def response(name: str = "read", call_id: str = "", **more: Any) -> dict[str, Any]:
    given = {"name": name, "response": {"output": "done"}, **more}
    return {"functionResponse": {**given, "id": call_id} if call_id else given}


def blob(media_type: str = "image/png", data: str = PIXEL) -> dict[str, Any]:
    return {"inlineData": {"mimeType": media_type, "data": data}}


def declared(*names: str, **more: Any) -> list[dict[str, Any]]:
    one = {"description": "Does.", "parametersJsonSchema": {"type": "object"}, **more}
    return [{"functionDeclarations": [{"name": name, **one} for name in names]}]


def sent(*contents: dict[str, Any], model: str = "gemini-3-pro-preview", **more: Any) -> Sent:
    path = f"/v1beta/models/{model}:streamGenerateContent?alt=sse"
    return Sent(path, {"contents": list(contents), **more}, HEADERS)


TEXT = {"text": "Hello"}
PLAIN = sent(said("user", TEXT))
TALK = sent(
    said("user", TEXT, blob()),
    said("model", {"text": "Who?", "thought": True}, {"text": "Yes?", "thoughtSignature": "c2ln"}),
    said("user", {"text": "Go on"}),
    systemInstruction={"parts": [{"text": "You help."}]},
    generationConfig={"temperature": 1, "thinkingConfig": {"thinkingLevel": "low"}},
)
TOOLS = sent(
    said("user", {"text": "Read a and b"}),
    said("model", call(signature="c2ln", call_id="1", path="a"), call(call_id="2", path="b")),
    said("user", response(call_id="1"), response(call_id="2", parts=[blob()])),
    said("model", call("write", signature="c2lo")),
    said("user", response("write"), {"text": "And say it."}),
    said("model", {"text": "Done."}),
    said("user", {"text": "Thanks"}),
    tools=declared("read", "write"),
)
STEP = sent(
    said("user", {"text": "Read"}),
    said("model", call(signature="c2ln"), call()),
    said("user", response(), response()),
    said("model", call(signature="skip_thought_signature_validator")),
    said("user", response()),
)
TABLE.good.update(
    {
        "one message": PLAIN,
        "a talk with a picture, a thought and a signature": TALK,
        "steps of calls": TOOLS,
        "signed steps of the current turn": STEP,
        "calls of an earlier turn without signatures": sent(
            said("user", TEXT),
            said("model", call()),
            said("user", response()),
            said("model", {"text": "Done."}),
            said("user", {"text": "Thanks"}),
        ),
        "an older model without signatures": sent(
            said("user", TEXT),
            said("model", call()),
            said("user", response()),
            model="gemini-2.5-flash",
            generationConfig={"thinkingConfig": {"thinkingBudget": 0}, "maxOutputTokens": 1},
        ),
        "a signature on an empty text": sent(
            said("user", TEXT),
            said("model", {"text": "Hi"}, {"text": "", "thoughtSignature": "c2ln"}),
            said("user", TEXT),
        ),
        "parameters in the dialect's own schema": sent(
            said("user", TEXT),
            tools=[{"functionDeclarations": [{"name": "a", "parameters": {"type": "object"}}]}],
        ),
    }
)

_bad = TABLE.breaks
_bad("shape.required", "no contents", PLAIN, {"contents": DROP})
_bad("shape.required", "a content without parts", PLAIN, {"contents[0].parts": DROP})
_bad("shape.unknown", "a model in the body", PLAIN, {"model": "gemini-3-pro-preview"})
_bad("shape.unknown", "a snake's case", PLAIN, {"system_instruction": {"parts": [TEXT]}})
_bad("shape.unknown", "a key of ours", TALK, {"contents[1].uid": "1"})
_bad(
    "shape.type",
    "arguments as a string",
    TOOLS,
    {
        "contents[1].parts[0].functionCall.args": "{}",
    },
)
_bad(
    "shape.type",
    "a response as a string",
    TOOLS,
    {
        "contents[2].parts[0].functionResponse.response": "done",
    },
)
_bad("shape.value", "an assistant", TALK, {"contents[1].role": "assistant"})
_bad("shape.value", "a function's role", TOOLS, {"contents[2].role": "function"})
_bad("shape.value", "a name with a space", TOOLS, {"contents[1].parts[0].functionCall.name": "a b"})
_bad(
    "shape.value",
    "a name that starts with a digit",
    TOOLS,
    {
        "tools[0].functionDeclarations[0].name": "1read",
    },
)
_bad("shape.value", "no cap at all", TALK, {"generationConfig.maxOutputTokens": 0})
_bad(
    "shape.value",
    "a level that nobody knows",
    TALK,
    {
        "generationConfig.thinkingConfig.thinkingLevel": "huge",
    },
)
_bad("shape.size", "no contents", PLAIN, {"contents": []})
_bad("shape.size", "no parts", PLAIN, {"contents[0].parts": []})
_bad("common.blank", "an empty text", PLAIN, {"contents[0].parts[0].text": ""})
_bad("common.blank", "an empty system prompt", TALK, {"systemInstruction.parts[0].text": " "})
_bad(
    "common.base64", "a picture that is no base64", PLAIN, {"contents[0].parts[0]": blob(data="a")}
)
_bad(
    "common.media_type",
    "a GIF, which Gemini does not read",
    PLAIN,
    {
        "contents[0].parts[0]": blob("image/gif"),
    },
)
_bad(
    "common.media_type",
    "the same in a response",
    TOOLS,
    {
        "contents[2].parts[1]": response(call_id="2", parts=[blob("image/gif")]),
    },
)
_bad("common.tools_sorted", "tools as they came", TOOLS, {"tools": declared("write", "read")})
_bad("common.tools_unique", "a tool twice", TOOLS, {"tools": declared("read", "read")})
_bad("gemini.one_datum", "text and a call in one part", TOOLS, {"contents[1].parts[0].text": "a"})
_bad(
    "gemini.one_datum",
    "a part of nothing but a signature",
    TALK,
    {
        "contents[1].parts[1]": {"thoughtSignature": "c2ln"},
    },
)
_bad("gemini.starts_with_user", "the model begins", TALK, {"contents[0]": DROP})
_bad(
    "gemini.model_alternates",
    "two contents of the model",
    TALK,
    {
        "contents[2]": said("model", {"text": "And"}),
    },
)
_bad("gemini.answered", "a response is missing", TOOLS, {"contents[2].parts[1]": DROP})
_bad("gemini.answered", "a response too many", TOOLS, {"contents[4].parts[1]": response("write")})
_bad("gemini.answered", "calls at the end", STEP, {"contents[4]": DROP})
_bad("gemini.orphan", "a response of nothing", TALK, {"contents[2].parts": [response()]})
_bad(
    "gemini.orphan",
    "responses in two contents",
    TOOLS,
    {
        "contents": [
            *TOOLS.body["contents"][:3],
            said("user", response()),
            *TOOLS.body["contents"][3:],
        ],
    },
)
_bad(
    "gemini.names_match",
    "responses as they came",
    TOOLS,
    {
        "contents[2].parts": [response(call_id="2"), response(call_id="1")],
    },
)
_bad("gemini.names_match", "another name", TOOLS, {"contents[4].parts[0]": response("read")})
_bad(
    "gemini.response_is_object",
    "an empty response",
    TOOLS,
    {
        "contents[2].parts[0].functionResponse.response": {},
    },
)
_bad("gemini.roles", "a call of the user", TALK, {"contents[2].parts": [call()]})
_bad("gemini.roles", "a picture of the model", TALK, {"contents[1].parts[1]": blob()})
_bad("gemini.roles", "a response of the model", TALK, {"contents[1].parts[1]": response()})
_bad(
    "gemini.signed",
    "the first call of a step",
    STEP,
    {
        "contents[3].parts[0].thoughtSignature": DROP,
    },
)
_bad(
    "gemini.signed",
    "the signature on the second call",
    STEP,
    {
        "contents[1].parts": [call(), call(signature="c2ln")],
    },
)
_bad(
    "gemini.signature",
    "a signature that is empty",
    TALK,
    {
        "contents[1].parts[1].thoughtSignature": "",
    },
)
_bad(
    "gemini.signature",
    "a signature that is no base64",
    TALK,
    {
        "contents[1].parts[1].thoughtSignature": "no base64!",
    },
)
_bad(
    "gemini.thinking",
    "a level and a budget",
    TALK,
    {
        "generationConfig.thinkingConfig.thinkingBudget": 0,
    },
)
_bad(
    "gemini.one_schema",
    "two schemas of one tool",
    TOOLS,
    {
        "tools[0].functionDeclarations[0].parameters": {"type": "object"},
    },
)
_bad(
    "gemini.one_schema",
    "two schemas of the answer",
    TALK,
    {
        "generationConfig.responseSchema": {"type": "object"},
        "generationConfig.responseJsonSchema": {"type": "object"},
    },
)
_bad(
    "gemini.json_answer",
    "a schema without its media type",
    TALK,
    {
        "generationConfig.responseSchema": {"type": "object"},
    },
)
_bad(
    "gemini.schema_keys",
    "JSON Schema in the other key",
    PLAIN,
    {
        "tools": [
            {
                "functionDeclarations": [
                    {
                        "name": "a",
                        "parameters": {
                            "type": "object",
                            "properties": {"b": {"type": "string", "const": "c"}},
                        },
                    },
                ]
            }
        ],
    },
)
_OLD = evolve(TALK, path=TALK.path.replace("gemini-3-pro-preview", "gemini-2.5-pro"))
TABLE.bad.extend(
    [
        Bad("gemini.thinking", "a level for an older model", _OLD),
        Bad("gemini.path", "the key in the path", evolve(PLAIN, path=f"{PLAIN.path}&key=k")),
        Bad(
            "gemini.path", "no server-sent events", evolve(PLAIN, path=PLAIN.path.partition("?")[0])
        ),
        Bad(
            "gemini.path", "no model", evolve(PLAIN, path="/v1beta/:streamGenerateContent?alt=sse")
        ),
        Bad(
            "common.headers", "no key", evolve(PLAIN, headers={"content-type": "application/json"})
        ),
    ]
)
