"""`pod engines check`: an engine held to the contract, and told where it is not kept."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pod.home import Home
from pod.tui.text import counted

from .failures import FAILED, WRONG_USE, debug_option, reported
from .listing import padded, say, say_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pod.context.engine import ContextEngine
    from pod.context.plugin_options import OptionValue
    from pod.testing.engine_contract import Report, Result

_folder = click.Path(file_okay=False, path_type=Path)


@click.command()
@click.argument("name", metavar="NAME|FOLDER")
@click.option("--manifest", "manifest", metavar="FILE", help="With the options that FILE has.")
@click.option("--save", type=_folder, metavar="DIR", help="Save input that breaks a check here.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0, min_open=True),
    default=20,
    show_default=True,
    metavar="SECONDS",
    help="How long its import, and any one call, may take.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
@debug_option
def check(
    name: str, *, manifest: str | None, save: Path | None, timeout_s: float, as_json: bool
) -> None:
    """Hold the engine NAME, or the one in FOLDER, to the contract of context engines.

    Its code is run: in a folder made for it, with a model from a script, and with none of your
    sessions. Exits with 1 where it does not keep to a statement, with 2 where there is no such
    engine.
    """
    from pod.testing.engine_contract import Terms, check_engine

    with reported():
        options = _options(manifest)

    called, make = _engine(name, options)
    # What a plugin prints is no part of the report.
    with contextlib.redirect_stdout(sys.stderr):
        _must_load(name, make, timeout_s)
        report = check_engine(make, terms=Terms(limit_s=timeout_s, save=save), name=called)

    if as_json:
        say_json(_fields(report))
    else:
        _tell(report)

    if report.broken:
        raise click.exceptions.Exit(FAILED)


def _options(manifest: str | None) -> Mapping[str, OptionValue]:
    if manifest is None:
        return {}

    from manifests import load_manifest

    return load_manifest(manifest, env=os.environ).manifest.context.options


def _engine(
    name: str, options: Mapping[str, OptionValue]
) -> tuple[str, Callable[[], ContextEngine]]:
    """Return what the engine is called and what makes one: a name, or a folder by its path."""
    from pod.context.discovery import BUILT_IN
    from pod.context.loader import load_plugin
    from pod.testing.engine_contract import built_in

    if name == BUILT_IN:
        return name, built_in

    plugins, called = Home.from_env(os.environ).plugins, name
    if os.sep in name or name in {".", ".."}:
        path = Path(os.path.abspath(name))  # noqa: PTH100  a link keeps its own name
        plugins, called = path.parent, path.name

    told: set[str] = set()

    def make() -> ContextEngine:
        plugin = load_plugin(called, plugins, options=options)
        for line in plugin.notices:
            if line not in told:  # It is loaded for every check.
                told.add(line)
                say(line, err=True)

        return plugin.engine

    return called, make


def _must_load(name: str, make: Callable[[], ContextEngine], timeout_s: float) -> None:
    """End the command where there is no such engine, or it does not load."""
    from pod.context.errors import EngineNotFound, EngineTimeout, EngineUnavailable
    from pod.context.threads import EngineThread
    from pod.testing.engine_contract import name_of

    try:
        # A thread of its own is left behind where an import never ends.
        asyncio.run(EngineThread("check").call(name_of, make, timeout_s=timeout_s))
    except EngineNotFound:
        say(f"there is no engine {name!r}", err=True)
        is_here = os.sep not in name and Path(name, "__init__.py").is_file()
        here = f"; the folder here is checked by ./{name}" if is_here else ""
        say(f"  which there are: pod engines list{here}", err=True)
        raise click.exceptions.Exit(WRONG_USE) from None
    except EngineTimeout as error:
        say(f"the engine {name} was not loaded and made within {error.limit_s:g} s", err=True)
        raise click.exceptions.Exit(FAILED) from None
    except EngineUnavailable as error:
        say(f"the engine {name} cannot be had: {error.reason}", err=True)
        raise click.exceptions.Exit(FAILED) from None


# ------------------------------------------------------------------ what is told


def _tell(report: Report) -> None:
    made = len(report.holds) + len(report.broken)
    left = len(report.not_applicable)
    rest = f"; {left} do not apply to this engine" if left else ""
    say(f"{len(report.holds)} of {counted(made, 'contract check')} hold{rest}")
    alike: dict[str, list[Result]] = {}
    for result in report.broken:
        alike.setdefault(result.found, []).append(result)

    areas = max((len(results[0].check.area) for results in alike.values()), default=0)
    for found, results in alike.items():
        first, more = results[0], len(results) - 1
        rest = f"   (and so in {counted(more, 'other check')})" if more else ""
        say(f"  ✗ {padded(first.check.area, areas)}  {found}{_input(first)}{rest}")


def _input(result: Result) -> str:
    if result.rows is None:
        return ""

    kept = f"saved as {result.saved}" if result.saved else "--save DIR keeps it"
    return f"   (input: {counted(len(result.rows), 'message')}, {kept})"


def _fields(report: Report) -> dict[str, object]:
    return {
        "engine": report.engine,
        "holds": len(report.holds),
        "broken": len(report.broken),
        "not_applicable": len(report.not_applicable),
        "checks": [
            {
                "id": result.check.id,
                "area": result.check.area,
                "statement": result.check.statement,
                "source": result.check.source,
                "outcome": result.outcome.replace(" ", "_"),
                "found": result.found or None,
                "input_messages": None if result.rows is None else len(result.rows),
                "saved": str(result.saved) if result.saved else None,
            }
            for result in report.results
        ],
    }
