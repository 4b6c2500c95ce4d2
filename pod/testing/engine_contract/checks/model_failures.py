"""What becomes of the transcript when the model that summarizes does not do its work."""

from __future__ import annotations

from ..bench import SMALL_WINDOW, Bench, Compressed
from ..conversations import FIXED
from ..examine import (
    orphan_results,
    same_rows,
    text_of,
    tokens,
    unanswered_calls,
    visible,
)
from ..results import Area, Broken, NotApplicable
from ..scripted import Manner
from .compressing import newest_kept

failures = Area("model failures")


def _kept(bench: Bench, manner: Manner) -> None:
    """Raise `Broken` where a model in this manner costs the transcript anything."""
    engine = bench.started(window=SMALL_WINDOW)
    rows = FIXED["many small calls"].rows()
    bench.model.become(manner)
    size = tokens(rows)
    made = [
        bench.compress(engine, rows, current_tokens=size, force=force) for force in (False, True)
    ]
    if bench.model.calls == 0:
        raise NotApplicable("its compress() asks no model")

    for compressed in made:
        compressed.look(_whole)

    bench.model.become("answers")
    bench.compress(engine, rows, current_tokens=tokens(rows), force=True).look(_whole)


def _whole(compressed: Compressed) -> None:
    given, returned = compressed.given, compressed.returned
    if not returned:
        raise Broken("compress() emptied the transcript")
    if same_rows(given, returned):
        return

    newest_kept(compressed)
    if orphan_results(returned) or unanswered_calls(returned):
        raise Broken("compress() parted calls from results")
    if tokens(returned) >= tokens(given):
        raise Broken(f"compress() made {tokens(returned):,} tokens of {tokens(given):,}")

    known = set(map(visible, given))
    if not any(visible(row) not in known and text_of(row).strip() for row in returned):
        raise Broken("compress() dropped rows and put nothing in their place")


@failures.check("§3.3 step 11, §10 #29559")
def _model_that_fails(bench: Bench) -> None:
    """With a model that fails, compress() returns and the transcript is kept or stood in for."""
    _kept(bench, "fails")


@failures.check("§3.3 step 11, §2.6")
def _model_that_times_out(bench: Bench) -> None:
    """With a model that times out, compress() returns and the transcript is kept."""
    _kept(bench, "times out")


@failures.check("§3.3 step 10")
def _model_that_says_nothing(bench: Bench) -> None:
    """With a model that answers nothing, compress() returns and the transcript is kept."""
    _kept(bench, "says nothing")


@failures.check("§3.2, §2.2")
def _model_that_rambles(bench: Bench) -> None:
    """With a model that answers far too much, compress() does not make the transcript larger."""
    _kept(bench, "rambles")
