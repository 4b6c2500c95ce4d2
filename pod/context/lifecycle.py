"""What an engine is told of its model and its sessions, each callback on its own.

These functions run where an engine's code may: they return what failed, and raise only what is no
`Exception`.
"""

from __future__ import annotations

from attrs import frozen

from worker.items import Item

from .bridge import to_messages
from .engine import ContextEngine
from .facts import Beginning, ModelFacts
from .notices import Failed, Tries
from .records import SessionRecords
from .reports import CompressReport
from .signature import (
    accepted_keywords,
    end_context_engine_session,
    overrides,
    start_context_engine_session,
    update_context_engine_model,
)


def update_model(engine: ContextEngine, model: ModelFacts) -> None:
    """Tell an engine of its model; it has the thresholds by model before the first time."""
    if model.thresholds:
        engine.model_thresholds = dict(model.thresholds)

    update_context_engine_model(
        engine,
        model=model.model,
        context_length=model.context_length,
        base_url=model.base_url,
        api_key=model.api_key,
        provider=model.provider,
        api_mode=model.api_mode,
    )


def introduce(
    engine: ContextEngine, model: ModelFacts, session_id: str, records: SessionRecords | None
) -> list[Failed]:
    """Tell a new engine what it has to know before its tools are asked for."""
    tries = Tries()
    tries("update_model", lambda: update_model(engine, model))
    _bind(engine, session_id, records, tries)
    return tries.failed


def begin(
    engine: ContextEngine, model: ModelFacts, session: Beginning, records: SessionRecords | None
) -> list[Failed]:
    """Tell of a session that begins; of one that was left the engine forgets what it counted."""
    tries = Tries()
    if not session.is_first:
        _bind(engine, session.session_id, records, tries)

    reset = getattr(engine, "on_session_reset", None)
    if session.left and callable(reset):
        tries("on_session_reset", reset)

    kwargs = {
        "hermes_home": session.hermes_home,
        "platform": session.platform,
        "model": model.model,
        "context_length": model.context_length,
        "conversation_id": session.conversation_id,
        "old_session_id": session.left,
        "carry_over_context": bool(session.left and session.carries_over),
    }
    given = {name: value for name, value in kwargs.items() if value}
    tries(
        "on_session_start",
        lambda: start_context_engine_session(engine, session.session_id, **given),
    )
    carry_over = getattr(engine, "carry_over_new_session_context", None)
    if session.left and session.carries_over and callable(carry_over):
        tries(
            "carry_over_new_session_context", lambda: carry_over(session.left, session.session_id)
        )

    return tries.failed


@frozen
class Boundary:
    """A compaction that was committed: the session before it, and the one after."""

    old_id: str
    session: Beginning
    before: tuple[Item, ...]
    """The history that was compacted."""


def cross(
    engine: ContextEngine, boundary: Boundary, records: SessionRecords | None
) -> list[Failed]:
    """Tell that a session goes on under another id, after a compaction."""
    session, tries = boundary.session, Tries()
    if overrides(engine, "on_session_end"):
        messages = to_messages(boundary.before)
        tries(
            "on_session_end", lambda: end_context_engine_session(engine, boundary.old_id, messages)
        )

    _bind(engine, session.session_id, records, tries)
    kwargs = {"platform": session.platform, "conversation_id": session.conversation_id}
    given = {name: value for name, value in kwargs.items() if value}
    tries(
        "on_session_start",
        lambda: start_context_engine_session(
            engine,
            session.session_id,
            boundary_reason="compression",
            old_session_id=boundary.old_id,
            **given,
        ),
    )
    # Engines that keep what they know by session were written for hosts that compact in place,
    # where the id stays: here it is for them to take along.
    carry_over = getattr(engine, "carry_over_new_session_context", None)
    if callable(carry_over):
        tries(
            "carry_over_new_session_context",
            lambda: carry_over(boundary.old_id, session.session_id),
        )

    return tries.failed


@frozen
class Settled:
    """What an engine counts after a compaction."""

    compactions: int
    is_quiet: bool
    """Whether it wants nothing said of routine."""
    failed: list[Failed]


def settle(engine: ContextEngine, tokens_after: int, report: CompressReport) -> Settled:
    """Note on the engine that no prompt was measured since its compaction, and what it came to."""
    tries = Tries()
    state = {
        "last_compression_rough_tokens": tokens_after,
        "last_prompt_tokens": -1,
        "last_completion_tokens": 0,
        "awaiting_real_usage_after_compression": True,
    }
    for name, value in state.items():
        tries(name, lambda name=name, value=value: setattr(engine, name, value))  # type: ignore[misc]  # mypy infers no lambda with defaults

    # On the class: a stand-in whose attributes are all callable has no say in this.
    record = getattr(type(engine), "record_completed_compaction", None)
    if report.made_progress and callable(record):
        tries(
            "record_completed_compaction",
            lambda: record(engine, used_fallback=report.used_fallback),
        )
    elif report.made_progress:
        tries("_verify_compaction_cleared_threshold", lambda: _expect_fit(engine))

    count = tries("compression_count", lambda: getattr(engine, "compression_count", 0))
    is_quiet = getattr(engine, "emit_automatic_compaction_status", True) is False
    return Settled(count if isinstance(count, int) else 0, is_quiet, tries.failed)


def _expect_fit(engine: ContextEngine) -> None:
    engine._verify_compaction_cleared_threshold = True  # type: ignore[attr-defined]  # noqa: SLF001  the contract's name


def take_response(engine: ContextEngine, usage: dict[str, object] | None) -> None:
    """Hand on a response's usage; one without any is told of only while the engine waits for it."""
    if usage is not None:
        engine.update_from_response(usage)
    elif getattr(engine, "awaiting_real_usage_after_compression", False):
        engine.update_from_response({})


def _bind(
    engine: ContextEngine, session_id: str, records: SessionRecords | None, tries: Tries
) -> None:
    bind = getattr(engine, "bind_session_state", None)
    if callable(bind):
        keywords: dict[str, object] = {"session_db": records, "session_id": session_id}
        given = accepted_keywords(bind, keywords, positional=0)
        tries("bind_session_state", lambda: bind(**given))
