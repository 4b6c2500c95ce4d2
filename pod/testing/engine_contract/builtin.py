"""The built-in engine by its message-list face, so that it is held to what every engine is."""

from __future__ import annotations

from manifests import CompactionSection
from pod.compaction.plan import Sizes
from pod.compaction.summary import SummaryAnswer, SummaryCall
from pod.context.compressor import Compressor, Desk
from worker.errors import ProviderError
from worker.llm.types import Usage
from worker.tokens import item_tokens

from .scripted import ModelFailed
from .speaking import NAME, WINDOW, current_model


def built_in() -> Compressor:
    """Return a new built-in engine, whose summaries the model of the check writes."""
    model = current_model()

    def summarize(_: SummaryCall) -> SummaryAnswer:
        try:
            text = model.complete()
        except (ModelFailed, TimeoutError) as error:
            raise ProviderError(str(error)) from error

        return SummaryAnswer(text, "end", Usage(10, 10, 0, 0), NAME)

    return Compressor(
        Desk(
            settings=CompactionSection(compact_threshold=4_000, compact_retained_tokens=2_000),
            weigh=item_tokens,
            sizes=lambda: Sizes(system=0, tools=(), newest_message=0),
            summarize=summarize,
            window=lambda: WINDOW,
        )
    )
