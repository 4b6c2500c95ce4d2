"""`pod protocol`: what goes over the wire, for programs that speak it."""

from __future__ import annotations

import json

import click


@click.group()
def protocol() -> None:
    """What served pods and their clients send each other."""


@protocol.command()
def schema() -> None:
    """Print the JSON Schema of every event, method, answer and line."""
    from pod.protocol.schema import protocol_schema

    click.echo(json.dumps(protocol_schema(), indent=2, ensure_ascii=False))


@protocol.command()
def typescript() -> None:
    """Print TypeScript declarations of the same."""
    from pod.protocol.typescript import typescript as declarations

    click.echo(declarations(), nl=False)
