"""`pod sessions compact`: compact a stored session now, or say what that would come to."""

from __future__ import annotations

import os
from typing import Any, cast

import click

from .failures import debug_option, reported


@click.command()
@click.argument("session", metavar="ID")
@click.option(
    "--manifest", required=True, metavar="FILE", help="Whose provider and settings to use."
)
@click.option("--focus", metavar="TEXT", help="What the summary should pay most attention to.")
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Only say what it would come to.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change a key.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
@debug_option
@click.pass_context
def compact(context: click.Context, /, **given: object) -> None:
    """Summarize the older part of a session; it goes on as a new one.

    The old session stays as it is. With --dry-run no model is asked and nothing is written.
    """
    with reported():
        from .compacting import CompactOptions, carry_out

        options = CompactOptions(**cast("dict[str, Any]", given))
        code = carry_out(options, os.environ)

    context.exit(code)
