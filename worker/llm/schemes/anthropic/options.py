"""The knobs of one Messages request: how long, how much thought, how warm, in what form."""

from __future__ import annotations

import re
from collections.abc import Mapping

from attrs import frozen

from worker.llm.refusals import UNASKED_THINKING
from worker.llm.schemes.anthropic.models import AnthropicModel
from worker.llm.schemes.anthropic.schema import answer_schema
from worker.llm.types import RequestOptions

DEFAULT_MAX_TOKENS = 4096
"""The output cap where none is asked for and nothing is thought: the API requires one."""
DEFAULT_MAX_TOKENS_THINKING = 32_000
"""The same where the model thinks: thought counts towards the cap, and is to leave room."""
DEFAULT_MAX_TOKENS_THINKING_HARD = 64_000
"""The same at the efforts `xhigh` and `max`."""

_HARD = frozenset({"xhigh", "max"})
# What an effort is worth in tokens, for models that are told a budget.
_BUDGETS = {
    "minimal": 1024,
    "low": 4096,
    "medium": 8192,
    "high": 16_384,
    "xhigh": 32_768,
    "max": 48_000,
}
_LEAST_BUDGET = 1024  # the API refuses less


@frozen
class Knobs:
    """The members of a body that options come to. `thinks`: thinking blocks may be sent back."""

    thinks: bool
    fields: Mapping[str, object]

    @property
    def has_budget(self) -> bool:
        """Whether thinking is asked for with a budget, which demands more of the history."""
        thinking = self.fields.get("thinking")
        return isinstance(thinking, dict) and thinking.get("type") == "enabled"


def knobs(
    model: AnthropicModel, options: RequestOptions, *, binds: bool = True, may_think: bool = True
) -> Knobs:
    """Return what to send for `options`.

    Args:
        model: What the model accepts.
        options: What is asked for; what the model refuses is left out.
        binds: Whether the control of bound thinking may be sent, which is a beta.
        may_think: False where the history rules out that the model thinks with a budget.
    """
    effort = options.reasoning_effort
    refused = " ".join(options.refused_names)
    cap = _cap(model, options, thinks=may_think and _thinks(model, effort))
    thinking = None
    if may_think and not re.search(r"\bthinking(?!\S*block_binding)", refused):
        binds = binds and "block_binding" not in refused
        thinking = _thinking(model, effort, cap, binds=binds)
    thinks = _is_on(model, thinking)

    fields: dict[str, object] = {"max_tokens": cap, "stream": True}
    if thinking is not None:
        fields["thinking"] = thinking
    output = _output_config(model, options, thinks=thinks)
    if output:
        fields["output_config"] = output
    if options.temperature is not None and model.takes_temperature and not thinks:
        fields["temperature"] = min(max(options.temperature, 0.0), 1.0)

    is_open = model.may_think_unasked and effort is None and UNASKED_THINKING not in refused
    return Knobs(thinks or is_open, fields)


def _thinks(model: AnthropicModel, effort: str | None) -> bool:
    if model.thinking == "never":
        return False
    if effort is None:
        return model.thinks_by_default
    if effort == "none":
        return model.thinks_by_default and model.off is None
    return True


def _cap(model: AnthropicModel, options: RequestOptions, *, thinks: bool) -> int:
    usual = DEFAULT_MAX_TOKENS
    if thinks:
        is_hard = options.reasoning_effort in _HARD
        usual = DEFAULT_MAX_TOKENS_THINKING_HARD if is_hard else DEFAULT_MAX_TOKENS_THINKING
    asked = options.max_tokens if options.max_tokens is not None else usual
    return min(asked, model.max_output or asked)


def _thinking(
    model: AnthropicModel, effort: str | None, cap: int, *, binds: bool
) -> dict[str, object] | None:
    """Return the `thinking` member, or None where the model is left as it is."""
    if effort == "none" and model.thinks_by_default and model.off is not None:
        return {"type": model.off}
    if not _thinks(model, effort):
        return None
    if model.thinking == "budget":
        return _budget(effort or "medium", cap)

    thinking: dict[str, object] = {"type": "adaptive"}
    if not model.shows_thinking:
        thinking["display"] = "summarized"
    if model.binds_thinking and binds:
        # Pruning and compaction change the prompt: what was thought before then is let go by the
        # API, where it would refuse the request otherwise, and every later one.
        thinking["block_binding"] = {"prefix_mismatch_behavior": "drop_block"}
    return thinking


def _budget(effort: str, cap: int) -> dict[str, object] | None:
    """Return a budget that leaves a quarter of the cap to the answer; None where it has no room."""
    tokens = min(_BUDGETS.get(effort, _BUDGETS["medium"]), cap * 3 // 4)
    return {"type": "enabled", "budget_tokens": tokens} if tokens >= _LEAST_BUDGET else None


def _is_on(model: AnthropicModel, thinking: Mapping[str, object] | None) -> bool:
    if thinking is None:
        return model.thinks_by_default
    return thinking["type"] in {"adaptive", "enabled"}


def _output_config(
    model: AnthropicModel, options: RequestOptions, *, thinks: bool
) -> dict[str, object]:
    output: dict[str, object] = {}
    if options.reasoning_effort is not None and thinks and model.thinking == "adaptive":
        output["effort"] = model.nearest_effort(options.reasoning_effort)
    if options.response_schema is not None and model.takes_schema:
        schema = answer_schema(options.response_schema)
        if schema is not None:
            output["format"] = {"type": "json_schema", "schema": schema}
    return output
