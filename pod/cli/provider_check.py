"""`pod doctor MANIFEST`: what each model of the manifest can do, said and then tried."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import aclosing
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from attrs import define, frozen

from manifests import LoadedManifest
from manifests.schema_provider import (
    KEY_SOURCES,
    SCRIPT_KINDS,
    FallbackProvider,
    ProviderSection,
)
from pod.errors import KeyMissing, PodError
from pod.home import Home
from pod.keys import read_key
from pod.local_client import LocalClient
from pod.model_table import ModelCard, has_table
from pod.models import ModelError
from pod.providers import Provider, build_one
from session_store import SessionStoreError
from worker.errors import WorkerError
from worker.items import ToolCall, user_message
from worker.llm.chat_template import ToolsTold
from worker.llm.types import Answer, Answered, LlmRequest, RequestOptions, Retrying, ToolSpec

from .findings import Finding, failed
from .machine_check import installed_extras

CONNECT_TIMEOUT_S = 5.0
TRY_TIMEOUT_S = 60.0
OURS = (PodError, WorkerError, ModelError, SessionStoreError)
"""The errors that are findings."""
_NO_TOOLS_ADVICE = (
    "a pod without tools works; with them, take a model that was trained to call them"
)
_LOCAL_PATIENCE = 10
_TRY_TOKENS = 1024
_TOOL = ToolSpec(
    "note_colour",
    "Notes down a colour.",
    {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]},
)


@frozen
class ModelCheck:
    """One model of a manifest: the provider's own, a fallback's, or that of the summaries."""

    what: str
    section: FallbackProvider
    loaded: LoadedManifest
    home: Home
    env: Mapping[str, str]
    is_trying: bool
    limit_s: float = TRY_TIMEOUT_S
    """How long a model may take for an answer, in seconds; a local one may take ten times that."""

    def findings(self) -> Iterator[Finding]:
        """Yield what was found, as it is found."""
        kind = self.section.kind
        if kind == "local":
            yield from self._local_model()
        elif kind not in SCRIPT_KINDS:
            yield self._key()

        try:
            provider = build_one(self.section, self.loaded, self.home, self.env)
        except OURS as error:
            # A model's file and a key have a line of their own already.
            if kind != "local" and not isinstance(error, KeyMissing):
                yield failed(self.what, error)

            return

        if kind not in (*SCRIPT_KINDS, "local"):
            yield _known(self.what, provider.models[0])

        if kind in SCRIPT_KINDS:
            yield Finding("ok", self.what, f"{self.section.label}, nothing to connect to")
        elif self.is_trying:
            limit_s = self.limit_s * (_LOCAL_PATIENCE if kind == "local" else 1)
            yield from asyncio.run(_tried(self.what, provider, limit_s))
        elif provider.base_url:
            yield _reached(self.what, provider.base_url)

    def _key(self) -> Finding:
        what = "key" if self.what == "provider" else f"{self.what} key"
        try:
            key = read_key(self.section, self.loaded, self.env)
        except OURS as error:
            return failed(what, error)

        if self.section.lacks_key:
            advice = f"name one with {', '.join(KEY_SOURCES[:-1])} or {KEY_SOURCES[-1]}"
            return Finding("fail", what, f"{self.section.kind} wants one, none is named", advice)

        if key.value is None:
            return Finding("ok", what, "the manifest names none")

        return Finding("ok", what, f"from {key.source} (not shown)")

    def _local_model(self) -> Iterator[Finding]:
        if "local" not in installed_extras():
            advice = "pip install 'podworker[local]'"
            yield Finding("fail", "local", "the extra `local` is not installed", advice)

        try:
            client = LocalClient.for_section(self.section, self.loaded, self.home)
        except OURS as error:
            yield failed("model", error)
            return

        window = client.context_window
        told = f"{client.model}, window {window:,}" if window else client.model
        yield Finding("ok", "model", told)
        yield from _template(client.tools_told)


def models_of(section: ProviderSection, what: str) -> Iterator[tuple[str, FallbackProvider]]:
    """Yield each model of a provider section, with a word for it."""
    yield what, section
    for number, fallback in enumerate(section.fallbacks, 1):
        yield f"fallback {number}" if what == "provider" else f"{what} {number}", fallback


def _template(tools_told: ToolsTold) -> Iterator[Finding]:
    """Yield what is to be said of how a local model gets to know of tools."""
    if tools_told == "added":
        yield Finding("ok", "model", "its chat template knows no tools; one that does is added")
    elif tools_told == "never":
        told = "its chat template knows no tools, so the model never hears of the pod's"
        yield Finding("warn", "model", told, _NO_TOOLS_ADVICE)


def _known(what: str, card: ModelCard) -> Finding:
    """Say what is known of a model without asking it."""
    name = f"{card.provider}/{card.model}"
    if card.context_window is None and card.provider == "ollama":
        told = f"{name}: window not named, so the server takes its own, often a few thousand tokens"
        return Finding("warn", what, told, "name it: context_window")

    window = f"{card.context_window:,} tokens" if card.context_window else "not known, so learned"
    told = f"{name}: window {window}"
    told += f" (says {card.source})" if card.context_window else ""
    if card.max_output_tokens:
        told += f", answers up to {card.max_output_tokens:,}"

    is_all = card.has_prices and card.context_window is not None
    helps = card.is_looked_up and not is_all and not has_table()
    advice = "pip install 'podworker[prices]' brings a table" if helps else ""
    return Finding("ok", what, f"{told}; {card.described_prices}", advice)


# ------------------------------------------------------------------ trying it


@define
class _Trial:
    """What one request came to."""

    answer: Answer | None = None
    took_s: float = 0.0
    first_s: float | None = None
    pieces: int = 0
    retries: int = 0
    last_failure: str = ""
    """Why it was tried once more, in the provider's words."""


