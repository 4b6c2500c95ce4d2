"""What Chat Completions demands of a request: OpenAI's own, and what its imitators demand.

Taken from the SDK's parameter types (`openai.types.chat.completion_create_params` and those it
names), the words of 400 answers, and the request validator that Mistral publishes
(`mistral_common.protocol.instruct.validator`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Literal, TypeAlias

from attrs import frozen

from . import shapes as s
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

BOOK = Book("chat")
ANSWERED = BOOK.rule(
    "answered",
    "the messages right after calls are one result of each, and no other",
    "400: An assistant message with 'tool_calls' must be followed by tool messages responding to"
    " each 'tool_call_id'; Duplicate value for 'tool_call_id'",
)
ORPHAN = BOOK.rule(
    "orphan",
    "a tool message answers a call right before it",
    "400: messages with role 'tool' must be a response to a preceding message with 'tool_calls'",
)
RESULT_ORDER = BOOK.rule("result_order", "results are in call order", "DESIGN, 8")
IDS_UNIQUE = BOOK.rule(
    "ids_unique", "no call id twice in one message", "400: Duplicate value for 'tool_call_id'"
)
SAYS_SOMETHING = BOOK.rule(
    "says_something",
    "an assistant message has content or calls",
    "SDK type: content is required unless tool_calls is given",
)
SYSTEM_FIRST = BOOK.rule(
    "system_first",
    "system and developer messages come first",
    "chat templates of compatible servers; DESIGN, 8: the system prompt is the first message",
)
STREAM_OPTIONS = BOOK.rule(
    "stream_options", "stream_options go with stream", "SDK type: only set this with stream: true"
)
ONE_CAP = BOOK.rule(
    "one_cap",
    "max_tokens or max_completion_tokens, not both",
    "400: Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported",
)
REASONING_MODEL = BOOK.rule(
    "reasoning_model",
    "a model that reasons takes max_completion_tokens and no temperature but 1",
    "400: Unsupported parameter: 'max_tokens'; guide on GPT-5.2: temperature with effort none only",
)
ALTERNATION = BOOK.rule(
    "alternation",
    "user and assistant alternate, the user first",
    "chat templates: Conversation roles must alternate user/assistant/user/assistant/...",
)
AFTER_TOOL = BOOK.rule(
    "after_tool",
    "after a tool message comes a tool or an assistant message",
    "Mistral's validator: Unexpected role 'user' after role 'tool'",
)
LAST_ROLE = BOOK.rule(
    "last_role",
    "the last message is the user's or a tool's",
    "Mistral's validator: Expected last role User or Tool",
)

Variant: TypeAlias = Literal["official", "compatible", "strict", "mistral"]


@frozen
class Demands:
    """Where the variants differ."""

    id_pattern: str
    id_most: int | None
    keys: frozenset[str]
    """Top-level keys that this kind of server knows beyond OpenAI's."""
    alternates: bool = False
    no_user_after_tool: bool = False
    knows_reasoning: bool = False
    """Whether an answer may carry its reasoning in a field of its own."""
    has_thinking_blocks: bool = False
    """Whether an answer may carry its reasoning as blocks of its content."""


_LOCAL = frozenset({"grammar", "repeat_penalty", "top_k", "min_p", "chat_template_kwargs"})
_ROUTED = frozenset({"reasoning", "thinking", "usage", "provider", "enable_thinking"})
_LENIENT = Demands(r"[\s\S]+", None, _LOCAL | _ROUTED, knows_reasoning=True)
VARIANTS: dict[Variant, Demands] = {
    "official": Demands(r"[\x21-\x7e]+", 40, frozenset()),
    "compatible": _LENIENT,
    "strict": Demands(r"[\s\S]+", None, _LENIENT.keys, alternates=True, knows_reasoning=True),
    "mistral": Demands(
        r"[a-zA-Z0-9]{9}",
        9,
        _LENIENT.keys,
        no_user_after_tool=True,
        knows_reasoning=True,
        has_thinking_blocks=True,
    ),
}

NAME = r"[a-zA-Z0-9_-]{1,64}"
_FIRST_ROLES = ("system", "developer")
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_MARK = s.keys({"type": s.one_of("ephemeral")}, {"ttl": s.one_of("5m", "1h")})
_MARKED = {
    "cache_control": _MARK,
    "prompt_cache_breakpoint": s.keys({"mode": s.one_of("explicit")}),
}
_TEXT = s.keys({"type": s.one_of("text"), "text": s.text()}, _MARKED)
_URL = s.keys({"url": s.text()}, {"detail": s.one_of("auto", "low", "high")})
_IMAGE = s.keys({"type": s.one_of("image_url"), "image_url": _URL}, _MARKED)
# Mistral's SDK: ThinkChunk.
_THINKING = s.keys(
    {"type": s.one_of("thinking"), "thinking": s.array(_TEXT, least=1)}, {"closed": s.flag}
)
_TEXTS = s.either(str=s.text(), list=s.array(_TEXT, least=1))
_PARTS = s.either(
    str=s.text(), list=s.array(s.tagged("type", {"text": _TEXT, "image_url": _IMAGE}), least=1)
)
_FUNCTION = s.keys(
    {"name": s.text(pattern=NAME)},
    {"description": s.text(), "parameters": s.mapping, "strict": s.nullable(s.flag)},
)
_TOOL = s.keys({"type": s.one_of("function"), "function": _FUNCTION})
_CALLED = s.keys({"name": s.text(pattern=NAME), "arguments": s.text()})


