"""What a client has learned of its model: the options that it refuses."""

from __future__ import annotations

from attrs import evolve

from worker.llm.refusals import Option, RefusedOption
from worker.llm.scheme import Encoder
from worker.llm.types import LlmRequest


class Adapting:
    """Encodes requests without what was refused so far. A new client knows of nothing."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._left_out: set[Option] = set()
        self._refused: frozenset[str] = frozenset()

    def encode(self, request: LlmRequest) -> bytes:
        """Return the body of `request`, options left out that the model refuses."""
        if self._refused:
            options = evolve(
                request.options,
                refused_names=self._refused,
                **dict.fromkeys(self._left_out),
            )
            request = evolve(request, options=options)

        return self._encoder.encode(request)

    def leave_out(self, refused: RefusedOption, request: LlmRequest, body: bytes) -> bool:
        """Leave out what was refused from now on; tell whether `request` is another without it.

        Args:
            refused: What the provider refused.
            request: The request that was refused.
            body: What was sent for it.
        """
        before = self._refused, set(self._left_out)
        self._refused |= {refused.name}
        if refused.option is not None:
            self._left_out.add(refused.option)
        if self.encode(request) != body:
            return True

        # It was not in the request, so its refusal is not understood.
        self._refused, self._left_out = before
        return False
