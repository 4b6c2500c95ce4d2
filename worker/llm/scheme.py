"""What a client needs of a provider's dialect. A scheme is pure: bytes and text, no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol, TypeAlias

from worker.llm.types import Answer, LlmRequest, StreamEvent

Framing: TypeAlias = Literal["sse", "ndjson"]


class Encoder(Protocol):
    """Makes request bodies; it may keep what it encoded last to reuse the bytes."""

    def encode(self, request: LlmRequest) -> bytes:
        """Return the body of `request`."""


class Decoder(Protocol):
    """Reads one answer. A new one is made for every attempt, so nothing of a failed one remains."""

    @property
    def is_complete(self) -> bool:
        """Whether the provider said that the answer has ended: `finish` will not raise."""

    @property
    def is_done(self) -> bool:
        """Whether nothing more is to come, usage included: reading can stop."""

    def feed(self, data: str) -> list[StreamEvent]:
        """Take the data of one event, one line, or a whole JSON body, and return what it means.

        Raises:
            ReportedError: The data is the provider's report of an error.
            BadAnswer: The data is not the provider's protocol.
        """

    def more(self, text: str, data: str) -> None:
        """Take `text` as more of what the last event was a delta of.

        Called where an event repeats the last one with another text, which is valid Unicode. The
        last event was one delta of text or reasoning. `data` is the new one: where it counts
        tokens, its counts hold from now on.
        """

    def finish(self) -> Answer:
        """Return the answer; call it once the stream has ended.

        Raises:
            StreamBroken: The stream ended without saying that the answer is complete. Its
                `partial` is that of `partial()`.
        """

    def partial(self) -> Answer | None:
        """Return what has arrived so far, tool calls left out; None where nothing has."""


class Scheme(Protocol):
    """One provider's dialect."""

    @property
    def framing(self) -> Framing:
        """How a stream is cut: server-sent events, or one JSON value a line."""

    @property
    def is_unversioned(self) -> bool:
        """Whether the path stands at the server's root: a base URL that ends in `/v1` loses it."""

    def path(self, model: str) -> str:
        """Return what follows the base URL, with its leading slash.

        Where it begins with a version (`/v1/messages`), a base URL may end with one in its place.
        """

    def headers(self, api_key: str | None) -> Mapping[str, str]:
        """Return the headers of a request, authentication included."""

    def encoder(self, provider: str, model: str) -> Encoder:
        """Return an encoder for one client's requests.

        Reasoning is sent back only where it came from `provider` (and, if the dialect says so,
        from `model`).
        """

    def decoder(self, provider: str, model: str) -> Decoder:
        """Return a decoder for one answer, whose reasoning it tags with `provider` and `model`."""
