"""What a client needs of a provider's dialect. A scheme is pure: bytes and text, no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from worker.llm.types import Answer, LlmRequest, StreamEvent


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
        """Take the data of one SSE event, or a whole JSON body, and return what it means.

        Raises:
            ReportedError: The data is the provider's report of an error.
            BadAnswer: The data is not the provider's protocol.
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

    def path(self, model: str) -> str:
        """Return what follows the base URL, with its leading slash."""

    def headers(self, api_key: str | None) -> Mapping[str, str]:
        """Return the headers of a request, authentication included."""

    def encoder(self, model: str) -> Encoder:
        """Return an encoder for one client's requests."""

    def decoder(self, provider: str, model: str) -> Decoder:
        """Return a decoder for one answer, whose reasoning it tags with `provider` and `model`."""
