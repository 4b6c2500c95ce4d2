"""Tools that have to be allowed, and hooks that want that."""

from __future__ import annotations

from pathlib import Path

from worker import Ask, Skip
from worker.hooks import ToolCallView


def deploy(where: str) -> str:
    """Do what cannot be undone; notes that it did."""
    with Path("deployed.txt").open("a") as file:
        file.write(f"{where}\n")

    return f"deployed to {where}"


def look() -> str:
    """Do no harm."""
    return "seen"


def ask_about_production(call: ToolCallView) -> Ask | None:
    """Want a person where it matters."""
    return Ask("production is meant") if "production" in call.arguments else None


def never_moon(call: ToolCallView) -> Skip | None:
    """Refuse what nobody may allow."""
    return Skip("nobody deploys to the moon") if "moon" in call.arguments else None
