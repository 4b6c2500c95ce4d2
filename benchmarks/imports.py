"""How long it takes until something can be done: `pod --help`, and the imports of a program.

Each is a process of its own, over an empty interpreter of the same kind; all byte code is there.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from functools import partial

from _measure import ROOT, Sample, cpu_ms, header, in_turns, table, verdict, wall_ms

EMPTY = "pass"
HELP = "import sys; from pod.cli import main; sys.argv = ['pod', '--help']; main()"
PROGRAMS = {
    "empty interpreter": (EMPTY, None),
    "pod --help": (HELP, 150.0),
    "import pod": ("import pod", 350.0),
    "from pod import Pod": ("from pod import Pod", 350.0),
    "import worker": ("import worker", None),
    "import session_store": ("import session_store", None),
    "import manifests": ("import manifests", None),
}
"""What is run, and how many milliseconds over an empty interpreter it may take."""


def main() -> None:
    """Print the table, and the slowest modules of what took too long."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--slowest", action="store_true", help="print the slowest modules anyway")
    given = parser.parse_args()
    header("imports")
    with tempfile.TemporaryDirectory(prefix="bench-") as cache:
        # A user's installation has byte code; ours need not, and must not be made to have it.
        env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        env |= {"PYTHONPYCACHEPREFIX": cache, "PYTHONPATH": str(ROOT)}
        _report(given.rounds, env, show_slowest=given.slowest)


def _report(rounds: int, env: dict[str, str], *, show_slowest: bool) -> None:
    actions = {name: partial(_run, code, env) for name, (code, _) in PROGRAMS.items()}
    samples = in_turns(actions, rounds)
    found = {name: wall_ms(taken) for name, taken in samples.items()}
    empty = found["empty interpreter"]
    rows = [
        (
            name,
            f"{ms:.0f}",
            f"{ms - empty:+.0f}",
            f"{ms / empty:.1f}",
            f"{cpu_ms(samples[name]):.0f}",
        )
        for name, ms in found.items()
    ]
    table("a process, start to end", ("what", "ms", "over empty", "ratio", "cpu ms"), rows)
    for name, (code, limit) in PROGRAMS.items():
        over = found[name] - empty
        if limit is not None:
            verdict(f"{name}, over an empty interpreter", value=over, limit=limit, unit="ms")

        if limit is not None and (show_slowest or over > limit):
            _print_slowest(name, code, env)


def _run(code: str, env: dict[str, str]) -> Sample:
    began, cpu = time.perf_counter(), _cpu_of_children()
    subprocess.run([sys.executable, "-c", code], env=env, check=True, stdout=subprocess.DEVNULL)
    return Sample(time.perf_counter() - began, _cpu_of_children() - cpu)


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _print_slowest(name: str, code: str, env: dict[str, str]) -> None:
    command = [sys.executable, "-X", "importtime", "-c", code]
    done = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
    times = [line.removeprefix("import time:").split("|") for line in done.stderr.splitlines()]
    modules = [(int(t[0]), int(t[1]), t[2].strip()) for t in times if t[0].strip().isdigit()]
    rows = [
        (module, f"{own / 1e3:.1f}", f"{whole / 1e3:.1f}")
        for own, whole, module in sorted(modules, reverse=True)[:15]
    ]
    title = f"{name}: the slowest of {len(modules)} modules"
    table(title, ("module", "own ms", "with what it imports"), rows)


if __name__ == "__main__":
    main()
