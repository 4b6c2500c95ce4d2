"""`select_context` and `on_turn_complete`, rule by rule: S1 to S10 of the engine contract."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from pod.context.compressor import Compressor
from pod.context.engine import ContextEngine, JsonDict, Message
from pod.context.host import EngineHost
from pod.context.threads import CompactionPool
from pod.errors import RequestCancelled
from pod.protocol import EngineNotice, RunEnd
from tests.fake_provider import Asked, Say, counting, serving
from tests.pod.compaction.stories import an_answer
from tests.pod.context.engine_shelf import USE, Recorder, shelve
from tests.pod.pods import (
    BIG_TOOL,
    Story,
    assert_paired,
    chat,
    kinds,
    living,
    log_of,
    manifest,
    user_texts,
)
from worker import Worker
from worker.items import Image, Item, SystemNote, Text, UserMessage, new_uid, user_message
from worker.llm import ScriptedClient

pytestmark = pytest.mark.anyio

SELECTS = pytest.mark.moves_prefix("the engine selects what one request holds")
HISTORY: tuple[Item, ...] = (
    user_message("one"),
    an_answer("first", thought="hm"),
    UserMessage(new_uid(), (Text("look"), Image("image/png", b"\x89PNG"))),
    SystemNote(new_uid(), "be brief", "hook"),
)


def a_worker() -> Worker:
    worker = Worker(ScriptedClient(()), system_prompt="SYSTEM")
    worker.set_history(HISTORY)
    return worker


def hosting(engine: ContextEngine) -> tuple[EngineHost, list[str]]:
    """The host of an engine, and what it tells."""
    told: list[str] = []
    return EngineHost(engine, lambda _name, text: told.append(text), 5.0, CompactionPool()), told


def notices(story: Story) -> list[str]:
    return [notice.message for notice in story.of(EngineNotice)]


class Selecting(Recorder):
    """Selects what `chosen` gives of the request's messages."""

    def __init__(self, chosen: Any = None) -> None:
        super().__init__()
        self.chosen = chosen

    def select_context(
        self,
        request_messages: list[Message],
        *,
        conversation_messages: list[Message] | None = None,
        incoming_message: Message | None = None,
        budget_tokens: int = 0,
    ) -> list[Message] | None:
        self.note(
            "select_context",
            request_messages,
            conversation_messages=conversation_messages,
            incoming_message=incoming_message,
            budget_tokens=budget_tokens,
        )
        chosen: list[Message] | None = (
            self.chosen(request_messages) if callable(self.chosen) else self.chosen
        )
        return chosen


# ------------------------------------------------------------------ S1


async def test_s1_an_engine_without_the_hook_costs_nothing() -> None:
    """No call, no copy and no thread, where the hook is the contract's own."""
    engine = Recorder()
    (host, _), worker = hosting(engine), a_worker()
    threads = threading.active_count()
    items = worker.project()
    assert await host.select(worker, items) is None
    assert threading.active_count() == threads
    assert not engine.calls


async def test_s1_a_hook_on_the_instance_counts_as_the_engine_s_own() -> None:
    engine, worker = Recorder(), a_worker()
    seen: list[int] = []

    def hook(request_messages: list[Message], **_: object) -> None:
        seen.append(len(request_messages))

    vars(engine)["select_context"] = hook
    host, _ = hosting(engine)
    assert await host.select(worker, worker.project()) is None
    assert seen == [5]
    vars(engine)["select_context"] = None
    assert await host.select(worker, worker.project()) is None, "no hook at all"
    host.let_go()


# ------------------------------------------------------------------ S2, S3


async def test_s2_it_sees_what_is_about_to_be_sent_and_is_repaired_after(home: Path) -> None:
    """Pruned, with the system prompt; calls and results are paired behind it, and marks set."""
    engine = Selecting()
    shelve(home, lambda: engine)

    def script(asked: Asked, number: int) -> Say:
        return Say(calls=(("big", '{"n": 1}'),)) if number == 1 else Say("done")

    with serving(chat(script)) as served:
        async with living(manifest(home, served.base_url, USE + BIG_TOOL), home) as story:
            engine.chosen = lambda rows: [r for r in rows if r["role"] != "tool"]
            assert (await story.pod.run("go")).outcome == "finished"

    given = engine.of("select_context")[1].args[0]
    assert [row["role"] for row in given] == ["system", "user", "assistant", "tool"]
    assert given[0]["content"].startswith("SYSTEM-PROMPT-MARKER")
    assert_paired(served.asked)


