"""How much each test does, and what it found.

Every figure has a default that fits a change's gate. `scripts/soak` runs the same tests with larger
ones, given as FAULTS_<NAME> in the environment, and collects what they report in the file that
FAULTS_REPORT names.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

RAM = Path("/dev/shm")


SEED = int(os.environ.get("FAULTS_SEED", "0")) * 10**9
"""Where the seeds begin: another round of a long run has others."""


def figure(name: str, default: int) -> int:
    """How much to do: the default, or what FAULTS_<NAME> says."""
    return int(os.environ.get(f"FAULTS_{name}", default))


def shares(total: int, parts: int) -> list[int]:
    """The total in so many nearly equal parts, so that processes can share the work."""
    return [total // parts + (part < total % parts) for part in range(parts)]


def within(seconds: float) -> pytest.MarkDecorator:
    """The time a test may take; larger figures come with their own limit."""
    return pytest.mark.timeout(float(os.environ.get("FAULTS_TIMEOUT", seconds)))


def report(test: str, **counts: int) -> None:
    """Note down what a test did, for whoever sums it up."""
    path = os.environ.get("FAULTS_REPORT")
    if path:
        # One short write at the end of the file: processes that report at once do not mix.
        with Path(path).open("a", encoding="utf-8") as lines:
            lines.write(json.dumps({"test": test, **counts}) + "\n")
