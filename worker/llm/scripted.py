"""A model that answers from a script: for tests, demonstrations and replays without a network.

A script is a list of answers, as JSON one a line or as values. An answer has any of:

    text          what is said
    reasoning     what is thought before it
    tool_calls    [{"name", "arguments", "id"?}]; arguments as an object, or as text
    deltas        the pieces that `text` comes in
    stop_reason   by default what fits
    usage         the fields of `Usage`
    delay         seconds before anything
    error         {"status", "message", "code", "retry_after"}, each optional
    match         use this answer only where the last user text contains it

An answer with a `match` that fits comes first; otherwise they are used in order, each once. An
`error` after a `text` breaks the stream in the middle. Nothing is retried: what the script says
happens.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from typing import cast, get_args

import orjson
from attrs import fields, frozen

from worker.errors import ProviderError
from worker.items import Reasoning, Text, ToolCall, UserMessage, new_uid
from worker.llm.endpoint import Endpoint
from worker.llm.failures import Report, classify, stream_broken
from worker.llm.schemes.chat.scheme import OpenAiChatScheme
from worker.llm.types import (
    Answer,
    Answered,
    LlmRequest,
    ReasoningDelta,
    StopReason,
    StreamEvent,
    TextDelta,
    ToolCallArgsDelta,
    ToolCallDone,
    ToolCallStart,
    Usage,
)
from worker.text import clean_text

_BYTES_PER_TOKEN = 4


@frozen
class ScriptedCall:
    """A tool call of a scripted answer; `arguments` is the text that the model is to have sent."""

    name: str
    arguments: str = "{}"
    call_id: str | None = None


@frozen(kw_only=True)
class ScriptedError:
    """A failure; its meaning follows from `status` and `code` as for a real provider."""

    status: int | None = None
    message: str = "scripted failure"
    code: str | None = None
    retry_after_s: float | None = None


@frozen(kw_only=True)
class ScriptedAnswer:
    """One answer of a script; see the module for what each field does."""

    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ScriptedCall, ...] = ()
    deltas: tuple[str, ...] = ()
    stop_reason: StopReason | None = None
    usage: Usage | None = None
    delay_s: float = 0.0
    error: ScriptedError | None = None
    match: str | None = None


class ScriptedClient:
    """An `LlmClient` that answers from `answers`; `requests` holds what it was asked.

    Where an answer reports no usage, it is estimated: 4 bytes a token, of the request as the Chat
    Completions scheme encodes it, and of the answer's text, thoughts and calls.

    Raises:
        ValueError: An answer is not valid; the message says which and why.
    """

    def __init__(
        self,
        answers: Iterable[ScriptedAnswer | Mapping[str, object]],
        *,
        provider: str = "scripted",
        model: str = "scripted",
        context_window: int | None = None,
        on_request: Callable[[LlmRequest], None] | None = None,
        sleep: Callable[[float], Awaitable[None]] | None = None,
    ) -> None:
        self._answers = [
            _checked(answer, f"answer {number}") for number, answer in enumerate(answers, 1)
        ]
        self._written = len(self._answers)
        self._endpoint = Endpoint(
            provider=provider, model=model, base_url="scripted:", context_window=context_window
        )
        self._on_request = on_request
        self._sleep = sleep or _sleep
        self._encoder = OpenAiChatScheme().encoder(provider, model)
        self.requests: list[LlmRequest] = []
        """Every request, in the order they were made."""

    @property
    def provider(self) -> str:
        """The provider's kind, as given."""
        return self._endpoint.provider

    @property
    def model(self) -> str:
        """The model's name, as given."""
        return self._endpoint.model

    @property
    def context_window(self) -> int | None:
        """The window in tokens, as given."""
        return self._endpoint.context_window

    @property
    def remaining(self) -> int:
        """How many answers of the script are not used yet."""
        return len(self._answers)

    async def stream(self, request: LlmRequest) -> AsyncGenerator[StreamEvent, None]:
        """Yield the next answer of the script.

        Raises:
            ProviderError: The script says so (`error`), or it has no answer left.
        """
        self.requests.append(request)
        if self._on_request is not None:
            self._on_request(request)

        input_bytes = len(self._encoder.encode(request))
        answer = self._next(request)
        if answer.delay_s:
            await self._sleep(answer.delay_s)

        calls = tuple(_call_of(call) for call in answer.tool_calls)
        parts = _parts_of(answer, calls)
        for event in _events_of(answer, calls if answer.error is None else ()):
            yield event

        if answer.error is not None:
            raise self._failure(answer.error, parts)

        stop_reason = answer.stop_reason or ("tool_calls" if calls else "end")
        usage = answer.usage or _estimate(input_bytes, parts)
        yield Answered(Answer(parts, stop_reason, usage, self.model))

    async def aclose(self) -> None:
        """Hold nothing; there is nothing to release."""

    def _next(self, request: LlmRequest) -> ScriptedAnswer:
        asked = _last_user_text(request)
        fits = (
            n for n, answer in enumerate(self._answers) if answer.match and answer.match in asked
        )
        in_order = (n for n, answer in enumerate(self._answers) if answer.match is None)
        number = next(fits, next(in_order, None))
        if number is None:
            raise ProviderError(
                f"the script has no answer left for request {len(self.requests)}: it had"
                f" {self._written}, of which {self.remaining} wait for another user text",
                provider=self.provider,
                hint="add an answer to the script",
            )

        return self._answers.pop(number)

    def _failure(
        self, error: ScriptedError, parts: tuple[Text | Reasoning | ToolCall, ...]
    ) -> ProviderError:
        codes = (error.code.lower(),) if error.code else ()
        report = Report(error.message, error.status, codes)
        after = error.retry_after_s
        headers = {} if after is None else {"retry-after": f"{after:f}"}
        cause = classify(report, self._endpoint, headers=headers).error
        said = tuple(part for part in parts if not isinstance(part, ToolCall))
        if not said:
            return cause

        partial = Answer(said, "partial", None, self.model)
        message = f"the answer broke off: {cause.message}"
        return stream_broken(message, provider=self.provider, partial=partial, cause=cause)

    @classmethod
    def parse(
        cls,
        script: str,
        *,
        provider: str = "scripted",
        model: str = "scripted",
        context_window: int | None = None,
    ) -> ScriptedClient:
        """Return a client for a script in JSON Lines; blank lines and `#` lines are skipped.

        Raises:
            ValueError: A line is no valid answer; the message names the line.
        """
        answers = parse_script(script)
        return cls(answers, provider=provider, model=model, context_window=context_window)


