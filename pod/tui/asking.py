"""What a person is asked: calls that wait for approval one after the other, and plain questions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from attrs import define, field, frozen

from .state import Approval

KEYS_AFTER_MS = 700
"""How long a question is there before a single key answers it: such a key may be the next letter
of what is just being typed."""
_ANSWERS = {"y": "y", "yes": "y", "s": "s", "session": "s", "n": "n", "no": "n"}
_NEAR_MISSES = frozenset(
    {"allow", "allowed", "approve", "accept", "ok", "okay", "yep", "yeah", "sure", "once", "always"}
    | {"deny", "denied", "reject", "refuse", "nope", "never"}
)
"""What people say to a question of this kind, and is no answer here: it could mean several."""


@frozen
class Question:
    """Whether to do something."""

    text: str
    work: Callable[[], Awaitable[None]]


@define(eq=False)
class Asking:
    """What is asked now, and since when."""

    question: Question | None = None
    _decided: set[str] = field(factory=set, init=False)
    """The calls that were decided here; the pod says so a moment later."""
    _first: str = field(default="", init=False)
    _since_ms: int = field(default=0, init=False)

    def undecided(self, approvals: tuple[Approval, ...]) -> tuple[Approval, ...]:
        """Return the calls of these that are still to be decided."""
        return tuple(a for a in approvals if a.call_uid not in self._decided)

    def look_at(self, approvals: tuple[Approval, ...], now_ms: int) -> bool:
        """Take in what waits now; tell whether it is about another call than before."""
        first = next(iter(self.undecided(approvals)), None)
        uid = "" if first is None else first.call_uid
        is_other = uid != self._first
        if is_other:
            self._first, self._since_ms = uid, now_ms

        return is_other

    def decided(self, approval: Approval) -> None:
        """Ask no more about a call."""
        self._decided.add(approval.call_uid)

    def taken(self, now_ms: int) -> Question | None:
        """Return the plain question, if any, which is asked no more.

        A call that waited behind it is asked about from now on.
        """
        question, self.question = self.question, None
        if question is not None:
            self._since_ms = now_ms

        return question

    def takes_keys(self, now_ms: int) -> bool:
        """Tell whether a single key answers now."""
        if self.question is not None:
            return True

        return bool(self._first) and not self.is_too_new(now_ms)

    def answer_in(self, line: str) -> str | None:
        """Return the key that a line stands for, where something is asked and it is an answer."""
        if self.question is None and not self._first:
            return None

        return _ANSWERS.get(line.strip().lower())

    def is_near_miss(self, line: str) -> bool:
        """Tell whether a line was likely meant to decide about a call, and does not.

        It decides nothing. With a space before it, it is a prompt like any other.
        """
        if not self._first or self.question is not None or line[:1].isspace():
            return False

        said = line.strip().lower().rstrip(".!")
        return (len(said) == 1 and said.isalpha()) or said in _NEAR_MISSES

    def is_too_new(self, now_ms: int) -> bool:
        """Tell whether an answer may have been meant for the call that was asked about before."""
        return now_ms - self._since_ms < KEYS_AFTER_MS
