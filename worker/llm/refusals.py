"""Which option of a request a provider refuses, so that the request can be sent without it.

Models differ in what they take, faster than any table can follow. An answer that *names* an option
as unsupported is the one source that is never out of date. Read are the `param` of OpenAI's errors,
and messages that name an option and refuse it in the same sentence, in the words of OpenAI ("does
not support 0.2"), Anthropic ("is deprecated for this model"), Gemini ("Thinking budget is not
supported"), Groq ("property '…' is unsupported"), xAI ("does not support parameter"), Ollama ("does
not support thinking"), DeepSeek ("is unavailable now"), and of servers that check with pydantic
("Extra inputs are not permitted").

A value that another value could replace ("expected one of low, medium, high") is a mistake of
whoever asked for it, and stays an error that names the values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, TypeAlias

from attrs import frozen

from worker.llm.reports import Report

Option: TypeAlias = Literal["temperature", "reasoning_effort", "response_schema", "cache_key"]

# What each option may be called on the wire.
_NAMES: Mapping[Option | None, tuple[str, ...]] = {
    "temperature": ("temperature",),
    "reasoning_effort": (
        *("reasoning_effort", "reasoning.effort", "reasoningeffort", "reasoning effort"),
        *("thinking", "thinking_config", "thinkingconfig", "generationconfig.thinkingconfig"),
        *("thinking_level", "thinkinglevel", "thinking level"),
        *("thinking_budget", "thinkingbudget", "thinking budget", "thinking.budget_tokens"),
        *("thinking.type.enabled", "thinking.type.adaptive", "thinking.type.disabled"),
        "output_config.effort",
    ),
    "response_schema": (
        *("response_format", "response format", "response_format.type", "json_schema"),
        *("response_schema", "responseschema", "response_json_schema", "responsejsonschema"),
        *("response_mime_type", "responsemimetype", "text.format", "output_config.format"),
    ),
    "cache_key": ("prompt_cache_key",),
    # No options of ours, but names that a dialect can do without, or has another name for.
    None: (
        *("max_tokens", "max_completion_tokens", "max_output_tokens"),
        *("stream_options", "reasoning.summary", "thinking.adaptive.block_binding"),
    ),
}
# Words with other meanings as well: they count in quotes, or as a `param`.
_AMBIGUOUS: Mapping[Option | None, tuple[str, ...]] = {
    "reasoning_effort": ("reasoning", "effort", "think", "budget_tokens", "output_config"),
    "response_schema": ("format", "output_format"),
    None: ("include",),
}

_UNKNOWN = (
    r"unsupported (?:parameter|argument|field|property|option)",
    r"is (?:unsupported|deprecated|unavailable|not (?:supported|allowed|permitted|available))",
    r"(?:unrecognized|unknown|unexpected) (?:request )?(?:argument|parameter|name|field|key)",
    r"extra (?:inputs|fields)|extra_forbidden|cannot find field|no longer (?:supported|accepted)",
)
_UNWANTED = (
    r"unsupported|(?:does not|doesn't|do not|don't) support|not supported",
    r"may only be set to|only (?:the default|\S{1,8} is allowed)",
    r"can(?:no|')t be (?:disabled|turned off|used with)",
)
_REFUSED = re.compile("|".join(_UNKNOWN + _UNWANTED), re.IGNORECASE)
# What is said of a cap's value is no complaint about the cap.
_REFUSED_AS_SUCH = re.compile("|".join(_UNKNOWN), re.IGNORECASE)
_CODES = frozenset({"unsupported_parameter", "unsupported_value", "unknown_parameter"})

_SENTENCE_END = re.compile(r"[.!;](?=\s)|\n")
_LONGEST_MESSAGE = 20_000


UNASKED_THINKING = "unasked thought"
"""What Anthropic's dialect calls thinking blocks in a request that asks for no thinking."""
_UNASKED_THINKING = re.compile(
    r"thinking is disabled, an .?assistant.? message .{0,60}cannot contain"
)


@frozen
class RefusedOption:
    """What a provider refuses: what it is called on the wire, and which option of ours that is."""

    name: str
    option: Option | None
    """None for a name that is no option, or one that other names stand for as well."""


def refused_option(report: Report) -> RefusedOption | None:
    """Return the option that `report` refuses by name, or None where it refuses something else."""
    if report.status not in {400, 422}:
        return None

    if "invalid_encrypted_content" in report.codes:
        # OpenAI cannot read the reasoning it is sent: that of another account or endpoint, say.
        return RefusedOption("encrypted_content", None)

    if _UNASKED_THINKING.search(report.message[:_LONGEST_MESSAGE]):
        return RefusedOption(UNASKED_THINKING, None)

    return _by_param(report) or _in_message(report.message[:_LONGEST_MESSAGE])


def _by_param(report: Report) -> RefusedOption | None:
    param = report.fields.get("param")
    name = param.lower().removeprefix("body.") if isinstance(param, str) else ""
    for table in (_NAMES, _AMBIGUOUS):
        for option, names in table.items():
            if name in names:
                is_refused = not _CODES.isdisjoint(report.codes) or _refuses(option, report.message)
                return RefusedOption(name, option) if is_refused else None

    return None


def _in_message(message: str) -> RefusedOption | None:
    for sentence in _SENTENCE_END.split(message):
        named = [
            (match.start(), RefusedOption(match["name"].lower(), option))
            for option, pattern in _PATTERNS
            if _refuses(option, sentence) and (match := pattern.search(sentence))
        ]
        if named:
            # Of several ("`temperature` … when thinking is enabled") the first is the subject.
            return min(named, key=lambda place: place[0])[1]

    return None


def _refuses(option: Option | None, sentence: str) -> bool:
    pattern = _REFUSED if option else _REFUSED_AS_SUCH
    return pattern.search(sentence) is not None


def _pattern(option: Option | None) -> re.Pattern[str]:
    plain = "|".join(map(re.escape, sorted(_NAMES[option], key=len, reverse=True)))
    quoted = "|".join(map(re.escape, _AMBIGUOUS.get(option, ()))) or "(?!)"
    # No part of a path into the messages: `messages.3.content.0.thinking` is no option.
    return re.compile(
        r"(?<![\w.-])(?:body\.)?"
        rf"(?P<name>{plain}|(?<=['\"`])(?:{quoted})(?=['\"`]))(?!\w|\.\w)",
        re.IGNORECASE,
    )


_PATTERNS = tuple((option, _pattern(option)) for option in _NAMES)
