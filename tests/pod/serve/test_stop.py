"""`pod stop --now` where killing a pod's process does not free its name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner

from pod.cli.stop import stop
from pod.home import Home
from pod.serve.claim import Serving, claim
from pod.serve.places import Places, ensure_run_folder

DEAF = """
import signal, time

signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(flush=True)
time.sleep(60)
"""


def test_a_name_that_is_still_held_is_not_said_to_have_ended(tmp_path: Path) -> None:
    home = Home(tmp_path)
    ensure_run_folder(home)
    places = Places.of(home, "reviewer")
    held = claim(places)  # by this process, which stands for what the pod's has left behind
    with subprocess.Popen([sys.executable, "-c", DEAF], stdout=subprocess.PIPE) as deaf:
        assert deaf.stdout is not None
        deaf.stdout.readline()
        held.publish(Serving("reviewer", deaf.pid, 0, "", os.fspath(places.socket)))
        done = CliRunner().invoke(stop, ["reviewer", "--now"], env={"POD_HOME": str(tmp_path)})

    held.release()
    assert done.exit_code == 1
    assert f"killed pid {deaf.pid}" in done.stderr
    assert "has ended" not in done.stderr
    assert f"fuser {places.lock}" in done.stderr
