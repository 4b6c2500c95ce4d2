"""The built-in engine, `compressor`: a summary of four sections, and the newest turns as is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from attrs import frozen

from manifests import CompactionSection
from pod.compaction.cut import Cut, choose_cut, tail_threshold
from pod.compaction.digest import digest
from pod.compaction.plan import CompactionError, CompactionPlan, CompactionRequest, Sizes
from pod.compaction.prompts import prompts_digest
from pod.compaction.summary import Assignment, Summarize, Written, output_cap, write_summary
from pod.compaction.thresholds import thresholds_for
from pod.context.bridge import from_messages
from pod.context.engine import ContextEngine, sanitize_memory_context
from pod.context.errors import BridgeError
from pod.context.rows import message_of
from worker.items import Covers, Item, SummaryMessage, new_uid
from worker.llm.types import Usage
from worker.prune import apply_prune

DIGEST_BYTES_PER_TOKEN = 2.5
_SYSTEM = frozenset({"system", "developer"})


@frozen
class Desk:
    """What the compressor works with: the numbers of its pod, and a model to write summaries."""

    settings: CompactionSection
    weigh: Callable[[Item], float]
    """Fitted tokens of one item."""
    sizes: Callable[[], Sizes]
    """What no compaction can remove."""
    summarize: Summarize
    window: Callable[[], int]
    """The summarizer's own window, in tokens."""
    short_prompt: bool = False
    """Whether the summarizer is a small model that a grammar holds to the sections."""


