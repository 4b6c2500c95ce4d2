"""The suite's own watch: every request is seen, and what is wrong with one fails the test."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import urllib.request
from pathlib import Path

import anyio
import httpx
import pytest
from attrs import define

from tests.fake_provider import Say, serving
from tests.wire_rules.watch import BROKEN_REQUESTS, MOVES_PREFIX, Watch
from tests.worker.llm import wire
from tests.worker.llm.client import answering
from worker.items import AssistantMessage, Item, Text, new_uid, user_message
from worker.llm import Endpoint, HttpClient, LlmRequest, OpenAiChatScheme

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).resolve().parents[2]
WRONG = b'{"model":"m","messages":[],"stream":true}'
HEADERS = {"content-type": "application/json"}


@define
class Unstable:
    """An encoder that tells the model the time, as no encoder should."""

    requests: int = 0

    def encode(self, request: LlmRequest) -> bytes:
        self.requests += 1
        said = [
            {"role": "user" if number % 2 == 0 else "assistant", "content": item.text}
            for number, item in enumerate(request.items)
            if isinstance(item, AssistantMessage) or hasattr(item, "parts")
        ]
        said[0]["content"] += f" It is {self.requests} o'clock."
        return json.dumps({"model": "m", "messages": said, "stream": True}).encode()


class UnstableScheme(OpenAiChatScheme):
    """Chat Completions whose prefix moves with every request."""

    def encoder(self, provider: str, model: str) -> Unstable:  # type: ignore[override]
        return Unstable()


async def converse(scheme: OpenAiChatScheme) -> None:
    """Two turns over one client."""

    def hello(request: httpx.Request) -> httpx.Response:
        return httpx.Response(
            200, headers={"content-type": "text/event-stream"}, content=wire.hello("Yes?")
        )

    endpoint = Endpoint(provider="openai_compatible", model="m", base_url="http://model.test/v1")
    client = HttpClient(endpoint, scheme, transport=answering(hello))
    items: list[Item] = []
    for words in ("one", "two"):
        items.append(user_message(words))
        async for _ in client.stream(LlmRequest("", tuple(items))):
            pass
        items.append(AssistantMessage(new_uid(), (Text("Yes?"),), "p", "m", "end"))
    await client.aclose()


async def test_what_a_client_sends_is_seen(watch: Watch) -> None:
    await converse(OpenAiChatScheme())
    assert (watch.requests, watch.broken, watch.moved) == (2, [], [])


@pytest.mark.moves_prefix("to see that it is seen")
async def test_an_unstable_encoder_is_found(watch: Watch) -> None:
    await converse(UnstableScheme())
    (found,) = watch.moved
    assert "request 2 to /v1/chat/completions" in found
    assert "It is 2 o'clock." in found


@pytest.mark.broken_requests("to see that it is seen")
async def test_a_wrong_request_is_found(watch: Watch) -> None:
    async with httpx.AsyncClient(
        transport=httpx.MockTransport(lambda _: httpx.Response(200))
    ) as client:
        url = "http://model.test/v1/chat/completions"
        await client.post(url, content=WRONG, headers=HEADERS)
        await client.get("http://model.test/v1/models")

    (found,) = watch.broken
    assert "messages: a list or text is neither too short nor too long" in found
    assert watch.requests == 1


@pytest.mark.broken_requests("to see that it is seen")
async def test_what_another_process_sends_is_seen_by_the_server(watch: Watch) -> None:
    with serving(Say("Yes?")) as served:
        url = f"{served.base_url}/chat/completions"
        post = urllib.request.Request(url, data=WRONG, headers=HEADERS)  # noqa: S310
        await anyio.to_thread.run_sync(lambda: urllib.request.urlopen(post).read())  # noqa: S310

    assert len(watch.broken) == 1


def test_the_verdict_goes_by_the_markers() -> None:
    watch = Watch(requests=1, broken=["request 1: no"], moved=[])
    assert watch.verdict({}) == "request 1: no"
    assert watch.verdict({BROKEN_REQUESTS: "on purpose"}) is None
    assert "says why" in str(watch.verdict({BROKEN_REQUESTS: None}))
    unneeded = watch.verdict({BROKEN_REQUESTS: "on purpose", MOVES_PREFIX: "it does not"})
    assert "moves_prefix is not needed" in str(unneeded)
    assert Watch().verdict({MOVES_PREFIX: "no request at all"}) is None


def test_a_wrong_request_fails_its_test(tmp_path: Path) -> None:
    """In a suite of its own, which stands on this one's conftest."""
    (tmp_path / "test_sends.py").write_text(
        textwrap.dedent(
            """
            import httpx, pytest

            def send(body):
                transport = httpx.MockTransport(lambda _: httpx.Response(200))
                async def post():
                    async with httpx.AsyncClient(transport=transport) as client:
                        url = "http://model.test/v1/chat/completions"
                        headers = {"content-type": "application/json"}
                        await client.post(url, content=body, headers=headers)
                import asyncio
                asyncio.run(post())

            def test_wrong():
                send(b'{"model":"m","messages":[],"stream":true}')

            @pytest.mark.broken_requests("on purpose")
            def test_wrong_on_purpose():
                send(b'{"model":"m","messages":[],"stream":true}')

            def test_right():
                send(b'{"model":"m","messages":[{"role":"user","content":"a"}],"stream":true}')
            """
        )
    )
    (tmp_path / "conftest.py").write_text("from tests.conftest import _requests_are_seen, watch\n")
    command = [sys.executable, "-m", "pytest", "-q", "-c", str(ROOT / "pyproject.toml")]
    done = subprocess.run(
        [*command, "--rootdir", str(tmp_path), "-p", "no:cacheprovider", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert "3 passed, 1 error" in done.stdout, done.stdout + done.stderr
    assert "ERROR" in done.stdout
    assert "test_wrong - " in done.stdout
    assert "messages: a list or text is neither too short nor too long" in done.stdout
