"""From a manifest's `[provider]` to a client that answers: its scheme, its address, its key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from attrs import frozen

from pod.errors import NotBuilt, PricesMissing
from pod.home import Home
from pod.keys import NO_KEY, Key, read_key
from pod.local_client import LocalClient
from pod.model_table import ModelCard, has_table
from pod.unbuilt import BUILT_KINDS
from worker.errors import WorkerError
from worker.llm.types import LlmClient

if TYPE_CHECKING:
    from manifests import LoadedManifest
    from manifests.schema_provider import FallbackProvider, ProviderSection
    from worker.llm import Scheme

BASE_URLS = {
    "anthropic": "https://api.anthropic.com",
    "openai": "https://api.openai.com/v1",
    "openai_responses": "https://api.openai.com/v1",
    "gemini": "https://generativelanguage.googleapis.com",
    "ollama": "http://127.0.0.1:11434",
}
"""Where each kind is, unless the manifest says otherwise."""

IDLE_TIMEOUT_S = 300.0
"""How long a model may be silent, in seconds: some think for minutes without a word of it."""
COMPATIBLE_IDLE_TIMEOUT_S = 60.0
"""The same for servers that stream what their models think, or have models that do not."""

# Others are asked for typed answers in words: not all of their models take a schema with tools.
_SCHEMA_KINDS = frozenset({"openai", "openai_responses"})


@frozen
class Provider:
    """A client, and what else its section came to."""

    client: LlmClient
    keys: tuple[Key, ...] = (NO_KEY,)
    """The key of the model, and of each that stands in for it."""
    models: tuple[ModelCard, ...] = ()
    """What is known of the model, and of each that stands in for it."""
    takes_grammar: bool = False
    takes_schema: bool = False
    base_url: str = ""


def build_provider(
    section: ProviderSection, loaded: LoadedManifest, home: Home, env: Mapping[str, str]
) -> Provider:
    """Return the client that a provider section describes. Reads keys; connects to nothing.

    Raises:
        NotBuilt: The kind is known, but this version cannot speak to it.
        KeyMissing: A key is not where the manifest says.
        WorkerError: The script or model file cannot be used.
    """
    first = build_one(section, loaded, home, env)
    if not section.fallbacks:
        return first

    from worker.llm.fallback import FallbackClient

    all_of_them = (first, *(build_one(each, loaded, home, env) for each in section.fallbacks))
    return Provider(
        FallbackClient([each.client for each in all_of_them]),
        keys=tuple(key for each in all_of_them for key in each.keys),
        models=tuple(card for each in all_of_them for card in each.models),
        takes_grammar=all(each.takes_grammar for each in all_of_them),
        takes_schema=all(each.takes_schema for each in all_of_them),
        base_url=first.base_url,
    )


def build_one(
    section: FallbackProvider, loaded: LoadedManifest, home: Home, env: Mapping[str, str]
) -> Provider:
    """Return the client of one model, without those that stand in for it; see `build_provider`."""
    if section.kind not in BUILT_KINDS:
        message = f'provider kind "{section.kind}" is not built in this version'
        raise NotBuilt(message, hint=f"use one of {', '.join(BUILT_KINDS)}")

    card = ModelCard.of(section)
    if section.kind == "scripted":
        return Provider(_scripted(section.script or "", section, loaded), models=(card,))

    if section.kind == "local":
        local = LocalClient.for_section(section, loaded, home)
        return Provider(local, models=(card,), takes_grammar=True, takes_schema=True)

    return _http_provider(section, card, read_key(section, loaded, env))


def known_window(loaded: LoadedManifest, home: Home) -> int | None:
    """Return the window of the manifest's model where that is known without asking anybody.

    Reads no key. Raises as `build_provider` does for a local model that is not here.
    """
    section = loaded.manifest.provider
    if section.kind != "local":
        return ModelCard.of(section).context_window

    return LocalClient.for_section(section, loaded, home).context_window


def check_cost_budget(loaded: LoadedManifest) -> None:
    """Raise `PricesMissing` where a run's cost is limited and cannot be told."""
    section = loaded.manifest.provider
    if loaded.manifest.budgets.run.cost is None:
        return

    cards = [ModelCard.of(each) for each in (section, *section.fallbacks)]
    unpriced = [card for card in cards if not card.has_prices]
    if not unpriced:
        return

    names = ", ".join(f"{card.provider}/{card.model}" for card in unpriced)
    write = "write prices = { input = …, output = … }, in US dollars for a million tokens, "
    raise PricesMissing(
        f"{loaded.path}: budgets.run.cost limits what is spent, and no price is known for {names}",
        hint=("" if has_table() else "pip install 'podworker[prices]', or ")
        + f"{write}beside the model",
    )


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


def _http_provider(section: FallbackProvider, card: ModelCard, key: Key) -> Provider:
    from worker import llm

    base_url = section.base_url or BASE_URLS[section.kind]
    endpoint = llm.Endpoint(
        provider=section.kind,
        model=section.model or "",
        base_url=base_url,
        api_key=key.value,
        context_window=card.context_window,
        key_source=key.source,
        idle_timeout_s=section.idle_timeout_seconds or _usual_idle_timeout_s(section.kind),
    )
    client = llm.HttpClient(endpoint, _scheme(section, base_url, card))
    return Provider(
        client,
        keys=(key,),
        models=(card,),
        takes_schema=section.kind in _SCHEMA_KINDS,
        base_url=base_url,
    )


def _usual_idle_timeout_s(kind: str) -> float:
    return COMPATIBLE_IDLE_TIMEOUT_S if kind == "openai_compatible" else IDLE_TIMEOUT_S


def _scheme(section: FallbackProvider, base_url: str, card: ModelCard) -> Scheme:
    """Return the dialect of a section's provider; only its own module is loaded."""
    match section.kind:
        case "anthropic":
            from worker.llm.schemes.anthropic.scheme import AnthropicScheme

            return AnthropicScheme()
        case "openai_responses":
            from worker.llm.schemes.responses.scheme import OpenAiResponsesScheme

            return OpenAiResponsesScheme()
        case "gemini":
            from worker.llm.schemes.gemini.scheme import GeminiScheme

            return GeminiScheme()
        case "ollama":
            from worker.llm.schemes.ollama.scheme import OllamaScheme

            return OllamaScheme(context_window=card.context_window)
        case _:
            return _chat_scheme(section, base_url)


def _chat_scheme(section: FallbackProvider, base_url: str) -> Scheme:
    from attrs import evolve

    from worker.llm.schemes.chat.scheme import OpenAiChatScheme
    from worker.llm.schemes.chat.servers import NAMED, quirks_for

    quirks = NAMED[section.server] if section.server else quirks_for(base_url, section.kind)
    if section.strict_alternation:
        quirks = evolve(quirks, strict_alternation=True)

    return OpenAiChatScheme(quirks)
