"""Conversations to try an engine on: a fixed set, and more from whole numbers. Pure.

A conversation is made of `Turn`s, which are numbers alone, so that a failing one can be made
smaller; equal turns give equal messages, identities included.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from random import Random
from typing import Literal, TypeAlias

from attrs import evolve, frozen

from pod.context.engine import Message
from pod.context.rows import COMPRESSED_SUMMARY, MESSAGE_UID, TOOL_CALL_UID, TOOL_CALL_UIDS
from worker.text import SUMMARY_LABEL

Ending: TypeAlias = Literal["answer", "results", "question"]
ENDINGS: tuple[Ending, ...] = ("answer", "results", "question")

_SENTENCE = "the file was read and its lines say that all of it is in order"
_WORDS = _SENTENCE.split()
_SCRIPTS = ("", "日本語の文章です。", "😀 héllo ", "مرحبا بالعالم ")
SCRIPTS = len(_SCRIPTS)


@frozen
class Turn:
    """What a person says, what is done about it, and the answer. All sizes are words."""

    words: int = 12
    rounds: tuple[tuple[int, ...], ...] = ()
    """Each an answer with calls; the numbers are the sizes of their results."""
    answer_words: int = 20
    script: int = 0
    """Which writing the texts begin with."""


@frozen
class Conversation:
    """Turns as messages, the way a host hands them to an engine: no system row, uids on all."""

    turns: tuple[Turn, ...]
    ending: Ending = "answer"
    marker: str = ""
    """Stands in every text, if any."""
    echoes: bool = False
    """Whether all turns say the same, so that only identities tell them apart."""
    reuses_ids: bool = False
    """Whether the provider's call ids begin anew in each turn."""
    has_summary: bool = False
    """Whether an earlier compaction's summary is at the head."""

    def rows(self) -> list[Message]:
        """Return the messages, new ones each time."""
        return list(self._rows())

    def _rows(self) -> Iterator[Message]:
        if self.has_summary:
            text = f"{SUMMARY_LABEL}\n\n{self._text('summary', 40, 0)}"
            yield self._row("summary", "user", text) | {COMPRESSED_SUMMARY: True}

        for number, turn in enumerate(self.turns):
            is_last = number == len(self.turns) - 1
            said = self._text(f"question {number}", turn.words, turn.script)
            yield self._row(f"{number}", "user", said)
            if is_last and self.ending == "question":
                return

            rounds = turn.rounds
            if is_last and self.ending == "results" and not rounds:
                rounds = ((10,),)
            for place, sizes in enumerate(rounds):
                yield from self._round(turn, number, place, sizes=sizes)

            if not (is_last and self.ending == "results"):
                answer = self._text(f"answer {number}", turn.answer_words, turn.script)
                yield self._row(f"{number} answer", "assistant", answer)

    def _round(
        self, turn: Turn, number: int, place: int, *, sizes: tuple[int, ...]
    ) -> Iterator[Message]:
        owner = 0 if self.reuses_ids else number
        ids = [f"call_{owner}_{place}_{n}" for n in range(len(sizes))]
        key = f"{number} {place}"
        uids = {call_id: self._uid(f"{key} {call_id}") for call_id in ids}
        said = self._text(f"step {key}", turn.answer_words // 2, turn.script)
        row = self._row(f"{key} calls", "assistant", said or None)
        if ids:
            row |= {"tool_calls": [_call(call_id) for call_id in ids], TOOL_CALL_UIDS: uids}
        yield row
        for call_id, size in zip(ids, sizes, strict=True):
            text = self._text(f"result {key} {call_id}", size, turn.script)
            result = self._row(f"{key} {call_id} result", "tool", text)
            yield result | {"tool_call_id": call_id, TOOL_CALL_UID: uids[call_id]}

    def _row(self, key: str, role: str, content: str | None) -> Message:
        return {"role": role, "content": content, MESSAGE_UID: self._uid(key)}

    def _uid(self, key: str) -> str:
        return hashlib.sha256(f"{self.marker}:{key}".encode()).hexdigest()[:32]

    def _text(self, key: str, words: int, script: int) -> str:
        if words <= 0:
            return ""

        opening = key.split(maxsplit=1)[0] if self.echoes else key
        filler = (_WORDS[n % len(_WORDS)] for n in range(words))
        parts = [_SCRIPTS[script % SCRIPTS] + opening, self.marker, *filler]
        return " ".join(part for part in parts if part)


def _call(call_id: str) -> Message:
    function = {"name": "look", "arguments": f'{{"at": "{call_id}"}}'}
    return {"id": call_id, "type": "function", "function": function}


_TOOL_TURN = Turn(rounds=((60, 60), (60,)))

FIXED: dict[str, Conversation] = {
    "a short one": Conversation((Turn(), Turn())),
    "a long talk": Conversation((Turn(40, answer_words=120),) * 40),
    "many small calls": Conversation((_TOOL_TURN,) * 20),
    "one long run": Conversation((Turn(30), Turn(60, ((200,),) * 40)), "results"),
    "a large result at last": Conversation((Turn(rounds=((10,), (10,), (3_000,))),), "results"),
    "a question at the end": Conversation((_TOOL_TURN,) * 12 + (Turn(200),), "question"),
    "large results": Conversation((Turn(rounds=((3_000, 10),)),) * 6),
    "equal turns": Conversation((Turn(rounds=((30,),)),) * 20, echoes=True),
    "ids used again": Conversation((_TOOL_TURN,) * 15, reuses_ids=True),
    "an earlier summary": Conversation((_TOOL_TURN,) * 10, has_summary=True),
    "calls side by side": Conversation((Turn(rounds=((80,) * 8,)),) * 6, "results"),
    "other scripts": Conversation(tuple(evolve(_TOOL_TURN, script=n % 4) for n in range(16))),
}
"""Conversations that every engine meets, by what they are like."""


def marked(marker: str, turns: int = 40) -> Conversation:
    """Return a long conversation every text of which has `marker` in it."""
    return Conversation((_TOOL_TURN,) * turns, marker=marker)


def of_size(words: int) -> Conversation:
    """Return a conversation of about so many words, in turns of some 300."""
    return Conversation((Turn(20, ((120,), (120,)), 40),) * max(2, words // 300))


def seeded(seed: int) -> Conversation:
    """Return a conversation that `seed` decides."""
    random = Random(seed)  # noqa: S311  the same each time is what is wanted
    turns = tuple(_random_turn(random) for _ in range(random.randint(1, 25)))
    return Conversation(
        turns,
        random.choice(ENDINGS),
        echoes=random.random() < 0.2,
        reuses_ids=random.random() < 0.3,
        has_summary=random.random() < 0.3,
    )


def _random_turn(random: Random) -> Turn:
    def sizes() -> tuple[int, ...]:
        return tuple(random.choice((0, 5, 50, 400)) for _ in range(random.randint(1, 3)))

    return Turn(
        random.choice((1, 10, 80)),
        tuple(sizes() for _ in range(random.randint(0, 4))),
        random.choice((1, 10, 100)),
        random.randrange(SCRIPTS),
    )