class Compressor(ContextEngine):
    """Cuts the history in two, has the older part summarized, and keeps the newer part verbatim."""

    name = "compressor"

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.threshold_tokens = desk.settings.compact_threshold or 0

    # ------------------------------------------------------------------ the native way

    def cut(self, request: CompactionRequest) -> Cut | None:
        """Return where the history would be cut, or None where there is nothing to summarize."""
        settings, sizes = self._desk.settings, self._desk.sizes()
        cap = output_cap(request.threshold, self._desk.window())
        return choose_cut(
            apply_prune(request.items, request.watermark),
            retained_turns=settings.compact_retained_turns,
            retained_tokens=settings.compact_retained_tokens,
            threshold=tail_threshold(request.threshold, sizes, cap),
            weigh=self._desk.weigh,
        )

    def plan(self, request: CompactionRequest) -> CompactionPlan | None:
        """Return the plan that a request comes to, or None where there is nothing to cut.

        Blocks while the summary is written. Raises `CompactionError`.
        """
        cut = self.cut(request)
        if cut is None:
            return None

        self._check_floor(request)
        covered = cut.covered(apply_prune(request.items, request.watermark))
        try:
            written = self._write(covered, request)
        except CompactionError as error:
            if not request.would_overflow:
                raise

            return self.digest_plan(request, error)

        return self._plan(cut, written, request)

    def _check_floor(self, request: CompactionRequest) -> None:
        sizes = self._desk.sizes()
        if sizes.floor > request.threshold:
            raise CompactionError("floor", sizes.floor_problem(request.threshold))

    def _write(self, covered: list[Item], request: CompactionRequest) -> Written:
        earlier = [item.text for item in covered if isinstance(item, SummaryMessage)]
        assignment = Assignment(
            items=covered,
            previous="\n\n".join(earlier),
            focus=request.focus,
            max_tokens=output_cap(request.threshold, self._desk.window()),
            window=self._desk.window(),
            memory=sanitize_memory_context(request.memory_context),
            short=self._desk.short_prompt,
        )
        return write_summary(assignment, self._desk.summarize)

    def _plan(self, cut: Cut, written: Written, request: CompactionRequest) -> CompactionPlan:
        return CompactionPlan(
            history=(self._summary(cut, written.text, request), *cut.retained(request.items)),
            base_len=len(request.items),
            watermark=cut.new_watermark(request.watermark),
            method="summary",
            generation=request.generation + 1,
            usage=written.usage,
            model=written.model,
            prompt_digest=prompts_digest(),
        )

    def digest_plan(
        self, request: CompactionRequest, error: CompactionError
    ) -> CompactionPlan | None:
        """Return a plan with a digest where a summary should be, for no model could write one.

        `error` says why. None where there is nothing to cut.
        """
        cut = self.cut(request)
        if cut is None:
            return None

        covered = cut.covered(apply_prune(request.items, request.watermark))
        tokens = output_cap(request.threshold, self._desk.window())
        text = digest(covered, int(tokens * DIGEST_BYTES_PER_TOKEN))
        return CompactionPlan(
            history=(self._summary(cut, text, request), *cut.retained(request.items)),
            base_len=len(request.items),
            watermark=cut.new_watermark(request.watermark),
            method="digest",
            generation=request.generation + 1,
            usage=Usage(0, 0, 0, 0),
            failure=error,
        )

    def _summary(self, cut: Cut, text: str, request: CompactionRequest) -> SummaryMessage:
        covered = cut.covered(request.items)
        covers = Covers(request.session_id, covered[0].uid, covered[-1].uid, request.head_hash)
        return SummaryMessage(new_uid(), text, covers, request.generation + 1)

    # ------------------------------------------------------------------ the engine contract

    def update_model(
        self,
        model: str,
        context_length: int,
        base_url: str = "",
        api_key: object = "",
        provider: str = "",
        api_mode: str = "",
    ) -> None:
        """Take the model in force; the threshold is the manifest's, not a share of the window."""
        limits = thresholds_for(
            self._desk.settings, provider=provider, model=model, window=context_length
        )
        self.context_length = context_length
        self.threshold_tokens = limits.compact or 0

    def update_from_response(self, usage: dict[str, Any]) -> None:
        """Take the newest measured sizes; a response without any changes nothing."""
        if not usage:
            return

        self.last_prompt_tokens = usage.get("prompt_tokens") or 0
        self.last_completion_tokens = usage.get("completion_tokens") or 0
        self.last_total_tokens = usage.get("total_tokens") or 0

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        """Tell whether the prompt is over the manifest's threshold."""
        tokens = self.last_prompt_tokens if prompt_tokens is None else prompt_tokens
        return bool(self.threshold_tokens) and tokens > self.threshold_tokens

    def compress(
        self,
        messages: list[dict[str, Any]],
        current_tokens: int | None = None,
        focus_topic: str | None = None,
        force: bool = False,  # noqa: FBT001, FBT002  the contract's signature
        memory_context: str = "",
    ) -> list[dict[str, Any]]:
        """Return the messages compacted; the same list where nothing could be done.

        Leading system rows and all rows that stay are the dicts given. Why nothing could be done is
        in `_last_summary_error`, where it is more than that there is nothing to cut.
        """
        self._last_compress_aborted, self._last_summary_error = False, ""
        at = next(
            (n for n, m in enumerate(messages) if m.get("role") not in _SYSTEM), len(messages)
        )
        rows = messages[at:]
        try:
            items = from_messages(rows, [], origin="user")
            plan = self.plan(
                self._asked(items, current_tokens, focus_topic, force=force, memory=memory_context)
            )
        except (BridgeError, CompactionError) as error:
            self._last_compress_aborted, self._last_summary_error = True, str(error)
            return messages

        if plan is None or self._weight(plan.history) >= self._weight(items):
            return messages

        self.compression_count += 1
        known = {id(item): row for item, row in zip(items, rows, strict=True)}
        kept = [known.get(id(item)) or message_of(item) for item in plan.history]
        return [*messages[:at], *kept]

    def _asked(
        self,
        items: Sequence[Item],
        current_tokens: int | None,
        focus: str | None,
        *,
        force: bool,
        memory: str,
    ) -> CompactionRequest:
        tokens = current_tokens or round(self._weight(items))
        return CompactionRequest(
            session_id="",
            head_hash="",
            items=tuple(items),
            watermark=0,
            trigger="manual" if force else "threshold",
            threshold=self.threshold_tokens or max(1, tokens // 2),
            occupancy=tokens,
            generation=self.compression_count,
            focus=focus,
            memory_context=memory,
        )

    def _weight(self, items: Sequence[Item]) -> float:
        return sum(map(self._desk.weigh, items))