def _messages(demands: Demands) -> s.Shape:
    call_id = s.text(least=1, most=demands.id_most, pattern=demands.id_pattern)
    extra: dict[str, s.Shape] = {"extra_content": s.mapping} if demands.knows_reasoning else {}
    call = s.keys({"id": call_id, "type": s.one_of("function"), "function": _CALLED}, extra)
    reasoning: dict[str, s.Shape] = {
        "reasoning_content": s.text(),
        "reasoning": s.text(),
        "reasoning_details": s.array(s.mapping, least=1),
    }
    thinking = {"thinking": _THINKING} if demands.has_thinking_blocks else {}
    block = s.tagged("type", {"text": _TEXT, **thinking})
    assistant: dict[str, s.Shape] = {
        "content": s.either(
            str=s.text(), list=s.array(block, least=1), NoneType=s.nullable(s.flag)
        ),
        "tool_calls": s.array(call, least=1, most=128),
        "refusal": s.nullable(s.text(least=1)),
        **(reasoning if demands.knows_reasoning else {}),
    }
    tool_name: dict[str, s.Shape] = {"name": s.text(pattern=NAME)}
    roles = {
        "system": s.keys({"role": s.one_of("system"), "content": _TEXTS}),
        "developer": s.keys({"role": s.one_of("developer"), "content": _TEXTS}),
        "user": s.keys({"role": s.one_of("user"), "content": _PARTS}),
        "assistant": s.keys({"role": s.one_of("assistant")}, assistant),
        "tool": s.keys(
            {"role": s.one_of("tool"), "tool_call_id": call_id, "content": _TEXTS},
            tool_name if demands.knows_reasoning else {},
        ),
    }
    return s.array(s.tagged("role", roles), least=1)


_JSON_SCHEMA = s.keys(
    {"name": s.text(pattern=NAME)},
    {"schema": s.mapping, "strict": s.nullable(s.flag), "description": s.text()},
)
_FORMAT = s.tagged(
    "type",
    {
        "json_schema": s.keys({"type": s.one_of("json_schema"), "json_schema": _JSON_SCHEMA}),
        "json_object": s.keys({"type": s.one_of("json_object")}),
        "text": s.keys({"type": s.one_of("text")}),
    },
)


def _anything(value: object, where: str, report: Report) -> None:
    """A key of a server whose values nobody documents."""


def _body(demands: Demands) -> s.Shape:
    return s.keys(
        {"model": s.text(least=1), "messages": _messages(demands), "stream": s.one_of(True)},
        {
            "frequency_penalty": s.number(-2, 2),
            "max_completion_tokens": s.whole(1),
            "max_tokens": s.whole(1),
            "metadata": s.mapping,
            "parallel_tool_calls": s.flag,
            "presence_penalty": s.number(-2, 2),
            "prompt_cache_key": s.text(least=1, most=64),
            "prompt_cache_options": s.keys({}, {"mode": s.one_of("implicit", "explicit")}),
            "prompt_cache_retention": s.one_of("in_memory", "24h"),
            "reasoning_effort": s.one_of(*EFFORTS),
            "response_format": _FORMAT,
            "safety_identifier": s.text(most=64),
            "seed": s.whole(-(2**63)),
            "service_tier": s.one_of("auto", "default", "flex", "scale", "priority", "fast"),
            "stop": s.either(str=s.text(least=1), list=s.array(s.text(least=1), least=1, most=4)),
            "store": s.flag,
            "stream_options": s.keys({}, {"include_usage": s.flag, "include_obfuscation": s.flag}),
            "temperature": s.number(0, 2),
            "tool_choice": s.either(str=s.one_of("none", "auto", "required"), dict=s.mapping),
            "tools": s.array(_TOOL, least=1, most=128),
            "top_p": s.number(0, 1),
            "verbosity": s.one_of("low", "medium", "high"),
            **dict.fromkeys(demands.keys, _anything),
        },
    )


_BODIES = {name: _body(demands) for name, demands in VARIANTS.items()}


def check(
    body: Mapping[str, object],
    headers: Mapping[str, str],
    report: Report,
    variant: Variant = "compatible",
) -> None:
    """Note every rule that a request breaks."""
    demands = VARIANTS[variant]
    check_headers(headers, {"authorization": None} if variant == "official" else {}, report)
    _BODIES[variant](body, "", report)
    functions = [tool.get("function") for tool in dicts(body.get("tools"))]
    names = [function.get("name") for function in dicts(functions)]
    check_tool_names(names, "tools", report)
    messages = list(numbered(body.get("messages"), "messages"))
    for where, message in messages:
        _check_message(message, where, report)
    _check_pairs(messages, report)
    _check_order(messages, demands, report)
    _check_options(body, variant, report)


