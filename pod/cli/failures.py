"""From an error to what a person reads and to the exit code; the one table of both.

Errors are known by their names, so that nothing is imported for an error that did not happen.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from pod.runs import RunResult

FAILED = 1
WRONG_USE = 2
DAMAGED = 3
REFUSED = 4
INTERRUPTED = 130
BROKEN_PIPE = 141

EXIT_CODES: dict[str, int] = {
    "manifests.errors.ManifestError": WRONG_USE,
    "pod.cli.prompt.PromptUnusable": WRONG_USE,
    "pod.compaction.plan.CompactionError": FAILED,
    "pod.errors.KeyMissing": WRONG_USE,
    "pod.errors.NotBuilt": WRONG_USE,
    "pod.errors.PluginFailed": WRONG_USE,
    "pod.errors.PodError": FAILED,
    "pod.errors.PricesMissing": WRONG_USE,
    "pod.models.ModelError": WRONG_USE,
    "session_store.errors.InvalidHistory": WRONG_USE,
    "session_store.errors.InvalidPodName": WRONG_USE,
    "session_store.errors.InvalidSessionId": WRONG_USE,
    "session_store.errors.SessionDamaged": DAMAGED,
    "session_store.errors.SessionNotFound": WRONG_USE,
    "session_store.errors.SessionStoreError": FAILED,
    "session_store.errors.UnknownEntry": WRONG_USE,
    "session_store.errors.Unsuitable": WRONG_USE,
    "session_store.exchange.errors.NotImportable": WRONG_USE,
    "session_store.exchange.errors.UnknownFormat": WRONG_USE,
    "worker.errors.ProviderRefused": REFUSED,
    "worker.errors.ToolDefinitionError": WRONG_USE,
    "worker.errors.WorkerError": FAILED,
    "worker.llm.local.LocalExtraMissing": WRONG_USE,
    "worker.llm.local.ModelFileInvalid": WRONG_USE,
    "worker.llm.local.ModelFileMissing": WRONG_USE,
}
"""By an error's full name. What is not here has the code of the nearest class it comes from."""


def is_expected(error: BaseException) -> bool:
    """Tell whether the error is one of ours, whose text says what, why and what to do."""
    return _listed(error) is not None


def exit_code(error: BaseException) -> int:
    """Return the exit code that the error stands for."""
    listed = _listed(error)
    return FAILED if listed is None else listed


def explained(error: BaseException) -> str:
    """Return what a person reads of an error: what is wrong and what can be done."""
    return _told(error) if is_expected(error) else _defect(error)


def report(error: BaseException) -> None:
    """Print on stderr what is wrong and what can be done, and the traceback under `--debug`."""
    from .listing import say

    _say_traceback(error)
    say(_told(error), err=True)


def report_defect(error: BaseException) -> None:
    """Print on stderr that the error is ours, and what to send to whom it concerns."""
    from .listing import say

    _say_traceback(error)
    say(_defect(error), err=True)


def _told(error: BaseException) -> str:
    message, hint = getattr(error, "message", None), getattr(error, "hint", None) or ""
    if not isinstance(message, str):
        message, hint = str(error) or type(error).__name__, ""

    return "\n".join([message, *(f"  {line}" for line in hint.split("\n") if line)])


def _defect(error: BaseException) -> str:
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    more = "" if is_debugging() else "; the same command with --debug shows where"
    return (
        f"this is a defect of podworker: {what}\n"
        f"  sessions are as they were acknowledged{more}\n"
        "  please report it with that, the command line and `pod --version`"
    )


def report_output(error: OSError) -> int:
    """Say that stdout takes no more, unless that is because nobody reads; return the exit code."""
    from .listing import say

    if isinstance(error, BrokenPipeError):
        return BROKEN_PIPE

    with suppress(OSError):  # stderr may be on the same full disk
        say(f"cannot write the output: {(error.strerror or str(error)).lower()}", err=True)

    return FAILED


def is_about_output(error: BaseException) -> bool:
    """Tell whether the error came from writing to stdout or stderr: no file of a name is in it."""
    if not isinstance(error, OSError) or error.filename is not None:
        return False

    return error.errno in {errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF}


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


@contextmanager
def launching(manifest: object) -> Iterator[None]:
    """Let what keeps a pod from launching say what to do, and end with the code of wrong use.

    Nothing was asked of a provider then: what the worker complains of is a file of the manifest.
    """
    from session_store import SessionInUse
    from worker.errors import WorkerError

    try:
        yield
    except SessionInUse as error:
        error.hint = f"work on a copy: pod run {manifest} --fork {error.session_id}"
        watch = _served_by(error.holder.pid)
        if watch:
            error.hint = f"watch it: pod attach {watch}      {error.hint}"

        raise
    except WorkerError as error:
        report(error)
        raise click.exceptions.Exit(WRONG_USE) from None


def _served_by(pid: int) -> str | None:
    """Return the name of the pod that a process serves, if it serves one."""
    import os

    from pod.home import Home
    from pod.serve.claim import served

    names = (serving.name for serving in served(Home.from_env(os.environ)) if serving.pid == pid)
    return next(names, None)


def run_exit_code(result: RunResult) -> int:
    """Return the exit code that the end of a run stands for."""
    if result.outcome in {"finished", "paused", "yielded"}:
        return 0

    if result.outcome == "cancelled":
        return INTERRUPTED

    return FAILED if result.exception is None else exit_code(result.exception)


def is_debugging() -> bool:
    """Tell whether `--debug` was given, before or behind the command."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_DEBUG))


_DEBUG = "pod.debug"
_F = TypeVar("_F", bound=Callable[..., object])


def debug_option(function: _F) -> _F:
    """Give a command the option `--debug`, which it need not take itself."""

    def remember(context: click.Context, _: click.Parameter, value: bool) -> None:
        if value:
            context.meta[_DEBUG] = True

    return click.option(
        "--debug",
        is_flag=True,
        expose_value=False,
        callback=remember,
        help="Show tracebacks.",
    )(function)


def _say_traceback(error: BaseException) -> None:
    if not is_debugging():
        return

    import traceback

    from .listing import say

    say("".join(traceback.format_exception(error)).rstrip("\n"), err=True)


def _listed(error: BaseException) -> int | None:
    own = getattr(error, "exit_code", None)
    names = (f"{cls.__module__}.{cls.__qualname__}" for cls in type(error).__mro__)
    found = next((EXIT_CODES[name] for name in names if name in EXIT_CODES), None)
    # A model that cannot be pulled and one that is not there have one class and two codes.
    return own if found is not None and isinstance(own, int) else found
