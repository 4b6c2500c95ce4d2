"""`pod attach`: the view of a conversation, on a pod that is served."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

import click

from .failures import debug_option, reported


@click.command()
@click.argument("name", metavar="NAME")
@click.option("-v", "--verbose", is_flag=True, help="Show thoughts, requests and prunes too.")
@debug_option
@click.pass_context
def attach(context: click.Context, /, name: str, verbose: bool) -> None:
    """Watch a served pod, and talk to it.

    What is typed goes to the pod; /help lists the commands. Ctrl-C stops what the pod is doing,
    Ctrl-D leaves, and the pod goes on. A lost connection is made anew by itself. Where stdin is
    no terminal, each of its lines is a prompt or a command.
    """
    with reported():
        code = _attach(name, os.environ, is_verbose=verbose)

    context.exit(code)


def _attach(name: str, env: Mapping[str, str], *, is_verbose: bool) -> int:
    import asyncio

    from .complaints import complaints_on_stderr
    from .watching import watch

    has_person = sys.stdin is not None and sys.stdin.isatty()
    with complaints_on_stderr():
        return asyncio.run(watch(name, env, is_verbose=is_verbose, has_person=has_person))
