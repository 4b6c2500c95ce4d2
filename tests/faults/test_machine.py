"""Anything in any order, beside a model: each session a list of hashes and of what it holds."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from attrs import Factory, define, field
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from session_store import Position, Session, SessionDamaged, SessionInUse
from session_store.chain import START
from tests.faults.figures import RAM, figure, report, shares, within
from tests.faults.lives import POD, QuietDisk
from tests.session_store.builders import a_store, audit, begun, ticking
from worker.items import Item, user_message

EXAMPLES = figure("MACHINE_EXAMPLES", 500)
STEPS = figure("MACHINE_STEPS", 50)
PARTS = 4
FEW = st.integers(0, 2**16)


@define
class Model:
    """What one session is: its hashes, and what it held after each of its entries."""

    hashes: list[str]
    held: list[tuple[list[Item], list[Any]]]
    session: Session | None = field(default=None, repr=False)
    read: list[str] = Factory(list)
    """What a reader who goes on where it stopped has seen so far."""
    place: Position = START

    def grows(self, digest: str, items: list[Item] = [], notes: list[Any] = []) -> None:  # noqa: B006  never changed
        before_items, before_notes = self.held[-1]
        self.hashes.append(digest)
        self.held.append((before_items + items, before_notes + notes))


class Machine(RuleBasedStateMachine):
    """Rules pick a session by a number, so that a shrunk example is short."""

    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp(dir=RAM if RAM.is_dir() else None))
        self.store = a_store(self.home, clock=ticking(), disk=QuietDisk())
        self.models: dict[str, Model] = {}

    def teardown(self) -> None:
        for session_id, model in self.models.items():
            self.shut(session_id)
            entries = audit(self.store.layout.log(session_id))
            assert [entry["hash"] for entry in entries] == model.hashes
            self.is_as_it_should_be(session_id)

        assert self.store.ids() == sorted(self.models)
        assert all(found.ok for found in self.store.verify_all())
        shutil.rmtree(self.home)

    @initialize()
    def the_first(self) -> None:
        self.create()

    @precondition(lambda self: len(self.models) < 12)
    @rule()
    def create(self) -> None:
        session = begun(self.store, pod=POD)
        self.models[session.session_id] = Model([session.head.hash], [([], [])], session)

    @rule(number=FEW, said=st.lists(st.text(max_size=20), min_size=1, max_size=3))
    def append(self, number: int, said: list[str]) -> None:
        session_id = self.one(number)
        items: list[Item] = [user_message(text) for text in said]
        ref = self.writer(session_id).append_items("user_input", items)
        self.models[session_id].grows(ref.hash, items)

    @rule(number=FEW, payloads=st.lists(st.text(max_size=9) | FEW, max_size=4))
    def append_several(self, number: int, payloads: list[Any]) -> None:
        session_id = self.one(number)
        fields = [("extension", {"domain": "d", "payload": each}) for each in payloads]
        refs = self.writer(session_id).append_many(fields)
        for ref, payload in zip(refs, payloads, strict=True):
            self.models[session_id].grows(ref.hash, notes=[payload])

    @rule(number=FEW)
    def reopen(self, number: int) -> None:
        session_id = self.one(number)
        self.shut(session_id)
        session = self.writer(session_id)
        assert session.state.history == self.models[session_id].held[-1][0]
        assert session.head.hash == self.models[session_id].hashes[-1]

    @rule(number=FEW, torn=st.binary(min_size=1, max_size=60).filter(lambda b: b"\n" not in b))
    def tear(self, number: int, torn: bytes) -> None:
        session_id = self.one(number)
        self.shut(session_id)
        with self.store.layout.log(session_id).open("ab") as log:
            log.write(torn)

        assert self.store.verify(session_id).torn_bytes == len(torn)
        self.models[session_id].grows(self.writer(session_id).head.hash)

    @rule(number=FEW)
    def take_the_newline_away(self, number: int) -> None:
        session_id = self.one(number)
        self.shut(session_id)
        path = self.store.layout.log(session_id)
        good = path.read_bytes()
        path.write_bytes(good[:-1])
        self.store.open(session_id).close()
        assert path.read_bytes() == good

    @rule(number=FEW)
    def second_writer(self, number: int) -> None:
        session_id = self.one(number)
        session = self.writer(session_id)
        with pytest.raises(SessionInUse):
            a_store(self.home).open(session_id)

        assert self.store.holder(session_id) is not None
        assert not session.closed

    @rule(number=FEW)
    def read_on(self, number: int) -> None:
        model = self.models[self.one(number)]
        for entry in self.store.entries(self.one(number), model.place):
            model.read.append(entry.hash)
            model.place = entry.next

        assert model.read == model.hashes, "none missed, none twice, all in order"

    @rule(number=FEW, at=FEW, change=st.integers(1, 255))
    def corrupt_byte(self, number: int, at: int, change: int) -> None:
        session_id = self.one(number)
        self.shut(session_id)
        path = self.store.layout.log(session_id)
        good = path.read_bytes()
        bad = bytearray(good)
        bad[at % len(good)] ^= change
        path.write_bytes(bad)
        assert not self.store.verify(session_id).ok
        with pytest.raises(SessionDamaged):
            self.store.open(session_id)

        path.write_bytes(good)
        assert self.store.verify(session_id).ok

    @precondition(lambda self: len(self.models) < 12)
    @rule(number=FEW, at=FEW)
    def fork(self, number: int, at: int) -> None:
        session_id = self.one(number)
        self.began_as(self.store.fork(session_id, self.hash_at(session_id, at)), session_id, at)

    @precondition(lambda self: len(self.models) < 12)
    @rule(number=FEW, at=FEW)
    def rewind(self, number: int, at: int) -> None:
        session_id = self.one(number)
        self.store.set_pointer(POD, session_id)
        new = self.store.rewind(session_id, self.hash_at(session_id, at))
        self.began_as(new, session_id, at)
        assert self.store.pointer(POD) == new

    @precondition(lambda self: len(self.models) < 12)
    @rule(number=FEW, keep=st.integers(0, 3), published=st.booleans())
    def compact(self, number: int, keep: int, published: bool) -> None:
        session_id = self.one(number)
        items, notes = self.models[session_id].held[-1]
        kept = items[len(items) - min(keep, len(items)) :]
        if published:
            fields = {"trigger": "manual", "engine": "compressor", "method": "summary"}
            old = self.writer(session_id)
            with self.store.publish_compacted(
                old, history=kept, watermark=0, compaction=fields
            ) as session:
                new = session.session_id
        else:
            new = self.store.save_compacted(session_id, kept)

        # Its start, its compaction, and the newest note, if there is one.
        hashes = [entry["hash"] for entry in audit(self.store.layout.log(new))]
        assert len(hashes) == 2 + len(notes[-1:])
        held = [(kept, list[Any]())] * 2 + [(kept, [note]) for note in notes[-1:]]
        self.models[new] = Model(hashes, held)
        assert self.store.restore(new).compacted_from == (
            session_id,
            self.models[session_id].hashes[-1],
        )

    @rule(number=FEW)
    def look(self, number: int) -> None:
        self.is_as_it_should_be(self.one(number))

    @rule(number=FEW, at=FEW)
    def look_back(self, number: int, at: int) -> None:
        session_id = self.one(number)
        digest = self.hash_at(session_id, at)
        state = self.store.restore(session_id, digest)
        model = self.models[session_id]
        items, notes = model.held[model.hashes.index(digest)]
        assert (state.history, state.extensions.get("d", [])) == (items, notes)

    # --- what the rules use -----------------------------------------------------------------

    def one(self, number: int) -> str:
        return list(self.models)[number % len(self.models)]

    def hash_at(self, session_id: str, at: int) -> str:
        hashes = self.models[session_id].hashes
        return hashes[at % len(hashes)]

    def began_as(self, new: str, session_id: str, at: int) -> None:
        parent = self.models[session_id]
        hashes = [entry["hash"] for entry in audit(self.store.layout.log(new))]
        self.models[new] = Model(hashes, [parent.held[at % len(parent.hashes)]])
        self.is_as_it_should_be(new)

    def is_as_it_should_be(self, session_id: str) -> None:
        model, state = self.models[session_id], self.store.restore(session_id)
        assert (state.history, state.extensions.get("d", [])) == model.held[-1]
        assert state.head == (len(model.hashes) - 1, model.hashes[-1])

    def writer(self, session_id: str) -> Session:
        model = self.models[session_id]
        if model.session is None:
            model.session = self.store.open(session_id)

        return model.session

    def shut(self, session_id: str) -> None:
        model = self.models[session_id]
        if model.session is not None:
            model.session.close()
            model.session = None


@within(120)
@pytest.mark.parametrize("part", range(PARTS))
def test_it_is_what_the_model_says(part: int) -> None:
    examples = shares(EXAMPLES, PARTS)[part]
    # A class of its own for each part: they begin from different numbers, also in CI.
    machine: Any = type(f"Machine{part}", (Machine,), {})
    case = machine.TestCase
    case.settings = settings(
        max_examples=examples,
        stateful_step_count=STEPS,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    case().runTest()
    report("T07 state machine", examples=examples, steps_each=STEPS)
