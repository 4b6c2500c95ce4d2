"""A tool call that a person must allow: who is asked, what is decided, and what is on record."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from pod import Pod
from pod.approvals import ApprovalDesk
from pod.bus import EventBus
from pod.errors import UnknownApproval
from pod.protocol import ApprovalRequest, ApprovalResolved, RunEnd, ToolResult
from tests.fake_provider import Say, Script, serving
from tests.pod.pods import KEY, Story, living, log_of, manifest
from worker.hooks import ToolCallView

pytestmark = pytest.mark.anyio

TOOLS = '[tools]\npython = ["tests.pod.asking_tools:deploy", "tests.pod.asking_tools:look"]\n'
ASKING = f'{TOOLS}[permissions]\ntools = {{ deploy = "ask" }}\n'


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def deploying(*places: str) -> Script:
    """A model that deploys to each place at once, then stops."""
    calls = tuple(("deploy", json.dumps({"where": place})) for place in places)
    return lambda _asked, n: Say(calls=calls) if n % 2 else Say("done")


def done(work: Path) -> list[str]:
    path = work / "deployed.txt"
    return path.read_text().split() if path.exists() else []


def session_of(story: Story) -> str:
    return story.of(RunEnd)[-1].session_id


def approvals(home: Path, story: Story) -> list[dict[str, Any]]:
    entries = log_of(home, session_of(story))
    return [entry for entry in entries if entry["kind"] == "approval"]


def deciding(pod: Pod, *decisions: str, **how: Any) -> Callable[[ApprovalRequest], None]:
    rest = iter(decisions)

    def decide(request: ApprovalRequest) -> None:
        pod.approve(request.call_uid, next(rest), **how)  # type: ignore[arg-type]  # of the two words

    return decide


async def test_nobody_is_there_so_it_is_denied_and_on_record(home: Path, work: Path) -> None:
    with serving(deploying("here")) as served:
        async with living(manifest(home, served.base_url, ASKING), home) as story:
            await story.pod.run("go")

    assert not done(work)
    assert not story.of(ApprovalRequest)
    (result,) = story.of(ToolResult)
    assert result.is_error
    assert "permission denied for deploy: nobody is there to ask" in result.summary
    (entry,) = approvals(home, story)
    assert (entry["decision"], entry["by"]) == ("deny", "nobody")


async def test_allowed_it_runs_once_and_the_decision_is_in_the_log_before(
    home: Path, work: Path
) -> None:
    with serving(deploying("here")) as served:
        async with living(manifest(home, served.base_url, ASKING), home) as story:
            story.pod.on(ApprovalRequest, deciding(story.pod, "allow", by="anna"))
            result = await story.pod.run("go")

    assert (result.outcome, done(work)) == ("finished", ["here"])
    (request,) = story.of(ApprovalRequest)
    assert (request.name, json.loads(request.arguments)) == ("deploy", {"where": "here"})
    (resolved,) = story.of(ApprovalResolved)
    assert (resolved.decision, resolved.by, resolved.scope) == ("allow", "anna", "once")
    entries = log_of(home, session_of(story))
    kinds = [entry["kind"] for entry in entries]
    assert kinds.index("assistant_items") < kinds.index("approval") < kinds.index("tool_results")
    entry = entries[kinds.index("approval")]
    call = entries[kinds.index("assistant_items")]["items"][0]["parts"][-1]
    assert entry["call_uid"] == call["call_uid"] == request.call_uid
    (durable,) = [one for one in story.told if isinstance(one.data, ApprovalResolved)]
    assert durable.ref == (session_of(story), entry["seq"])


async def test_denied_it_does_not_run_and_the_model_reads_who_denied_it(
    home: Path, work: Path
) -> None:
    with serving(deploying("here")) as served:
        async with living(manifest(home, served.base_url, ASKING), home) as story:
            story.pod.on(ApprovalRequest, deciding(story.pod, "deny", by="anna"))
            await story.pod.run("go")

    assert not done(work)
    assert "anna denied it" in served.asked[1].text


async def test_all_calls_of_an_answer_are_shown_before_any_runs(home: Path, work: Path) -> None:
    calls = (("look", "{}"), ("deploy", '{"where": "a"}'), ("deploy", '{"where": "b"}'))
    with serving(lambda _, n: Say(calls=calls) if n == 1 else Say("done")) as served:
        async with living(manifest(home, served.base_url, ASKING), home) as story:
            with story.pod.attended():
                requests = story.pod.events(ApprovalRequest)
                run = asyncio.create_task(story.pod.run("go"))
                first, second = [await anext(requests), await anext(requests)]
                assert isinstance(first, ApprovalRequest)
                assert isinstance(second, ApprovalRequest)
                assert not story.of(ToolResult)
                assert [c.call_uid for c in story.pod.waiting_approvals()] == [
                    first.call_uid,
                    second.call_uid,
                ]
                story.pod.approve(second.call_id, "allow")
                story.pod.approve(first.call_id, "deny")
                await run

    assert done(work) == ["b"]
    sent = [m for m in served.asked[1].body["messages"] if m["role"] == "tool"]
    assert [m["content"].split()[0] for m in sent] == ["seen", "not", "deployed"]


async def test_time_runs_out_as_a_denial(home: Path, work: Path) -> None:
    quick = ASKING + "ask_timeout_seconds = 0.05\n"
    with serving(deploying("here")) as served:
        async with living(manifest(home, served.base_url, quick), home) as story:
            with story.pod.attended():
                await story.pod.run("go")

            (request,) = story.of(ApprovalRequest)
            with pytest.raises(UnknownApproval, match="decided already: deny by time"):
                story.pod.approve(request.call_id, "allow")

    assert not done(work)
    assert request.timeout_s == 0.05
    assert "nobody answered within 0.05 s" in served.asked[1].text
    assert approvals(home, story)[0]["by"] == "time"


async def test_the_first_decision_counts_and_the_second_is_told_so(home: Path, work: Path) -> None:
    seen: list[str] = []
    with serving(deploying("here")) as served:
        async with living(manifest(home, served.base_url, ASKING), home) as story:

            def both(request: ApprovalRequest) -> None:
                story.pod.approve(request.call_id, "deny", by="anna")
                try:
                    story.pod.approve(request.call_id, "allow", by="bert")
                except UnknownApproval as error:
                    seen.append(error.message)

            story.pod.on(ApprovalRequest, both)
            await story.pod.run("go")
            with pytest.raises(UnknownApproval, match="no call made-up waits"):
                story.pod.approve("made-up", "allow")

    assert not done(work)
    assert len(seen) == 1
    assert "decided already: deny by anna" in seen[0]


async def test_for_the_session_it_is_asked_about_once_and_again_in_the_next_one(
    home: Path, work: Path
) -> None:
    with serving(deploying("here")) as served:
        async with living(manifest(home, served.base_url, ASKING), home) as story:
            story.pod.on(ApprovalRequest, deciding(story.pod, "allow", "deny", scope="session"))
            await story.pod.run("go")
            await story.pod.run("again")
            assert len(story.of(ApprovalRequest)) == 1
            assert done(work) == ["here", "here"]
            await story.pod.new()
            await story.pod.run("go")

    assert len(story.of(ApprovalRequest)) == 2
    assert done(work) == ["here", "here"]


async def test_a_hook_can_ask_and_later_hooks_are_still_asked(home: Path, work: Path) -> None:
    hooks = "".join(
        f'[[hooks]]\npoint = "PreToolCall"\npython = "tests.pod.asking_tools:{name}"\n'
        for name in ("ask_about_production", "never_moon")
    )
    places = ("production", "test", "production-on-the-moon")
    with serving(deploying(*places)) as served:
        async with living(manifest(home, served.base_url, TOOLS + hooks), home) as story:
            story.pod.on(ApprovalRequest, deciding(story.pod, "allow", "allow"))
            await story.pod.run("go")

    assert sorted(done(work)) == ["production", "test"]
    assert [r.reason for r in story.of(ApprovalRequest)] == ["production is meant"] * 2
    assert "nobody deploys to the moon" in served.asked[1].text


async def test_a_call_that_cannot_run_anyway_bothers_nobody(home: Path, work: Path) -> None:
    calls = (("deploy", "not json"), ("no_such_tool", "{}"))
    both = f'{TOOLS}[permissions]\ntools = {{ deploy = "ask", no_such_tool = "ask" }}\n'
    with serving(lambda _, n: Say(calls=calls) if n == 1 else Say("done")) as served:
        async with living(manifest(home, served.base_url, both), home) as story:
            story.pod.on(ApprovalRequest, deciding(story.pod))
            await story.pod.run("go")

    assert not story.of(ApprovalRequest)
    assert {r.summary.split(":")[0] for r in story.of(ToolResult)} == {
        "bad arguments for deploy",
        "unknown tool no_such_tool; available",
    }


async def test_cancelling_withdraws_the_question_and_nothing_runs(home: Path, work: Path) -> None:
    with serving(lambda _, n: deploying("here")(_, 1) if n == 1 else Say("done")) as served:
        async with living(manifest(home, served.base_url, ASKING), home) as story:
            with story.pod.attended():
                story.pod.on(ApprovalRequest, lambda _: story.pod.cancel())
                result = await story.pod.run("go")
                assert not story.pod.waiting_approvals()
                (request,) = story.of(ApprovalRequest)
                with pytest.raises(UnknownApproval, match="withdrawn by the end of the run"):
                    story.pod.approve(request.call_id, "allow")

                await story.pod.run("and now?")

    assert (result.outcome, done(work)) == ("cancelled", [])
    (resolved,) = story.of(ApprovalResolved)
    assert resolved.decision == "withdrawn"
    assert not approvals(home, story)
    assert served.asked[1].text.count('"role": "tool"') == 1


async def test_a_decision_is_remembered_by_the_log_after_a_restart(home: Path, work: Path) -> None:
    path = manifest(home, "http://127.0.0.1:9/v1", ASKING)
    with serving(deploying("here")) as served:
        path.write_text(path.read_text().replace("http://127.0.0.1:9/v1", served.base_url))
        async with living(path, home) as story:
            story.pod.on(ApprovalRequest, deciding(story.pod, "allow", by="anna"))
            await story.pod.run("go")
            session_id = story.pod.session_id

        async with living(path, home, resume=session_id) as again:
            await again.pod.run("more")

    kept = [(entry["decision"], entry["by"]) for entry in approvals(home, again)]
    assert kept == [("allow", "anna"), ("deny", "nobody")]


async def test_what_is_asked_shows_no_secret(home: Path, work: Path) -> None:
    with serving(deploying(KEY)) as served:
        async with living(manifest(home, served.base_url, ASKING), home) as story:
            story.pod.on(ApprovalRequest, deciding(story.pod, "deny"))
            await story.pod.run("go")

    (request,) = story.of(ApprovalRequest)
    assert "masked" in request.arguments
    assert KEY not in request.arguments


async def test_whoever_only_listens_to_everything_is_nobody_to_ask(home: Path, work: Path) -> None:
    with serving(deploying("here")) as served:
        async with living(manifest(home, served.base_url, ASKING), home) as story:
            everything = story.pod.events()
            stop = story.pod.on(ApprovalRequest, deciding(story.pod, "allow"))
            stop()
            await story.pod.run("go")
            everything.end()

    assert not story.of(ApprovalRequest)
    assert [entry["by"] for entry in approvals(home, story)] == ["nobody"]
    assert not done(work)


# --- which call, and when -------------------------------------------------------------------


def desk_of(told: list[object], timeout_s: float) -> ApprovalDesk:
    """Return a desk that is attended, and whose record is a list of no consequence."""

    async def record(_fields: dict[str, object]) -> tuple[str, int]:
        return "session", 1

    bus = EventBus()
    bus.listen(lambda envelope: told.append(envelope.data))
    desk = ApprovalDesk(bus.publish, is_watched=lambda: True)
    desk.open_session(record, shown=str, timeout_s=timeout_s)
    return desk


async def test_an_id_that_two_waiting_calls_have_decides_neither() -> None:
    told: list[object] = []
    desk = desk_of(told, 10)
    calls = [ToolCallView("call_0", uid, "deploy", f'"{uid}"') for uid in ("a" * 32, "b" * 32)]
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(desk.ask(call, "")) for call in calls]
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(UnknownApproval, match="2 calls of the id call_0 wait") as refused:
            desk.decide("call_0", "allow")

        assert all(call.call_uid in refused.value.hint for call in calls)
        assert [call.call_uid for call in desk.waiting] == [call.call_uid for call in calls]
        desk.decide("b" * 32, "deny")
        desk.decide("call_0", "allow")

    assert [task.result().allowed for task in asked] == [True, False]


async def test_a_decision_that_was_taken_counts_also_where_time_runs_out_in_that_moment() -> None:
    desk = desk_of([], 0.05)
    loop = asyncio.get_running_loop()
    loop.call_later(0.04, desk.decide, "call_0", "allow")
    loop.call_later(0.01, time.sleep, 0.1)  # so that both are due when the loop goes on
    ruling = await desk.ask(ToolCallView("call_0", "a" * 32, "deploy", "{}"), "")
    assert ruling.allowed
