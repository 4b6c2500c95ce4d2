"""`[provider]`: which model answers, where it lives, and how its key is found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Annotated, Literal, get_args
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from ._expansion import PathText, expand, mistake
from ._patterns import SECRET_SHAPE, VARIABLE
from ._section import MOST, NonEmpty, Positive, Rule, Seconds, Section, Several

ProviderKind = Literal[
    "anthropic",
    "openai",
    "openai_responses",
    "gemini",
    "ollama",
    "openai_compatible",
    "local",
    "scripted",
    "replay",
]

PROVIDER_KINDS: tuple[str, ...] = get_args(ProviderKind)
"""Every value of `provider.kind`, in the order they are documented."""

Price = Annotated[float, Field(ge=0, le=MOST, allow_inf_nan=False)]
SCRIPT_KINDS = ("scripted", "replay")
UNREACHED_KINDS = ("local", *SCRIPT_KINDS)
"""Kinds that answer without a server of somebody's: they take no address and no key."""
KEYED_KINDS = ("anthropic", "openai", "openai_responses", "gemini")
"""Kinds that answer nobody without a key at their own address."""
_URL_WORDS = 'must be a URL that begins with "http://" or "https://"'
KEY_SOURCES = ("api_key_env", "api_key_file", "api_key_command")


# What a kind asks at, appended to base_url: examples of other programs show the whole address.
_ENDPOINTS = {
    "anthropic": "/messages",
    "openai": "/chat/completions",
    "openai_responses": "/responses",
    "openai_compatible": "/chat/completions",
    "ollama": "/api/chat",
}


def _variable_name(text: str) -> str:
    if SECRET_SHAPE.search(text) or not VARIABLE.fullmatch(text):
        raise mistake("must be the name of an environment variable, never the key itself")

    return text


def _url(text: str, info: ValidationInfo) -> str:
    url = expand(text, info)
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        raise mistake(_URL_WORDS) from None

    if not usable or any(c.isspace() for c in url):
        raise mistake(_URL_WORDS)

    try:
        has_port = parts.port != 0
    except ValueError:
        has_port = False

    if not has_port:
        raise mistake("must have a port from 1 to 65535, or none")

    if parts.username is not None or parts.password is not None:
        raise mistake("must not carry a name or password; use api_key_env for the key")

    if parts.query or parts.fragment:
        raise mistake('must end with its path: "?…" and "#…" cannot be kept when paths are added')

    endpoint = _ENDPOINTS.get(info.data.get("kind", ""))
    if endpoint is not None and parts.path.rstrip("/").endswith(endpoint):
        raise mistake(f'must end before "{endpoint}", which is added to it')

    return url


class PricesSection(Section):
    """What a model costs, in US dollars for a million tokens."""

    input: Price
    """Of the prompt, its cached part aside."""
    output: Price
    """Of the answer, reasoning included."""
    cache_read: Price | None = None
    """Of what the provider had cached already; default: as `input`."""
    cache_write: Price | None = None
    """Of what it cached now; default: as `input`."""


class FallbackProvider(Section):
    """A model that can answer; every key of `[provider]` but `fallbacks`."""

    kind: ProviderKind
    """Which API is spoken; `local` runs a GGUF model on this machine, `scripted` and `replay`
    answer from a file."""
    model: NonEmpty | None = None
    """The provider's name for the model. For `local` a model that was pulled, or the path of a GGUF
    file. May be left out for `scripted` and `replay` only."""
    api_key_env: Annotated[str, AfterValidator(_variable_name)] | None = None
    """The environment variable that holds the key."""
    api_key_file: PathText | None = None
    """A file that holds the key; relative to the manifest, `~` and `${NAME}` expand."""
    api_key_command: NonEmpty | None = None
    """A command that prints the key."""
    base_url: Annotated[str, AfterValidator(_url)] | None = None
    """Where the API is; default: the provider's own. Required for `openai_compatible`. `${NAME}`
    expands."""
    context_window: Positive | None = None
    """The model's window in tokens; default: from the model table, else learned."""
    max_output_tokens: Positive | None = None
    """The most tokens that the model can answer with; worker.max_tokens above it is lowered."""
    prices: PricesSection | None = None
    """What the model costs; default: from the model table (extra `prices`), else not known."""
    idle_timeout_seconds: Seconds | None = None
    """The longest silence of a model, before its answer or in the middle of it; default: 60 for
    `openai_compatible`, 900 for `local`, 300 for the others, whose models may think unheard."""
    script: PathText | None = None
    """The answers of `scripted`, or the recording of `replay`: a JSON Lines file, relative to the
    manifest."""
    server: Literal["llama.cpp", "lm_studio", "vllm"] | None = None
    """What serves an `openai_compatible` model at an address of your own; the large hosts are known
    by their address."""
    strict_alternation: bool = False
    """For `openai_compatible` servers whose chat template refuses two user messages in a row."""

    @property
    def label(self) -> str:
        """How people see it: `anthropic/claude-…`, `local/…`, or the kind alone."""
        if self.model is None:
            return self.kind

        return f"{self.kind}/{PurePath(self.model).name if self.kind == 'local' else self.model}"

    @property
    def lacks_key(self) -> bool:
        """Whether no key is named, and the provider's own address asks for one."""
        if self.kind not in KEYED_KINDS or self.base_url is not None:
            return False

        return not (self.api_key_env or self.api_key_file or self.api_key_command)

    @field_validator("model")
    @classmethod
    def _expand_model_path(cls, model: str | None, info: ValidationInfo) -> str | None:
        if model is None or "${" not in model:
            return model

        if info.data.get("kind") != "local":
            raise mistake('"${…}" is expanded only in base_url, env tables and paths')

        return expand(model, info)

    @classmethod
    def broken_rules(cls, given: Mapping[str, object]) -> Iterator[Rule]:
        """Yield what is wrong between kind, model, script, address and key."""
        kind = given.get("kind")
        if kind in SCRIPT_KINDS and given.get("script") is None:
            yield "script", f'missing; kind "{kind}" answers from a JSON Lines file'

        if kind in PROVIDER_KINDS and kind not in SCRIPT_KINDS:
            yield from _network_rules(str(kind), given)

        if kind in UNREACHED_KINDS:
            for key in ("base_url", *KEY_SOURCES):
                if given.get(key) is not None:
                    yield (
                        key,
                        f'has no meaning for kind "{kind}", which reaches no server; leave it out',
                    )

        sources = [key for key in KEY_SOURCES if given.get(key) is not None]
        if len(sources) > 1:
            yield sources[-1], f"only one of {' and '.join(sources)} may be given"


def _network_rules(kind: str, given: Mapping[str, object]) -> Iterator[Rule]:
    """Yield what is wrong for the kinds that reach a model rather than a file of answers."""
    if given.get("model") is None:
        yield "model", f'missing; kind "{kind}" needs the name of a model'

    if given.get("script") is not None:
        yield "script", 'is for kind "scripted" or "replay" only'

    if kind == "openai_compatible":
        if given.get("base_url") is None:
            yield "base_url", 'missing; kind "openai_compatible" has no address of its own'
        return

    if given.get("strict_alternation") is True:
        yield "strict_alternation", 'is for kind "openai_compatible" only'

    if given.get("server") is not None:
        yield "server", 'is for kind "openai_compatible" only'


class ProviderSection(FallbackProvider):
    """The model that answers, and those that stand in for it."""

    fallbacks: Several[FallbackProvider] = Field(default=())
    """Models to ask, in order, where this one cannot answer; each as `[provider]`."""
