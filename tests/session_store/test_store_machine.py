"""The store against a model: a list of entries a session, whatever is done to it in any order."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    rule,
)

from session_store import Session, SessionInUse
from tests.session_store.builders import a_store, audit, begun, ticking
from worker.items import Item, user_message


@define
class Model:
    """What a session should be: its history after each of its entries, and the payloads noted."""

    histories: list[list[Item]]
    notes: list[list[Any]]
    session: Session | None = field(default=None, repr=False)


class StoreMachine(RuleBasedStateMachine):
    ids = Bundle("ids")

    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp())
        self.store = a_store(self.home, clock=ticking())
        self.models: dict[str, Model] = {}

    def teardown(self) -> None:
        for session_id in self.models:
            self.close(session_id)
            audit(self.store.layout.log(session_id))
            assert self.store.verify(session_id).ok

        shutil.rmtree(self.home)

    @initialize(target=ids)
    def the_first(self) -> str:
        return self.create()

    @rule(target=ids)
    def create(self) -> str:
        session = begun(self.store)
        self.models[session.session_id] = Model([[]], [[]], session)
        return session.session_id

    @rule(session_id=ids)
    def reopen(self, session_id: str) -> None:
        self._writer(session_id)

    @rule(session_id=ids, said=st.lists(st.text(max_size=20), max_size=3))
    def say(self, session_id: str, said: list[str]) -> None:
        model, items = self.models[session_id], [user_message(text) for text in said]
        self._writer(session_id).append_items("user_input", items)
        model.histories.append(model.histories[-1] + items)
        model.notes.append(model.notes[-1])

    @rule(session_id=ids, payloads=st.lists(st.integers() | st.text(max_size=9), max_size=4))
    def note(self, session_id: str, payloads: list[Any]) -> None:
        payloads = [each for each in payloads if not isinstance(each, int) or abs(each) < 2**53]
        model = self.models[session_id]
        fields = [("extension", {"domain": "d", "payload": each}) for each in payloads]
        assert len(self._writer(session_id).append_many(fields)) == len(payloads)
        for each in payloads:
            model.histories.append(model.histories[-1])
            model.notes.append([*model.notes[-1], each])

    @rule(session_id=ids)
    def anchor(self, session_id: str) -> None:
        self._writer(session_id).write_anchor()

    @rule(session_id=ids)
    def close(self, session_id: str) -> None:
        model = self.models[session_id]
        if model.session is not None:
            model.session.close()
            model.session = None

    @rule(session_id=ids, torn=st.binary(min_size=1, max_size=80).filter(lambda b: b"\n" not in b))
    def tear(self, session_id: str, torn: bytes) -> None:
        self.close(session_id)
        with self.store.layout.log(session_id).open("ab") as log:
            log.write(torn)

        self._writer(session_id)
        model = self.models[session_id]
        model.histories.append(model.histories[-1])
        model.notes.append(model.notes[-1])

    @rule(target=ids, session_id=ids, data=st.data())
    def fork(self, session_id: str, data: st.DataObject) -> str:
        model = self.models[session_id]
        seq = data.draw(st.integers(0, len(model.histories) - 1))
        entries = list(self.store.entries(session_id))
        at = entries[seq].hash if data.draw(st.booleans()) else None
        child = self.store.fork(session_id, at)
        seq = seq if at else len(model.histories) - 1
        self.models[child] = Model([model.histories[seq]], [model.notes[seq]])
        return child

    @rule(target=ids, session_id=ids, keep=st.integers(0, 3))
    def compact(self, session_id: str, keep: int) -> str:
        model = self.models[session_id]
        kept = model.histories[-1][len(model.histories[-1]) - min(keep, len(model.histories[-1])) :]
        child = self.store.save_compacted(session_id, kept)
        notes = model.notes[-1][-1:]
        # Its start, its compaction, and the newest note, if there is one.
        entries = 2 + len(notes)
        self.models[child] = Model([kept] * entries, [[]] * (entries - 1) + [notes])
        return child

    @rule(session_id=consumes(ids))
    def retire(self, session_id: str) -> None:
        self.close(session_id)

    @invariant()
    def every_session_is_what_it_should_be(self) -> None:
        assert self.store.ids() == sorted(self.models)
        for session_id, model in self.models.items():
            state = self.store.restore(session_id)
            assert state.history == model.histories[-1]
            assert state.extensions.get("d", []) == model.notes[-1]
            assert state.head.seq == len(model.histories) - 1

    def _writer(self, session_id: str) -> Session:
        model = self.models[session_id]
        if model.session is None:
            model.session = self.store.open(session_id)
            assert model.session.state.history == model.histories[-1]
        else:
            with pytest.raises(SessionInUse):
                self.store.open(session_id)

        return model.session


TestStore = StoreMachine.TestCase
TestStore.settings = settings(max_examples=6, stateful_step_count=20, deadline=None)
