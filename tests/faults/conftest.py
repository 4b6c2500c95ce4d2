from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.figures import RAM


@pytest.fixture
def ram(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, where there is one."""
    if not RAM.is_dir():
        yield tmp_path
        return

    folder = Path(tempfile.mkdtemp(dir=RAM, prefix="faults-"))
    yield folder
    shutil.rmtree(folder)
