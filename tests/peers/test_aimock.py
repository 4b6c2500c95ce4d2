"""Whole pods against a server that others wrote: every provider's API, every kind of trouble."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field

from pod import Pod
from pod.protocol import CompactionDone, EventData, Retry, TextDelta
from session_store import FileSessionStore
from tests.fake_provider import SUMMARY
from worker.items import AssistantMessage, Reasoning, ToolResult

from .aimock import Peer, aimock, needs_aimock

pytestmark = [pytest.mark.anyio, needs_aimock, pytest.mark.timeout(60)]

MODELS = {
    "anthropic": "claude-sonnet-4-5",
    "openai": "gpt-4o",
    "openai_responses": "gpt-5",
    "gemini": "gemini-2.5-flash",
    "ollama": "qwen3:8b",
    "openai_compatible": "some-model",
}
KINDS = list(MODELS)
KEY = "sk-test-0123456789abcdef"
SYSTEM = "You add numbers."
TOOLS = '[tools]\npython = ["tests.peers.tools:add"]\n'
TWO_CALLS = [
    {"name": "add", "arguments": '{"a": 1, "b": 2}', "id": "call_one"},
    {"name": "add", "arguments": '{"a": 30, "b": 4}', "id": "call_two"},
]


@define
class Talk:
    """A pod that talks to a peer, and what it told."""

    pod: Pod
    peer: Peer
    told: list[EventData] = field(factory=list)

    def of(self, cls: type[EventData]) -> list[Any]:
        return [data for data in self.told if isinstance(data, cls)]

    @property
    def asked(self) -> list[dict[str, Any]]:
        return self.peer.journal()


@contextmanager
def talking(
    home: Path, kind: str, *fixtures: dict[str, Any], extra: str = "", options: tuple[str, ...] = ()
) -> Iterator[Talk]:
    """A pod of one kind of provider, not launched yet, and the peer that it will ask."""
    with aimock(home / "peer", fixtures, *options) as peer:
        path = home / "peer.toml"
        base_url = peer.url if kind in {"anthropic", "gemini", "ollama"} else f"{peer.url}/v1"
        path.write_text(
            f'[pod]\nname = "peer"\n[provider]\nkind = "{kind}"\nmodel = "{MODELS[kind]}"\n'
            f'base_url = "{base_url}"\napi_key_env = "KEY"\ncontext_window = 100000\n'
            f'[worker]\nsystem_prompt = "{SYSTEM}"\n{extra}'
        )
        talk = Talk(Pod.launch(path, home=home, env={"KEY": KEY, "NO_PROXY": "*"}), peer)
        talk.pod.listen(lambda envelope: talk.told.append(envelope.data))
        yield talk


def says(text: str, **match: Any) -> dict[str, Any]:
    return {"match": match, "response": {"content": text}}


def fails(status: int, message: str, kind: str, **more: Any) -> dict[str, Any]:
    error = {"message": message, "type": kind, "code": kind}
    return {"match": {"sequenceIndex": 0}, "response": {"error": error, "status": status, **more}}


@pytest.mark.parametrize("kind", KINDS)
async def test_text_streams(home: Path, kind: str) -> None:
    text = "It is 3, and 漢字 and 🎈 come through whole."
    with talking(home, kind, says(text), options=("-c", "4")) as talk:
        async with talk.pod:
            result = await talk.pod.run("how much is 1 + 2?")

        assert (result.outcome, result.text) == ("finished", text)
        deltas = talk.of(TextDelta)
        assert len(deltas) > 3
        assert "".join(delta.text for delta in deltas) == text


@pytest.mark.parametrize("kind", KINDS)
async def test_parallel_calls_run_and_their_results_come_back_in_order(
    home: Path, kind: str
) -> None:
    fixtures = [
        says("3 and 34", hasToolResult=True),
        {"match": {"userMessage": "both"}, "response": {"toolCalls": TWO_CALLS}},
    ]
    with talking(home, kind, *fixtures, extra=TOOLS) as talk:
        async with talk.pod:
            result = await talk.pod.run("add both")
            again = await talk.pod.run("add both once more")
            results = [item for item in talk.pod.history if isinstance(item, ToolResult)]

        assert (result.text, again.text) == ("3 and 34", "3 and 34")
        assert [item.summary for item in results] == ["the sum is 3", "the sum is 34"] * 2
        assert len(talk.asked) == 4


@pytest.mark.parametrize("kind", ["anthropic", "openai_responses", "gemini", "openai_compatible"])
async def test_reasoning_is_kept_and_sent_back_across_a_restart(home: Path, kind: str) -> None:
    thinking = {"reasoning": "One and two make three.", "reasoningSignature": "c2lnbmF0dXJl"}
    fixtures = [
        says("and it is 3", hasToolResult=True),
        {
            "match": {"userMessage": "add"},
            "response": {"toolCalls": TWO_CALLS[:1], **thinking},
        },
        says("I said so"),
    ]
    with talking(home, kind, *fixtures, extra=TOOLS) as talk:
        async with talk.pod:
            await talk.pod.run("add them")
            session_id = talk.pod.session_id

        store = FileSessionStore(home)
        answers = [i for i in store.restore(session_id).history if isinstance(i, AssistantMessage)]
        (thought,) = [part for part in answers[0].parts if isinstance(part, Reasoning)]
        assert thought.text == "One and two make three."
        assert thought.provider == kind

        path = home / "peer.toml"
        async with Pod.launch(path, home=home, resume=session_id, env={"KEY": KEY}) as pod:
            result = await pod.run("why?")

        assert result.text == "I said so"


@pytest.mark.parametrize(
    ("status", "error", "more"),
    [
        (429, "rate_limit_error", {"retryAfter": 1}),
        (500, "api_error", {}),
        (529, "overloaded_error", {}),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
async def test_a_passing_failure_is_waited_out(
    home: Path, kind: str, status: int, error: str, more: dict[str, Any]
) -> None:
    fixtures = [fails(status, "not now", error, **more), says("now")]
    with talking(home, kind, *fixtures) as talk:
        async with talk.pod:
            result = await talk.pod.run("how much?")

        assert (result.outcome, result.text) == ("finished", "now")
        (retry,) = talk.of(Retry)
        assert "not now" in retry.reason
        if more:
            assert retry.delay_s == pytest.approx(1.0)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_request_that_is_refused_is_not_repeated(home: Path, kind: str) -> None:
    refusal = {"message": "no such thing", "type": "invalid_request_error"}
    fixture = {"match": {}, "response": {"error": refusal, "status": 400}}
    with talking(home, kind, fixture) as talk:
        async with talk.pod:
            result = await talk.pod.run("how much?")

        assert result.outcome == "error"
        assert "no such thing" in result.message
        assert len(talk.asked) == 1


@pytest.mark.parametrize("kind", KINDS)
async def test_a_prompt_that_is_too_long_is_compacted_and_sent_again(home: Path, kind: str) -> None:
    too_long = "prompt is too long: 210000 tokens > 200000 maximum"
    error = {"message": too_long, "type": "invalid_request_error"}
    fixtures = [
        {
            "match": {"systemMessage": SYSTEM, "userMessage": "too much", "sequenceIndex": 0},
            "response": {"error": error, "status": 400},
        },
        says("fine", systemMessage=SYSTEM),
        says(SUMMARY),  # to the summarizer, whose system prompt is another
    ]
    extra = "[compaction]\ncompact_threshold = 90000\ncompact_retained_turns = 1\n"
    with talking(home, kind, *fixtures, extra=extra) as talk:
        async with talk.pod:
            for number in range(3):
                await talk.pod.run(f"question {number} " + "and more words " * 60)
            result = await talk.pod.run("this is too much")

        assert (result.outcome, result.text) == ("finished", "fine")
        (done,) = talk.of(CompactionDone)
        assert done.method == "summary"
        assert "## Key Discoveries" in str(talk.asked[-1]["body"])


@pytest.mark.parametrize("kind", KINDS)
async def test_a_stream_that_breaks_off_leaves_what_had_arrived(home: Path, kind: str) -> None:
    broken = {
        "match": {},
        "response": {"content": "one two three four five six seven eight nine ten"},
        # Responses says a good deal before its first text.
        "truncateAfterChunks": 10 if kind == "openai_responses" else 5,
        "latency": 5,
    }
    with talking(home, kind, broken, options=("-c", "4")) as talk:
        async with talk.pod:
            result = await talk.pod.run("count")

        assert result.outcome == "error"
        assert len(talk.asked) == 1
        state = FileSessionStore(home).restore(result.session_id)
        partial = [item for item in state.history if isinstance(item, AssistantMessage)]
        assert [item.stop_reason for item in partial] in (["partial"], [])
        assert all("one two three four five six".startswith(item.text[:8]) for item in partial)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_slow_answer_is_an_answer(home: Path, kind: str) -> None:
    slow = {
        "match": {},
        "response": {"content": "slow but sure"},
        "streamingProfile": {"ttft": 300, "tps": 20},
    }
    with talking(home, kind, slow, options=("-c", "4")) as talk:
        async with talk.pod:
            result = await talk.pod.run("take your time")

        assert (result.outcome, result.text) == ("finished", "slow but sure")
