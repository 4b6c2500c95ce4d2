"""What OpenAI's Responses API demands of a stateless request (`POST /v1/responses`).

Taken from the SDK's parameter types (`openai.types.responses.response_create_params`,
`response_input_item_param`), the guides on reasoning and on function calling, and 400 answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from . import shapes as s
from .openai_chat_rules import EFFORTS, is_reasoning, is_reasoning_model
from .report import Book, Report
from .shared import (
    check_arguments,
    check_data_url,
    check_headers,
    check_text,
    check_tool_names,
    dicts,
    numbered,
)

BOOK = Book("responses")
STATELESS = BOOK.rule(
    "stateless",
    "nothing is stored: store is false and no earlier response is named",
    "guide on reasoning, encrypted reasoning; our requests hold the whole conversation",
)
INCLUDE = BOOK.rule(
    "include",
    "a stateless request asks for encrypted reasoning",
    "SDK type: ResponseIncludable `reasoning.encrypted_content`",
)
ENCRYPTED = BOOK.rule(
    "encrypted",
    "reasoning is sent with its encrypted content",
    "400: Item with id 'rs_…' not found. Items are not persisted when `store` is set to false",
)
FOLLOWED = BOOK.rule(
    "followed",
    "reasoning is followed by the call or the message that it led to",
    "400: Item 'rs_…' of type 'reasoning' was provided without its required following item",
)
REASONING_ONCE = BOOK.rule(
    "reasoning_once", "no reasoning item twice", "400: Duplicate item found with id rs_…"
)
NO_ITEM_IDS = BOOK.rule(
    "no_item_ids",
    "messages and calls have no item id, so that nothing is looked up or paired by it",
    "400: Item with id 'msg_…' not found; 'function_call' was provided without its required"
    " 'reasoning' item",
)
ANSWERED = BOOK.rule(
    "answered",
    "calls are followed by one output of each, and no other",
    "400: No tool output found for function call call_…",
)
ORPHAN = BOOK.rule(
    "orphan",
    "an output comes after its call",
    "400: No tool call found for function call output with call_id call_…",
)
RESULT_ORDER = BOOK.rule("result_order", "outputs are in call order", "DESIGN, 8")
IDS_UNIQUE = BOOK.rule(
    "ids_unique", "no call id twice in one answer", "guide on function calling: call_id matches"
)
SAMPLING = BOOK.rule(
    "sampling",
    "a model that reasons takes no temperature",
    "400: Unsupported parameter: 'temperature'",
)
EFFORT = BOOK.rule(
    "effort",
    "only a reasoning model takes a reasoning effort",
    "400: Unsupported parameter: 'reasoning.effort' is not supported with this model",
)

NAME = r"[a-zA-Z0-9_-]{1,128}"
_CALL_ID = s.text(least=1, most=64, pattern=r"[\x21-\x7e]+")
_TEXT = s.keys({"type": s.one_of("input_text"), "text": s.text()})
_IMAGE_KEYS = {"type": s.one_of("input_image"), "image_url": s.text()}
_DETAIL = {"detail": s.one_of("low", "high", "auto", "original")}
_IMAGE = s.keys({**_IMAGE_KEYS, **_DETAIL})
_INPUTS = s.array(s.tagged("type", {"input_text": _TEXT, "input_image": _IMAGE}), least=1)
_GIVEN_IMAGE = s.keys(_IMAGE_KEYS, _DETAIL)
_GIVEN = s.array(s.tagged("type", {"input_text": _TEXT, "input_image": _GIVEN_IMAGE}), least=1)
_OUTPUT_TEXT = s.keys(
    {"type": s.one_of("output_text"), "text": s.text()}, {"annotations": s.array(s.mapping)}
)
_REFUSAL = s.keys({"type": s.one_of("refusal"), "refusal": s.text(least=1)})
_OUTPUTS = s.array(s.tagged("type", {"output_text": _OUTPUT_TEXT, "refusal": _REFUSAL}), least=1)
_STATUS = {"status": s.one_of("in_progress", "completed", "incomplete")}


def _said(*roles: str) -> s.Shape:
    return s.keys(
        {"role": s.one_of(*roles), "content": s.either(str=s.text(), list=_INPUTS)},
        {"type": s.one_of("message"), **_STATUS},
    )


_MESSAGE = s.tagged(
    "role",
    {
        "user": _said("user"),
        "system": _said("system"),
        "developer": _said("developer"),
        "assistant": s.keys(
            {"role": s.one_of("assistant"), "content": s.either(str=s.text(), list=_OUTPUTS)},
            {
                "type": s.one_of("message"),
                "id": s.text(),
                "phase": s.one_of("commentary", "final_answer"),
                **_STATUS,
            },
        ),
    },
)
_CALL = s.keys(
    {
        "type": s.one_of("function_call"),
        "call_id": _CALL_ID,
        "name": s.text(pattern=NAME),
        "arguments": s.text(),
    },
    {"id": s.text(), **_STATUS},
)
_OUTPUT = s.keys(
    {
        "type": s.one_of("function_call_output"),
        "call_id": _CALL_ID,
        "output": s.either(str=s.text(), list=_GIVEN),
    },
    {"id": s.text(), **_STATUS},
)
_SUMMARY = s.keys({"type": s.one_of("summary_text"), "text": s.text()})
_THOUGHT = s.keys({"type": s.one_of("reasoning_text"), "text": s.text()})
_REASONING = s.keys(
    {
        "type": s.one_of("reasoning"),
        "summary": s.array(_SUMMARY),
    },
    {
        # The SDK's type requires it; the API does not (openai/codex#3390, vercel/ai#12869).
        "id": s.text(least=1, pattern=r"[\x21-\x7e]+"),
        "encrypted_content": s.text(),
        "content": s.array(_THOUGHT),
        **_STATUS,
    },
)
_BY_TYPE = s.tagged(
    "type",
    {
        "message": _MESSAGE,
        "function_call": _CALL,
        "function_call_output": _OUTPUT,
        "reasoning": _REASONING,
    },
)


def _item(value: object, where: str, report: Report) -> None:
    is_easy = isinstance(value, dict) and "type" not in value
    (_MESSAGE if is_easy else _BY_TYPE)(value, where, report)


_TOOL = s.keys(
    {
        "type": s.one_of("function"),
        "name": s.text(pattern=NAME),
        "parameters": s.nullable(s.mapping),
        "strict": s.nullable(s.flag),
    },
    {"description": s.nullable(s.text())},
)
_FORMAT = s.tagged(
    "type",
    {
        "text": s.keys({"type": s.one_of("text")}),
        "json_object": s.keys({"type": s.one_of("json_object")}),
        "json_schema": s.keys(
            {
                "type": s.one_of("json_schema"),
                "name": s.text(pattern=r"[a-zA-Z0-9_-]{1,64}"),
                "schema": s.mapping,
            },
            {"strict": s.nullable(s.flag), "description": s.text()},
        ),
    },
)
_INCLUDABLE = s.one_of(
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
    "message.input_image.image_url",
)
_REASONING_CONFIG = s.keys(
    {},
    {
        "effort": s.one_of(*EFFORTS),
        "summary": s.one_of("auto", "concise", "detailed"),
        "context": s.one_of("auto", "current_turn", "all_turns"),
    },
)
_BODY = s.keys(
    {
        "model": s.text(least=1),
        "input": s.array(_item, least=1),
        "stream": s.one_of(True),
        "store": s.flag,
    },
    {
        "include": s.array(_INCLUDABLE),
        "instructions": s.text(),
        "max_output_tokens": s.whole(16),
        "metadata": s.mapping,
        "parallel_tool_calls": s.flag,
        "previous_response_id": s.text(),
        "prompt_cache_key": s.text(least=1, most=64),
        "prompt_cache_options": s.keys({}, {"mode": s.one_of("implicit", "explicit")}),
        "prompt_cache_retention": s.one_of("in_memory", "24h"),
        "reasoning": _REASONING_CONFIG,
        "safety_identifier": s.text(most=64),
        "service_tier": s.one_of("auto", "default", "flex", "scale", "priority", "fast"),
        "stream_options": s.keys({}, {"include_obfuscation": s.flag}),
        "temperature": s.number(0, 2),
        "text": s.keys({}, {"format": _FORMAT, "verbosity": s.one_of("low", "medium", "high")}),
        "tool_choice": s.either(str=s.one_of("none", "auto", "required"), dict=s.mapping),
        "tools": s.array(_TOOL, least=1, most=128),
        "top_p": s.number(0, 1),
        "truncation": s.one_of("auto", "disabled"),
    },
)


def check(body: Mapping[str, object], headers: Mapping[str, str], report: Report) -> None:
    """Note every rule that a request breaks."""
    check_headers(headers, {"authorization": None}, report)
    _BODY(body, "", report)
    check_tool_names([tool.get("name") for tool in dicts(body.get("tools"))], "tools", report)
    if "instructions" in body:
        check_text(body["instructions"], "instructions", report)
    items = list(numbered(body.get("input"), "input"))
    for where, item in items:
        _check_item(item, where, report)
    _check_reasoning(items, report)
    _check_pairs(items, report)
    _check_options(body, report)


def _check_item(item: dict[str, object], where: str, report: Report) -> None:
    kind = item.get("type", "message")
    if kind != "reasoning" and "id" in item:
        report.broke(NO_ITEM_IDS, f"{where}.id", item["id"])
    if kind == "function_call":
        check_arguments(item.get("arguments"), f"{where}.arguments", report)
    for key in ("content", "output"):
        held = item.get(key)
        if isinstance(held, str):
            check_text(held, f"{where}.{key}", report)
        for place, part in numbered(held, f"{where}.{key}"):
            if kind != "reasoning":
                check_text(part.get("text"), f"{place}.text", report)
            if "image_url" in part:
                check_data_url(part["image_url"], f"{place}.image_url", report)


def _check_reasoning(items: Sequence[tuple[str, dict[str, object]]], report: Report) -> None:
    seen: set[object] = set()
    for index, (where, item) in enumerate(items):
        if item.get("type") != "reasoning":
            continue

        if not item.get("encrypted_content"):
            report.broke(ENCRYPTED, f"{where}.encrypted_content", item.get("encrypted_content"))
        if "id" in item and item["id"] in seen:
            report.broke(REASONING_ONCE, f"{where}.id", item["id"])
        seen.add(item.get("id"))
        after = [one for _, one in items[index + 1 :] if one.get("type") != "reasoning"][:1]
        if not any(
            one.get("type") == "function_call" or one.get("role") == "assistant" for one in after
        ):
            found = [one.get("type", one.get("role")) for one in after] or "nothing"
            report.broke(FOLLOWED, where, f"followed by {found}")


def _check_pairs(items: Sequence[tuple[str, dict[str, object]]], report: Report) -> None:
    """Calls, then one output of each in call order, then anything else."""
    calls: list[object] = []
    given: list[object] = []
    for where, item in [*items, ("the end", {"type": "end"})]:
        kind = item.get("type")
        if kind == "function_call_output":
            call_id = item.get("call_id")
            if call_id not in calls:
                report.broke(ORPHAN, f"{where}.call_id", call_id)
            elif call_id in given:
                report.broke(ANSWERED, where, f"a second output of {call_id}")
            else:
                given.append(call_id)
            continue

        is_of_answer = kind in ("function_call", "reasoning") or item.get("role") == "assistant"
        if is_of_answer and not given:
            if kind == "function_call":
                if item.get("call_id") in calls:
                    report.broke(IDS_UNIQUE, f"{where}.call_id", item.get("call_id"))
                else:
                    calls.append(item.get("call_id"))
            continue

        missing = [call_id for call_id in calls if call_id not in given]
        if missing:
            report.broke(ANSWERED, where, f"no output of {missing} before")
        elif given != calls:
            report.broke(RESULT_ORDER, where, f"{given} for {calls}")
        calls = [item.get("call_id")] if kind == "function_call" else []
        given = []


def _check_options(body: Mapping[str, object], report: Report) -> None:
    if body.get("store") is not False:
        report.broke(STATELESS, "store", body.get("store"))
    if "previous_response_id" in body:
        report.broke(STATELESS, "previous_response_id", body["previous_response_id"])
    includes = body.get("include")
    reasons = is_reasoning_model(body.get("model"))
    if reasons and (
        not isinstance(includes, list) or "reasoning.encrypted_content" not in includes
    ):
        report.broke(INCLUDE, "include", includes)

    config = body.get("reasoning")
    effort = config.get("effort") if isinstance(config, dict) else None
    if is_reasoning(body.get("model"), effort) and "temperature" in body:
        report.broke(SAMPLING, "temperature", f"{body['temperature']} with {body.get('model')}")
    if effort not in (None, "none") and str(body.get("model")).startswith(("gpt-4", "gpt-3")):
        report.broke(EFFORT, "reasoning.effort", f"{effort} with {body.get('model')}")
