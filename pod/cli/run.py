"""`pod run`: one prompt to its end, or a conversation. This module reads the command line."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from .failures import debug_option, reported

if TYPE_CHECKING:
    from manifests import LoadedManifest
    from pod.home import Home
    from pod.pod import Pod

    from .options import RunOptions


@click.command()
@click.argument("manifest", metavar="MANIFEST")
@click.argument("words", nargs=-1, metavar="[PROMPT...|-]")
@click.option("--resume", metavar="ID", help="Go on with this session.")
@click.option("--continue", "go_on", is_flag=True, help="Go on with the pod's last session.")
@click.option("--fork", metavar="ID", help="Go on with a copy of this session.")
@click.option("--json", "as_json", is_flag=True, help="Print events, one a line, and no text.")
@click.option("--model", metavar="M", help="Use another model.")
@click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="Change a manifest key.")
@click.option(
    "--attach",
    "attached",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Send an image or a text file too.",
)
@click.option("-v", "--verbose", is_flag=True, help="Tell more on stderr.")
@debug_option
@click.pass_context
def run(context: click.Context, /, **given: object) -> None:
    """Run a prompt, or talk to a pod.

    The answer is streamed to stdout; whatever else there is to say goes to stderr. PROMPT may be
    several words; - stands for what comes on stdin. Without a PROMPT what is piped in is the
    prompt, and on a terminal a conversation begins. A pod begins a new session where no option
    names one; ids may be shortened to 8 or more digits.

    Exit codes: 0 fine, 1 the run failed, 2 wrong use or manifest, 3 damaged session, 4 the
    provider refused, 130 interrupted.
    """
    from .options import RunOptions

    options = RunOptions(**cast("dict[str, Any]", given))
    options.check(stdin_is_terminal=_is_terminal(sys.stdin))
    with reported():
        code = _run(options, os.environ)

    context.exit(code)


def _run(options: RunOptions, env: Mapping[str, str]) -> int:
    from manifests import load_manifest
    from pod.home import Home

    loaded = load_manifest(options.manifest, overrides=options.overrides, env=env)
    home = Home.from_env(env)
    if options.is_chat(stdin_is_terminal=_is_terminal(sys.stdin)):
        from .chat import talk

        return talk(options, loaded, home, env)

    from .oneshot import run_to_end
    from .prompt import read_prompt

    message = read_prompt(options.words, options.attached)
    return run_to_end(_pod(options, loaded, home, env), message, loaded, options)


def _pod(options: RunOptions, loaded: LoadedManifest, home: Home, env: Mapping[str, str]) -> Pod:
    from pod.pod import Pod

    from .options import chosen_session

    return Pod(loaded, home=home, env=env, resume=chosen_session(options, loaded, home))


def _is_terminal(stream: object) -> bool:
    return bool(stream is not None and getattr(stream, "isatty", bool)())
