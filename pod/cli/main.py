"""`pod`: the top of the command line. It knows every command by name and loads the one in use."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import NamedTuple, cast

import click

from .failures import (
    FAILED,
    INTERRUPTED,
    debug_option,
    exit_code,
    is_about_output,
    is_expected,
    report,
    report_defect,
    report_output,
)


class Known(NamedTuple):
    """Where a command is, and its line in the overview, which is shown without loading it."""

    place: str
    summary: str


COMMANDS: dict[str, Known] = {
    "run": Known("pod.cli.run:run", "Run a prompt, or talk to a pod."),
    "serve": Known("pod.cli.serve:serve", "Serve a pod that outlives this terminal."),
    "ps": Known("pod.cli.ps:ps", "List the pods that are served now."),
    "attach": Known("pod.cli.attach:attach", "Watch a served pod, and talk to it."),
    "send": Known(
        "pod.cli.send:send", "Send one request to a pod and print what it answers, as JSON."
    ),
    "events": Known("pod.cli.events:events", "Print a served pod's events as they come."),
    "logs": Known("pod.cli.logs:logs", "Print what a served pod has printed."),
    "stop": Known("pod.cli.stop:stop", "End a served pod, and return when it is gone."),
    "sessions": Known(
        "pod.cli.sessions:sessions",
        "Where conversations are kept: list, read, search, fork and verify them.",
    ),
    "manifest": Known(
        "pod.cli.manifest:manifest",
        "Check manifests, print their schema, write one to start from.",
    ),
    "engines": Known(
        "pod.cli.engines:engines",
        "Context engines: which there are, and where they come from.",
    ),
    "models": Known("pod.cli.models:models", "Local models, which need no key."),
    "protocol": Known(
        "pod.cli.protocol:protocol", "What served pods and their clients send each other."
    ),
    "doctor": Known("pod.cli.doctor:doctor", "Look for what would keep a pod from running."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when one of them is used, and not for the overview."""

    known: Mapping[str, Known] = MappingProxyType({})

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the overview."""
        return list(self.known)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command, imported now; None for a name that is none."""
        known = self.known.get(cmd_name)
        if known is None:
            return None

        module, _, attribute = known.place.partition(":")
        return cast("click.Command", getattr(import_module(module), attribute))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the overview from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, known.summary) for name, known in self.known.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; a name that is none is answered with the nearest ones."""
        name = args[0]
        if name not in self.known and not name.startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(name, self.known)
            meant = f"; did you mean {' or '.join(near)}?" if near else "; `pod --help` lists them"
            ctx.fail(f"no command {name!r}{meant}")

        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command. What goes wrong ends as a message and an exit code."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        # The supervision point of the whole program: nobody is shown a bare traceback.
        except Exception as error:
            if isinstance(error, BrokenPipeError) and is_about_output(error):
                # Else click ends the process itself, with a code that says the command failed.
                raise click.exceptions.Exit(report_output(error)) from None

            if is_about_output(error):
                raise

            if is_expected(error):
                report(error)
                raise click.exceptions.Exit(exit_code(error)) from None

            report_defect(error)
            raise click.exceptions.Exit(FAILED) from None


class Commands(LazyGroup):
    """The commands of `pod`."""

    known = COMMANDS


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="podworker", message="podworker %(version)s")
@debug_option
def cli() -> None:
    """Long-running LLM agents whose context never overflows and whose history is never lost.

    Try: pod manifest init pod.toml, then pod run pod.toml "Who are you?"
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Carry out the command line and end the process with its exit code."""
    _open_closed_streams()
    sys.exit(_carried_out(sys.argv[1:] if arguments is None else list(arguments)))


def _carried_out(arguments: list[str]) -> int:
    try:
        code = cli.main(arguments, prog_name="pod", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except OSError as error:
        if not is_about_output(error):
            raise

        code = report_output(error)
        _drop_stdout()

    return code if isinstance(code, int) else 0


def _open_closed_streams() -> None:
    """Put nothing in the place of streams that the process was started without.

    Else the next file to be opened, such as a session's log, would be what others take for stderr.
    """
    for name, flags in (("stdin", os.O_RDONLY), ("stdout", os.O_WRONLY), ("stderr", os.O_WRONLY)):
        if getattr(sys, name) is None:
            number = os.open(os.devnull, flags)
            setattr(sys, name, os.fdopen(number, "r" if name == "stdin" else "w"))


def _drop_stdout() -> None:
    """Let the interpreter's last flush go nowhere: nobody reads any more."""
    with contextlib.suppress(OSError, ValueError):  # where there is no descriptor there is no flush
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
