"""One life of a session in each dialect, over a real connection: what goes back, and what not.

That each request is one that its provider takes is checked by the watch of the whole suite.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pod.protocol import RunEnd, Usage
from pod.tui.reports import cost_lines
from pod.tui.state import Spent
from tests.pod.looking import PICTURE, looked
from tests.pod.pods import KEY, living, log_of, summary
from tests.pod.thinking_calls import PROOF, THOUGHT, called
from tests.worker.llm.dialects import ANTHROPIC, CHAT, DIALECTS, GEMINI, Dialect
from tests.worker.llm.test_wire_oddities import measured
from tests.worker.llm.wire import Reply, head, serving
from worker.items import Image, ToolResult

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize("dialect", DIALECTS, ids=str),
]

OWN_PICTURE = bytes.fromhex("89504e470d0a1a0a") + b"of-the-user"


def manifest(
    home: Path, dialect: Dialect, url: str, extra: str = "", *, worker: str = "", model: str = "m"
) -> Path:
    """A manifest of the dialect's own kind, with the tool `look`."""
    path = home / "life.toml"
    path.write_text(
        f'[pod]\nname = "life"\n\n[provider]\nkind = "{dialect.provider}"\nmodel = "{model}"\n'
        f'base_url = "{url}"\napi_key_env = "FAKE_KEY"\ncontext_window = 200000\n\n'
        f'[worker]\nsystem_prompt = "Be brief."\n{worker}\n'
        f'[tools]\npython = ["tests.pod.looking:look"]\n\n{extra}'
    )
    return path


def replies(*bodies: bytes) -> Callable[[int], Reply]:
    """The bodies in order, the last one for ever."""
    return lambda number: Reply([head(), bodies[min(number, len(bodies)) - 1]])


def body(request: bytes) -> str:
    return request.partition(b"\r\n\r\n")[2].decode()


def base64_of(data: bytes) -> str:
    return b64encode(data).decode()


def proves(dialect: Dialect) -> bool:
    """Whether the provider gives proof of a thought at all."""
    return dialect.provider in {"anthropic", "openai_responses", "gemini"}


async def test_e04_c02_c10_what_was_thought_and_shown_goes_back_to_its_own_provider_only(
    dialect: Dialect, home: Path
) -> None:
    """E04, C02, C10: through restart, fork, compaction, and a switch to another provider."""
    hello = dialect.hello()
    script = replies(
        called(dialect, '{"word":"pod"}'), hello, hello, hello, dialect.hello(summary()), hello
    )
    extra = "[compaction]\ncompact_threshold = 150000\ncompact_retained_turns = 1\n"
    async with serving(script) as server:
        path = manifest(home, dialect, server.base_url, extra)
        async with living(path, home) as story:
            await story.pod.run("Look up pod", images=(Image("image/png", OWN_PICTURE),))
            session = story.pod.session_id
        async with living(path, home, resume=session) as story:
            await story.pod.run("After the restart")
            child = await story.pod.fork()
            async with child:
                await child.run("In the fork")
            assert await story.pod.compact() is not None
            await story.pod.run("After the compaction")
            session = story.pod.session_id

    sent = [body(request) for request in server.requests]
    assert len(sent) == 6
    for text in (sent[1], sent[2], sent[3]):
        assert base64_of(OWN_PICTURE) in text
        assert base64_of(PICTURE) in text
        assert "pod is found" in text
        assert (PROOF in text) == proves(dialect)
    assert sent[5].count("SUMMARY-MARKER 1") == 1
    assert "After the restart" in sent[5]

    other = GEMINI if dialect is not GEMINI else ANTHROPIC
    async with serving(replies(other.hello())) as elsewhere:
        path = manifest(home, other, elsewhere.base_url, extra)
        async with living(path, home, resume=session) as story:
            await story.pod.run("Elsewhere")
    (text,) = (body(request) for request in elsewhere.requests)
    assert "SUMMARY-MARKER 1" in text
    assert "After the compaction" in text
    assert THOUGHT not in text
    assert PROOF not in text


async def test_c10_a_thought_stays_with_its_provider_where_nothing_was_compacted(
    dialect: Dialect, home: Path
) -> None:
    """C10: to another and back; there the thought is sent again, byte for byte."""
    other = CHAT if dialect is not CHAT else ANTHROPIC
    async with (
        serving(replies(called(dialect, '{"word":"pod"}'), dialect.hello())) as server,
        serving(replies(other.hello())) as elsewhere,
    ):
        async with living(manifest(home, dialect, server.base_url), home) as story:
            await story.pod.run("Look up pod")
            session = story.pod.session_id
        async with living(manifest(home, other, elsewhere.base_url), home, resume=session) as story:
            await story.pod.run("Elsewhere")
        async with living(manifest(home, dialect, server.base_url), home, resume=session) as story:
            await story.pod.run("Back again")

    (foreign,) = (body(request) for request in elsewhere.requests)
    assert "pod is found" in foreign
    assert THOUGHT not in foreign
    assert PROOF not in foreign
    assert (PROOF in body(server.requests[-1])) == proves(dialect)
    entries = [entry for entry in log_of(home, session) if entry["kind"] == "assistant_items"]
    kept = json.dumps(entries[0])
    assert THOUGHT in kept
    assert (PROOF in kept) == proves(dialect)


