"""A tool that changes the world: it writes what it was asked for into a ledger."""

from __future__ import annotations

import os
import random
import time


def effect(token: str) -> str:
    """Do something that must not be done twice."""
    time.sleep(random.random() * 0.004)  # noqa: S311  no secret
    ledger = os.open(os.environ["FAULTS_LEDGER"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(ledger, f"{token}\n".encode())
    os.close(ledger)
    time.sleep(random.random() * 0.004)  # noqa: S311  no secret
    return f"done {token}"
