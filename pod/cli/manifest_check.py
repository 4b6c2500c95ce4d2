"""`pod doctor MANIFEST`: whether everything that the manifest names is here and answers."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import aclosing
from typing import TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from attrs import frozen

from manifests import LoadedManifest
from manifests.schema_provider import FallbackProvider
from pod.errors import KeyMissing, PodError
from pod.home import Home
from pod.launch import open_store
from pod.models import ModelError
from pod.providers import LocalClient, Provider, build_provider, read_key
from pod.toolbox import load_hooks, load_tools, refuse_unbuilt, system_prompt
from session_store import SessionStoreError
from worker.errors import WorkerError
from worker.items import user_message
from worker.llm.types import Answered, LlmRequest, RequestOptions

from .findings import Finding, failed
from .listing import counted
from .machine_check import installed_extras

CONNECT_TIMEOUT_S = 5.0
TRY_TIMEOUT_S = 60.0
_LOCAL_TRY_TIMEOUT_S = 600.0
_OURS = (PodError, WorkerError, ModelError, SessionStoreError)
_T = TypeVar("_T")


@frozen
class Checkup:
    """One manifest on this machine."""

    loaded: LoadedManifest
    home: Home
    env: Mapping[str, str]
    is_trying: bool = False
    """Whether a tiny request may be made."""

    def findings(self) -> Iterator[Finding]:
        """Yield what was found, as it is found. Modules that the manifest names are imported."""
        manifest = self.loaded.manifest
        label = f"{self.loaded.path}: pod {manifest.pod.name}, {manifest.provider.label}"
        yield Finding("ok", "manifest", label)
        yield from _problem("manifest", lambda: refuse_unbuilt(self.loaded))
        yield from self._provider("provider", manifest.provider)
        if manifest.compaction is not None and manifest.compaction.provider is not None:
            yield from self._provider("summaries", manifest.compaction.provider)

        yield self._engine()
        yield from self._tools()
        yield from _problem("prompts", lambda: system_prompt(self.loaded))
        yield from self._session()

    # ------------------------------------------------------------------ the provider

    def _provider(self, what: str, section: FallbackProvider) -> Iterator[Finding]:
        if section.kind == "local":
            yield from self._local_model(section)
        elif section.kind not in {"scripted", "replay"}:
            yield self._key("key" if what == "provider" else "summary key", section)

        try:
            provider = build_provider(section, self.loaded, self.home, self.env)
        except _OURS as error:
            # A model's file and a key have a line of their own already.
            if section.kind != "local" and not isinstance(error, KeyMissing):
                yield failed(what, error)

            return

        if self.is_trying:
            yield asyncio.run(_tried(what, provider))
        elif provider.base_url:
            yield _reached(what, provider.base_url)
        else:
            told = f"{provider.client.provider}/{provider.client.model}"
            yield Finding("ok", what, f"{told}, nothing to connect to")

    def _key(self, what: str, section: FallbackProvider) -> Finding:
        try:
            key = read_key(section, self.loaded, self.env)
        except _OURS as error:
            return failed(what, error)

        if key.value is None:
            return Finding("ok", what, "the manifest names none")

        return Finding("ok", what, f"from {key.source} (not shown)")

    def _local_model(self, section: FallbackProvider) -> Iterator[Finding]:
        if "local" not in installed_extras():
            advice = "pip install 'podworker[local]'"
            yield Finding("fail", "local", "the extra `local` is not installed", advice)

        try:
            client = LocalClient.for_section(section, self.loaded, self.home)
        except _OURS as error:
            yield failed("model", error)
            return

        window = client.context_window
        told = f"{client.model}, window {window:,}" if window else client.model
        yield Finding("ok", "model", told)

    # ------------------------------------------------------------------ the rest

    def _engine(self) -> Finding:
        from pod.context.discovery import BUILT_IN, find_engine
        from pod.context.errors import EngineUnavailable
        from pod.context.loader import load_engine

        name = self.loaded.manifest.context.engine
        info = find_engine(name, self.home.plugins)
        if info is None:
            told = f"there is no engine {name}; the built-in compressor would be used"
            return Finding("warn", "engine", told, "pod engines list")

        if info.problem:
            told = f"{name}: {info.problem}; the built-in compressor would be used"
            return Finding("warn", "engine", told, f"pod engines show {name}")

        if name != BUILT_IN:
            try:
                load_engine(name, self.home.plugins)
            except EngineUnavailable as error:
                told = f"{name}: {error.reason}; the built-in compressor would be used"
                return Finding("warn", "engine", told, f"pod engines show {name}")

        return Finding("ok", "engine", f"{name} ({info.source})")

    def _tools(self) -> Iterator[Finding]:
        try:
            tools = load_tools(self.loaded)
            hooks = load_hooks(self.loaded)
        except _OURS as error:
            yield failed("tools", error)
            return

        if tools or hooks:
            told = f"{counted(len(tools), 'tool')}, {counted(len(hooks), 'hook')}"
            yield Finding("ok", "tools", told)

    def _session(self) -> Iterator[Finding]:
        store = open_store(self.loaded, self.home)
        try:
            session_id = store.pointer(self.loaded.manifest.pod.name)
            if session_id is None:
                return

            report = store.verify(session_id)
            holder = store.holder(session_id)
        except SessionStoreError as error:
            yield failed("session", error)
            return

        if not report.ok:
            told = f"{session_id} is damaged: entry {report.first_bad_seq} {report.reason}"
            yield Finding("fail", "session", told, f"pod sessions verify {session_id}")
        elif holder is not None:
            told = f"{session_id} is in use by pid {holder.pid}"
            yield Finding("warn", "session", told, "`pod run … --fork` works on a copy")
        else:
            told = f"{session_id}, {counted(report.entries, 'entry', 'entries')} verify"
            yield Finding("ok", "session", told)


def _problem(what: str, check: Callable[[], _T]) -> Iterator[Finding]:
    """Yield what is wrong, if something is."""
    try:
        check()
    except _OURS as error:
        yield failed(what, error)


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
    return Finding("ok", what, f"{shown} answers in {took_ms:.0f} ms; --try makes a request")


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


async def _tried(what: str, provider: Provider) -> Finding:
    """Make a tiny request and say what came of it."""
    client = provider.client
    request = LlmRequest(
        "Answer with one word.", [user_message("Say: fine")], options=RequestOptions(max_tokens=16)
    )
    limit_s = _LOCAL_TRY_TIMEOUT_S if client.provider == "local" else TRY_TIMEOUT_S
    began_s = time.monotonic()
    try:
        async with asyncio.timeout(limit_s), aclosing(client.stream(request)) as stream:
            answers = [event.answer async for event in stream if isinstance(event, Answered)]
    except WorkerError as error:
        return failed(what, error)
    except TimeoutError:
        return Finding("fail", what, f"no answer within {limit_s:.0f} s", "try it again later")
    finally:
        await client.aclose()

    took_s = time.monotonic() - began_s
    said = f"{client.provider}/{client.model} answered in {took_s:.1f} s"
    return Finding("ok" if answers else "fail", what, said if answers else "no answer came")
