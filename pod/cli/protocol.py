"""`pod protocol`: the events that pods publish, for programs."""

from __future__ import annotations

import json

import click


@click.group()
def protocol() -> None:
    """The events that pods publish."""


@protocol.command()
def schema() -> None:
    """Print the JSON Schema of every event's data, by its name on the wire."""
    from pydantic import TypeAdapter

    from pod.protocol import EVENTS

    adapters = {name: TypeAdapter(model) for name, model in EVENTS.items()}
    found = {name: adapter.json_schema() for name, adapter in adapters.items()}
    click.echo(json.dumps({"events": found}, indent=2, ensure_ascii=False))