async def test_s3_its_arguments_are_the_request_the_history_the_newest_message_and_the_window() -> (
    None
):
    engine, worker = Selecting(), a_worker()
    engine.context_length = 9_000
    host, _ = hosting(engine)
    await host.select(worker, worker.project())
    (call,) = engine.of("select_context")
    (request,) = call.args
    assert [row["role"] for row in request] == ["system", "user", "assistant", "user", "user"]
    rows = call.kwargs["conversation_messages"]
    assert [row["message_uid"] for row in rows] == [item.uid for item in HISTORY]
    assert call.kwargs["incoming_message"] == rows[2], "a note is nobody's message"
    assert call.kwargs["incoming_message"] is not rows[2], "a clone of its own"
    assert call.kwargs["budget_tokens"] == 9_000
    host.let_go()


async def test_s3_an_engine_of_few_arguments_gets_what_it_takes() -> None:
    class Few(Recorder):
        def select_context(  # type: ignore[override]  # as some are written
            self, request_messages: list[Message], budget_tokens: int = 0
        ) -> list[Message] | None:
            self.note("select_context", len(request_messages), budget_tokens)
            return None

    engine, worker = Few(), a_worker()
    engine.context_length = 7
    host, told = hosting(engine)
    await host.select(worker, worker.project())
    assert [call.args for call in engine.of("select_context")] == [(5, 7)]
    assert not told
    host.let_go()


# ------------------------------------------------------------------ S4


@pytest.mark.parametrize("value", [[], "text", {}, 7, [1], [{"role": "user"}, None], ()])
async def test_s4_what_is_no_list_of_dicts_changes_nothing_and_is_told(value: Any) -> None:
    (host, told), worker = hosting(Selecting(value)), a_worker()
    for _ in range(2):
        assert await host.select(worker, worker.project()) is None

    (warning,) = told
    assert warning.startswith(
        "Context engine select_context returned an invalid value (not a non-empty list of dicts); "
        "ignoring"
    )
    host.let_go()


async def test_s4_none_changes_nothing_silently() -> None:
    (host, told), worker = hosting(Selecting(None)), a_worker()
    assert await host.select(worker, worker.project()) is None
    assert not told
    host.let_go()


async def test_s4_what_it_did_to_the_list_before_it_returned_none_is_nobody_s_concern() -> None:
    def spoil(rows: list[Message]) -> None:
        for row in rows:
            row["content"] = "SPOILED"

        rows.clear()

    (host, _), worker = hosting(Selecting(spoil)), a_worker()
    items = worker.project()
    assert await host.select(worker, items) is None
    assert items == worker.project()
    host.let_go()


# ------------------------------------------------------------------ S5


class StopRequest(KeyboardInterrupt):
    """What an engine raises to cancel a request."""


def raising(error: BaseException) -> Any:
    def hook(_: object) -> None:
        raise error

    return hook


async def test_s5_an_exception_changes_nothing_and_is_told_with_its_place() -> None:
    (host, told), worker = hosting(Selecting(raising(ValueError("no")))), a_worker()
    assert await host.select(worker, worker.project()) is None
    (warning,) = told
    assert "select_context raised ValueError: no (context/test_engine_hooks.py, line" in warning
    host.let_go()


@pytest.mark.parametrize("error", [StopRequest("enough"), SystemExit(3), GeneratorExit()])
async def test_s5_what_is_no_exception_cancels_the_request(error: BaseException) -> None:
    (host, _), worker = hosting(Selecting(raising(error))), a_worker()
    with pytest.raises(RequestCancelled, match=type(error).__name__):
        await host.select(worker, worker.project())

    host.let_go()


async def test_s5_a_run_whose_request_was_cancelled_ends_as_cancelled(home: Path) -> None:
    """Not the process, and not the pod: the next run is made."""
    engine = Selecting()
    shelve(home, lambda: engine)
    with serving(counting) as served:
        async with living(manifest(home, served.base_url, USE), home) as story:
            engine.chosen = raising(StopRequest("enough"))
            result = await story.pod.run("one")
            assert result.outcome == "cancelled"
            assert "StopRequest: enough" in result.message
            assert not served.asked
            assert story.of(RunEnd)[-1].outcome == "cancelled"
            engine.chosen = None
            assert (await story.pod.run("two")).outcome == "finished"
            told, _ = engine.of("on_turn_complete")
            assert told.kwargs["interrupted"]
            assert told.kwargs["api_call_count"] == 0
            assert kinds(home, story.pod.session_id).count("run_outcome") == 2


