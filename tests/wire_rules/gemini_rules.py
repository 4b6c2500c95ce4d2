"""What Gemini's generateContent demands of a request (`…:streamGenerateContent?alt=sse`).

Taken from the SDK's types and its writer for the Gemini API (`google.genai.types`,
`google.genai.models`), the pages on function calling and thought signatures, and 400 answers.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import parse_qs, urlsplit

from . import shapes as s
from .report import Book, Report
from .shared import (
    check_base64,
    check_headers,
    check_media_type,
    check_text,
    check_tool_names,
    dicts,
    numbered,
)

BOOK = Book("gemini")
PATH = BOOK.rule(
    "path",
    "the path names a model and asks for server-sent events, and the key is not in it",
    "REST reference: models.streamGenerateContent, alt=sse",
)
ONE_DATUM = BOOK.rule(
    "one_datum", "a part has exactly one kind of data", "SDK type Part: exactly one field is set"
)
STARTS_WITH_USER = BOOK.rule(
    "starts_with_user",
    "the contents start with the user",
    "400: Please ensure that multiturn requests alternate between user and model",
)
MODEL_ALTERNATES = BOOK.rule(
    "model_alternates",
    "no two contents of the model in a row",
    "400: function call turn comes immediately after a user turn or after a function response turn",
)
ANSWERED = BOOK.rule(
    "answered",
    "the content after calls has as many responses as there were calls, in their order",
    "400: number of function response parts is equal to the number of function call parts",
)
ORPHAN = BOOK.rule(
    "orphan",
    "responses come right after calls",
    "400: function response turn comes immediately after a function call turn",
)
NAMES_MATCH = BOOK.rule(
    "names_match", "a response has its call's name and id", "SDK type FunctionResponse"
)
ERROR_KEYS = BOOK.rule(
    "response_is_object",
    "a response is an object with something in it",
    "SDK type FunctionResponse",
)
ROLES = BOOK.rule(
    "roles",
    "calls, thoughts and signatures are the model's, responses and images are the user's",
    "page on function calling",
)
SIGNED = BOOK.rule(
    "signed",
    "the first call of each step of the current turn is signed (Gemini 3)",
    "page on thought signatures; 400: Function call is missing a thought_signature",
)
SIGNATURE = BOOK.rule(
    "signature", "a signature is base64 of something", "SDK type Part: thought_signature is bytes"
)
THINKING = BOOK.rule(
    "thinking",
    "a level for Gemini 3, a budget for 2.5, never both",
    "page on thinking; 400: You can only set only one of thinking budget and thinking level",
)
ONE_SCHEMA = BOOK.rule(
    "one_schema",
    "parameters or parametersJsonSchema, not both; likewise for the answer's schema",
    "SDK types FunctionDeclaration and GenerationConfig",
)
JSON_ANSWER = BOOK.rule(
    "json_answer",
    "a schema for the answer goes with the JSON media type",
    "SDK type GenerationConfig: response_schema needs response_mime_type",
)
SCHEMA_KEYS = BOOK.rule(
    "schema_keys",
    "`parameters` uses only the keys of Schema; others go in parametersJsonSchema",
    'SDK type Schema; 400: Unknown name "$schema"',
)

NAME = r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}"
IMAGES = frozenset({"image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"})
SCHEMA_FIELDS = frozenset(
    {"type", "format", "title", "description", "nullable", "enum", "items", "anyOf", "required"}
    | {"properties", "propertyOrdering", "additionalProperties", "$ref", "$defs", "ref", "defs"}
    | {"minItems", "maxItems", "minProperties", "maxProperties", "minLength", "maxLength"}
    | {"minimum", "maximum", "pattern", "example", "default"}
)

_BLOB = s.keys({"mimeType": s.text(), "data": s.text()})
_CALL = s.keys({"name": s.text(pattern=NAME)}, {"args": s.mapping, "id": s.text(least=1)})
_RESPONSE = s.keys(
    {"name": s.text(pattern=NAME), "response": s.mapping},
    {"id": s.text(least=1), "parts": s.array(s.keys({"inlineData": _BLOB}), least=1)},
)
_PART = s.keys(
    {},
    {
        "text": s.text(),
        "inlineData": _BLOB,
        "functionCall": _CALL,
        "functionResponse": _RESPONSE,
        "thought": s.flag,
        "thoughtSignature": s.text(),
    },
)
_CONTENT = s.keys({"role": s.one_of("user", "model"), "parts": s.array(_PART, least=1)})
_DECLARATION = s.keys(
    {"name": s.text(pattern=NAME)},
    {"description": s.text(), "parameters": s.mapping, "parametersJsonSchema": s.mapping},
)
_TOOL = s.keys({"functionDeclarations": s.array(_DECLARATION, least=1)})
_CALLING = s.keys(
    {"mode": s.one_of("AUTO", "ANY", "NONE", "VALIDATED")},
    {"allowedFunctionNames": s.array(s.text(), least=1)},
)
_LEVEL = s.one_of(*(w for n in ("minimal", "low", "medium", "high") for w in (n, n.upper())))
_GENERATION = s.keys(
    {},
    {
        "candidateCount": s.one_of(1),
        "frequencyPenalty": s.number(-2, 2),
        "maxOutputTokens": s.whole(1),
        "presencePenalty": s.number(-2, 2),
        "responseJsonSchema": s.mapping,
        "responseMimeType": s.one_of("text/plain", "application/json"),
        "responseSchema": s.mapping,
        "seed": s.whole(-(2**31), 2**31 - 1),
        "stopSequences": s.array(s.text(least=1), most=5),
        "temperature": s.number(0, 2),
        "thinkingConfig": s.keys(
            {},
            {"includeThoughts": s.flag, "thinkingBudget": s.whole(-1), "thinkingLevel": _LEVEL},
        ),
        "topK": s.number(1, 1000),
        "topP": s.number(0, 1),
    },
)
_BODY = s.keys(
    {"contents": s.array(_CONTENT, least=1)},
    {
        "cachedContent": s.text(),
        "generationConfig": _GENERATION,
        "safetySettings": s.array(s.mapping),
        "systemInstruction": s.keys(
            {"parts": s.array(s.keys({"text": s.text()}), least=1)},
            {"role": s.one_of("user", "system")},
        ),
        "toolConfig": s.keys({"functionCallingConfig": _CALLING}),
        "tools": s.array(_TOOL, least=1),
    },
)

Parts = Sequence[tuple[str, dict[str, object]]]


def model_of(path: str) -> str:
    """The model that a path names, or nothing."""
    found = re.search(r"/models/([^/:?]+):(?:stream)?[gG]enerateContent", path)
    return found[1] if found else ""


def check(
    path: str, body: Mapping[str, object], headers: Mapping[str, str], report: Report
) -> None:
    """Note every rule that a request breaks."""
    query = parse_qs(urlsplit(path).query)
    streams = ":streamGenerateContent" in path
    if not model_of(path) or "key" in query or (streams and query.get("alt") != ["sse"]):
        report.broke(PATH, "path", path.partition("key=")[0])
    auth = "authorization" if any(h.lower() == "authorization" for h in headers) else None
    check_headers(headers, {auth or "x-goog-api-key": None}, report)
    _BODY(body, "", report)
    _check_tools(body, report)
    _check_generation(body, model_of(path), report)
    for where, part in _system_parts(body):
        check_text(part.get("text"), f"{where}.text", report)
    for where, content in numbered(body.get("contents"), "contents"):
        for place, part in _parts(where, content):
            _check_part(part, content.get("role"), place, report)
    _check_turns(body, model_of(path), report)


def _parts(where: str, content: dict[str, object]) -> Iterator[tuple[str, dict[str, object]]]:
    yield from numbered(content.get("parts"), f"{where}.parts")


def _system_parts(body: Mapping[str, object]) -> Parts:
    system = body.get("systemInstruction")
    return list(_parts("systemInstruction", system)) if isinstance(system, dict) else []


def _check_part(part: dict[str, object], role: object, where: str, report: Report) -> None:
    data = [k for k in ("text", "inlineData", "functionCall", "functionResponse") if k in part]
    if len(data) != 1:
        report.broke(ONE_DATUM, where, sorted(part))
    of_model = {"functionCall", "thought", "thoughtSignature"}.intersection(part)
    of_user = {"functionResponse", "inlineData"}.intersection(part)
    if (of_model and role != "model") or (of_user and role != "user"):
        report.broke(ROLES, where, f"{sorted(of_model | of_user)} of {role}")

    signature = part.get("thoughtSignature")
    if signature is not None and not _is_bytes(signature):
        report.broke(SIGNATURE, f"{where}.thoughtSignature", signature)
    if "text" in part and signature is None:
        check_text(part["text"], f"{where}.text", report)
    _check_blob(part.get("inlineData"), f"{where}.inlineData", report)

    response = part.get("functionResponse")
    if isinstance(response, dict):
        if response.get("response") == {}:
            report.broke(ERROR_KEYS, f"{where}.functionResponse.response", "{}")
        for place, inner in numbered(response.get("parts"), f"{where}.functionResponse.parts"):
            _check_blob(inner.get("inlineData"), f"{place}.inlineData", report)


def _check_blob(blob: object, where: str, report: Report) -> None:
    if isinstance(blob, dict):
        check_media_type(blob.get("mimeType"), f"{where}.mimeType", report, IMAGES)
        check_base64(blob.get("data"), f"{where}.data", report)


def _is_bytes(signature: object) -> bool:
    """Whether it is base64 as protobuf reads it: either alphabet, padded or not."""
    if not isinstance(signature, str) or not signature:
        return False

    text = signature.replace("-", "+").replace("_", "/").rstrip("=")
    try:
        return bool(base64.b64decode(text + "=" * (-len(text) % 4), validate=True))
    except (binascii.Error, ValueError):
        return False


def _check_tools(body: Mapping[str, object], report: Report) -> None:
    for where, tool in numbered(body.get("tools"), "tools"):
        declarations = list(
            numbered(tool.get("functionDeclarations"), f"{where}.functionDeclarations")
        )
        check_tool_names([d.get("name") for _, d in declarations], where, report)
        for place, declaration in declarations:
            if "parameters" in declaration and "parametersJsonSchema" in declaration:
                report.broke(ONE_SCHEMA, place, sorted(declaration))
            _check_schema(declaration.get("parameters"), f"{place}.parameters", report)


def _check_schema(schema: object, where: str, report: Report) -> None:
    if not isinstance(schema, dict):
        return

    for key in schema:
        if key not in SCHEMA_FIELDS:
            report.broke(SCHEMA_KEYS, f"{where}.{key}", schema[key])
    properties = schema.get("properties")
    for name, inner in properties.items() if isinstance(properties, dict) else ():
        _check_schema(inner, f"{where}.properties.{name}", report)
    _check_schema(schema.get("items"), f"{where}.items", report)
    for place, inner in numbered(schema.get("anyOf"), f"{where}.anyOf"):
        _check_schema(inner, place, report)


def _check_generation(body: Mapping[str, object], model: str, report: Report) -> None:
    config = body.get("generationConfig")
    if not isinstance(config, dict):
        return

    schemas = [key for key in ("responseSchema", "responseJsonSchema") if key in config]
    if len(schemas) > 1:
        report.broke(ONE_SCHEMA, "generationConfig", schemas)
    if schemas and config.get("responseMimeType") != "application/json":
        report.broke(JSON_ANSWER, "generationConfig", config.get("responseMimeType"))
    _check_schema(config.get("responseSchema"), "generationConfig.responseSchema", report)

    thinking = config.get("thinkingConfig")
    if not isinstance(thinking, dict):
        return

    where = "generationConfig.thinkingConfig"
    if "thinkingLevel" in thinking and "thinkingBudget" in thinking:
        report.broke(THINKING, where, thinking)
    if "thinkingLevel" in thinking and not is_third(model):
        report.broke(THINKING, f"{where}.thinkingLevel", f"with {model}")


def is_third(model: str) -> bool:
    """Whether it is a model of Gemini 3 or later, by its name."""
    found = re.match(r"gemini-(\d+)", model)
    return bool(found) and int(found[1]) >= 3 if found else False


# --- turns ------------------------------------------------------------------------------------


def _check_turns(body: Mapping[str, object], model: str, report: Report) -> None:
    contents = list(numbered(body.get("contents"), "contents"))
    if contents and contents[0][1].get("role") != "user":
        report.broke(STARTS_WITH_USER, "contents[0].role", contents[0][1].get("role"))

    calls: list[dict[str, object]] = []
    before: object = None
    for where, content in [*contents, ("the end", {"role": "end"})]:
        if content.get("role") == before == "model":
            report.broke(MODEL_ALTERNATES, f"{where}.role", "model after model")
        parts = [part for _, part in _parts(where, content)]
        _check_responses(calls, _of(parts, "functionResponse"), where, report)
        calls = _of(parts, "functionCall")
        before = content.get("role")

    if is_third(model):
        _check_signed(contents, report)


def _of(parts: Sequence[dict[str, object]], key: str) -> list[dict[str, object]]:
    return dicts([part.get(key) for part in parts])


def _check_responses(
    calls: Sequence[dict[str, object]],
    responses: Sequence[dict[str, object]],
    where: str,
    report: Report,
) -> None:
    if responses and not calls:
        report.broke(ORPHAN, where, [r.get("name") for r in responses])
    elif len(calls) != len(responses):
        report.broke(ANSWERED, where, f"{len(responses)} responses to {len(calls)} calls")
    else:
        for call, response in zip(calls, responses, strict=True):
            if any(call.get(key) != response.get(key) for key in ("name", "id")):
                report.broke(NAMES_MATCH, where, f"{response.get('name')} for {call.get('name')}")


def _check_signed(contents: Parts, report: Report) -> None:
    """From the last thing that the user said on, each step's first call has a signature."""
    start = 0
    for index, (where, content) in enumerate(contents):
        said = [p for _, p in _parts(where, content) if "functionResponse" not in p]
        if content.get("role") == "user" and said:
            start = index
    for where, content in contents[start:]:
        called = [(place, part) for place, part in _parts(where, content) if "functionCall" in part]
        for place, part in called[:1]:
            if not part.get("thoughtSignature"):
                report.broke(SIGNED, f"{place}.thoughtSignature", "nothing")
