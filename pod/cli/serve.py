"""`pod serve`: a pod that outlives the terminal. This module reads the command line."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, cast

import click

from .failures import debug_option, reported

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .options import RunOptions


@click.command()
@click.argument("manifest", metavar="MANIFEST")
@click.option("--foreground", is_flag=True, help="Stay in this terminal until it is stopped.")
@click.option("--stdio", is_flag=True, help="Speak the protocol on stdin and stdout instead.")
@click.option("--resume", metavar="ID", help="Go on with this session.")
@click.option("--continue", "go_on", is_flag=True, help="Go on with the pod's last session.")
@click.option("--fork", metavar="ID", help="Go on with a copy of this session.")
@click.option("--model", metavar="M", help="Use another model.")
@click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="Change a manifest key.")
@click.option("--ready-fd", type=int, hidden=True)
@debug_option
@click.pass_context
def serve(
    context: click.Context,
    /,
    *,
    foreground: bool,
    stdio: bool,
    ready_fd: int | None,
    **given: object,
) -> None:
    """Serve a pod that outlives this terminal.

    Everybody of this user can attach to it, over a Unix socket. It goes on when this terminal is
    closed, until `pod stop`. Begun anew with --continue it goes on with its last session, and
    whoever was subscribed can be told what it missed.

    Exit codes: 0 it is served, or was and has ended well; else as for `pod run`.
    """
    from .options import RunOptions

    options = RunOptions(**cast("dict[str, Any]", given))
    options.check(stdin_is_terminal=False)
    if foreground and stdio:
        raise click.UsageError("give one of --foreground and --stdio")

    with reported():
        if stdio or foreground:
            code = _serve_here(options, os.environ, stdio=stdio, ready_fd=ready_fd)
        else:
            code = _detach(options, os.environ)

    context.exit(code)


def _serve_here(
    options: RunOptions, env: Mapping[str, str], *, stdio: bool, ready_fd: int | None
) -> int:
    from manifests import load_manifest
    from pod.home import Home

    from .serving import serve_on_socket, serve_on_stdio

    loaded = load_manifest(options.manifest, overrides=options.overrides, env=env)
    home = Home.from_env(env)
    if stdio:
        return serve_on_stdio(options, loaded, home, env)

    return serve_on_socket(options, loaded, home, env, ready_fd=ready_fd)


def _detach(options: RunOptions, env: Mapping[str, str]) -> int:
    from manifests import load_manifest
    from pod.home import Home

    from .detach import detach

    # Its mistakes are told here and now, and not in a log.
    loaded = load_manifest(options.manifest, overrides=options.overrides, env=env)
    return detach(options, loaded.manifest.pod.name, Home.from_env(env))
