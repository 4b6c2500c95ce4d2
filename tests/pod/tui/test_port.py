"""Pods in this process and behind a socket are the same to a view; the type checker says so too."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

from pod import Pod
from pod.client import PodClient
from pod.tui.port import PodPort

MEMBERS = [name for name in vars(PodPort) if not name.startswith("_")]


@pytest.mark.parametrize("kind", [Pod, PodClient])
@pytest.mark.parametrize("name", MEMBERS)
def test_a_pod_has_what_a_view_needs(kind: type, name: str) -> None:
    wanted, found = inspect.getattr_static(PodPort, name), inspect.getattr_static(kind, name)
    assert isinstance(found, property) is isinstance(wanted, property)
    if isinstance(wanted, property):
        return

    taken = inspect.signature(found).parameters
    for parameter in inspect.signature(wanted).parameters.values():
        assert taken[parameter.name].kind is parameter.kind
        assert taken[parameter.name].default == parameter.default

    extra = [taken[each] for each in taken if each not in inspect.signature(wanted).parameters]
    assert all(parameter.default is not inspect.Parameter.empty for parameter in extra)
    assert inspect.iscoroutinefunction(wanted) is inspect.iscoroutinefunction(found)


@pytest.mark.parametrize(
    ("what", "heavy"),
    [
        ("pod.cli.main", ("prompt_toolkit", "rich")),
        ("pod.tui.model, pod.tui.recall, pod.tui.state", ("prompt_toolkit", "rich")),
        ("pod.cli.viewing, pod.tui.app", ("prompt_toolkit",)),
    ],
)
def test_what_is_not_drawn_loads_nothing_to_draw_with(what: str, heavy: tuple[str, ...]) -> None:
    code = f"import sys, {what}; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=15
    )
    assert done.stdout.strip() == "[]"
