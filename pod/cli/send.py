"""`pod send`: one request to a served pod, and its answer."""

from __future__ import annotations

import json
import os
from types import NoneType
from typing import Annotated, Any, get_args, get_origin

import click

from .failures import debug_option, reported
from .listing import say_json


@click.command()
@click.argument("name", metavar="NAME")
@click.argument("method", metavar="METHOD")
@click.argument("words", nargs=-1, metavar="[KEY=VALUE...|JSON]")
@debug_option
def send(name: str, method: str, words: tuple[str, ...]) -> None:
    """Send one request to a pod and print what it answers, as JSON.

    For example: pod send reviewer run input="Review the diff". What comes of a run is told by its
    events: pod events reviewer. `pod protocol schema` has every method and what it takes.
    """
    from pod.home import Home
    from pod.serve.caller import Caller
    from pod.serve.places import Places

    with reported():
        params = parameters(method, words)
        places = Places.of(Home.from_env(os.environ), name)
        with Caller.connect(places) as caller:
            # Some take as long as a model does; Ctrl-C leaves the pod as it is.
            answer = caller.call(method, params, timeout_s=None)

    say_json(answer)


def parameters(method: str, words: tuple[str, ...]) -> dict[str, Any]:
    """Return the parameters that the words are: one JSON object, or each KEY=VALUE.

    Raises `click.UsageError` for anything else.
    """
    if len(words) == 1 and words[0].lstrip().startswith("{"):
        try:
            whole: dict[str, Any] = json.loads(words[0])
        except ValueError as error:
            message = f"the parameters are not JSON: {error}"
            raise click.UsageError(message) from None

        return whole

    params: dict[str, Any] = {}
    for word in words:
        key, is_there, value = word.partition("=")
        if not key or not is_there:
            message = f"{word!r} is not KEY=VALUE, and not a JSON object"
            raise click.UsageError(message)

        params[key] = value if _is_text(method, key) else _value(value)

    return params


def _is_text(method: str, key: str) -> bool:
    """Tell whether a parameter is a text, so that `input=5` is one."""
    from pod.protocol.methods import METHODS

    known = METHODS.get(method)
    field = known.params.model_fields.get(key) if known else None
    if field is None:
        return False

    kinds = {_bare(kind) for kind in get_args(field.annotation) or (field.annotation,)}
    return kinds - {NoneType} == {str}


def _bare(kind: object) -> object:
    """Return a type without what is required of its values."""
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _value(text: str) -> Any:  # noqa: ANN401  whatever JSON has
    try:
        return json.loads(text)
    except ValueError:
        return text
