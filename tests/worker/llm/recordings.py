"""Recorded streams of third parties. They stay where they are; tests of them skip without them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

RECORDINGS = Path(__file__).parents[4] / "shared" / "realdata"


def recorded(name: str) -> list[dict[str, Any]]:
    """The exchanges of a recording, each with its `request` and `response`."""
    path = RECORDINGS / name
    if not path.is_file():
        pytest.skip(f"the recording {path} is not here")

    interactions = yaml.safe_load(path.read_text(encoding="utf-8"))["interactions"]
    assert isinstance(interactions, list)
    return interactions
