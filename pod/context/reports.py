"""What an engine says of its own compaction, by the attributes that the contract names."""

from __future__ import annotations

from attrs import frozen

from .engine import ContextEngine
from .words import one_line


@frozen
class CompressReport:
    """What was read off an engine right after its `compress` returned."""

    aborted: bool = False
    """Whether it gave up, and returned what it was given."""
    error: str = ""
    """Why its summary failed, if it did."""
    used_fallback: bool = False
    """Whether something else took the summary's place."""
    dropped: int = 0
    """How many messages were lost by that."""
    model: str = ""
    """The model for summaries that failed, where another one took over."""
    model_error: str = ""
    made_progress: bool = True

    @classmethod
    def of(cls, engine: ContextEngine) -> CompressReport:
        """Read an engine's attributes; raises what reading them does."""
        dropped = getattr(engine, "_last_summary_dropped_count", 0)
        return cls(
            aborted=getattr(engine, "_last_compress_aborted", False) is True,
            error=_text(engine, "_last_summary_error"),
            used_fallback=getattr(engine, "_last_summary_fallback_used", False) is True,
            dropped=dropped if isinstance(dropped, int) else 0,
            model=_text(engine, "_last_aux_model_failure_model"),
            model_error=_text(engine, "_last_aux_model_failure_error"),
            made_progress=getattr(engine, "_last_compression_made_progress", True) is not False,
        )

    def lines(self) -> list[str]:
        """Return what people should know, one line each."""
        lines = []
        if self.model:
            why = f" ({self.model_error})" if self.model_error else ""
            lines.append(
                f"its model for summaries, {self.model}, failed{why}; another one was used"
            )

        if self.used_fallback:
            why = f" ({self.error})" if self.error else ""
            lost = f"; {self.dropped} messages were left out" if self.dropped else ""
            lines.append(f"its summary failed{why}, and a fallback took its place{lost}")
        elif self.error and not self.aborted:
            lines.append(f"its summary failed: {self.error}")

        return lines


def _text(engine: ContextEngine, name: str) -> str:
    value = getattr(engine, name, None)
    return one_line(value) if isinstance(value, str) else ""
