"""What a conversation shows: the answer on stdout, everything around it on stderr."""

from __future__ import annotations

from attrs import define, field

from pod import protocol
from pod.pod import PodStatus
from pod.protocol import Envelope
from worker.llm.types import Usage

from .answer_stream import AnswerStream
from .listing import counted
from .narrator import Narrator
from .notes import Scene, tokens_in_and_out


@define
class Spent:
    """What the requests of a conversation came to."""

    requests: int = 0
    tokens: Usage = field(factory=Usage)
    """What providers measured; None where none of them did."""
    cost: float | None = None

    def add(self, requests: int, usage: protocol.Usage | None, cost: float | None) -> None:
        """Count requests that were made, and what is known of them."""
        self.requests += requests
        if usage is not None:
            self.tokens += Usage(usage.input_tokens, usage.output_tokens)

        if cost is not None:
            self.cost = (self.cost or 0.0) + cost


@define
class ChatView:
    """Shows a pod's events as they come. It is the pod's listener."""

    answers: AnswerStream
    scene: Scene
    spent: Spent = field(factory=Spent)
    _streamed: bool = field(default=False, init=False)
    _narrator: Narrator = field(init=False)

    def __attrs_post_init__(self) -> None:
        """Let an answer end before anything else is told."""
        self._narrator = Narrator(self.scene, self._end_answer)

    def __call__(self, envelope: Envelope) -> None:
        """Show an event."""
        match envelope.data:
            case protocol.TextDelta() as delta:
                self._streamed = True
                self.answers.feed(delta.text)
            case protocol.TextDone() as done:
                if not self._streamed:
                    self.answers.feed(done.text)

                self._end_answer()
            case protocol.RunEnd() as end:
                self._end_answer()
                self.spent.add(end.requests, end.usage, end.cost)
            case data:
                if isinstance(data, protocol.CompactionDone):
                    self.spent.add(0, data.usage, data.usage.cost if data.usage else None)

                self._narrator.tell(data)

    def _end_answer(self) -> None:
        self._streamed = False
        self.answers.finish()


def header(status: PodStatus) -> str:
    """Return the line that a conversation begins with."""
    parts = [status.name, f"{status.provider}/{status.model}"]
    if status.window is not None:
        parts.append(f"window {status.window:,}")

    if status.compact_threshold is not None:
        parts.append(f"compact at {status.compact_threshold:,}")

    return " · ".join([*parts, "/help"])


def status_lines(status: PodStatus) -> list[str]:
    """Return what `/status` says."""
    window = "not known" if status.window is None else f"{status.window:,} tokens"
    context = f"{status.occupancy:,} tokens ({status.occupancy_source})"
    history = f"{counted(status.history_len, 'item')}, {counted(status.turns, 'turn')}"
    lines = [
        f"session     {status.session_id}",
        f"model       {status.provider}/{status.model}",
        f"window      {window}",
        f"context     {context}, {history}",
        f"engine      {status.engine}",
        f"compaction  {_compaction(status)}",
    ]
    if status.watermark:
        lines.append(f"pruned      tool results before item {status.watermark}")

    return lines


def _compaction(status: PodStatus) -> str:
    if status.compaction_disabled:
        return f"off after {status.compaction_failures} failures in a row; /compact tries by hand"

    done = f"; {status.generation} so far" if status.generation else ""
    if status.compact_threshold is None:
        return f"by hand only (/compact){done}"

    return f"at {status.compact_threshold:,} tokens{done}"


def cost_lines(spent: Spent) -> list[str]:
    """Return what `/cost` says."""
    told = tokens_in_and_out(spent.tokens) or "how many tokens is not known"
    price = "no price is known for this model" if spent.cost is None else f"${spent.cost:.4f}"
    return [f"{counted(spent.requests, 'request')} · {told}", price]
