"""The page of the engine contract: every statement names tests that are there and can fail."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pod.testing.engine_contract import CHECKS
from tests.session_store.test_pages import NAMED, can_fail

PAGE = Path(__file__).resolve().parents[2] / "docs" / "engine-contract.md"
SECTIONS = dict(
    re.findall(
        r"^## §([\d.]+) [^\n]*\n(.*?)(?=^## |\Z)",
        PAGE.read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )
)


def rows(section: str) -> list[tuple[str, str]]:
    found = re.findall(r"^\| (.*) \| (.*) \|$", SECTIONS[section], re.MULTILINE)
    assert found[0] == ("statement", "shown by")
    return found[1:]


def test_every_part_of_the_contract_that_concerns_a_host_is_on_the_page() -> None:
    parts = {"1.1", "1.2", "1.3", "1.4", "2.1", "2.2", "2.3", "2.4", "2.5", "2.6"}
    assert parts | {"4", "5.1", "5.2", "5.3", "5.4", "6", "7", "8", "10"} == set(SECTIONS)
    said = [statement for statement, _ in rows("1.4")]
    for rule in range(1, 11):
        assert any(statement.startswith(f"S{rule} ") for statement in said), rule


@pytest.mark.parametrize("section", SECTIONS)
def test_each_statement_names_tests_that_can_fail(section: str) -> None:
    assert rows(section)
    for statement, shown in rows(section):
        named = NAMED.findall(shown)
        assert named or shown.startswith("no: "), f"{statement}: shown by no test, and says not why"
        for file, test in named:
            assert can_fail(file, test), f"{statement}: {file}::{test} is not there, or cannot fail"


def test_what_the_page_says_of_the_checks_is_shown_by_tests() -> None:
    head = PAGE.read_text(encoding="utf-8").partition("<!-- generated")[0]
    named = NAMED.findall(head)
    assert len(named) == 2
    assert all(can_fail(file, test) for file, test in named)


def test_every_check_says_which_part_of_the_contract_it_holds_to() -> None:
    known = {*SECTIONS, "3.2", "3.3"}
    for check in CHECKS:
        parts = re.findall(r"§(\d+(?:\.\d+)?)", check.source)
        assert parts, check.id
        assert set(parts) <= known, check.id
