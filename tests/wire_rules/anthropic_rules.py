"""What Anthropic's Messages API demands of a request (`POST /v1/messages`).

Taken from the SDK's parameter types (`anthropic.types.message_create_params` and those it names),
the pages on handling tool calls, thinking, prompt caching and vision, and the words of 400 answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

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

BOOK = Book("anthropic")
ROLES = BOOK.rule("roles", "the conversation starts with the user", "400: first message must use")
ALTERNATION = BOOK.rule(
    "alternation",
    "roles alternate: one message a turn",
    "400 of the Messages API before 2024-11 and of other hosts: roles must alternate; ours joins",
)
PREFILL = BOOK.rule(
    "prefill",
    "the conversation ends with the user (Claude 4.6 and later)",
    "400: This model does not support assistant message prefill",
)
TRAILING_SPACE = BOOK.rule(
    "trailing_space",
    "what the model is to continue does not end in whitespace",
    "400: final assistant content cannot end with trailing whitespace",
)
ANSWERED = BOOK.rule(
    "answered",
    "the message after a tool_use has exactly one result of each",
    "400: tool_use ids were found without tool_result blocks; each tool_use must have a single",
)
RESULTS_FIRST = BOOK.rule(
    "results_first",
    "results come before anything else in their message",
    "page on handling tool calls: tool_result blocks come first",
)
RESULT_ORDER = BOOK.rule("result_order", "results are in call order", "DESIGN, 8")
ORPHAN = BOOK.rule(
    "orphan",
    "each result answers a call of the message before",
    "400: unexpected tool_use_id found in tool_result blocks",
)
IDS_UNIQUE = BOOK.rule(
    "ids_unique", "no tool_use id twice in a request", "400: `tool_use` ids must be unique"
)
CALLS_LAST = BOOK.rule(
    "calls_last",
    "no text after a tool_use in an answer, save in one that thinks and comes back as it was",
    "400 seen for [tool_use, text]: tool_use ids were found without tool_result blocks",
)
ERROR_IS_TEXT = BOOK.rule(
    "error_is_text",
    "an error's content is text alone",
    "400: all content must be type `text` if `is_error` is true",
)
SIGNATURE = BOOK.rule(
    "signature", "a thinking block has its signature", "SDK type: ThinkingBlockParam"
)
THINKING_LAST = BOOK.rule(
    "thinking_last",
    "an answer does not end with thinking, save behind its calls",
    "400: The final block in an assistant message cannot be `thinking`",
)
THINKING_FIRST = BOOK.rule(
    "thinking_first",
    "with a thinking budget, the turn whose results are sent starts with thinking",
    "400: Expected `thinking` or `redacted_thinking`, but found `tool_use`",
)
BUDGET = BOOK.rule(
    "budget", "a thinking budget is less than max_tokens", "SDK type: ThinkingConfigEnabledParam"
)
THINKING_KIND = BOOK.rule(
    "thinking_kind",
    "a budget up to Claude 4.6 only, adaptive from 4.6 on only",
    "page on extended thinking: supported models",
)
BINDING = BOOK.rule(
    "binding",
    "what is to become of thinking behind a changed prompt is said under a beta",
    "400: That setting requires the `thinking-binding-controls-2026-08-01` value in the header",
)
SAMPLING = BOOK.rule(
    "sampling",
    "no temperature other than 1 and no top_k with thinking; none at all from Claude 4.7 on",
    "page on thinking; 400: `temperature` is deprecated for this model",
)
FORCED_TOOL = BOOK.rule(
    "forced_tool", "no tool is forced with thinking", "page on thinking: feature compatibility"
)
MARKS = BOOK.rule(
    "cache_marks",
    "at most four cache marks",
    "400: A maximum of 4 blocks with cache_control may be provided",
)
MARK_ORDER = BOOK.rule(
    "cache_order", "marks of an hour stand before those of five minutes", "page on prompt caching"
)
TOOLS_DEFINED = BOOK.rule(
    "tools_defined",
    "a tool_choice has tools to choose from",
    "400: tool_choice may only be specified while providing tools",
)

NAME = r"[a-zA-Z0-9_-]{1,128}"
ID = r"[a-zA-Z0-9_-]+"

_MARK = s.keys({"type": s.one_of("ephemeral")}, {"ttl": s.one_of("5m", "1h")})
_MARKED = {"cache_control": s.nullable(_MARK)}
_TEXT = s.keys({"type": s.one_of("text"), "text": s.text()}, _MARKED)
_SOURCE = s.keys({"type": s.one_of("base64"), "media_type": s.text(), "data": s.text()})
_IMAGE = s.keys({"type": s.one_of("image"), "source": _SOURCE}, _MARKED)
_RESULT_PART = s.tagged("type", {"text": _TEXT, "image": _IMAGE})
_RESULT = s.keys(
    {"type": s.one_of("tool_result"), "tool_use_id": s.text(pattern=ID)},
    {
        **_MARKED,
        "content": s.either(str=s.text(), list=s.array(_RESULT_PART)),
        "is_error": s.flag,
    },
)
_CALL = s.keys(
    {
        "type": s.one_of("tool_use"),
        "id": s.text(pattern=ID),
        "name": s.text(pattern=NAME),
        "input": s.mapping,
    },
    _MARKED,
)
_THINKING = s.keys(
    {"type": s.one_of("thinking"), "thinking": s.text(), "signature": s.text()},
)
_REDACTED = s.keys({"type": s.one_of("redacted_thinking"), "data": s.text(least=1)})

_OF_USER = s.tagged("type", {"text": _TEXT, "image": _IMAGE, "tool_result": _RESULT})
_OF_ASSISTANT = s.tagged(
    "type",
    {"text": _TEXT, "tool_use": _CALL, "thinking": _THINKING, "redacted_thinking": _REDACTED},
)


def _message(role: str, block: s.Shape) -> s.Shape:
    content = s.either(str=s.text(), list=s.array(block, least=1))
    return s.keys({"role": s.one_of(role), "content": content})


_TOOL = s.keys(
    {"name": s.text(pattern=NAME), "input_schema": s.schema},
    {**_MARKED, "description": s.text(), "type": s.one_of("custom"), "strict": s.flag},
)
_THINKING_CONFIG = s.tagged(
    "type",
    {
        "enabled": s.keys(
            {"type": s.one_of("enabled"), "budget_tokens": s.whole(1024)},
            {"display": s.one_of("summarized", "omitted")},
        ),
        "adaptive": s.keys(
            {"type": s.one_of("adaptive")},
            {
                "display": s.one_of("summarized", "omitted"),
                "block_binding": s.keys(
                    {"prefix_mismatch_behavior": s.one_of("error", "drop_block")}
                ),
            },
        ),
        "between_tools": s.keys({"type": s.one_of("between_tools")}),
        "disabled": s.keys({"type": s.one_of("disabled")}),
    },
)
_CHOICE = s.tagged(
    "type",
    {
        "auto": s.keys({"type": s.one_of("auto")}, {"disable_parallel_tool_use": s.flag}),
        "any": s.keys({"type": s.one_of("any")}, {"disable_parallel_tool_use": s.flag}),
        "none": s.keys({"type": s.one_of("none")}),
        "tool": s.keys(
            {"type": s.one_of("tool"), "name": s.text(pattern=NAME)},
            {"disable_parallel_tool_use": s.flag},
        ),
    },
)
_FORMAT = s.keys({"type": s.one_of("json_schema"), "schema": s.mapping})
_BODY = s.keys(
    {
        "model": s.text(least=1),
        "max_tokens": s.whole(1),
        "messages": s.array(
            s.tagged(
                "role",
                {
                    "user": _message("user", _OF_USER),
                    "assistant": _message("assistant", _OF_ASSISTANT),
                },
            ),
            least=1,
            most=100_000,
        ),
        "stream": s.one_of(True),
    },
    {
        "cache_control": s.nullable(_MARK),
        "metadata": s.keys({}, {"user_id": s.nullable(s.text(most=256))}),
        "output_config": s.keys(
            {}, {"effort": s.one_of("low", "medium", "high", "xhigh", "max"), "format": _FORMAT}
        ),
        "service_tier": s.one_of("auto", "standard_only"),
        "stop_sequences": s.array(s.text(least=1)),
        "system": s.either(str=s.text(), list=s.array(_TEXT, least=1)),
        "temperature": s.number(0, 1),
        "thinking": _THINKING_CONFIG,
        "tool_choice": _CHOICE,
        "tools": s.array(_TOOL, least=1),
        "top_k": s.whole(0),
        "top_p": s.number(0, 1),
    },
)


def check(body: Mapping[str, object], headers: Mapping[str, str], report: Report) -> None:
    """Note every rule that a request breaks."""
    auth = "authorization" if any(h.lower() == "authorization" for h in headers) else "x-api-key"
    check_headers(headers, {auth: None, "anthropic-version": "2023-06-01"}, report)
    _BODY(body, "", report)
    _check_tools(body, report)
    _check_contents(body, report)
    _check_marks(body, report)
    _check_thinking_config(body, report)
    _check_binding(body, headers, report)
    _check_turns(body, report)


def generation(model: object) -> tuple[int, int] | None:
    """The generation in a Claude model's name: (4, 7) of `claude-opus-4-7`; None if unknown."""
    name = str(model)
    for pattern in (
        r"claude-(?:opus|sonnet|haiku|fable|mythos)-(\d+)(?:[-.](\d{1,2}))?(?:-\d{8}|-latest)?\b",
        r"claude-(\d)(?:[-.](\d))?-(?:opus|sonnet|haiku)",
    ):
        found = re.search(pattern, name)
        if found:
            return int(found[1]), int(found[2] or 0)

    return None


