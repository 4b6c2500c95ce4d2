"""Where requests go and how patiently: the configuration of a client, as frozen values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from attrs import field, frozen

if TYPE_CHECKING:
    # Loading pydantic takes longer than all the rest: only a key needs it.
    from pydantic import SecretStr  # noqa: TC004  # attrs reads no annotations

_VERSION = re.compile(r"/v\d+(?:(?:alpha|beta)\d*)?(?=/|$)")
_SHORTEST_SECRET = 8
_MASK = "[key]"


def _secret(value: SecretStr | str | None) -> SecretStr | None:
    if not isinstance(value, str):
        return value

    from pydantic import SecretStr

    return SecretStr(value)


@frozen(kw_only=True)
class StreamLimits:
    """How much of an answer is read, in bytes after decompression, unless it says otherwise."""

    line_bytes: int = 1 << 20
    event_bytes: int = 4 << 20
    response_bytes: int = 64 << 20
    error_bytes: int = 1 << 20
    """How much of an error's body is read; the rest is left."""
    arguments_bytes: int = 1 << 20
    """How long the arguments of one tool call may be."""
    text_chars: int = 4 << 20
    """How long the text and reasoning of one answer may be, in characters."""
    json_depth: int = 64
    """How deep objects and lists of one event may lie in each other."""
    json_containers: int = 100_000
    """How many objects and lists may be in one event."""


@frozen(kw_only=True)
class Endpoint:
    """One provider's address, model and key. Its `repr` shows neither the key nor the headers."""

    provider: str
    """The provider's kind, as answers and reasoning are tagged with."""
    model: str
    """The model's name, as the provider knows it."""
    base_url: str
    """What a scheme's path is appended to, such as `https://host/v1`."""
    api_key: SecretStr | None = field(default=None, converter=_secret, repr=False)
    """The key itself, or None where the server wants none. A `str` is wrapped."""
    headers: Mapping[str, str] = field(factory=dict, repr=False)
    """Further headers of every request; they win over the scheme's."""
    context_window: int | None = None
    """The model's window in tokens, where it is known."""
    key_source: str = "the manifest"
    """Where the key was read from, in words for a message: "the variable FAKE_KEY"."""
    idle_timeout_s: float = 60.0
    """The longest silence, in seconds: before the headers, and between two data events."""
    total_timeout_s: float = 1800.0
    """The longest one answer may take, in seconds."""
    connect_timeout_s: float = 10.0
    """The longest that connecting may take, in seconds."""
    limits: StreamLimits = field(factory=StreamLimits)
    """How much of an answer is read."""

    @property
    def key_text(self) -> str:
        """The key as it is sent; empty where there is none."""
        return self.api_key.get_secret_value() if self.api_key else ""

    @property
    def shown_url(self) -> str:
        """The base URL as it may be shown: without user, password and query."""
        try:
            parts = urlsplit(self.base_url)
        except ValueError:
            return "an address that cannot be read"

        host = parts.netloc.rpartition("@")[2]
        return self.mask(f"{parts.scheme}://{host}{parts.path}")

    def mask(self, text: str) -> str:
        """Return `text` with the key, and secrets in the headers, replaced by `[key]`.

        A value shorter than eight characters is no secret ("none", "ollama") and stays.
        """
        for secret in (self.key_text, *self.headers.values()):
            if secret and len(secret) >= _SHORTEST_SECRET:
                text = text.replace(secret, _MASK)

        return text


@frozen(kw_only=True)
class RetryPolicy:
    """How often and how patiently a request is repeated that failed before any content."""

    max_attempts: int = 6
    """Requests in all, the first one included."""
    max_connect_attempts: int = 4
    """The same, where no connection could be made: a wrong address is told sooner."""
    first_wait_s: float = 0.5
    """The first backoff; it doubles each time, and up to as much is added at random."""
    min_wait_s: float = 0.1
    """The wait where the provider says that none is needed."""
    max_wait_s: float = 60.0
    """The longest single wait, also where the provider asks for more."""
    total_wait_s: float = 120.0
    """All waits of one request together; a wait that would exceed it is not begun."""


def url_of(base_url: str, path: str, *, is_unversioned: bool = False) -> str:
    """Return the URL of `path` under `base_url`; either may bring a query.

    One version stands in it: a base URL that ends with one keeps it, and the path's own is dropped
    (`…/v1` and `/v1beta/models` are `…/v1/models`). A path that `is_unversioned` stands at the
    server's root: there the base URL's version is dropped.
    """
    base, _, base_query = base_url.partition("?")
    path, _, query = path.partition("?")
    base = base.rstrip("/")
    end = "/" + base.rpartition("/")[2]
    if _VERSION.fullmatch(end):
        if is_unversioned:
            base = base.removesuffix(end)
        else:
            path = path[version.end() :] if (version := _VERSION.match(path)) else path

    queries = "&".join(part for part in (base_query, query) if part)
    return base + path + (f"?{queries}" if queries else "")