def _check_message(message: dict[str, object], where: str, report: Report) -> None:
    content = message.get("content")
    if isinstance(content, str):
        check_text(content, f"{where}.content", report)
    for place, part in numbered(content, f"{where}.content"):
        check_text(part.get("text"), f"{place}.text", report)
        url = part.get("image_url")
        if isinstance(url, dict):
            check_data_url(url.get("url"), f"{place}.image_url.url", report)
    if message.get("role") == "assistant" and not content and not message.get("tool_calls"):
        report.broke(SAYS_SOMETHING, where, sorted(message))
    for place, call in numbered(message.get("tool_calls"), f"{where}.tool_calls"):
        function = call.get("function")
        if isinstance(function, dict):
            check_arguments(function.get("arguments"), f"{place}.function.arguments", report)


def _check_pairs(messages: Sequence[tuple[str, dict[str, object]]], report: Report) -> None:
    """Calls, then one tool message of each in call order, then anything else."""
    calls: list[object] = []
    given: list[object] = []
    at = ""
    for where, message in [*messages, ("the end", {"role": "end"})]:
        if message.get("role") == "tool":
            call_id = message.get("tool_call_id")
            if call_id not in calls:
                report.broke(ORPHAN, f"{where}.tool_call_id", call_id)
            elif call_id in given:
                report.broke(ANSWERED, where, f"a second result of {call_id}")
            else:
                given.append(call_id)
            continue

        missing = [call_id for call_id in calls if call_id not in given]
        if missing:
            report.broke(ANSWERED, at, f"no result of {missing} before {where}")
        elif given != calls:
            report.broke(RESULT_ORDER, at, f"{given} for {calls}")
        calls = [call.get("id") for call in dicts(message.get("tool_calls"))]
        given, at = [], where
        if len(set(map(repr, calls))) < len(calls):
            report.broke(IDS_UNIQUE, f"{where}.tool_calls", calls)
            calls = list(dict.fromkeys(calls))


def _check_order(
    messages: Sequence[tuple[str, dict[str, object]]], demands: Demands, report: Report
) -> None:
    roles = [str(message.get("role")) for _, message in messages]
    for index, role in enumerate(roles):
        if role in _FIRST_ROLES and index and roles[index - 1] != role:
            report.broke(SYSTEM_FIRST, f"messages[{index}].role", role)

    if demands.no_user_after_tool:
        _check_after_tool(roles, report)
    if demands.alternates:
        _check_alternation(messages, report)


def _check_after_tool(roles: Sequence[str], report: Report) -> None:
    for index, (before, role) in enumerate(pairwise(roles), 1):
        if before == "tool" and role not in ("tool", "assistant"):
            report.broke(AFTER_TOOL, f"messages[{index}].role", role)
    if roles and roles[-1] == "assistant":
        report.broke(LAST_ROLE, f"messages[{len(roles) - 1}].role", roles[-1])


def _check_alternation(messages: Sequence[tuple[str, dict[str, object]]], report: Report) -> None:
    """Calls and their results are not counted, as in the templates that have this rule."""
    said = [
        (where, message.get("role"))
        for where, message in messages
        if message.get("role") in ("user", "assistant") and not message.get("tool_calls")
    ]
    if said and said[0][1] != "user":
        report.broke(ALTERNATION, f"{said[0][0]}.role", f"starts with {said[0][1]}")
    for (_, before), (where, role) in pairwise(said):
        if before == role:
            report.broke(ALTERNATION, f"{where}.role", f"{role} after {before}")


def _check_options(body: Mapping[str, object], variant: Variant, report: Report) -> None:
    if "stream_options" in body and body.get("stream") is not True:
        report.broke(STREAM_OPTIONS, "stream_options", body["stream_options"])
    if "max_tokens" in body and "max_completion_tokens" in body:
        report.broke(ONE_CAP, "max_tokens", body["max_tokens"])
    if variant == "official" and is_reasoning_model(body.get("model")):
        samples = not is_reasoning(body.get("model"), body.get("reasoning_effort"))
        for key in ("max_tokens",) if samples else ("max_tokens", "temperature", "top_p"):
            if key in body and (key == "max_tokens" or body[key] != 1):
                report.broke(REASONING_MODEL, key, f"{body[key]} with {body.get('model')}")


def is_reasoning_model(model: object) -> bool:
    """Whether OpenAI's model of that name reasons before it answers."""
    name = str(model)
    is_o = len(name) > 1 and name[0] == "o" and name[1].isdigit()
    return is_o or (name.startswith(("gpt-5", "gpt-6")) and "chat" not in name)


def is_reasoning(model: object, effort: object) -> bool:
    """Whether it reasons at that effort. GPT-5.1 to 5.4 do not where none is asked for."""
    if not is_reasoning_model(model) or effort == "none":
        return False

    is_off_by_default = re.match(r"gpt-5\.[1-4](?!\d)(?!-(pro|codex))", str(model)) is not None
    return effort is not None or not is_off_by_default
