"""What is said to a call that is asked about, and what is no answer to it."""

from __future__ import annotations

import pytest

from pod.tui.asking import KEYS_AFTER_MS
from tests.pod.tui.events import approval
from tests.pod.tui.test_app import playing

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("line", ["a", "d", "x", "Q", "ok", "OK", "Ok.", "allow", "deny", "sure"])
async def test_a_near_miss_is_neither_an_answer_nor_a_prompt(line: str) -> None:
    async with playing() as play:
        play.pod.publish(approval("1"))
        play.clock[0] += KEYS_AFTER_MS
        await play.enter(line)
        assert play.pod.did == play.queued() == []
        assert play.stage.told[-1].startswith("that is no answer: y once, s for this session, n")
        await play.enter("y")
        assert play.pod.did == ["allow 1 once ada"]


@pytest.mark.parametrize("line", ["go on", "allow me to explain", " ok", " a", "7"])
async def test_another_line_waits_for_its_turn_while_a_call_is_asked_about(line: str) -> None:
    async with playing() as play:
        play.pod.publish(approval("1"))
        play.clock[0] += KEYS_AFTER_MS
        await play.enter(line)
        assert play.pod.did == [f"run {line.strip()}"]


@pytest.mark.parametrize("line", ["a", "ok"])
async def test_where_no_call_is_asked_about_a_short_line_is_a_prompt(line: str) -> None:
    async with playing() as play:
        await play.enter(line)
        assert play.pod.did == [f"run {line}"]


async def test_where_nobody_types_a_short_line_is_a_prompt() -> None:
    async with playing(is_piped=True) as play:
        play.pod.publish(approval("1"))
        await play.enter("ok")
        assert play.pod.did == ["run ok"]


async def test_a_short_line_is_no_reminder_while_something_else_is_asked() -> None:
    async def leave() -> None:
        play.pod.did.append("left")

    async with playing() as play:
        play.view.ask("leave?", leave)
        await play.enter("a")
        assert "left as it is" in play.stage.told
        assert play.pod.did == ["run a"]
