"""What is kept of a model's answer, and what is wrong with one that says nothing."""

from __future__ import annotations

from attrs import evolve

from .errors import BadAnswer
from .items import AssistantMessage, Reasoning, Text, ToolCall, new_uid
from .llm.types import Answer, LlmClient
from .text import is_blank


def message_of(answer: Answer, client: LlmClient) -> AssistantMessage | None:
    """Return the history item for an answer, or None where it neither says nor calls anything."""
    parts = with_distinct_calls(answer.parts)
    if all(isinstance(p, Reasoning) or (isinstance(p, Text) and is_blank(p.text)) for p in parts):
        return None

    model = answer.model or client.model
    return AssistantMessage(new_uid(), parts, client.provider, model, answer.stop_reason)


def partial_message(text: str, client: LlmClient) -> AssistantMessage:
    """Return the history item for the visible text of an answer that broke off."""
    return AssistantMessage(new_uid(), (Text(text),), client.provider, client.model, "partial")


def with_distinct_calls(
    parts: tuple[Text | Reasoning | ToolCall, ...],
) -> tuple[Text | Reasoning | ToolCall, ...]:
    """Return the parts with every call once, each under an id and a uid that no other call has.

    A call that repeats the id, name and arguments of another is that same call; one that repeats
    only the id, as some servers do for parallel calls, is a call of its own.
    """
    kept: list[Text | Reasoning | ToolCall] = []
    seen: set[ToolCall] = set()
    ids: set[str] = set()
    uids: set[str] = set()
    for part in parts:
        if not isinstance(part, ToolCall):
            kept.append(part)
            continue

        as_received = evolve(part, call_uid="")
        if as_received in seen:
            continue

        call = _named_apart(part, ids, uids)
        seen.add(as_received)
        ids.add(call.call_id)
        uids.add(call.call_uid)
        kept.append(call)

    return tuple(kept)


def _named_apart(call: ToolCall, ids: set[str], uids: set[str]) -> ToolCall:
    call_uid = call.call_uid if call.call_uid and call.call_uid not in uids else new_uid()
    call_id = call.call_id
    if not call_id or call_id in ids:
        call_id = f"{call_id or 'call'}_{call_uid[:8]}"

    return evolve(call, call_id=call_id, call_uid=call_uid)


def nothing_said(answer: Answer, provider: str, output_cap: int | None) -> BadAnswer:
    """Return the error for an answer that neither says nor calls anything: why, and what to do."""
    if answer.stop_reason == "max_tokens":
        message = f"the model used up its output cap (max_tokens = {output_cap}) and said nothing"
        return BadAnswer(message, provider=provider, hint="raise worker.max_tokens")

    if answer.stop_reason in {"refusal", "content_filter"}:
        message = f"the model refused to answer ({answer.stop_reason})"
        return BadAnswer(message, provider=provider, code=answer.stop_reason)

    return BadAnswer("the model answered nothing", provider=provider, hint="try again")
