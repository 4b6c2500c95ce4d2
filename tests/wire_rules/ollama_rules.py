"""What Ollama's native chat demands of a request (`POST /api/chat`).

Taken from the server's own types (`api/types.go`: ChatRequest, Message, ToolCall, ThinkValue), its
OpenAPI description (`docs/openapi.yaml`) and its pages on tool calling and thinking.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from . import shapes as s
from .report import Book, Report
from .shared import check_base64, check_headers, check_text, check_tool_names, dicts, numbered

BOOK = Book("ollama")
ANSWERED = BOOK.rule(
    "answered",
    "calls are followed by one tool message of each, in their order",
    "page on tool calling: append a tool message for each call",
)
ORPHAN = BOOK.rule(
    "orphan", "a tool message answers a call right before it", "page on tool calling"
)
NAMES_MATCH = BOOK.rule(
    "names_match", "a tool message has its call's name, and its id", "type Message: tool_name"
)
SAYS_SOMETHING = BOOK.rule(
    "says_something",
    "a message has text, images or calls",
    "templates render an empty message as an empty turn",
)
SYSTEM_FIRST = BOOK.rule("system_first", "the system message comes first", "chat templates")
BARE_IMAGES = BOOK.rule(
    "bare_images", "images are base64 alone, no data URL", "type ImageData: bytes in JSON"
)
THINK = BOOK.rule(
    "think", "think is true, false, low, medium, high or max", "ThinkValue.IsValid in api/types.go"
)
OPTIONS = BOOK.rule(
    "options",
    "options are those that the runner knows",
    "type Options in api/types.go: others are dropped with a warning",
)

_CALL = s.keys(
    {"function": s.keys({"name": s.text(least=1), "arguments": s.mapping}, {"index": s.whole(0)})},
    {"id": s.text(least=1)},
)
_ROLES = {
    "system": s.keys({"role": s.one_of("system"), "content": s.text()}),
    "user": s.keys(
        {"role": s.one_of("user"), "content": s.text()}, {"images": s.array(s.text(), least=1)}
    ),
    "assistant": s.keys(
        {"role": s.one_of("assistant"), "content": s.text()},
        {"thinking": s.text(), "tool_calls": s.array(_CALL, least=1)},
    ),
    "tool": s.keys(
        {"role": s.one_of("tool"), "content": s.text(), "tool_name": s.text(least=1)},
        {"tool_call_id": s.text(least=1), "images": s.array(s.text(), least=1)},
    ),
}
_FUNCTION = s.keys({"name": s.text(least=1), "parameters": s.schema}, {"description": s.text()})
_BODY = s.keys(
    {
        "model": s.text(least=1),
        "messages": s.array(s.tagged("role", _ROLES), least=1),
        "stream": s.one_of(True),
    },
    {
        "format": s.either(str=s.one_of("json"), dict=s.mapping),
        "keep_alive": s.either(str=s.text(least=1), int=s.whole(-1)),
        "options": s.mapping,
        "shift": s.flag,
        "think": s.either(bool=s.flag, str=s.text()),
        "tools": s.array(s.keys({"type": s.one_of("function"), "function": _FUNCTION}), least=1),
        "truncate": s.flag,
    },
)
_OPTION_SHAPES: dict[str, s.Shape] = {
    "num_keep": s.whole(0),
    "seed": s.whole(-(2**63)),
    "num_predict": s.whole(-2),
    "top_k": s.whole(0),
    "top_p": s.number(0, 1),
    "min_p": s.number(0, 1),
    "typical_p": s.number(0, 1),
    "repeat_last_n": s.whole(-1),
    "temperature": s.number(0, 100),
    "repeat_penalty": s.number(0, 100),
    "presence_penalty": s.number(-100, 100),
    "frequency_penalty": s.number(-100, 100),
    "stop": s.array(s.text(least=1)),
    "num_ctx": s.whole(1),
    "num_batch": s.whole(1),
    "num_gpu": s.whole(-1),
    "main_gpu": s.whole(0),
    "use_mmap": s.flag,
    "num_thread": s.whole(0),
}


def check(body: Mapping[str, object], headers: Mapping[str, str], report: Report) -> None:
    """Note every rule that a request breaks."""
    check_headers(headers, {}, report)
    _BODY(body, "", report)
    functions = dicts([tool.get("function") for tool in dicts(body.get("tools"))])
    check_tool_names([function.get("name") for function in functions], "tools", report)
    think = body.get("think")
    if isinstance(think, str) and think not in ("low", "medium", "high", "max"):
        report.broke(THINK, "think", think)
    _check_options(body.get("options"), report)
    messages = list(numbered(body.get("messages"), "messages"))
    for index, (where, message) in enumerate(messages):
        if message.get("role") == "system" and index:
            report.broke(SYSTEM_FIRST, f"{where}.role", "system")
        _check_message(message, where, report)
    _check_pairs(messages, report)


def _check_options(options: object, report: Report) -> None:
    for key, value in options.items() if isinstance(options, dict) else ():
        shape = _OPTION_SHAPES.get(str(key))
        if shape is None:
            report.broke(OPTIONS, f"options.{key}", value)
        else:
            shape(value, f"options.{key}", report)


def _check_message(message: dict[str, object], where: str, report: Report) -> None:
    content = message.get("content")
    holds_other = bool(message.get("images") or message.get("tool_calls"))
    if content == "" and not holds_other:
        report.broke(SAYS_SOMETHING, where, sorted(message))
    elif content:
        check_text(content, f"{where}.content", report)
    images = message.get("images")
    for index, image in enumerate(images if isinstance(images, list) else []):
        if isinstance(image, str) and image.startswith("data:"):
            report.broke(BARE_IMAGES, f"{where}.images[{index}]", image[:40])
        else:
            check_base64(image, f"{where}.images[{index}]", report)


def _check_pairs(messages: Sequence[tuple[str, dict[str, object]]], report: Report) -> None:
    """Ollama pairs calls and tool messages by position, so their order and number must fit."""
    open_calls: list[dict[str, object]] = []
    for where, message in [*messages, ("the end", {"role": "end"})]:
        if message.get("role") != "tool":
            if open_calls:
                report.broke(ANSWERED, where, f"{len(open_calls)} calls without a tool message")
            open_calls = dicts(message.get("tool_calls"))
        elif not open_calls:
            report.broke(ORPHAN, where, message.get("tool_name"))
        else:
            _check_names(open_calls.pop(0), message, where, report)


def _check_names(
    call: dict[str, object], message: dict[str, object], where: str, report: Report
) -> None:
    function = call.get("function")
    name = function.get("name") if isinstance(function, dict) else None
    if message.get("tool_name") != name:
        report.broke(NAMES_MATCH, f"{where}.tool_name", f"{message.get('tool_name')} for {name}")
    if "tool_call_id" in message and message["tool_call_id"] != call.get("id"):
        found = f"{message['tool_call_id']} for {call.get('id')}"
        report.broke(NAMES_MATCH, f"{where}.tool_call_id", found)
