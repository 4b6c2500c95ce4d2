"""What tests of pods and workers are written with: a model that says what the test tells it to.

client = ScriptedClient([call("read", path="notes.md"), say("The notes say: hello.")])
"""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from worker.llm.scripted import ScriptedAnswer, ScriptedCall, ScriptedClient, ScriptedError
from worker.llm.types import StopReason, Usage

__all__ = ["ScriptedAnswer", "ScriptedClient", "call", "calls", "fail", "say"]


def say(
    text: str,
    *,
    reasoning: str = "",
    stop_reason: StopReason | None = None,
    usage: Usage | None = None,
    match: str | None = None,
    delay_s: float = 0.0,
) -> ScriptedAnswer:
    """Return an answer that says `text`; with `match`, one to a user text that contains it."""
    return ScriptedAnswer(
        text=text,
        reasoning=reasoning,
        stop_reason=stop_reason,
        usage=usage,
        match=match,
        delay_s=delay_s,
    )


def call(name: str, /, **arguments: object) -> ScriptedAnswer:
    """Return an answer that calls the tool `name` with `arguments`."""
    return calls((name, arguments))


def calls(*pairs: tuple[str, Mapping[str, object] | str]) -> ScriptedAnswer:
    """Return an answer of several calls at once, each `(name, arguments)`.

    Arguments given as text are sent as they are, so that malformed ones can be tested.
    """
    return ScriptedAnswer(
        tool_calls=tuple(
            ScriptedCall(name, arguments if isinstance(arguments, str) else _json(arguments))
            for name, arguments in pairs
        )
    )


def fail(
    *,
    status: int | None = None,
    message: str = "scripted failure",
    code: str | None = None,
    retry_after_s: float | None = None,
    after: str = "",
) -> ScriptedAnswer:
    """Return a failure: what `status` and `code` mean; with `after`, in the middle of that text."""
    error = ScriptedError(status=status, message=message, code=code, retry_after_s=retry_after_s)
    return ScriptedAnswer(text=after, error=error)


def _json(arguments: Mapping[str, object]) -> str:
    return orjson.dumps(dict(arguments)).decode()
