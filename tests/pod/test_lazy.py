"""Names that a package loads on first use."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from pod.lazy import loaded_on_use

PACKAGE = "made_for_a_test"


@pytest.fixture
def package() -> Iterator[ModuleType]:
    """A package that offers two names and has loaded neither."""
    module = sys.modules[PACKAGE] = ModuleType(PACKAGE)
    get, names = loaded_on_use(PACKAGE, {"dumps": "json", "PurePath": "pathlib"})
    module.__dict__.update(__getattr__=get, __dir__=names)
    yield module
    del sys.modules[PACKAGE]


def test_a_name_is_loaded_once_and_then_stands_in_the_package(package: ModuleType) -> None:
    assert "dumps" not in vars(package)
    assert package.dumps([1]) == "[1]"
    assert vars(package)["dumps"] is package.dumps


def test_all_names_are_told_whether_or_not_they_were_loaded(package: ModuleType) -> None:
    assert dir(package) == ["PurePath", "dumps"]


def test_an_unknown_name_is_missing_as_from_any_module(package: ModuleType) -> None:
    with pytest.raises(AttributeError, match="module 'made_for_a_test' has no attribute 'loads'"):
        _ = package.loads
