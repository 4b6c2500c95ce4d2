"""Our compressor behind the face of Hermes's own: a class that other engines build upon.

They replace one step of it or another, so each step is a method under the name it has there:
`_prune_old_tool_results`, `_generate_summary`, `prune_tool_results_only`. How the cut is chosen and
how a summary is written and checked is the built-in compressor's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from pod.compaction.cut import choose_cut
from pod.compaction.digest import digest
from pod.compaction.plan import CompactionError
from pod.compaction.summary import (
    Assignment,
    SummaryAnswer,
    SummaryCall,
    output_cap,
    write_summary,
)
from pod.context.attempt import tried
from pod.context.bridge import from_messages
from pod.context.engine import ContextEngine, JsonDict, Message, sanitize_memory_context
from pod.context.pairs import without_loose_ends
from pod.context.signature import accepted_keywords
from pod.context.thresholds import resolve_model_threshold
from worker.items import Item, is_turn_start

from .chat_shapes import Completion, stop_reason_of, usage_of
from .clients import SUMMARIES
from .handoff import handoff_row, is_handoff, with_prefix, without_prefix
from .rough_tokens import message_tokens, messages_tokens
from .row_cuts import after_results, before_call, before_newest_user, tail_start
from .row_prune import prune_boundary, pruned
from .threshold_rules import effective_share, trigger_tokens

DIGEST_BYTES = 8_000
"""How long a handoff is that no model wrote."""
LEAST_ROWS = 4
"""Fewer than these are not worth a summary."""

_log = logging.getLogger("pod.context")


class HermesCompressor(ContextEngine):
    """Has the older turns summarized, and keeps the newest as they are.

    The constructor takes what Hermes's own takes. A failed summary leaves the messages as they were
    and says why in `_last_summary_error`; where they no longer fit the window, a digest made
    without a model takes its place.
    """

    _previous_summary: str | None

    def __init__(  # noqa: PLR0913, PLR0917  the signature that subclasses call and inspect
        self,
        model: str = "",
        threshold_percent: float = 0.50,
        protect_first_n: int = 3,
        protect_last_n: int = 20,
        summary_target_ratio: float = 0.20,
        quiet_mode: bool = False,  # noqa: FBT001, FBT002  as above: the signature of others
        summary_model_override: str | None = None,
        base_url: str = "",
        api_key: object = "",
        config_context_length: int | None = None,
        provider: str = "",
        api_mode: str = "",
        abort_on_summary_failure: bool = False,  # noqa: FBT001, FBT002  as above: the signature of others
        max_tokens: int | None = None,
        model_thresholds: Mapping[str, float] | None = None,
        threshold_tokens_cap: int | None = None,
        proactive_prune_tokens: int = 0,
    ) -> None:
        self.model, self.provider, self.api_mode = model, provider, api_mode
        self.base_url, self.api_key = base_url, api_key
        self.quiet_mode = quiet_mode
        self.protect_first_n, self.protect_last_n = max(0, protect_first_n), max(0, protect_last_n)
        self.summary_target_ratio = min(0.80, max(0.10, summary_target_ratio))
        self.summary_model = summary_model_override or ""
        self.abort_on_summary_failure = abort_on_summary_failure
        self.max_tokens = max_tokens
        self.model_thresholds = dict(model_thresholds or {})
        self.threshold_tokens_cap = threshold_tokens_cap
        self.proactive_prune_tokens = proactive_prune_tokens
        self._configured_percent = threshold_percent
        self._config_context_length = config_context_length
        self._compression_cancelled_check: object = None
        self._session_id = ""
        self._clear()
        self._size_for(self._window_of(model, config_context_length))

    @property
    def name(self) -> str:
        """The engine's name; a subclass has its own."""
        return "compressor"

    # ------------------------------------------------------------------ who is asked

    def _call_llm(self, **kwargs: Any) -> Completion:  # noqa: ANN401  what `call_llm` takes
        """Ask a model; the served module brings what it takes for that."""
        from .calls import call_llm

        return call_llm(**kwargs)

    def _window_of(self, model: str, configured: int | None) -> int:
        """Return the window of a model in tokens."""
        from .windows import get_model_context_length

        return get_model_context_length(model, config_context_length=configured)

    # ------------------------------------------------------------------ sizes

    def update_model(
        self,
        model: str,
        context_length: int,
        base_url: str = "",
        api_key: object = "",
        provider: str = "",
        api_mode: str = "",
    ) -> None:
        """Take the model in force; all that was measured of another is forgotten."""
        self.model, self.provider, self.api_mode = model, provider, api_mode
        self.base_url, self.api_key = base_url, api_key
        self.last_prompt_tokens = self.last_completion_tokens = self.last_total_tokens = 0
        self.last_real_prompt_tokens = 0
        self._size_for(context_length)

    def _size_for(self, window: int) -> None:
        share = resolve_model_threshold(
            self.model, self.model_thresholds, self._configured_percent, self.provider
        )
        self.context_length = window
        self.threshold_percent = effective_share(share, window)
        self.threshold_tokens = trigger_tokens(
            window,
            self.threshold_percent,
            answer_tokens=self.max_tokens,
            cap=self.threshold_tokens_cap,
        )
        self.tail_token_budget = int(self.threshold_tokens * self.summary_target_ratio)
        self.max_summary_tokens = output_cap(self.threshold_tokens, window)

    # ------------------------------------------------------------------ when

    def update_from_response(self, usage: JsonDict) -> None:
        """Take the measured sizes of a response."""
        self.last_prompt_tokens = usage.get("prompt_tokens") or 0
        self.last_completion_tokens = usage.get("completion_tokens") or 0
        self.last_total_tokens = usage.get("total_tokens") or 0
        self.last_real_prompt_tokens = self.last_prompt_tokens
        self.awaiting_real_usage_after_compression = False

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        """Tell whether to compact now: what `should_compress_info` says, which may hold it back."""
        return self.should_compress_info(prompt_tokens)[0]

    def should_compress_info(self, prompt_tokens: int | None = None) -> tuple[bool, str | None]:
        """Return whether the prompt has reached the trigger; here nothing holds it back."""
        tokens = self.last_prompt_tokens if prompt_tokens is None else prompt_tokens
        return bool(self.threshold_tokens) and tokens >= self.threshold_tokens, None

    def should_defer_preflight_to_real_usage(self, rough_tokens: int) -> bool:
        """Tell whether an estimate over the trigger waits for the reading after a compaction."""
        return rough_tokens >= self.threshold_tokens and self.awaiting_real_usage_after_compression

    def has_content_to_compress(self, messages: list[Message]) -> bool:
        """Tell whether there is anything that a summary could stand for."""
        return self._split(messages, None) is not None

    # ------------------------------------------------------------------ life of a session

    def on_session_start(self, session_id: str, **kwargs: object) -> None:
        """Take note of the session's id."""
        self._session_id = session_id

    def on_session_end(self, session_id: str, messages: list[Message]) -> None:
        """Forget the summary: it is read back from the messages where it is needed."""
        self._previous_summary = None

    def on_session_reset(self) -> None:
        """Forget what belongs to one session."""
        super().on_session_reset()
        self._clear()

    def bind_session_state(self, session_db: object = None, session_id: str = "") -> None:
        """Take note of the session's id; there is no database of Hermes's here to bind to."""
        self._session_id = session_id

    def get_active_compression_failure_cooldown(self) -> JsonDict | None:
        """Return None: how long to wait after a failure is decided by the pod."""
        return None

    def _clear(self) -> None:
        self._previous_summary = None
        self._context_probed = False
        self._context_probe_persistable = False
        self.last_real_prompt_tokens = 0
        self.last_compression_rough_tokens = 0
        self.awaiting_real_usage_after_compression = False
        self._last_aux_model_failure_model: str | None = None
        self._last_aux_model_failure_error: str | None = None
        self._begin_attempt()

    def _begin_attempt(self) -> None:
        self._last_compress_aborted = False
        self._last_summary_error: str | None = None
        self._last_summary_fallback_used = False
        self._last_summary_dropped_count = 0
        self._last_compression_made_progress = False

    # ------------------------------------------------------------------ compress

    def compress(
        self,
        messages: list[Message],
        current_tokens: int | None = None,
        focus_topic: str | None = None,
        force: bool = False,  # noqa: FBT001, FBT002  the contract's signature
        memory_context: str = "",
    ) -> list[Message]:
        """Return the messages with a summary in the place of the older ones.

        The same list comes back where there is nothing to summarize, no summary was written, or it
        is no smaller than what it would stand for.
        """
        self._begin_attempt()
        system = _leading_system_rows(messages)
        rows, _ = self._prune_old_tool_results(
            messages[system:], self.protect_last_n, self.tail_token_budget
        )
        split = self._split(rows, current_tokens)
        if split is None:
            return messages

        head, covered, kept = split
        hooks = {"focus_topic": focus_topic, "memory_context": memory_context}
        # Subclasses that replace it were written against older hosts.
        write: Callable[..., str | None] = self._generate_summary
        summary = write(covered, **accepted_keywords(write, hooks, positional=1))
        if not summary:
            summary = self._without_a_model(covered, current_tokens)

        if summary is None:
            self._last_compress_aborted = True
            return messages

        made = [*messages[:system], *head, handoff_row(summary), *kept]
        if messages_tokens(made) >= messages_tokens(messages):
            return messages

        self.compression_count += 1
        self._last_compression_made_progress = True
        self._last_summary_dropped_count = len(covered)
        self.last_compression_rough_tokens = messages_tokens(messages)
        self.awaiting_real_usage_after_compression = True
        return made

    def _split(
        self, rows: Sequence[Message], current_tokens: int | None
    ) -> tuple[list[Message], list[Message], list[Message]] | None:
        """Return the rows that stay in front, those to summarize, and those that stay behind.

        None where there is nothing to summarize.
        """
        rows = rows[_leading_system_rows(rows) :]
        # What is asked stands behind the summary, which says that nothing before it is a request.
        start = before_newest_user(rows, self._protect_head_size(rows))
        body = self._sanitize_tool_pairs(rows[start:])
        if len(body) < LEAST_ROWS:
            return None

        items, _ = tried(lambda: from_messages(body, [], origin="user"))
        if items is None:
            return None  # Rows that nobody could make a history of stay as they are.

        sizes = {id(item): message_tokens(row) for item, row in zip(items, body, strict=True)}
        total = sum(sizes.values())
        budget = min(self.tail_token_budget or total, total / 2)
        cut = choose_cut(
            items,
            retained_turns=_turns_within(items, sizes, budget),
            retained_tokens=int(budget),
            threshold=self.threshold_tokens or current_tokens or total,
            weigh=lambda item: sizes[id(item)],
        )
        if cut is None:
            return None

        places = {id(item): row for item, row in zip(items, body, strict=True)}
        covered = [places[id(item)] for item in cut.covered(items)]
        kept = [places[id(item)] for item in cut.retained(items)]
        return list(rows[:start]), covered, kept

    def _protect_head_size(self, rows: Sequence[Message]) -> int:
        """Return how many rows stay in front: none once there is a summary, which tells of them."""
        if self.compression_count or any(map(is_handoff, rows)):
            return 0

        return after_results(rows, min(self.protect_first_n, len(rows)))

    # ------------------------------------------------------------------ the prune before it

    def _prune_boundary(
        self,
        messages: Sequence[Message],
        protect_tail_count: int,
        protect_tail_tokens: int | None = None,
    ) -> int:
        """Return the index of the first row that no prune touches."""
        return prune_boundary(messages, protect_tail_count, protect_tail_tokens)

    def _prune_old_tool_results(
        self,
        messages: list[Message],
        protect_tail_count: int,
        protect_tail_tokens: int | None = None,
        min_prune_chars: int = 200,
    ) -> tuple[list[Message], int]:
        """Return the messages with old tool results in one line, and how many it were."""
        boundary = self._prune_boundary(messages, protect_tail_count, protect_tail_tokens)
        return pruned(messages, boundary, min_prune_chars)

    def prune_tool_results_only(
        self, messages: list[Message], current_tokens: int | None = None
    ) -> tuple[list[Message], int]:
        """Return the messages with old tool results in one line, once there are enough tokens."""
        trigger = self.proactive_prune_tokens
        if trigger <= 0 or (current_tokens or messages_tokens(messages)) < trigger:
            return messages, 0

        out, count = self._prune_old_tool_results(messages, self.protect_last_n)
        return (out, count) if count else (messages, 0)

    # ------------------------------------------------------------------ the summary

    def _generate_summary(
        self,
        turns_to_summarize: list[Message],
        focus_topic: str | None = None,
        memory_context: str = "",
    ) -> str | None:
        """Return a summary of rows under its prefix, or None where none was written."""
        earlier = [row for row in turns_to_summarize if is_handoff(row)]
        rest = [row for row in turns_to_summarize if not is_handoff(row)]
        assignment = Assignment(
            items=from_messages(rest, [], origin="user"),
            previous="\n\n".join(without_prefix(str(row.get("content") or "")) for row in earlier),
            focus=focus_topic,
            max_tokens=self.max_summary_tokens,
            window=self.context_length,
            memory=sanitize_memory_context(memory_context),
        )
        written, failure = tried(lambda: write_summary(assignment, self._summarize))
        if written is None:
            self._note_failure(failure)
            return None

        self._previous_summary = written.text
        return with_prefix(written.text)

    def _summarize(self, call: SummaryCall) -> SummaryAnswer:
        asked = {"model": self.summary_model} if self.summary_model else {}
        answer = self._call_llm(
            task=SUMMARIES,
            messages=[
                {"role": "system", "content": call.system},
                {"role": "user", "content": call.user},
            ],
            temperature=0.0,
            max_tokens=call.max_tokens,
            **asked,
        )
        choice = answer.choices[0]
        return SummaryAnswer(
            choice.message.content or "",
            stop_reason_of(getattr(choice, "finish_reason", None)),
            usage_of(answer),
            getattr(answer, "model", ""),
        )

    def _note_failure(self, failure: BaseException | None) -> None:
        said = failure.message if isinstance(failure, CompactionError) else str(failure)
        self._last_summary_error = said or type(failure).__name__
        self._last_aux_model_failure_model = self.summary_model or self.model or None
        self._last_aux_model_failure_error = self._last_summary_error
        # A pod tells of it, without what a provider may have quoted; a log would tell all.
        _log.debug("%s: no summary was written", self.name, exc_info=failure)

    def _without_a_model(self, covered: list[Message], current_tokens: int | None) -> str | None:
        """Return a digest where the messages no longer fit the window; else nothing is lost."""
        fits = (current_tokens or 0) < self.context_length or not self.context_length
        if fits or self.abort_on_summary_failure:
            return None

        self._last_summary_fallback_used = True
        return digest(from_messages(covered, [], origin="user"), DIGEST_BYTES)

    # ------------------------------------------------------------------ for subclasses

    @staticmethod
    def _align_boundary_forward(messages: Sequence[Message], idx: int) -> int:
        """Return the first place from `idx` on that parts no call from its results."""
        return after_results(messages, idx)

    @staticmethod
    def _align_boundary_backward(messages: Sequence[Message], idx: int) -> int:
        """Return the last place up to `idx` that parts no call from its results."""
        return before_call(messages, idx)

    def _find_tail_cut_by_tokens(
        self, messages: Sequence[Message], head_end: int, token_budget: int | None = None
    ) -> int:
        """Return where the tail begins that stays as it is; `head_end` where there is but that."""
        budget = self.tail_token_budget if token_budget is None else token_budget
        return tail_start(messages, head_end, budget)

    @staticmethod
    def _sanitize_tool_pairs(messages: Sequence[Message]) -> list[Message]:
        """Return the messages without any call or result that lacks its other half."""
        return cast("list[Message]", without_loose_ends(messages))

    @staticmethod
    def _with_summary_prefix(summary: str) -> str:
        """Return a summary's text under the prefix that a handoff is known by."""
        return with_prefix(summary)

    @staticmethod
    def _strip_summary_prefix(summary: str) -> str:
        """Return a summary's text alone."""
        return without_prefix(summary)


def _leading_system_rows(rows: Sequence[Message]) -> int:
    places = (n for n, row in enumerate(rows) if row.get("role") not in {"system", "developer"})
    return next(places, len(rows))


def _turns_within(items: Sequence[Item], sizes: Mapping[int, int], budget: float) -> int:
    """Return how many of the last turns fit in `budget`, at least one."""
    turns, tokens = 0, 0.0
    for item in reversed(items):
        tokens += sizes[id(item)]
        if tokens > budget:
            break

        turns += is_turn_start(item)

    return max(1, turns)
