"""What `scripts/soak` does: the fault tests with larger figures, and a table of what they did."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
NIGHT = {
    "KILLS": 10_000,
    "POWER_STATES": 1_000_000,
    "SEQUENCE_LENGTH": 3,
    "MACHINE_EXAMPLES": 20_000,
    "MACHINE_STEPS": 100,
    "FUZZ_RUNS": 1_000_000,
    "PARSED_RUNS": 50_000_000,
    "MEMORY_POINTS": 2_000,
    "HUGE_LINE_MIB": 256,
    "FLIPS_PER_BYTE": 255,
    "CLEAN_OPENS": 1_000_000,
    "CONTENDED_APPENDS": 1_000_000,
    "TAKEOVERS": 1_000,
    "FORKS_WHILE_WRITTEN": 20_000,
    "TAILED_ENTRIES": 1_000_000,
    "TOOL_CRASHES": 5_000,
    "INDEXED_SESSIONS": 10_000,
    "RECONNECTS": 1_000_000,
    "STALLED_SUBSCRIBERS": 1_000,
    "POD_RESTARTS": 300,
}
LIMIT_S = 12 * 3600
ONE_OF_EACH = {
    *("items", "steps_each", "slowest_ms", "us_each", "mib", "peak_mib", "sessions"),
    *("stalled", "p99_us"),
}
"""Counts that are the same, or the largest, for all that report them; the others are added up."""


def main() -> int:
    asked, more = arguments().parse_known_args()
    figures = {} if asked.quick else NIGHT
    until = time.monotonic() + 3600 * asked.hours
    status, rounds, begin = 0, 0, time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report")
        while rounds == 0 or (time.monotonic() < until and not status):
            status = one_round(figures, report, rounds, more)
            rounds += 1

        print_table(report, rounds, time.monotonic() - begin)

    return status


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("scripts/soak", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the figures of a change's gate")
    parser.add_argument("--hours", type=float, default=0.0, help="repeat until so long is over")
    return parser


def one_round(figures: dict[str, int], report: Path, number: int, more: list[str]) -> int:
    environment = {f"FAULTS_{name}": str(value) for name, value in figures.items()}
    environment |= {
        "FAULTS_TIMEOUT": str(LIMIT_S),
        "FAULTS_REPORT": str(report),
        "FAULTS_SEED": str(number),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-n", "auto", str(HERE), *more]
    # What is set already wins, so that one figure can be another.
    environment |= os.environ
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def print_table(report: Path, rounds: int, seconds: float) -> None:
    """One line for each kind of fault, its counts added up."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for line in report.read_text(encoding="utf-8").split("\n")[:-1] if report.exists() else []:
        found: dict[str, int] = json.loads(line)
        kept = counts[str(found.pop("test"))]
        for name, value in found.items():
            kept[name] = max(kept[name], value) if name in ONE_OF_EACH else kept[name] + value

    lines = [f"{test:32}{', '.join(_told(counts[test]))}" for test in sorted(counts)]
    took = f"{rounds} rounds, {seconds / 60:.0f} minutes"
    sys.stdout.write("\n".join(["", *lines, "", took, ""]))


def _told(counts: Counter[str]) -> list[str]:
    return [f"{value:,} {name.replace('_', ' ')}" for name, value in counts.items()]


if __name__ == "__main__":
    raise SystemExit(main())