async def _tried(what: str, provider: Provider, limit_s: float) -> list[Finding]:
    """Make two small requests, one of them for a tool call, and say what came of them."""
    found: list[Finding] = []
    trial = _Trial()
    try:
        plain = LlmRequest(
            "Answer with one word.",
            [user_message("Say: fine")],
            options=RequestOptions(max_tokens=_TRY_TOKENS),
        )
        async with asyncio.timeout(limit_s):
            await _ask(provider, plain, trial)
        found.extend(_said(what, provider, trial))
        calling = LlmRequest(
            "You note down colours by calling the tool.",
            [user_message("Note down the colour blue. Call note_colour.")],
            tools=(_TOOL,),
            options=RequestOptions(max_tokens=_TRY_TOKENS),
        )
        trial = _Trial()
        async with asyncio.timeout(limit_s):
            await _ask(provider, calling, trial)
        found.append(_called(what, trial))
    except WorkerError as error:
        found.append(failed(what, error))
    except TimeoutError:
        told = f"no answer within {limit_s:g} s"
        told += f": {trial.last_failure}" if trial.last_failure else ""
        found.append(Finding("fail", what, told, "wait and try again, or use another model"))
    finally:
        await provider.client.aclose()

    return found


async def _ask(provider: Provider, request: LlmRequest, trial: _Trial) -> None:
    """Send `request` and note in `trial` what comes of it."""
    stream = provider.client.stream(request)
    began_s = time.monotonic()
    async with aclosing(stream):
        async for event in stream:
            match event:
                case Answered():
                    trial.answer = event.answer
                case Retrying():
                    trial.retries += 1
                    trial.last_failure = event.reason
                case _:
                    trial.pieces += 1
                    trial.first_s = trial.first_s or time.monotonic() - began_s

    trial.took_s = time.monotonic() - began_s


def _said(what: str, provider: Provider, trial: _Trial) -> Iterator[Finding]:
    answer = trial.answer
    if answer is None:
        yield Finding("fail", what, "no answer came")
        return

    told = f"{provider.client.provider}/{provider.client.model} answered in {trial.took_s:.1f} s"
    if trial.first_s is not None:
        told += f", its first words after {trial.first_s:.1f} s, in {trial.pieces} pieces"
    yield Finding("ok", what, told)
    if trial.retries:
        again = "once" if trial.retries == 1 else f"{trial.retries} times"
        yield Finding("warn", what, f"it was asked again {again}: {trial.last_failure}")

    usage = answer.usage
    if usage is None or usage.input_tokens is None:
        advice = "sizes are estimated; a smaller compact_threshold leaves room for that"
        yield Finding("warn", what, "it does not tell how many tokens a request took", advice)
        return

    cost = provider.models[0].cost(usage, answer.model) if provider.models else None
    told = f"it tells its usage: {usage.input_tokens:,} tokens in, {usage.output_tokens or 0:,} out"
    yield Finding("ok", what, told if cost is None else f"{told}, ${cost:.6f}")


def _called(what: str, trial: _Trial) -> Finding:
    parts = trial.answer.parts if trial.answer else ()
    if any(isinstance(part, ToolCall) for part in parts):
        return Finding("ok", what, "it calls tools")

    return Finding("warn", what, "it was asked to call a tool and did not", _NO_TOOLS_ADVICE)


# ------------------------------------------------------------------ without trying


def _reached(what: str, base_url: str) -> Finding:
    """Say whether a connection can be made to where the provider is. Nothing is sent."""
    parts = urlsplit(base_url)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    shown = f"{host}:{port}"
    proxy = getproxies().get(parts.scheme)
    if proxy and not proxy_bypass(host):
        way = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        host, port = way.hostname or "", way.port or 80
        shown += f" through the proxy {host}:{port}"

    began_s = time.monotonic()
    try:
        socket.create_connection((host, port), CONNECT_TIMEOUT_S).close()
    except OSError as error:
        reason = "no answer in time" if isinstance(error, TimeoutError) else _reason(error)
        told = f"{shown} cannot be reached: {reason}"
        return Finding("fail", what, told, "check base_url and the network")

    took_ms = (time.monotonic() - began_s) * 1000
    return Finding("ok", what, f"{shown} answers in {took_ms:.0f} ms; nothing was asked")


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
