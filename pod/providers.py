"""From a manifest's `[provider]` to a client that answers: keys, addresses, the local server."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING

from attrs import evolve, field, frozen

from pod.errors import KeyMissing, NotBuilt
from pod.home import Home
from pod.journal import in_thread
from worker.errors import WorkerError
from worker.llm.types import Answered, LlmClient, LlmRequest, StreamEvent

if TYPE_CHECKING:
    from manifests import LoadedManifest
    from manifests.schema_provider import FallbackProvider
    from worker.llm import HttpClient
    from worker.llm.local import LocalServer

OPENAI_BASE_URL = "https://api.openai.com/v1"
OLLAMA_BASE_URL = "http://127.0.0.1:11434/v1"
KEY_COMMAND_TIMEOUT_S = 30
LOCAL_IDLE_TIMEOUT_S = 900.0
"""A small machine may read a long prompt for minutes before the first token."""

BUILT_KINDS = ("openai", "openai_compatible", "ollama", "local", "scripted")
"""The values of `provider.kind` that this version can speak to."""


@frozen
class Key:
    """A key and where it came from. The value is never shown."""

    value: str | None = field(repr=False)
    source: str


@frozen
class Provider:
    """A client, and what else its section came to."""

    client: LlmClient
    key: Key
    takes_grammar: bool = False
    takes_schema: bool = False
    base_url: str = ""


def build_provider(
    section: FallbackProvider, loaded: LoadedManifest, home: Home, env: Mapping[str, str]
) -> Provider:
    """Return the client that a provider section describes. Reads the key; connects to nothing.

    Raises:
        NotBuilt: The kind is known, but this version cannot speak to it.
        KeyMissing: The key is not where the manifest says.
        WorkerError: The script or model file cannot be used.
    """
    if section.kind not in BUILT_KINDS:
        message = f'provider kind "{section.kind}" is not built in this version'
        raise NotBuilt(message, hint=f"use one of {', '.join(BUILT_KINDS)}")

    if section.kind == "scripted":
        return Provider(_scripted(section.script or "", section, loaded), Key(None, "none"))

    if section.kind == "local":
        local = LocalClient.for_section(section, loaded, home)
        return Provider(local, Key(None, "none"), takes_grammar=True, takes_schema=True)

    return _http_provider(section, read_key(section, loaded, env))


def known_window(loaded: LoadedManifest, home: Home) -> int | None:
    """Return the window of the manifest's model where that is known without asking anybody.

    Reads no key. Raises as `build_provider` does for a local model that is not here.
    """
    section = loaded.manifest.provider
    if section.kind != "local":
        return section.context_window

    return LocalClient.for_section(section, loaded, home).context_window


def read_key(section: FallbackProvider, loaded: LoadedManifest, env: Mapping[str, str]) -> Key:
    """Return the key that a section names, or none where it names none.

    Raises:
        KeyMissing: The variable is not set, the file cannot be read, or the command failed.
    """
    if section.api_key_env:
        value = env.get(section.api_key_env, "").strip()
        source = f"the variable {section.api_key_env}"
        if not value:
            raise _missing(section, loaded, "api_key_env", f"{source} is not set")

        return Key(value, source)

    if section.api_key_file:
        path = loaded.resolve(section.api_key_file)
        try:
            value = path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not text"
            problem = f"the file {path} cannot be read ({reason})"
            raise _missing(section, loaded, "api_key_file", problem) from error

        if not value:
            raise _missing(section, loaded, "api_key_file", f"the file {path} is empty")

        return Key(value, f"the file {path.name}")

    if section.api_key_command:
        command = section.api_key_command
        return Key(_command_output(command, section, loaded), "api_key_command")

    return Key(None, "none")


def _command_output(command: str, section: FallbackProvider, loaded: LoadedManifest) -> str:
    try:
        done = subprocess.run(  # noqa: S602  the manifest's author chose the command
            command,
            shell=True,
            capture_output=True,
            text=True,
            timeout=KEY_COMMAND_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
            cwd=loaded.base_dir,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        problem = f"the command took over {KEY_COMMAND_TIMEOUT_S} s"
        raise _missing(section, loaded, "api_key_command", problem) from error
    except UnicodeDecodeError:
        # Without its cause, which holds what was printed.
        problem = "the command printed what is not text"
        raise _missing(section, loaded, "api_key_command", problem) from None

    value = done.stdout.strip()
    if done.returncode or not value:
        problem = (
            f"the command ended with status {done.returncode}"
            if done.returncode
            else ("the command printed nothing")
        )
        raise _missing(section, loaded, "api_key_command", problem)

    return value


def _missing(
    section: FallbackProvider, loaded: LoadedManifest, key: str, problem: str
) -> KeyMissing:
    line = loaded.line_of("provider", key)
    where = f"{loaded.path}, line {line}: {key}" if line else f"{loaded.path}: {key}"
    others = [k for k in ("api_key_env", "api_key_file", "api_key_command") if k != key]
    hint = f"{where}\nset it, or use {' or '.join(others)}; `pod doctor {loaded.path}` checks"
    return KeyMissing(f"no key for {section.kind}: {problem}", hint=hint)


def _scripted(script: str, section: FallbackProvider, loaded: LoadedManifest) -> LlmClient:
    from worker.llm import ScriptedClient

    path = loaded.resolve(script)
    try:
        text = path.read_text(encoding="utf-8")
        return ScriptedClient.parse(
            text, model=section.model or "scripted", context_window=section.context_window
        )
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        message = f"the script {path} cannot be used: {reason}"
        raise WorkerError(message, hint="a script holds one JSON answer a line") from error


def _http_provider(section: FallbackProvider, key: Key) -> Provider:
    from worker import llm
    from worker.llm.schemes.openai_chat import COMPATIBLE, OPENAI

    defaults = {"openai": OPENAI_BASE_URL, "ollama": OLLAMA_BASE_URL}
    base_url = section.base_url or defaults[section.kind]
    official = section.kind == "openai"
    quirks = (
        OPENAI if official else evolve(COMPATIBLE, strict_alternation=section.strict_alternation)
    )
    endpoint = llm.Endpoint(
        provider=section.kind,
        model=section.model or "",
        base_url=base_url,
        api_key=key.value,
        context_window=section.context_window,
        key_source=key.source,
    )
    client = llm.HttpClient(endpoint, llm.OpenAiChatScheme(quirks))
    return Provider(client, key, takes_schema=official, base_url=base_url)


class LocalClient:
    """A client of a model that runs here: its server starts with the first request."""

    def __init__(self, server: LocalServer) -> None:
        self._server = server
        self._client: HttpClient | None = None
        self._base_url = ""
        self._starting = asyncio.Lock()

    @classmethod
    def for_section(
        cls, section: FallbackProvider, loaded: LoadedManifest, home: Home
    ) -> LocalClient:
        """Return the client for a model that was pulled or a GGUF file; the file is checked."""
        from pod.models import resolve_model
        from worker.llm import local

        path = resolve_model(section.model or "", home.models, relative_to=loaded.base_dir)
        server = local.LocalServer(path, context_window=section.context_window)
        _ = server.context_window  # Reads the file's header: a damaged one is told of now.
        return cls(server)

    @property
    def provider(self) -> str:
        """Always `local`."""
        return "local"

    @property
    def model(self) -> str:
        """The model's name, by its file."""
        return self._server.model_name

    @property
    def context_window(self) -> int | None:
        """The window that the server gives, in tokens."""
        return self._server.context_window

    async def stream(self, request: LlmRequest) -> AsyncGenerator[StreamEvent, None]:
        """Send a request to the server, which is started if it is not running."""
        client = await self._ready()
        async with aclosing(client.stream(request)) as stream:
            async for event in stream:
                # The server calls the model by its file's path, which is nobody's business.
                if isinstance(event, Answered):
                    yield Answered(evolve(event.answer, model=self.model))
                else:
                    yield event

    async def _ready(self) -> HttpClient:
        from worker import llm
        from worker.llm.schemes.openai_chat import LLAMA_SERVER

        async with self._starting:
            base_url = await in_thread(self._server.start)
            if self._client is None or self._base_url != base_url:
                self._base_url = base_url
                endpoint = llm.Endpoint(
                    provider="local",
                    model=self.model,
                    base_url=base_url,
                    api_key=self._server.api_key,
                    context_window=self._server.context_window,
                    idle_timeout_s=LOCAL_IDLE_TIMEOUT_S,
                )
                self._client = llm.HttpClient(endpoint, llm.OpenAiChatScheme(LLAMA_SERVER))

            return self._client

    async def aclose(self) -> None:
        """Stop the server."""
        if self._client is not None:
            await self._client.aclose()

        await in_thread(self._server.close)
