"""The pages that name a test for each promise and rule: every one is there, and can fail."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = ("test_g_damage", "test_g_text", "test_g_storage", "test_h_forks_and_resume")
CASES = [
    *(f"G{number:02}" for number in (1, 2, 4, 5, 8, 9, 10, 12, 14, 15, 16, 18, 19, 21, 22)),
    *(f"H{number:02}" for number in (1, 3, 4, 7, 8, 9, 11, 12)),
]
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def rows(name: str, heading: str) -> list[list[str]]:
    """The rows of the table under a heading, each as its cells."""
    section = page(name).partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    found = re.findall(r"^\| (.*) \|$", section, re.MULTILINE)
    assert len(found) > 1, f"{name} has no table under {heading}"
    return [re.split(r" \| ", row) for row in found[1:]]


@cache
def functions(file: str) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """The functions and classes of a file, by their names."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    return {node.name: node for node in ast.walk(tree) if isinstance(node, kinds)}


def can_fail(file: str, name: str, seen: frozenset[str] = frozenset()) -> bool:
    """Tell whether a function asserts something, itself or by what it uses of its own file."""
    node = functions(file).get(name)
    if node is None or name in seen:
        return False

    for inner in ast.walk(node):
        if isinstance(inner, ast.Assert):
            return True

        if isinstance(inner, ast.Attribute) and inner.attr == "raises":
            return True

        if isinstance(inner, ast.Name) and can_fail(file, inner.id, seen | {name}):
            return True

    return False


def check(what: str, cell: str) -> None:
    """Assert that the cell names tests, or says why it names none."""
    named = NAMED.findall(cell)
    assert named or cell.startswith("no: "), f"{what} is shown by no test, and says not why"
    for file, test in named:
        assert can_fail(file, test), f"{what}: {file}::{test} is not there, or asserts nothing"


@pytest.mark.parametrize(
    ("heading", "least"),
    [
        ("Promises", 18),
        ("What is found at open, and what is done", 10),
        ("How files are written", 5),
        ("How processes keep out of each other's way", 9),
        ("The faults that are tried", 15),
        ("How much of an answer is read", 6),
    ],
)
def test_each_row_of_the_page_of_promises_names_tests_that_can_fail(
    heading: str, least: int
) -> None:
    found = rows("reliability.md", heading)
    assert len(found) >= least
    for row in found:
        check(row[0], row[-1])


def test_each_fault_test_is_on_the_page() -> None:
    """The other way round: none is there that nobody is told of."""
    named = set(NAMED.findall(page("reliability.md")))
    there = {
        (path.relative_to(ROOT).as_posix(), name)
        for path in (ROOT / "tests" / "faults").glob("test_*.py")
        for name in functions(path.relative_to(ROOT).as_posix())
        if name.startswith("test_")
    }
    assert there <= named, there - named


def test_each_rule_of_identity_names_tests_that_can_fail() -> None:
    found = re.findall(r"^\| (U\d+) \| (.*) \| (.*) \|$", page("uids.md"), re.MULTILINE)
    assert [rule for rule, _, _ in found] == [f"U{number}" for number in range(1, 37)]
    for rule, here, shown in found:
        check(rule, shown)
        is_not_ours = here.startswith("cannot apply")
        assert is_not_ours == (rule in {"U28", "U33", "U34"}), rule


@pytest.mark.parametrize("case", CASES)
def test_each_case_is_a_test_that_is_found_by_its_id(case: str) -> None:
    found = [
        name
        for file in (f"tests/cases/{name}.py" for name in FILES)
        for name, node in functions(file).items()
        if case in (ast.get_docstring(node) or "") and name.startswith("test_")
        if can_fail(file, name)
    ]
    assert any(case.lower() in name for name in found)


def test_no_line_of_a_log_ends_but_at_its_newline() -> None:
    """`splitlines` and text files know other ends of lines, which stand in what people write."""
    for path in (ROOT / "session_store").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            called = node.func if isinstance(node, ast.Call) else None
            name = called.attr if isinstance(called, ast.Attribute) else ""
            assert name != "splitlines", path.name