# --- parts ------------------------------------------------------------------------------------


def _blocks(content: object, where: str) -> Iterator[tuple[str, dict[str, object]]]:
    if isinstance(content, str):
        yield where, {"type": "text", "text": content}
    else:
        yield from numbered(content, where)


def _check_tools(body: Mapping[str, object], report: Report) -> None:
    check_tool_names([tool.get("name") for tool in dicts(body.get("tools"))], "tools", report)
    if "tool_choice" in body and not body.get("tools"):
        report.broke(TOOLS_DEFINED, "tool_choice", body["tool_choice"])


def _check_contents(body: Mapping[str, object], report: Report) -> None:
    """What single blocks hold: texts that show something, images that can be read."""
    if "system" in body:
        for where, block in _blocks(body["system"], "system"):
            check_text(block.get("text"), f"{where}.text", report)
    for where, message in numbered(body.get("messages"), "messages"):
        for place, block in _blocks(message.get("content"), f"{where}.content"):
            _check_block(block, place, report)


def _check_block(block: dict[str, object], where: str, report: Report) -> None:
    match block.get("type"):
        case "text":
            check_text(block.get("text"), f"{where}.text", report)
        case "image":
            source = block.get("source")
            if isinstance(source, dict):
                check_media_type(source.get("media_type"), f"{where}.source.media_type", report)
                check_base64(source.get("data"), f"{where}.source.data", report)
        case "thinking":
            if not block.get("signature"):
                report.broke(SIGNATURE, f"{where}.signature", block.get("signature"))
        case "tool_result":
            parts = list(_blocks(block.get("content", []), f"{where}.content"))
            for place, part in parts:
                _check_block(part, place, report)
            if block.get("is_error") and any(part.get("type") != "text" for _, part in parts):
                report.broke(ERROR_IS_TEXT, f"{where}.content", [p.get("type") for _, p in parts])


