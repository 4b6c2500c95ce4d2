"""What Claude models accept: how they think, effort, temperature, the longest answer, a schema.

Sources, as of November 2026: the models overview, the migration guides of Claude 4.6 to 5.5 and
the pages "Thinking", "Effort", "Preserved thinking" and "Structured outputs" at
platform.claude.com, the list of models in anthropic-sdk-python, and the profiles of pydantic-ai
and of the AI SDK, which were tried against the live API.
"""

from __future__ import annotations

import re
from typing import Literal

from attrs import evolve, frozen

EFFORTS = ("low", "medium", "high", "xhigh", "max")
"""The efforts of models whose thinking is adaptive, from the least to the most."""


@frozen(kw_only=True)
class AnthropicModel:
    """What one model accepts."""

    thinking: Literal["never", "budget", "adaptive"] = "budget"
    """Whether it can think, and how that is asked for: with a budget of tokens, or an effort."""
    thinks_by_default: bool = False
    """Whether it thinks where nothing is asked for."""
    may_think_unasked: bool = False
    """Whether nobody knows if it thinks where nothing is asked for: what it thought goes back."""
    off: Literal["disabled", "between_tools"] | None = None
    """The `thinking.type` that turns such thinking off; None where it cannot be turned off."""
    efforts: tuple[str, ...] = ()
    """The efforts that it takes."""
    shows_thinking: bool = True
    """Whether the text of its thinking comes unasked; else it has to be asked for."""
    binds_thinking: bool = False
    """Whether its thinking counts only behind the very prompt that it was thought for."""
    takes_temperature: bool = True
    """Whether a temperature may be sent at all."""
    takes_schema: bool = False
    """Whether a JSON schema for the answer may be sent."""
    max_output: int | None = None
    """The most tokens of an answer, thinking included, where that is known."""

    def nearest_effort(self, asked: str) -> str:
        """Return the effort to send: the one asked for, or the next higher one that it takes.

        A word that is no known effort is sent as it is: the model may be newer than this table.
        """
        asked = "low" if asked in {"none", "minimal"} else asked
        if asked not in EFFORTS or not self.efforts:
            return asked

        higher = EFFORTS[EFFORTS.index(asked) :]
        return next((effort for effort in higher if effort in self.efforts), self.efforts[-1])


# Of another vendor, behind this dialect: GLM and MiniMax think by default and demand it back.
_OTHER = AnthropicModel(may_think_unasked=True)
_CLAUDE_3 = AnthropicModel(thinking="never", max_output=4096)
_CLAUDE_3_5 = evolve(_CLAUDE_3, max_output=8192)
_CLAUDE_4 = AnthropicModel(max_output=64_000)
_CLAUDE_4_5 = evolve(_CLAUDE_4, takes_schema=True)
_CLAUDE_4_6 = AnthropicModel(
    thinking="adaptive",
    efforts=("low", "medium", "high", "max"),
    takes_schema=True,
    max_output=128_000,
)
_CLAUDE_4_7 = evolve(_CLAUDE_4_6, efforts=EFFORTS, shows_thinking=False, takes_temperature=False)
_CLAUDE_5 = evolve(_CLAUDE_4_7, thinks_by_default=True, off="disabled")
_ALWAYS_THINKS = evolve(_CLAUDE_5, off=None)
_CLAUDE_5_5 = evolve(_ALWAYS_THINKS, binds_thinking=True)

_NO_MINOR = r"(?!\d|-\d\d?(?!\d))"

# The first pattern found in the name decides; a date or a cloud's prefix around it is no matter.
_ROWS = (
    (r"claude-(instant|v?[12]\b|3-(opus|sonnet|haiku))", _CLAUDE_3),
    (r"claude-3-5", _CLAUDE_3_5),
    (r"claude-3-7", _CLAUDE_4),
    (rf"claude-opus-4({_NO_MINOR}|-[01](?!\d))", evolve(_CLAUDE_4, max_output=32_000)),
    (r"claude-\w+-4-5(?!\d)", _CLAUDE_4_5),
    (r"claude-\w+-4-6(?!\d)", _CLAUDE_4_6),
    (r"claude-\w+-4-([7-9]|\d\d)(?!\d)", _CLAUDE_4_7),
    (r"claude-\w+-4(?!\d)", _CLAUDE_4),
    (r"claude-mythos-preview", evolve(_ALWAYS_THINKS, efforts=("low", "medium", "high", "max"))),
    (rf"claude-(fable|mythos)-5{_NO_MINOR}", _ALWAYS_THINKS),
    (rf"claude-(opus|sonnet|haiku)-5{_NO_MINOR}", _CLAUDE_5),
    (r"claude-sonnet-5-5(?!\d)", evolve(_CLAUDE_5_5, off="between_tools")),
    (r"claude-haiku-5-5(?!\d)", evolve(_CLAUDE_5_5, off="disabled")),
    # The rest of the 5.x models, and what comes after them: the newest are the strictest.
    (r"claude", _CLAUDE_5_5),
)
_PATTERNS = tuple((re.compile(pattern), found) for pattern, found in _ROWS)


_NUMBER_FIRST = re.compile(r"claude-([4-9](?:-\d\d?)?)-([a-z]+)")


def facts(model: str) -> AnthropicModel:
    """Return what is known of `model`, also as others spell it (`claude-4.6-opus`)."""
    name = _NUMBER_FIRST.sub(r"claude-\2-\1", re.sub(r"[._]", "-", model.lower()))
    return next((found for pattern, found in _PATTERNS if pattern.search(name)), _OTHER)
