"""Holding an engine to the contract: every check, each with engines and a folder of its own."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from attrs import evolve, frozen

from pod.context.attempt import tried
from pod.context.engine import ContextEngine
from pod.context.ownership import release_engine

from .bench import Bench, said
from .catalogue import CHECKS
from .results import Broken, Check, NotApplicable, Report, Result, save_input
from .scripted import ScriptedModel
from .speaking import speaking

_log = logging.getLogger("pod.testing")


@frozen(kw_only=True)
class Terms:
    """How an engine is checked."""

    limit_s: float = 20.0
    """How long any one call into the engine may take."""
    examples: int = 20
    """How many conversations are made up beside the fixed ones, for each property."""
    reductions: int = 60
    """How many more are tried to make one smaller that breaks; 0: it stays as it was found."""
    save: Path | None = None
    """Where input that breaks a check is saved; None: nowhere."""


def check_engine(
    engine: Callable[[], ContextEngine],
    *,
    checks: Iterable[Check] = CHECKS,
    terms: Terms | None = None,
    name: str | None = None,
) -> Report:
    """Return what comes of every check of an engine; nothing that the engine does is raised.

    Args:
        engine: Gives a new engine each time it is called.
        checks: Those to make; by default all.
        terms: Times, amounts, and where to save input that breaks a check.
        name: What the engine is called in the report and in the names of saved files; by default
            what it calls itself.

    Raises:
        OSError: Input could not be saved.
    """
    kept = terms or Terms()
    called = name or _name_of(engine)
    slow: set[str] = set()
    results = (run_check(check, engine, terms=kept, name=called, slow=slow) for check in checks)
    return Report(called, tuple(results))


def run_check(
    check: Check,
    engine: Callable[[], ContextEngine],
    *,
    terms: Terms,
    name: str = "engine",
    slow: set[str] | None = None,
) -> Result:
    """Return what comes of one check. Raises `OSError` where input could not be saved.

    `slow` is kept between the checks of one engine: a call that has not returned is in it, and is
    not waited for as long again.
    """
    never_returned = set() if slow is None else slow
    with tempfile.TemporaryDirectory(prefix="pod-check-", ignore_cleanup_errors=True) as folder:
        result = _run(check, engine, terms, Path(folder), slow=never_returned)

    if terms.save is None or result.outcome != "broken" or result.rows is None:
        return result

    return evolve(result, saved=save_input(result, name, terms.save))


def _run(
    check: Check,
    engine: Callable[[], ContextEngine],
    terms: Terms,
    folder: Path,
    *,
    slow: set[str],
) -> Result:
    model = ScriptedModel()
    bench = Bench(
        engine,
        folder,
        limit_s=terms.limit_s,
        examples=terms.examples,
        reductions=terms.reductions,
        model=model,
        slow=slow,
    )
    with speaking(model, lambda: bench.home):
        try:
            _, ended = tried(lambda: check.run(bench))
        finally:
            bench.close()

    return _result(check, ended)


def _result(check: Check, ended: BaseException | None) -> Result:
    match ended:
        case None:
            return Result(check, "holds")
        case NotApplicable():
            return Result(check, "not applicable", str(ended))
        case Broken(found=found, rows=rows):
            return Result(check, "broken", found, None if rows is None else tuple(rows))
        case _:
            # What an engine gives may be any object, and raise when it is looked at.
            _log.debug("the check %s ended early", check.id, exc_info=ended)
            found = f"something that the engine gave cannot be looked at: {said(ended)}"
            return Result(check, "broken", found)


def name_of(engine: Callable[[], ContextEngine]) -> str:
    """Return what an engine calls itself, after making one in a folder that is gone afterwards.

    Raises:
        Exception: What making it raises.
    """
    with (
        tempfile.TemporaryDirectory(prefix="pod-check-", ignore_cleanup_errors=True) as folder,
        speaking(ScriptedModel(), lambda: Path(folder)),
    ):
        made = engine()
        release_engine(made)
        return made.name


def _name_of(engine: Callable[[], ContextEngine]) -> str:
    made, _ = tried(lambda: name_of(engine))
    return made if isinstance(made, str) and made else "engine"