# --- cache marks ------------------------------------------------------------------------------


def _marks(body: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Every cache mark in the order of the prompt: tools, system, messages."""
    holders: list[tuple[str, dict[str, object]]] = list(numbered(body.get("tools"), "tools"))
    holders += list(_blocks(body.get("system", []), "system"))
    for where, message in numbered(body.get("messages"), "messages"):
        for place, block in _blocks(message.get("content"), f"{where}.content"):
            inner = block.get("content", []) if block.get("type") == "tool_result" else []
            holders += list(_blocks(inner, f"{place}.content"))
            holders.append((place, block))
    holders.append(("", dict(body)))
    for where, holder in holders:
        if holder.get("cache_control") is not None:
            yield f"{where}.cache_control".lstrip("."), holder["cache_control"]


def _check_marks(body: Mapping[str, object], report: Report) -> None:
    marks = list(_marks(body))
    if len(marks) > 4:
        report.broke(MARKS, marks[4][0], f"{len(marks)} marks")

    seen_short = False
    for where, mark in marks:
        is_long = isinstance(mark, dict) and mark.get("ttl") == "1h"
        if is_long and seen_short:
            report.broke(MARK_ORDER, where, mark)
        seen_short = seen_short or not is_long


# --- thinking ---------------------------------------------------------------------------------


def _check_thinking_config(body: Mapping[str, object], report: Report) -> None:
    config = body.get("thinking")
    kind = config.get("type") if isinstance(config, dict) else None
    thinks = kind in ("enabled", "adaptive")
    made = generation(body.get("model"))
    if made is not None and (
        (kind == "enabled" and made >= (4, 7)) or (kind == "adaptive" and made < (4, 6))
    ):
        report.broke(THINKING_KIND, "thinking.type", f"{kind} with {body.get('model')}")

    budget = config.get("budget_tokens") if isinstance(config, dict) else None
    most = body.get("max_tokens")
    if isinstance(budget, int) and isinstance(most, int) and budget >= most:
        report.broke(BUDGET, "thinking.budget_tokens", f"{budget} of {most}")

    if made is not None and made >= (4, 7):
        for key in ("temperature", "top_p", "top_k"):
            if key in body:
                report.broke(SAMPLING, key, f"{body[key]} with {body.get('model')}")
    elif thinks:
        if body.get("temperature", 1) != 1:
            report.broke(SAMPLING, "temperature", body["temperature"])
        if "top_k" in body:
            report.broke(SAMPLING, "top_k", body["top_k"])

    choice = body.get("tool_choice")
    if thinks and isinstance(choice, dict) and choice.get("type") in ("any", "tool"):
        report.broke(FORCED_TOOL, "tool_choice", choice)


def _check_binding(body: Mapping[str, object], headers: Mapping[str, str], report: Report) -> None:
    config = body.get("thinking")
    betas = [value for key, value in headers.items() if key.lower() == "anthropic-beta"]
    is_asked = any("thinking-binding-controls-2026-08-01" in value for value in betas)
    if isinstance(config, dict) and "block_binding" in config and not is_asked:
        report.broke(BINDING, "header anthropic-beta", betas)


# --- turns ------------------------------------------------------------------------------------


def _check_turns(body: Mapping[str, object], report: Report) -> None:
    messages = list(numbered(body.get("messages"), "messages"))
    if not messages:
        return

    if messages[0][1].get("role") != "user":
        report.broke(ROLES, "messages[0].role", messages[0][1].get("role"))

    open_ids: list[object] = []
    seen_ids: set[object] = set()
    before: object = None
    for where, message in messages:
        role = message.get("role")
        if role == before:
            report.broke(ALTERNATION, f"{where}.role", role)
        blocks = list(_blocks(message.get("content"), f"{where}.content"))
        _check_results(blocks, open_ids, where, report)
        open_ids = _check_answer(blocks, seen_ids, report) if role == "assistant" else []
        before = role

    _check_end(body, messages[-1], open_ids, report)
    _check_thinking_first(body, messages, report)


def _check_results(
    blocks: Sequence[tuple[str, dict[str, object]]],
    open_ids: Sequence[object],
    where: str,
    report: Report,
) -> None:
    results = [(p, b) for p, b in blocks if b.get("type") == "tool_result"]
    given = [block.get("tool_use_id") for _, block in results]
    for place, block in results:
        if block.get("tool_use_id") not in open_ids:
            report.broke(ORPHAN, f"{place}.tool_use_id", block.get("tool_use_id"))
    for call_id in open_ids:
        if given.count(call_id) != 1:
            report.broke(ANSWERED, where, f"{given.count(call_id)} results of {call_id}")
    if blocks[: len(results)] != results:
        report.broke(RESULTS_FIRST, where, [block.get("type") for _, block in blocks])
    if sorted(map(str, given)) == sorted(map(str, open_ids)) and list(given) != list(open_ids):
        report.broke(RESULT_ORDER, where, f"{given} for {open_ids}")


def _check_answer(
    blocks: Sequence[tuple[str, dict[str, object]]], seen_ids: set[object], report: Report
) -> list[object]:
    """Check an assistant message and return the ids of its calls."""
    ids: list[object] = []
    thinks = any(block.get("type") in ("thinking", "redacted_thinking") for _, block in blocks)
    for place, block in blocks:
        if block.get("type") == "tool_use":
            if block.get("id") in seen_ids:
                report.broke(IDS_UNIQUE, f"{place}.id", block.get("id"))
            seen_ids.add(block.get("id"))
            ids.append(block.get("id"))
        elif block.get("type") == "text" and ids and not thinks:
            report.broke(CALLS_LAST, place, block.get("text"))

    is_thinking = bool(blocks) and blocks[-1][1].get("type") in ("thinking", "redacted_thinking")
    if is_thinking and not ids:
        report.broke(THINKING_LAST, blocks[-1][0], blocks[-1][1].get("type"))

    return ids


def _check_end(
    body: Mapping[str, object],
    last: tuple[str, dict[str, object]],
    open_ids: Sequence[object],
    report: Report,
) -> None:
    where, message = last
    if open_ids:
        report.broke(ANSWERED, where, f"no message after the calls {open_ids}")
    if message.get("role") != "assistant":
        return

    made = generation(body.get("model"))
    if made is not None and made >= (4, 6):
        report.broke(PREFILL, f"{where}.role", f"assistant, with {body.get('model')}")
    for place, block in list(_blocks(message.get("content"), f"{where}.content"))[-1:]:
        text = block.get("text")
        if isinstance(text, str) and text != text.rstrip():
            report.broke(TRAILING_SPACE, f"{place}.text", repr(text[-20:]))


def _check_thinking_first(
    body: Mapping[str, object],
    messages: Sequence[tuple[str, dict[str, object]]],
    report: Report,
) -> None:
    config = body.get("thinking")
    if not isinstance(config, dict) or config.get("type") != "enabled" or len(messages) < 2:
        return

    if "tool_result" not in _kinds(messages[-1][1]):
        return

    # Answers with nothing but results between them are one turn, and without interleaving only
    # the first of them thinks.
    at = len(messages) - 2
    while at >= 2 and set(_kinds(messages[at - 1][1])) == {"tool_result"}:
        at -= 2
    where, answer = messages[at]
    begins = _kinds(answer)[:1]
    if begins not in (["thinking"], ["redacted_thinking"]):
        report.broke(THINKING_FIRST, f"{where}.content[0].type", begins)


def _kinds(message: Mapping[str, object]) -> list[object]:
    return [block.get("type") for _, block in _blocks(message.get("content"), "")]
