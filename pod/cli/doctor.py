"""`pod doctor`: look for what would keep a pod from running."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from .failures import FAILED, debug_option, reported
from .listing import say, say_json

if TYPE_CHECKING:
    from .findings import Finding


@click.command()
@click.argument("manifest", required=False, metavar="[MANIFEST]")
@click.option(
    "--try/--no-try",
    "is_trying",
    default=None,
    help="Ask each model a little something, or send nothing; default with MANIFEST: --try.",
)
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change a key.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list instead of lines.")
@debug_option
@click.pass_context
def doctor(
    context: click.Context,
    manifest: str | None,
    is_trying: bool | None,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Look for what would keep a pod from running.

    Exits with 1 where something would. Without MANIFEST: this machine and the home. With it also
    its engine and tools, its keys (never shown), and what each of its models can do, which is
    tried with two small requests: an answer and a tool call.
    """
    if manifest is None and (is_trying is not None or overrides):
        raise click.UsageError("--try, --no-try and --set need a MANIFEST")

    from pod.home import Home

    from .machine_check import check_machine

    home = Home.from_env(os.environ)
    found: list[Finding] = []

    def tell(finding: Finding) -> None:
        found.append(finding)
        if not as_json:
            say(finding.line)

    with reported():
        checkup = None
        if manifest is not None:
            from manifests import load_manifest

            from .manifest_check import Checkup

            loaded = load_manifest(manifest, overrides=overrides, env=os.environ)
            checkup = Checkup(loaded, home, os.environ, is_trying is not False)

        for finding in check_machine(home):
            tell(finding)

        for finding in checkup.findings() if checkup else ():
            tell(finding)

    if as_json:
        from attrs import asdict

        say_json([asdict(finding) for finding in found])

    if any(finding.level == "fail" for finding in found):
        context.exit(FAILED)
