"""From an error to what a person reads and to the exit code; the one table of both.

Errors are known by their names, so that nothing is imported for an error that did not happen.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import click

FAILED = 1
WRONG_USE = 2
DAMAGED = 3
REFUSED = 4

EXIT_CODES: dict[str, int] = {
    "manifests.errors.ManifestError": WRONG_USE,
    "session_store.errors.InvalidHistory": WRONG_USE,
    "session_store.errors.InvalidPodName": WRONG_USE,
    "session_store.errors.InvalidSessionId": WRONG_USE,
    "session_store.errors.SessionDamaged": DAMAGED,
    "session_store.errors.SessionNotFound": WRONG_USE,
    "session_store.errors.SessionStoreError": FAILED,
    "session_store.errors.UnknownEntry": WRONG_USE,
}
"""By an error's full name. What is not here has the code of the nearest class it comes from."""


def is_expected(error: BaseException) -> bool:
    """Tell whether the error is one of ours, whose text says what, why and what to do."""
    return _listed(error) is not None


def exit_code(error: BaseException) -> int:
    """Return the exit code that the error stands for."""
    listed = _listed(error)
    return FAILED if listed is None else listed


def report(error: BaseException) -> None:
    """Print on stderr what is wrong and what can be done, and the traceback under `--debug`."""
    from .listing import say

    if _is_debugging():
        say("".join(traceback.format_exception(error)).rstrip("\n"), err=True)

    message, hint = getattr(error, "message", None), getattr(error, "hint", "")
    if not isinstance(message, str):
        message = str(error) or type(error).__name__

    say(f"{message}\n  {hint}" if hint else message, err=True)


@contextmanager
def reported() -> Iterator[None]:
    """Turn an error of ours into its report and its exit code. Others pass."""
    try:
        yield
    # The supervision point of a command: what is not ours to explain goes on to the top.
    except Exception as error:
        if not is_expected(error):
            raise

        report(error)
        raise click.exceptions.Exit(exit_code(error)) from None


def _listed(error: BaseException) -> int | None:
    names = (f"{cls.__module__}.{cls.__qualname__}" for cls in type(error).__mro__)
    return next((EXIT_CODES[name] for name in names if name in EXIT_CODES), None)


def _is_debugging() -> bool:
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.find_root().params.get("debug"))
