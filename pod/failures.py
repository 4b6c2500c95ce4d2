"""Errors as `ErrorInfo`: one code for a program, words for a person."""

from __future__ import annotations

from pod.compaction.plan import CompactionError
from pod.errors import NotBuilt, PodError, Thrash
from pod.protocol import ErrorInfo
from session_store import SessionDamaged, SessionInUse, SessionStoreError
from worker.errors import (
    BadAnswer,
    ContextOverflow,
    HookFailed,
    OutputInvalid,
    ProviderRefused,
    ProviderUnavailable,
    ProviderUnreachable,
    StreamBroken,
    WorkerError,
)

_CODES: tuple[tuple[type[Exception], str], ...] = (
    (Thrash, "thrash"),
    (ProviderRefused, "refused"),
    (ContextOverflow, "overflow"),
    (ProviderUnavailable, "unavailable"),
    (ProviderUnreachable, "unreachable"),
    (StreamBroken, "incomplete"),
    (BadAnswer, "bad_answer"),
    (OutputInvalid, "output_invalid"),
    (HookFailed, "hook_failed"),
    (SessionInUse, "in_use"),
    (SessionDamaged, "damaged"),
    (SessionStoreError, "storage"),
    (CompactionError, "compaction_failed"),
    (NotBuilt, "not_built"),
    (PodError, "pod"),
    (WorkerError, "worker"),
)

EXPECTED_ERRORS = (WorkerError, SessionStoreError, PodError, CompactionError)
"""What can go wrong in a run without it being a defect of ours."""


def error_info(error: Exception) -> ErrorInfo:
    """Return an error in words, with the code of its kind."""
    code = next((code for cls, code in _CODES if isinstance(error, cls)), "internal")
    message = getattr(error, "message", "") or str(error) or type(error).__name__
    hint = getattr(error, "hint", "") or None
    return ErrorInfo(code=code, message=message, hint=hint)
