"""What a check works with: engines, bounded calls into them, conversations, a scripted model.

Every call is made in a daemon thread of its own: an engine must not care which thread it is, and
one that never returns holds up no more than its check.
"""

from __future__ import annotations

import concurrent.futures
import copy
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from attrs import define, field, frozen

from pod.context.attempt import tried
from pod.context.engine import ContextEngine, Message
from pod.context.errors import as_raised
from pod.context.ownership import release_engine
from pod.context.signature import (
    compress_arguments,
    start_context_engine_session,
    update_context_engine_model,
)
from pod.context.threads import CompactionPool
from pod.context.words import error_line

from .conversations import FIXED, Conversation
from .examine import tokens
from .results import Broken, as_messages
from .scripted import ScriptedModel
from .searching import conversations_to_try

T = TypeVar("T")

MODEL = "scripted-model"
WINDOW = 32_000
SMALL_WINDOW = 8_000
"""A window that most of the conversations are too large for."""
MOST_CALLS_AT_ONCE = 1_000
SHORTER = 10
"""By how much less is waited for what has not returned before."""


@frozen
class Compressed:
    """What an engine was given to compress, as it was, and what it returned."""

    given: list[Message]
    returned: list[Message]

    def look(self, check: Callable[[Compressed], None]) -> None:
        """Have `check` look at it; the input is named where that raises `Broken`."""
        try:
            check(self)
        except Broken as broken:
            raise Broken(broken.found, broken.rows or self.given) from None