# ------------------------------------------------------------------ S6, S7, S8


@SELECTS
async def test_s6_the_order_and_the_pairs_of_a_selection_are_put_right_afterwards(
    home: Path,
) -> None:
    engine = Selecting(lambda rows: list(reversed(rows)))
    shelve(home, lambda: engine)

    def script(asked: Asked, number: int) -> Say:
        return Say(calls=(("big", '{"n": 1}'),)) if number == 1 else Say("done")

    with serving(chat(script)) as served:
        async with living(manifest(home, served.base_url, USE + BIG_TOOL), home) as story:
            assert (await story.pod.run("go")).outcome == "finished"

    assert_paired(served.asked)
    assert not notices(story)


@SELECTS
async def test_s7_what_is_ours_alone_is_not_sent_though_it_was_selected(home: Path) -> None:
    """An engine may return the history's clones, which carry identities."""
    engine = Selecting()
    shelve(home, lambda: engine)

    def script(asked: Asked, number: int) -> Say:
        return Say(calls=(("big", '{"n": 1}'),)) if number == 1 else Say(f"answer {number}")

    with serving(chat(script)) as served:
        async with living(manifest(home, served.base_url, USE + BIG_TOOL), home) as story:
            await story.turns("one", "two")

            def clones(_: list[Message]) -> list[Message]:
                rows = engine.of("select_context")[-1].kwargs["conversation_messages"]
                return [row | {"_absorbed_message_uids": ["x"], "_mine": 1} for row in rows[-3:]]

            engine.chosen = clones
            await story.turns("three")
            uids = {item.uid for item in story.pod.history}

    sent = served.asked[-1]
    assert user_texts(sent) == ["two", "three"]
    keys = {key for message in sent.body["messages"] for key in message}
    assert keys <= {"role", "content", "tool_calls", "tool_call_id"}
    assert not any(uid in sent.text for uid in uids)


async def test_s8_it_is_asked_once_a_request_also_in_the_tool_loop(home: Path) -> None:
    engine = Selecting()
    shelve(home, lambda: engine)

    def script(asked: Asked, number: int) -> Say:
        return Say(calls=(("big", '{"n": 1}'),)) if number <= 3 else Say("done")

    with serving(chat(script)) as served:
        async with living(manifest(home, served.base_url, USE + BIG_TOOL), home) as story:
            await story.turns("go")

    calls = engine.of("select_context")
    assert len(calls) == len(served.asked) == 4
    assert len({call.thread for call in calls}) == 1, "the thread of all its calls but compress"
    assert [len(call.args[0]) for call in calls] == [2, 4, 6, 8]


# ------------------------------------------------------------------ S9, S10


async def test_s9_on_turn_complete_gets_clones_and_its_failure_is_harmless(home: Path) -> None:
    """What it gets, and at which ends: `test_pod_engine_calls.py`."""

    class Spoiling(Recorder):
        def on_turn_complete(
            self, messages: list[Message], usage: JsonDict | None = None, **kwargs: Any
        ) -> None:
            super().on_turn_complete([dict(row) for row in messages], dict(usage or {}), **kwargs)
            for row in messages:
                row.clear()

            messages.clear()
            (usage or {}).clear()
            raise ValueError("no")

    engine = Spoiling()
    shelve(home, lambda: engine)
    with serving(counting) as served:
        async with living(manifest(home, served.base_url, USE), home) as story:
            await story.turns("one", "two")
            assert [end.outcome for end in story.of(RunEnd)] == ["finished", "finished"]
            assert [len(c.args[0]) for c in engine.of("on_turn_complete")] == [2, 4]
            assert len(notices(story)) == 1
            assert "{}" not in str(log_of(home, story.pod.session_id)[1:])


def test_s10_the_built_in_engine_defines_neither_hook() -> None:
    assert not {"select_context", "on_turn_complete"} & set(vars(Compressor))