def parse_script(script: str) -> list[ScriptedAnswer]:
    """Return the answers of a script in JSON Lines.

    Raises:
        ValueError: A line is no valid answer; the message names the line.
    """
    answers = []
    for number, line in enumerate(script.split("\n"), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue

        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise ValueError(f"line {number}: not JSON ({error})") from error
        answers.append(_checked(value, f"line {number}"))

    return answers


async def _sleep(delay_s: float) -> None:
    import anyio

    await anyio.sleep(delay_s)


def _last_user_text(request: LlmRequest) -> str:
    texts = (item.text for item in reversed(request.items) if isinstance(item, UserMessage))
    return next(texts, "")


def _call_of(call: ScriptedCall) -> ToolCall:
    call_id = call.call_id or f"call_{new_uid()[:12]}"
    return ToolCall(call_id, call.name, call.arguments, new_uid())


def _parts_of(
    answer: ScriptedAnswer, calls: tuple[ToolCall, ...]
) -> tuple[Text | Reasoning | ToolCall, ...]:
    text = answer.text or "".join(answer.deltas)
    thoughts = (Reasoning(answer.reasoning),) if answer.reasoning else ()
    return (*thoughts, *((Text(text),) if text else ()), *calls)


def _events_of(answer: ScriptedAnswer, calls: tuple[ToolCall, ...]) -> Iterable[StreamEvent]:
    if answer.reasoning:
        yield ReasoningDelta(answer.reasoning)
    for piece in answer.deltas or (answer.text,):
        if piece:
            yield TextDelta(piece)
    for call in calls:
        yield ToolCallStart(call.call_id, call.name)
        yield ToolCallArgsDelta(call.call_id, call.arguments)
        yield ToolCallDone(call.call_id, call.name, call.arguments)


def _estimate(input_bytes: int, parts: tuple[Text | Reasoning | ToolCall, ...]) -> Usage:
    given = sum(
        len((part.name + part.arguments if isinstance(part, ToolCall) else part.text).encode())
        for part in parts
    )
    return Usage(
        input_tokens=max(1, input_bytes // _BYTES_PER_TOKEN),
        output_tokens=max(1, given // _BYTES_PER_TOKEN),
    )


# --- reading a script -----------------------------------------------------------------------


def _checked(value: object, where: str) -> ScriptedAnswer:
    if isinstance(value, ScriptedAnswer):
        return value

    try:
        return _answer_of(_object(value, "an answer"))
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def _answer_of(raw: Mapping[str, object]) -> ScriptedAnswer:
    _refuse_unknown(raw, _ANSWER_KEYS, "an answer")
    deltas = tuple(_str(delta, "deltas") for delta in _list(raw.get("deltas"), "deltas"))
    text = _str(raw.get("text", ""), "text")
    if text and deltas and "".join(deltas) != text:
        raise ValueError('"deltas" joined are not "text"; leave one of them out')

    stop_reason = raw.get("stop_reason")
    if stop_reason is not None and stop_reason not in get_args(StopReason):
        allowed = ", ".join(get_args(StopReason))
        raise ValueError(f'"stop_reason" is {stop_reason!r}; allowed: {allowed}')

    error, usage, match = raw.get("error"), raw.get("usage"), raw.get("match")
    return ScriptedAnswer(
        text=text,
        reasoning=_str(raw.get("reasoning", ""), "reasoning"),
        tool_calls=tuple(_read_call(c) for c in _list(raw.get("tool_calls"), "tool_calls")),
        deltas=deltas,
        stop_reason=cast("StopReason | None", stop_reason),
        usage=None if usage is None else _read_usage(usage),
        delay_s=_seconds(raw.get("delay", 0), "delay"),
        error=None if error is None else _read_error(error),
        match=None if match is None else _str(match, "match"),
    )


_ANSWER_KEYS = (
    "text",
    "reasoning",
    "tool_calls",
    "deltas",
    "stop_reason",
    "usage",
    "delay",
    "error",
    "match",
)
_CALL_KEYS = ("name", "arguments", "id")
_ERROR_KEYS = ("status", "message", "code", "retry_after")
_USAGE_KEYS = tuple(attribute.name for attribute in fields(Usage))


def _read_call(value: object) -> ScriptedCall:
    raw = _object(value, "a tool call")
    _refuse_unknown(raw, _CALL_KEYS, "a tool call")
    arguments = raw.get("arguments", {})
    call_id = raw.get("id")
    return ScriptedCall(
        name=_str(raw.get("name"), "name"),
        arguments=arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode(),
        call_id=None if call_id is None else _str(call_id, "id"),
    )


def _read_error(value: object) -> ScriptedError:
    raw = _object(value, "error")
    _refuse_unknown(raw, _ERROR_KEYS, "error")
    code, after = raw.get("code"), raw.get("retry_after")
    return ScriptedError(
        status=_count(raw.get("status"), "status"),
        message=_str(raw.get("message", "scripted failure"), "message"),
        code=None if code is None else _str(code, "code"),
        retry_after_s=None if after is None else _seconds(after, "retry_after"),
    )


def _read_usage(value: object) -> Usage:
    raw = _object(value, "usage")
    _refuse_unknown(raw, _USAGE_KEYS, "usage")
    return Usage(**{key: _count(number, key) for key, number in raw.items()})


def _refuse_unknown(raw: Mapping[str, object], known: tuple[str, ...], what: str) -> None:
    unknown = [key for key in raw if key not in known]
    if unknown:
        raise ValueError(f"{what} has no {unknown[0]!r}; it has: {', '.join(known)}")


def _object(value: object, what: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{what} must be an object, not {value!r}")  # noqa: TRY004  one type of error

    return value


def _list(value: object, key: str) -> list[object]:
    if value is None:
        return []
    if not isinstance(value, list | tuple):
        raise ValueError(f'"{key}" must be a list, not {value!r}')  # noqa: TRY004  one type of error

    return list(value)


def _str(value: object, key: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f'"{key}" must be a string, not {value!r}')  # noqa: TRY004  one type of error

    return clean_text(value)


def _count(value: object, key: str) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f'"{key}" must be a whole number of 0 or more, not {value!r}')

    return value


def _seconds(value: object, key: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError(f'"{key}" must be seconds, 0 or more, not {value!r}')

    return float(value)
