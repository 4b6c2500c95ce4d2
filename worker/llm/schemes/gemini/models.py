"""What Google's models accept: how thinking is asked for, and what came with Gemini 3.

Sources, as of November 2026: the pages "Gemini thinking" (its table of levels), "Thought
signatures", "Gemini 3 Developer Guide", "Structured output" and "Latest model" at ai.google.dev,
the developer's guides of Gemini 3.7 Flash, 3.8 Flash and 4 Argon at docs.cloud.google.com, the
capabilities that vercel/ai and pydantic-ai keep, and the errors quoted in public bug reports.
"""

from __future__ import annotations

import re

from attrs import evolve, frozen

_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_LEVELS = ("minimal", "low", "medium", "high")
# As Google's own OpenAI-compatible endpoint translates them; what is above takes all there is.
_BUDGETS = {"minimal": 1024, "low": 1024, "medium": 8192, "high": 24_576}


@frozen(kw_only=True)
class Budget:
    """How many tokens a model may be told to think for."""

    least: int
    most: int
    can_be_zero: bool = True
    """Whether its thinking can be switched off."""

    def of(self, effort: str) -> int:
        """Return the tokens that an effort stands for."""
        if effort == "none":
            return 0 if self.can_be_zero else self.least

        return max(self.least, min(_BUDGETS.get(effort, self.most), self.most))


@frozen(kw_only=True)
class GeminiModel:
    """What one model accepts."""

    is_gemini_3: bool = True
    """Whether it is Gemini 3 or later.

    Calls and their responses carry ids then, the first call of an answer must be signed, a
    response may hold images, and JSON of a schema may be asked for with tools at hand.
    """
    levels: tuple[str, ...] = _LEVELS[1:]
    """The thinking levels that it takes; empty where it takes none."""
    budget: Budget | None = None
    """The tokens of thinking that it takes in the place of a level."""
    takes_temperature: bool = True
    """Whether a temperature may be sent: Gemini 3 is to be left at its own, or ignores any."""
    takes_system: bool = True
    """Whether it takes a system instruction."""
    takes_schema: bool = True
    """Whether it can be held to JSON of a schema."""

    def thinking(self, effort: str | None) -> dict[str, object] | None:
        """Return the `thinkingConfig` for an effort, the nearest one that it takes, or None.

        Of two levels that are equally near, the higher one. Thoughts are asked for, unless the
        effort is `none`.
        """
        if effort is None:
            return None

        shown: dict[str, object] = {} if effort == "none" else {"includeThoughts": True}
        if self.budget is not None:
            return {"thinkingBudget": self.budget.of(effort), **shown}
        if not self.levels:
            return None

        return {"thinkingLevel": self._nearest_level(effort), **shown}

    def _nearest_level(self, effort: str) -> str:
        if effort not in _EFFORTS:
            return effort

        rank = _EFFORTS.index(effort)
        return min(reversed(self.levels), key=lambda level: abs(_EFFORTS.index(level) - rank))


# Models of Gemini 3 take a budget as well, so it suits what may be one or may not.
_UNKNOWN = GeminiModel(levels=(), budget=Budget(least=1, most=24_576))
_OLD = GeminiModel(is_gemini_3=False, levels=())
_PRO_2_5 = evolve(_OLD, budget=Budget(least=128, most=32_768, can_be_zero=False))
_FLASH_2_5 = evolve(_OLD, budget=Budget(least=1, most=24_576))
_LITE_2_5 = evolve(_OLD, budget=Budget(least=512, most=24_576))
_GEMMA = evolve(_OLD, takes_system=False, takes_schema=False)
_GEMINI_3 = GeminiModel(takes_temperature=False)
_WITH_MINIMAL = evolve(_GEMINI_3, levels=_LEVELS)

# The first pattern that the name begins with decides; dated names and previews follow theirs.
_ROWS = (
    (r"gemini-1|gemini-pro(-vision)?$|learnlm", _OLD),
    (r"gemini-2\.5-flash-image", _OLD),
    (r"gemini-2\.5-pro", _PRO_2_5),
    (r"gemini-2\.5-flash-lite", _LITE_2_5),
    (r"gemini-2\.5|gemini-robotics-er-1", _FLASH_2_5),
    (r"gemini-2", _OLD),
    (r"gemini-3-pro-image", evolve(_GEMINI_3, levels=())),
    (r"gemini-3(\.\d)?-flash(-lite)?-image", evolve(_GEMINI_3, levels=("minimal", "high"))),
    (r"gemini-3-pro", evolve(_GEMINI_3, levels=("low", "high"))),
    (r"gemini-3(\.\d)?-flash-lite|gemini-3(\.[0-6])?-flash", _WITH_MINIMAL),
    # From 3.7 on Flash refuses `minimal`, Pro always has, and so does Gemini 4.
    (r"gemini-", _GEMINI_3),
    (r"gemma-[123]", _GEMMA),
    (r"gemma-", evolve(_OLD, levels=("minimal", "high"))),
)
_PATTERNS = tuple((re.compile(pattern), facts) for pattern, facts in _ROWS)


def bare_name(model: str) -> str:
    """Return a model's name without what may stand before it, such as `models/`."""
    return model.lower().rpartition("/")[2]


def facts(model: str) -> GeminiModel:
    """Return what is known of `model`; `models/` before the name is looked past."""
    name = bare_name(model)
    return next((found for pattern, found in _PATTERNS if pattern.match(name)), _UNKNOWN)
