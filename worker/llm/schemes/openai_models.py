"""What OpenAI's models accept: reasoning efforts, temperature, and tools in Chat Completions.

Sources, as of November 2026: the guides "Reasoning", "Using GPT-6" and "Deployment checklist" at
developers.openai.com, the effort values listed by models.dev, the support matrix that pydantic-ai
measured against the live API in July 2026, and the errors quoted in public bug reports.
"""

from __future__ import annotations

import re
from typing import Literal

from attrs import evolve, frozen

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""Every reasoning effort there is, from the least to the most."""


@frozen(kw_only=True)
class OpenAiModel:
    """What one model accepts. Without arguments: a model of which nothing is known."""

    efforts: tuple[str, ...] | None = None
    """The reasoning efforts it takes; empty where it takes none, None where that is not known."""
    default_effort: str | None = None
    """The effort where none is asked for; None where the model does not reason, or may not."""
    chat_tools: Literal["always", "without_reasoning", "never"] = "always"
    """Whether it takes tools in Chat Completions: only with the effort `none`, or not at all."""
    has_phases: bool = False
    """Whether it tells commentary from final answers, and wants to be told so again (Responses)."""

    @property
    def reasons(self) -> bool:
        """Whether it is known to be a reasoning model."""
        return self.default_effort is not None

    @property
    def never_reasons(self) -> bool:
        """Whether it is known not to be one: what asks for reasoning is refused."""
        return self.efforts == ()

    def nearest_effort(self, asked: str | None) -> str | None:
        """Return what to send for an effort that was asked for: the nearest one that it takes.

        Of two that are equally near, the higher one. A word that is no known effort, and any
        effort for a model of which nothing is known, is sent as it is; None is not sent.
        """
        if asked is None or self.efforts is None:
            return asked
        if not self.efforts:
            return None
        if asked not in EFFORTS:
            return asked

        rank = EFFORTS.index(asked)
        return min(reversed(self.efforts), key=lambda effort: abs(EFFORTS.index(effort) - rank))

    def takes_temperature(self, effort: str | None) -> bool:
        """Tell whether a temperature may be sent with `effort`, as it is sent (None: it is not).

        A reasoning model refuses one unless its reasoning is off.
        """
        return not self.reasons or (effort or self.default_effort) == "none"


def _upto(last: str, first: str = "low") -> tuple[str, ...]:
    return EFFORTS[EFFORTS.index(first) : EFFORTS.index(last) + 1]


def _with_none(last: str) -> tuple[str, ...]:
    return ("none", *_upto(last))


_UNKNOWN = OpenAiModel()
_NEVER_REASONS = OpenAiModel(efforts=())
_ALWAYS_REASONS = OpenAiModel(efforts=_upto("high"), default_effort="medium")
_XHIGH = evolve(_ALWAYS_REASONS, efforts=_upto("xhigh"))
_PRO = evolve(_ALWAYS_REASONS, efforts=_upto("xhigh", "medium"), chat_tools="never")
_NEW_PRO = evolve(_PRO, has_phases=True)
_MEDIUM_ONLY = evolve(_ALWAYS_REASONS, efforts=("medium",))
_ON_REQUEST = OpenAiModel(efforts=_with_none("xhigh"), default_effort="none")
_GPT_5_4 = evolve(_ON_REQUEST, chat_tools="without_reasoning", has_phases=True)
_SWITCHABLE = evolve(_GPT_5_4, efforts=_with_none("max"), default_effort="medium")
_GPT_6 = evolve(_NEW_PRO, efforts=_upto("max"))

# The first pattern that the name begins with decides; dated names and sizes follow their family.
_ROWS = (
    (r"o\d+(-\w+)*-deep-research", _MEDIUM_ONLY),
    (r"o\d", _ALWAYS_REASONS),
    (r"codex-mini", _ALWAYS_REASONS),
    (r"gpt-[34]|chatgpt-4", _NEVER_REASONS),
    (r"gpt-5-chat", _NEVER_REASONS),
    (r"gpt-5-pro", OpenAiModel(efforts=("high",), default_effort="high", chat_tools="never")),
    (r"gpt-5-codex", _ALWAYS_REASONS),
    (r"gpt-5(?![.\d])", evolve(_ALWAYS_REASONS, efforts=_upto("high", "minimal"))),
    (r"gpt-5\.\d+-chat", _MEDIUM_ONLY),
    (r"gpt-5\.1-codex-max", _XHIGH),
    (r"gpt-5\.1-codex", _ALWAYS_REASONS),
    (r"gpt-5\.1(?!\d)", evolve(_ON_REQUEST, efforts=_with_none("high"))),
    (r"gpt-5\.2-pro", _PRO),
    (r"gpt-5\.\d+-pro", _NEW_PRO),
    (r"gpt-5\.2-codex", _XHIGH),
    (r"gpt-5\.3-codex", evolve(_ON_REQUEST, has_phases=True)),
    (r"gpt-5\.[23](?!\d)", _ON_REQUEST),
    (r"gpt-5\.4(?!\d)", _GPT_5_4),
    (r"gpt-5\.5(?!\d)", evolve(_SWITCHABLE, efforts=_with_none("xhigh"))),
    (r"gpt-5\.", _SWITCHABLE),
    (r"gpt-6-(sol|luna)|gpt-6\.1-(terra|luna)", _SWITCHABLE),
    (r"gpt-6(?![.\d])|gpt-6\.1(?!\d)", _GPT_6),
    # GPT-6.2, and what comes after it: `max` is not established, and lower is never refused.
    (r"gpt-([6-9]|\d\d)", evolve(_GPT_6, efforts=_upto("xhigh"))),
)
_PATTERNS = tuple((re.compile(pattern), facts) for pattern, facts in _ROWS)


def facts(model: str) -> OpenAiModel:
    """Return what is known of `model`; a vendor before it, and `ft:`, are looked past."""
    name = model.lower().rpartition("/")[2].removeprefix("openai.").removeprefix("ft:")
    return next((found for pattern, found in _PATTERNS if pattern.match(name)), _UNKNOWN)