@pytest.mark.parametrize("arguments", ['{"word":', '["pod"]', '"pod"', "5", '{"word":"pod",}'])
async def test_i07_broken_arguments_run_no_tool_and_are_kept(
    dialect: Dialect, home: Path, arguments: str
) -> None:
    """I07, I08: the model gets an error, `{}` goes back, and the log has what came."""
    looked.clear()
    async with (
        serving(replies(called(dialect, arguments), dialect.hello())) as server,
        living(manifest(home, dialect, server.base_url), home) as story,
    ):
        result = await story.pod.run("Look up pod")
        session = story.pod.session_id
        results = [item for item in story.pod.history if isinstance(item, ToolResult)]

    assert (result.outcome, result.text) == ("finished", "Hello")
    assert looked == []
    assert [answer.is_error for answer in results] == [True]
    second = json.loads(body(server.requests[1]))
    assert "the tool was not run" in json.dumps(second)
    assert sent_arguments(second) == [{}]
    (entry, *_) = [entry for entry in log_of(home, session) if entry["kind"] == "assistant_items"]
    (kept,) = call_arguments(entry)
    # Two dialects have no text of arguments, but a value: of text in there, the text is kept.
    assert kept in ({arguments, "pod"} if arguments == '"pod"' else {arguments, compact(arguments)})


def compact(text: str) -> str:
    """The JSON text as it is written again, where it is one."""
    try:
        return json.dumps(json.loads(text), separators=(",", ":"))
    except ValueError:
        return text


@pytest.mark.parametrize("arguments", ["", "null", "{}"])
async def test_i10_no_arguments_run_the_tool_with_none(
    dialect: Dialect, home: Path, arguments: str
) -> None:
    """I10: what the tool then lacks, it says itself."""
    async with (
        serving(replies(called(dialect, arguments), dialect.hello())) as server,
        living(manifest(home, dialect, server.base_url), home) as story,
    ):
        await story.pod.run("Look up pod")
        (result,) = (item for item in story.pod.history if isinstance(item, ToolResult))

    assert "the tool was not run" not in result.summary
    assert "word" in f"{result.summary}{result.content}"
    assert sent_arguments(json.loads(body(server.requests[1]))) == [{}]


def sent_arguments(value: Any) -> list[Any]:
    """The arguments of every call of a request, whatever its dialect."""
    if isinstance(value, list):
        return [found for each in value for found in sent_arguments(each)]
    if not isinstance(value, dict):
        return []
    if value.get("type") == "tool_use":
        return [value["input"]]
    if value.get("type") == "function_call":
        return [json.loads(value["arguments"])]
    if "functionCall" in value:
        return [value["functionCall"].get("args", {})]
    if value.keys() == {"name", "arguments"}:
        given = value["arguments"]
        return [json.loads(given) if isinstance(given, str) else given]
    return [found for each in value.values() for found in sent_arguments(each)]


def call_arguments(entry: Any) -> list[str]:
    """The arguments of every call of a log's entry, as the log has them."""
    if isinstance(entry, list):
        return [found for each in entry for found in call_arguments(each)]
    if not isinstance(entry, dict):
        return []
    own = [entry["arguments"]] if "arguments" in entry else []
    return own + [found for each in entry.values() for found in call_arguments(each)]


@pytest.mark.parametrize("prompt", ["", "\n", "\u200b ", "\ufeff\t"])
async def test_b03_a_prompt_of_nothing_is_refused_before_anything_is_sent(
    dialect: Dialect, home: Path, prompt: str
) -> None:
    async with (
        serving(replies(dialect.hello())) as server,
        living(manifest(home, dialect, server.base_url), home) as story,
    ):
        with pytest.raises(ValueError, match="the prompt is empty"):
            await story.pod.run(prompt)
        assert story.pod.history == ()
        assert server.connections == 0


async def test_c08_i08_what_the_output_cap_cut_is_told_and_not_kept(
    dialect: Dialect, home: Path
) -> None:
    """C08, I08, I23: thought, half a call, and no text: neither is kept, and the cap is named."""
    looked.clear()
    async with (
        serving(replies(capped(dialect))) as server,
        living(manifest(home, dialect, server.base_url, worker="max_tokens = 77"), home) as story,
    ):
        result = await story.pod.run("Look up pod")
        entries = log_of(home, story.pod.session_id)

    assert result.outcome == "error"
    assert "output cap (max_tokens = 77)" in result.message
    assert result.error is not None
    assert "raise worker.max_tokens" in (result.error.hint or "")
    assert looked == []
    assert len(server.requests) <= 2
    assert [entry["kind"] for entry in entries if entry["kind"] == "assistant_items"] == []


