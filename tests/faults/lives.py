"""A store at work: what is asked of it by dice, what it promised, and whether a state keeps it."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

from attrs import Factory, define

from session_store import Disk, FileSessionStore, Session, SessionStoreError
from tests.session_store.builders import a_call, a_store, answer, begun, result_of
from worker.items import Image as Picture
from worker.items import UserMessage, new_uid, user_message

POD = "probe"


class QuietDisk(Disk):
    """Syncs nothing: for what is looked at and thrown away."""

    def sync(self, fd: int) -> None:
        pass

    def sync_folder(self, path: Path) -> None:
        pass


@define
class Promises:
    """What callers were told, each with how far the record had come then."""

    position: Callable[[], int]
    entries: list[tuple[int, str, int, str]] = Factory(list)
    sessions: list[tuple[int, str]] = Factory(list)
    pointers: list[tuple[int, str]] = Factory(list)
    asked_pointers: set[str] = Factory(set)
    appends_last: bool = True
    """Whether an append outlives a loss of power by itself, or only once it is anchored."""

    def session(self, session_id: str) -> None:
        self.sessions.append((self.position(), session_id))

    def entry(self, session: Session, *, anchored: bool = False) -> None:
        if self.appends_last or anchored:
            self.entries.append((self.position(), session.session_id, *session.head))

    def pointer(self, session_id: str) -> None:
        self.pointers.append((self.position(), session_id))

    def up_to(self, position: int) -> Promises:
        """What was promised by then, as promises that hold from the beginning."""
        return Promises(
            self.position,
            [(-1, *rest) for at, *rest in self.entries if at <= position],
            [(-1, session_id) for at, session_id in self.sessions if at <= position],
            [(-1, session_id) for at, session_id in self.pointers if at <= position],
            set(self.asked_pointers),
            self.appends_last,
        )


@define(eq=False)
class Life:
    """What is done between two losses of power."""

    store: FileSessionStore
    promises: Promises
    chance: random.Random
    open: dict[str, Session] = Factory(dict)

    def live(self, steps: int) -> None:
        """Do so many things, one after the other, by dice."""
        self.create()
        for session_id in [session_id for _, session_id in self.promises.sessions][:2]:
            self.reopen(session_id)

        things = [self.say, self.note_several, self.anchor, self.turn, self.say, self.say]
        others = [self.fork, self.compact, self.replace, self.point, self.rewind, self.point]
        for _ in range(steps):
            self.chance.choice(things if self.chance.random() < 0.85 else others)()

        if self.chance.random() < 0.05:
            self.picture()

    def end(self) -> None:
        """Let go of everything; what that writes is not part of the life."""
        for session in self.open.values():
            with suppress(SessionStoreError):
                session.close()

    def create(self) -> None:
        session = begun(self.store, pod=POD)
        self.open[session.session_id] = session
        self.promises.session(session.session_id)
        self.promises.entry(session)

    def reopen(self, session_id: str) -> None:
        if session_id not in self.open:
            session = self.open[session_id] = self.store.open(session_id)
            self.promises.entry(session)

    def say(self) -> None:
        session, size = self._any(), self.chance.choice((1, 300, 900, 5000))
        session.append_items("user_input", [user_message("x" * size)])
        self.promises.entry(session)

    def note_several(self) -> None:
        session, sizes = self._any(), self.chance.choices((1, 500, 3000), k=3)
        many = [("extension", {"domain": "d", "payload": "y" * size}) for size in sizes]
        session.append_many(many)
        self.promises.entry(session)

    def turn(self) -> None:
        session, call = self._any(), a_call()
        for kind, item in (
            ("assistant_items", answer("let me see", call)),
            ("tool_results", result_of(call)),
        ):
            session.append_items(kind, [item])
            self.promises.entry(session)

    def picture(self) -> None:
        session = self._any()
        data = self.chance.randbytes(8) + bytes(1 << 20)
        item = UserMessage(new_uid(), (Picture("image/png", data),))
        session.append_items("user_input", [item])
        self.promises.entry(session)

    def anchor(self) -> None:
        session = self._any()
        session.write_anchor()
        self.promises.entry(session, anchored=True)

    def fork(self) -> None:
        self.promises.session(self.store.fork(self._any().session_id))

    def compact(self) -> None:
        self.promises.session(
            self.store.save_compacted(self._any().session_id, [user_message("s")])
        )

    def replace(self) -> None:
        old = self._any()
        new = self.store.publish_compacted(
            old,
            history=[user_message("summary")],
            watermark=0,
            compaction={"trigger": "manual", "engine": "compressor", "method": "summary"},
        )
        self.promises.session(new.session_id)
        self.promises.entry(new)
        self.open.pop(old.session_id).close()
        self.open[new.session_id] = new
        self.point(new.session_id)

    def rewind(self) -> None:
        session = self._any()
        at = self.chance.choice(list(self.store.entries(session.session_id)))
        self.promises.asked_pointers |= set(self.store.ids())
        new = self.store.rewind(session.session_id, at.hash)
        self.promises.asked_pointers.add(new)
        self.promises.session(new)

    def point(self, session_id: str | None = None) -> None:
        session_id = session_id or self._any().session_id
        self.promises.asked_pointers.add(session_id)
        self.store.set_pointer(POD, session_id)
        self.promises.pointer(session_id)

    def _any(self) -> Session:
        return self.chance.choice(list(self.open.values()))


def what_is_broken(home: Path, kept: Promises, *, go_on: bool) -> str:
    """Tell what the state of `home` does not keep of the promises; empty where it keeps all.

    `go_on` also opens what was promised, for writing, and looks again.
    """
    store = a_store(home, disk=QuietDisk())
    broken = _broken_promises(store, kept)
    if broken or not go_on:
        return broken

    with ExitStack() as closing:
        for _, session_id in kept.sessions:
            try:
                session = closing.enter_context(store.open(session_id))
                session.append("extension", domain="after", payload=1)
            except SessionStoreError as error:
                return f"does not go on: {error.message}"

    return _broken_promises(store, kept)


def _broken_promises(store: FileSessionStore, kept: Promises) -> str:
    for report in store.verify_all():
        if not report.ok:
            return f"refused: entry {report.first_bad_seq} {report.reason}"

    there = set(store.ids())
    if any(session_id not in there for _, session_id in kept.sessions):
        return "a session is gone"

    lines: dict[str, list[bytes]] = {}
    for _, session_id, seq, digest in kept.entries:
        if session_id not in lines:
            lines[session_id] = store.layout.log(session_id).read_bytes().split(b"\n")

        log = lines[session_id]
        if len(log) <= seq or log[seq][9:73] != digest.encode():
            return "an acknowledged entry is gone"

    return _broken_pointer(store, kept)


def _broken_pointer(store: FileSessionStore, kept: Promises) -> str:
    try:
        pointer = store.pointer(POD)
    except SessionStoreError as error:
        return f"the pointer is broken: {error.message}"

    if pointer is None:
        return "the pointer is gone" if kept.pointers else ""

    return "" if pointer in kept.asked_pointers else "the pointer is on what nobody asked for"
