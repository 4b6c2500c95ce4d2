"""The package's face: what it names, and that naming the package alone costs nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

import manifests


def test_every_name_of_the_facade_is_there() -> None:
    assert sorted(manifests.__all__) == sorted(set(manifests.__all__))
    for name in manifests.__all__:
        assert getattr(manifests, name) is not None
    assert set(manifests.__all__) <= set(dir(manifests))


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        _ = manifests.nope


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = (
        "import sys, manifests; "
        "print([m for m in ('pydantic', 'tomli', 'attrs', 'click') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