async def test_c09_proof_that_looks_like_a_key_is_kept_and_a_key_in_an_output_is_not(
    dialect: Dialect, home: Path
) -> None:
    """C09: what only looks like one in a proof is the provider's; ours is masked elsewhere."""
    alike = KEY[:12] + "AAAA"
    first = called(dialect, json.dumps({"word": KEY})).replace(PROOF.encode(), alike.encode())
    async with (
        serving(replies(first, dialect.hello())) as server,
        living(manifest(home, dialect, server.base_url), home) as story,
    ):
        await story.pod.run("Look up pod")
        session = story.pod.session_id

    text = (home / "sessions" / f"{session}.jsonl").read_text()
    assert KEY not in text
    assert "is found" in text
    assert (alike in text) == proves(dialect)
    assert (alike in body(server.requests[1])) == proves(dialect)


async def test_j09_an_overflow_that_no_compaction_helps_ends(dialect: Dialect, home: Path) -> None:
    words = "maximum context length is 16384 tokens, however you requested 99999 tokens"
    error = json.dumps({"error": {"message": words, "code": "context_length_exceeded"}}).encode()
    refused = Reply([head("400 Bad Request", "application/json"), error])
    extra = "[compaction]\ncompact_threshold = 100000\ncompact_retained_turns = 1\n"
    hello = Reply([head(), dialect.hello()])
    async with (
        serving(lambda number: hello if number <= 2 else refused) as server,
        living(manifest(home, dialect, server.base_url, extra), home) as story,
    ):
        await story.turns("one", "two")
        result = await story.pod.run("three")
        asked = [body(request) for request in server.requests[2:]]
        await story.pod.idle()

    assert result.outcome == "error"
    assert "window" in result.message
    assert sum('"three"' in text for text in asked) <= 2
    assert len(asked) <= 4


async def test_i25_what_was_not_measured_is_told_as_not_known(dialect: Dialect, home: Path) -> None:
    """I25: not as 0, in the log, the events, the result and `/cost`."""
    uncounted = dialect.hello()
    for counted in (
        b'"usage": {"prompt_tokens": 9, "completion_tokens": 2}',
        b'"input_tokens": 9',
        b'"output_tokens": 2',
        b'"prompt_eval_count": 9, "eval_count": 2',
    ):
        uncounted = uncounted.replace(counted, b'"nothing": 0')
    async with (
        serving(replies(uncounted)) as server,
        living(manifest(home, dialect, server.base_url), home) as story,
    ):
        result = await story.pod.run("Hi")
        session = story.pod.session_id

    assert [entry for entry in log_of(home, session) if entry["kind"] == "usage"] == []
    assert story.of(Usage) == []
    (end,) = story.of(RunEnd)
    assert end.usage is not None
    told = (result.usage.input_tokens, result.usage.output_tokens)
    assert told == (end.usage.input_tokens, end.usage.output_tokens) == (None, None)
    spent = Spent().plus(end.requests, end.usage, end.cost)
    assert cost_lines(spent)[0] == "1 request · how many tokens is not known"


async def test_d05_the_size_of_the_context_is_what_was_measured(
    dialect: Dialect, home: Path
) -> None:
    """D03, D05: the cached part once; the answer, which is in the next prompt, on top."""
    answer, prompt, cached = measured(dialect)
    async with (
        serving(replies(answer)) as server,
        living(manifest(home, dialect, server.base_url), home) as story,
    ):
        await story.pod.run("Hi")
        occupancy = story.pod.status().occupancy
        session = story.pod.session_id

    (entry,) = [entry for entry in log_of(home, session) if entry["kind"] == "usage"]
    found = (entry["input_tokens"], entry["cache_read"], entry["output_tokens"])
    assert found == (prompt, cached, 500)
    assert prompt < occupancy <= prompt + 500


def capped(dialect: Dialect) -> bytes:
    """An answer that is cut by its cap in the midst of a call, behind a thought."""
    whole = called(dialect, '{"word":"ha').decode()
    ends = {
        "openai_compatible": ('"finish_reason": "tool_calls"', '"finish_reason": "length"'),
        "anthropic": ('"stop_reason": "tool_use"', '"stop_reason": "max_tokens"'),
        "gemini": ('"finishReason": "STOP"', '"finishReason": "MAX_TOKENS"'),
        "ollama": ('"done_reason": "stop"', '"done_reason": "length"'),
        "openai_responses": ('"status": "completed"', '"status": "incomplete"'),
    }
    old, new = ends[dialect.provider]
    assert old in whole, whole
    # Gemini says of a call that is not whole that it goes on.
    return (
        whole.replace(old, new)
        .replace('"look", "args"', '"look", "willContinue": true, "args"')
        .encode()
    )


async def test_a_model_that_refuses_a_temperature_gets_none(dialect: Dialect, home: Path) -> None:
    models = {
        "anthropic": "claude-opus-4-8",
        "openai_responses": "gpt-5",
    }
    refusing = models.get(dialect.provider)
    async with serving(replies(dialect.hello())) as server:
        for model in ("m", *([refusing] if refusing else [])):
            path = manifest(home, dialect, server.base_url, worker="temperature = 0.5", model=model)
            async with living(path, home) as story:
                await story.pod.run("Hi")
    plain, *refused = (body(request) for request in server.requests)
    assert '"temperature":0.5' in plain.replace(" ", "")
    assert all("temperature" not in text for text in refused)
    assert len(refused) == bool(refusing)
