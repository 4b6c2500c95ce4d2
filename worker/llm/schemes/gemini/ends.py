"""How Gemini says that an answer has ended, or that there is none, and what that means.

Sources, as of November 2026: `FinishReason` and `BlockedReason` of googleapis/python-genai, and the
pages "Long decode" and "Thought signatures" at ai.google.dev.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from worker.llm.failures import Report
from worker.llm.types import StopReason
from worker.text import clean_text

# At the cap that was asked for, or at that of one request: what would follow is not asked for.
_CUT = frozenset({"CONTINUATION", "MAX_TOKENS"})
_UNREADABLE_CALL = frozenset({"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL"})
# Reasons to withhold an answer, or to take no prompt.
_BLOCKED = {
    "BLOCKLIST": "it holds a forbidden term",
    "IMAGE_PROHIBITED_CONTENT": "it holds prohibited content",
    "IMAGE_RECITATION": "it recites a source",
    "IMAGE_SAFETY": "it was taken for unsafe",
    "JAILBREAK": "it was taken for an attack",
    "LANGUAGE": "its language is not supported",
    "MODEL_ARMOR": "Model Armor refused it",
    "PROHIBITED_CONTENT": "it holds prohibited content",
    "RECITATION": "it recites a source",
    "SAFETY": "it was taken for unsafe",
    "SPII": "it holds personal data",
}
_BROKEN = {
    "IMAGE_OTHER": "an image could not be made",
    "MALFORMED_RESPONSE": "the model's answer could not be read",
    "NO_IMAGE": "an image was due and none was made",
    "OTHER": "the model stopped, and no reason is given",
    "TOO_MANY_TOOL_CALLS": "the model called too many tools in a row",
}
_CALLED = re.compile(r"default_api[.:]([A-Za-z_][A-Za-z0-9_-]*)")


def is_cut(reason: str) -> bool:
    """Tell whether the answer ended at a cap."""
    return reason in _CUT


def is_unreadable_call(reason: str) -> bool:
    """Tell whether the model tried to call a tool in a way that the provider could not read."""
    return reason in _UNREADABLE_CALL


def named_call(words: str) -> str:
    """Return the tool that the words about an unreadable call name, or nothing."""
    match = _CALLED.search(words)
    return match[1] if match else ""


def stop_reason(reason: str, *, has_calls: bool) -> StopReason:
    """Return what a finish reason is called here; one that is not known ends an answer well."""
    if reason in _CUT:
        return "max_tokens"
    if reason in _BLOCKED:
        return "content_filter"
    return "tool_calls" if has_calls else "end"


def blocked_prompt(chunk: Mapping[str, object]) -> Report | None:
    """Return the report of a prompt that was not taken, or None."""
    feedback = chunk.get("promptFeedback")
    reason = feedback.get("blockReason") if isinstance(feedback, dict) else None
    if not isinstance(feedback, dict) or not isinstance(reason, str):
        return None

    words = _BLOCKED.get(reason, "no reason is given")
    details = [feedback.get("blockReasonMessage"), *_blocked_categories(feedback)]
    return _filtered("the prompt", words, reason, details)


def broken_end(reason: str, words: str, *, is_empty: bool) -> Report | None:
    """Return the report of an answer that ended as no answer should, or None.

    One that was withheld as a whole is reported as well: there is nothing else to show.
    """
    if reason in _BLOCKED:
        blocked = _filtered("the answer", _BLOCKED[reason], reason, [words])
        return blocked if is_empty else None
    if reason == "MISSING_THOUGHT_SIGNATURE":
        text = "a call in the history lacks its thought signature (MISSING_THOUGHT_SIGNATURE)"
        return Report(text, codes=("invalid_request", reason.lower()))
    if reason in _UNREADABLE_CALL and is_empty:
        text = f"the model's call of a tool could not be read ({reason})"
        return Report(text, codes=(reason.lower(),))
    if reason in _BROKEN:
        return Report(_told(f"{_BROKEN[reason]} ({reason})", [words]), codes=(reason.lower(),))

    return None


def _filtered(what: str, words: str, reason: str, details: list[object]) -> Report:
    message = _told(f"{what} was blocked: {words} ({reason})", details)
    return Report(message, codes=("content_filter", reason.lower()))


def _told(message: str, details: list[object]) -> str:
    said = [clean_text(text) for text in details if isinstance(text, str) and text]
    return "; ".join([message, *said])


def _blocked_categories(feedback: Mapping[str, object]) -> Iterator[str]:
    ratings = feedback.get("safetyRatings")
    for rating in ratings if isinstance(ratings, list) else []:
        if isinstance(rating, dict) and rating.get("blocked") is True:
            category = str(rating.get("category", ""))
            yield category.removeprefix("HARM_CATEGORY_").lower().replace("_", " ")
