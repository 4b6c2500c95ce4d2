"""The engines that the pages show keep to the contract that they are told to keep."""

from __future__ import annotations

from pathlib import Path

import pytest

from pod.context.loader import load_engine
from pod.testing.engine_contract import Terms, check_engine
from tests.docs.pages import blocks, write_files

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("page", "engine"), [("engines.md", "brief"), ("engine-tutorial.md", "outline")]
)
def test_an_engine_of_the_pages_keeps_the_contract(page: str, engine: str, tmp_path: Path) -> None:
    write_files(blocks((DOCS / page).read_text(encoding="utf-8")), tmp_path)
    report = check_engine(lambda: load_engine(engine, tmp_path), terms=Terms(examples=8))
    assert [(result.check.id, result.found) for result in report.broken] == []
    assert len(report.holds) > 50


def test_the_engine_in_forty_lines_has_no_more() -> None:
    found = blocks((DOCS / "engine-tutorial.md").read_text(encoding="utf-8"))
    (text,) = (block.text for block in found if block.file == "outline/__init__.py")
    lines = [line for line in text.splitlines() if line.strip()]
    assert 25 < len(lines) <= 40