@define(eq=False)
class Bench:
    """The place of one check. `close` lets go of the engines that were made."""

    make: Callable[[], ContextEngine]
    folder: Path
    """Where the engines' own folders are."""
    limit_s: float = 20.0
    """How long any one call may take."""
    examples: int = 20
    """How many conversations are made up beside the fixed ones, for each property."""
    reductions: int = 60
    """How many more are tried to make one smaller that breaks."""
    model: ScriptedModel = field(factory=ScriptedModel)
    slow: set[str] = field(factory=set)
    """The calls that have not returned before, by name."""
    _engines: list[ContextEngine] = field(factory=list)
    _homes: int = 0
    _pool: CompactionPool = field(factory=lambda: CompactionPool(MOST_CALLS_AT_ONCE))

    def close(self) -> None:
        """Let go of all engines, and of calls that wait for the model."""
        self.model.become("answers")
        for engine in self._engines:
            release_engine(engine)
        self._engines.clear()

    # ------------------------------------------------------------------ engines

    @property
    def home(self) -> Path:
        """The own folder of the engine that was made last."""
        return self.folder / f"home-{self._homes}"

    def new(self, *, shares_home: bool = False) -> ContextEngine:
        """Return a new engine, which was told nothing yet. Raises `Broken`.

        It has a folder of its own, unless it `shares_home` with the one before.
        """
        if not shares_home:
            self._homes += 1
            self.home.mkdir()

        engine = self.call("making the engine", self.make)
        if engine is None:
            raise Broken("the factory gave no engine")

        self._engines.append(engine)
        return engine

    def started(
        self,
        session_id: str = "session-1",
        *,
        window: int = WINDOW,
        shares_home: bool = False,
    ) -> ContextEngine:
        """Return a new engine that knows its model and session. Raises `Broken`."""
        engine = self.new(shares_home=shares_home)
        self.tell_model(engine, window)
        self.start(engine, session_id)
        return engine

    def tell_model(self, engine: ContextEngine, window: int, model: str = MODEL) -> None:
        """Tell the engine which model is in force."""
        self.call(
            "update_model()",
            update_context_engine_model,
            engine,
            model=model,
            context_length=window,
            provider="scripted",
        )

    def respond(self, engine: ContextEngine, usage: Mapping[str, object]) -> None:
        """Tell the engine what a response used."""
        self.call("update_from_response()", engine.update_from_response, dict(usage))

    def wants_compaction(self, engine: ContextEngine, *size: int | None) -> bool:
        """Ask the engine whether it wants to compress."""
        return bool(self.call("should_compress()", engine.should_compress, *size))

    def start(self, engine: ContextEngine, session_id: str, **more: object) -> None:
        """Tell the engine of a session, with what the contract names."""
        kwargs: dict[str, object] = {
            "hermes_home": str(self.home),
            "platform": "cli",
            "model": MODEL,
            "context_length": WINDOW,
            "conversation_id": None,
            **more,
        }
        start = start_context_engine_session
        self.call("on_session_start()", start, engine, session_id, **kwargs)

    # ------------------------------------------------------------------ calls

    def call(self, what: str, function: Callable[..., T], /, *args: object, **kwargs: object) -> T:
        """Return what `function` returns, called in a thread of its own.

        Raises:
            Broken: It raised, or did not return in time; `what` says which call it was.
        """
        return self.outcome(what, self.begin(function, *args, **kwargs))

    def begin(
        self, function: Callable[..., T], /, *args: object, **kwargs: object
    ) -> concurrent.futures.Future[T]:
        """Call `function` in a thread of its own, and return at once."""
        future = self._pool.try_submit(functools.partial(function, *args, **kwargs))
        if future is None:
            raise Broken("too many calls never returned")

        return future

    def together(self, calls: Sequence[tuple[str, Callable[[], T]]]) -> list[T]:
        """Return what all the calls return, made at the same time. Raises `Broken`."""
        begun = [(what, self.begin(function)) for what, function in calls]
        return [self.outcome(what, future) for what, future in begun]

    def outcome(self, what: str, future: concurrent.futures.Future[T]) -> T:
        """Wait for a call that was begun, and return what it returns. Raises `Broken`."""
        limit_s = self.limit_s / SHORTER if what in self.slow else self.limit_s
        done, _ = concurrent.futures.wait([future], limit_s)
        if not done:
            self.slow.add(what)
            raise Broken(f"{what} did not return within {limit_s:g} s")

        _, failure = tried(future.result)
        if failure is None:
            return future.result()

        if isinstance(failure, Broken):
            raise failure

        raise Broken(f"{what} raised {said(failure)}") from failure

    def compress(
        self, engine: ContextEngine, rows: Sequence[Message], **asked: object
    ) -> Compressed:
        """Have the engine compress a copy of `rows`, with the arguments that it takes.

        Raises:
            Broken: It raised, did not return in time, or returned no list of messages.
        """
        given = copy.deepcopy(list(rows))
        arguments = compress_arguments(
            engine,
            current_tokens=_int(asked.get("current_tokens")),
            focus_topic=_text(asked.get("focus_topic")),
            force=bool(asked.get("force", False)),
            memory_context=_text(asked.get("memory_context")) or "",
        )
        function: Callable[..., object] = engine.compress
        handed = copy.deepcopy(given)
        try:
            value = self.call("compress()", function, handed, **arguments.kwargs)
            return Compressed(given, as_messages(value, "compress()"))
        except Broken as broken:
            raise Broken(broken.found, given) from broken.__cause__

    # ------------------------------------------------------------------ many conversations

    def each_conversation(self, look: Callable[[Compressed], None]) -> None:
        """Have a new engine compress each of many conversations, and `look` at what it made.

        Where hypothesis is installed, what breaks is made smaller first.

        Raises:
            Broken: As `look` does, or `compress`.
        """

        def tried_on(conversation: Conversation) -> None:
            engine = self.started(window=SMALL_WINDOW)
            rows = conversation.rows()
            self.compress(engine, rows, current_tokens=tokens(rows), force=True).look(look)

        try:
            for conversation in FIXED.values():
                tried_on(conversation)
        except Broken as broken:
            raise self._smaller(broken, tried_on) from None

        conversations_to_try(tried_on, self.examples, reductions=self.reductions)

    def _smaller(self, broken: Broken, look: Callable[[Conversation], None]) -> Broken:
        """Return what breaks the same with fewer messages, where that is found."""
        # With a call that never returns, each example would be waited for; and what needs no input
        # cannot have a smaller one.
        if self.slow or not self.reductions or not broken.rows:
            return broken

        try:
            conversations_to_try(look, self.examples, reductions=self.reductions)
        except Broken as other:
            if len(other.rows or ()) < len(broken.rows or ()):
                return other

        return broken

    @staticmethod
    def fixed() -> Iterator[tuple[str, list[Message]]]:
        """Yield the fixed conversations with their names."""
        for name, conversation in FIXED.items():
            yield name, conversation.rows()


def usage_of(prompt: int) -> dict[str, object]:
    """Return the usage of a response to a prompt of that size."""
    return {"prompt_tokens": prompt, "completion_tokens": 10, "total_tokens": prompt + 10}


def numbers_of(engine: ContextEngine) -> Mapping[str, object]:
    """Return the numbers that a host reads from an engine."""
    names = (
        *("last_prompt_tokens", "last_completion_tokens", "last_total_tokens"),
        *("threshold_tokens", "context_length", "compression_count", "threshold_percent"),
    )
    return {name: getattr(engine, name, None) for name in names}


def said(error: BaseException) -> str:
    """Return an error in a line; of one that is no `Exception`, what the engine itself raised."""
    return error_line(as_raised(error))


def _int(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
