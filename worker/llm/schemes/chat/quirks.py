"""What a Chat Completions server understands and demands, as data. No branch names a server."""

from __future__ import annotations

import hashlib
import re
import string
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

from attrs import evolve, field, frozen

EffortForm: TypeAlias = Literal[
    "reasoning_effort", "reasoning", "thinking", "thinking_or_effort", "enable_thinking", "none"
]
ReasoningForm: TypeAlias = Literal[
    "none", "reasoning_content", "reasoning", "reasoning_details", "thinking_blocks", "think_tags"
]

_ALPHABET = string.digits + string.ascii_letters


@frozen
class CallIds:
    """The ids of tool calls that a server takes."""

    pattern: str
    """What an id must match as a whole to be sent as it is."""
    length: int
    """How many letters and digits stand for one that does not."""

    def sent(self, call_id: str) -> str:
        """Return the id that is sent for `call_id`: itself, or always the same digest of it."""
        if re.fullmatch(self.pattern, call_id):
            return call_id

        number = int.from_bytes(hashlib.sha256(call_id.encode("utf-8", "replace")).digest())
        digits = []
        for _ in range(self.length):
            number, digit = divmod(number, len(_ALPHABET))
            digits.append(_ALPHABET[digit])
        return "".join(digits)


ANY_ID = CallIds(r"[\s\S]+", 24)


@frozen(kw_only=True)
class ChatQuirks:
    """What a server understands. The defaults suit most OpenAI-compatible servers."""

    max_tokens_key: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """What the output cap is called."""
    strict_alternation: bool = False
    """Whether the user must begin and two messages of one role in a row are refused; they are
    joined then. Implies `bridge_after_tools`: such templates do not count calls and results."""
    bridge_after_tools: bool = False
    """Whether a user's message right after a tool's is refused, and a last one of the assistant."""
    include_usage: bool = True
    """Whether `stream_options` is understood."""
    send_temperature: bool = True
    """Whether a temperature may be sent."""
    send_response_format: bool = True
    """Whether a JSON schema for the answer may be sent."""
    form_beside_tools: bool = True
    """Whether that, or a grammar, may stand beside tools. A server that holds every answer to it
    calls none of them; the form is left out then, and asked for in words alone."""
    parallel_tool_calls: bool | None = None
    """What is sent under this name beside tools; None where the server's default is to call in
    parallel."""
    cache_key: bool = False
    """Whether `prompt_cache_key` is understood."""
    grammar: bool = False
    """Whether a GBNF grammar may be sent (llama.cpp servers)."""
    effort_form: EffortForm = "reasoning_effort"
    """How a reasoning effort is said: in the field of that name; as `reasoning: {effort}`; as
    `thinking: {type}`, on or off; so where it is `none`, else in the field; as `enable_thinking`;
    or not at all."""
    efforts: Mapping[str, str] = field(factory=dict)
    """What is sent for an effort, where that is another word."""
    reasoning: ReasoningForm = "none"
    """How the model's own reasoning goes back: in a field of that name; as the content blocks or
    within the text's tags that it came in; or not at all."""
    missing_reasoning: str | None = None
    """What the field holds in an answer that came without reasoning, where it must be there."""
    call_ids: CallIds = ANY_ID
    """The ids of tool calls that are taken."""
    openai_models: bool = False
    """Whether the models are OpenAI's, of which `openai_models` knows what they accept."""
    by_model: tuple[tuple[str, ChatQuirks], ...] = ()
    """Patterns of model names, for models that are served otherwise; the first match decides."""

    def for_model(self, model: str) -> ChatQuirks:
        """Return the quirks under which `model` is served."""
        name = model.lower()
        matches = (quirks for pattern, quirks in self.by_model if fnmatchcase(name, pattern))
        found = next(matches, None)
        if found is None:
            return self

        # What a user says of the server's template holds for each of its models.
        return evolve(found, strict_alternation=self.strict_alternation)
