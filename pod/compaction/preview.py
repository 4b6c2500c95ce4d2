"""What compacting a stored session by hand would come to. No model is asked, nothing written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import frozen

from manifests import CompactionSection, LoadedManifest
from pod.compaction.cut import Cut, choose_cut, tail_threshold
from pod.compaction.plan import Sizes
from pod.compaction.summary import output_cap
from pod.compaction.thresholds import UNKNOWN_WINDOW, thresholds_for
from pod.toolbox import load_tools, system_prompt
from session_store import SessionState
from worker.items import Item, SummaryMessage, is_turn_start
from worker.llm import ScriptedClient
from worker.llm.types import RequestOptions
from worker.projection import Projector
from worker.prune import apply_prune
from worker.tokens import text_tokens, tool_tokens
from worker.worker import Worker, WorkerConfig

SUMMARY_SHARE = 0.1
"""How large a summary is taken to be: this part of what it stands for, within bounds."""
SMALLEST_SUMMARY = 400


@frozen
class Preview:
    """What a compaction would do. All sizes are tokens, by the estimator that compaction uses."""

    session_id: str
    threshold: int
    sizes: Sizes
    covered_items: int
    covered_turns: int
    """The turns from the first on that the summary would stand for, the last perhaps in part."""
    is_last_in_part: bool
    has_summary: bool
    """Whether an earlier summary is among what is covered."""
    covered_tokens: int
    kept_turns: int
    kept_tokens: int
    tokens_before: int
    tokens_after: int
    """With a summary of the expected size."""

    @property
    def is_possible(self) -> bool:
        """Whether what must stay leaves room below the threshold."""
        return self.sizes.floor <= self.threshold


def preview(loaded: LoadedManifest, state: SessionState, *, window: int | None) -> Preview | None:
    """Return what compacting `state` by hand would come to, or None where there is nothing to cut.

    It is the built-in compressor's view; `window` is that of the manifest's model, where known.

    Raises:
        PodError: A tool of the manifest cannot be loaded; its schema counts.
        WorkerError: A prompt file of the manifest cannot be read.
    """
    settings = loaded.manifest.compaction or CompactionSection()
    worker = _worker(loaded, state, window)
    client = worker.client
    threshold = thresholds_for(
        loaded.manifest.compaction, provider=client.provider, model=client.model, window=window
    ).of("manual")
    sizes, cap = sizes_of(worker), output_cap(threshold, window or UNKNOWN_WINDOW)
    cut = choose_cut(
        apply_prune(list(state.history), min(state.watermark, len(state.history))),
        retained_turns=settings.compact_retained_turns,
        retained_tokens=settings.compact_retained_tokens,
        threshold=tail_threshold(threshold, sizes, cap),
        weigh=worker.meter.weigh,
    )
    return None if cut is None else _preview(state, worker, cut, threshold)


def _preview(state: SessionState, worker: Worker, cut: Cut, threshold: int) -> Preview:
    meter = worker.meter
    covered, kept = cut.covered(state.history), cut.retained(state.history)
    covered_tokens = meter.estimate(_sent(worker, covered, state.watermark), fixed=False)
    tail = _sent(worker, kept, max(0, cut.new_watermark(state.watermark) - 1))
    kept_tokens = meter.estimate(tail, fixed=False)
    cap = output_cap(threshold, worker.client.context_window or UNKNOWN_WINDOW)
    summary = min(cap, max(SMALLEST_SUMMARY, round(covered_tokens * SUMMARY_SHARE)))
    in_part = cut.keep is not None or (
        cut.index < len(state.history) and not is_turn_start(state.history[cut.index])
    )
    return Preview(
        session_id=state.session_id,
        threshold=threshold,
        sizes=sizes_of(worker),
        covered_items=len(covered),
        covered_turns=sum(map(is_turn_start, state.history[: cut.index])),
        is_last_in_part=in_part,
        has_summary=any(isinstance(item, SummaryMessage) for item in covered),
        covered_tokens=covered_tokens,
        kept_turns=sum(map(is_turn_start, kept)),
        kept_tokens=kept_tokens,
        tokens_before=meter.estimate(_sent(worker, state.history, state.watermark)),
        tokens_after=meter.estimate(tail) + summary,
    )


def sizes_of(worker: Worker) -> Sizes:
    """Return what no compaction of the worker's history can remove, in fitted tokens."""
    scale = worker.meter.scale
    newest = next((item for item in reversed(worker.history) if is_turn_start(item)), None)
    return Sizes(
        system=round(text_tokens(worker.system_prompt) * scale),
        tools=tuple((spec.name, round(tool_tokens(spec) * scale)) for spec in worker.tool_specs),
        newest_message=round(worker.meter.weigh(newest)) if newest else 0,
    )


def _worker(loaded: LoadedManifest, state: SessionState, window: int | None) -> Worker:
    """Return a worker that is where the session's would be, measurements included."""
    manifest = loaded.manifest
    provider, settings = manifest.provider, manifest.worker
    worker = Worker(
        # It has no answers: only which model it would be counts here.
        ScriptedClient(
            (), provider=provider.kind, model=provider.model or provider.kind, context_window=window
        ),
        system_prompt=system_prompt(loaded),
        tools=load_tools(loaded),
        config=WorkerConfig(
            options=RequestOptions(max_tokens=settings.max_tokens),
            tool_output_max_bytes=settings.tool_output_max_bytes,
        ),
    )
    worker.set_history(state.history, watermark=state.watermark, turns=state.turns)
    if state.usage:
        last = state.usage[-1]
        worker.meter.restore(
            _sent(worker, state.history[: last.history_len], state.watermark),
            _sent(worker, state.history, state.watermark),
            last.input_tokens,
        )

    return worker


def _sent(worker: Worker, items: Sequence[Item], watermark: int) -> Iterable[Item]:
    pruned = apply_prune(list(items), min(watermark, len(items)))
    return Projector(worker.meter.content_max_bytes).project(pruned)
