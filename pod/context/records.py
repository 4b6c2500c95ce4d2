"""The sessions of a store, to read, as an engine may ask for them. On any thread but the loop's."""

from __future__ import annotations

from attrs import frozen

from session_store import FileSessionStore

from .bridge import to_messages
from .engine import JsonDict, Message


@frozen
class SessionRecords:
    """What `bind_session_state` hands to an engine as `session_db`: reading, and nothing else.

    The log is written by the pod alone, so there is nothing here to write with.
    """

    _store: FileSessionStore

    def get_messages_as_conversation(self, session_id: str) -> list[Message]:
        """Return a session's history as messages, identity fields included.

        Raises `SessionStoreError`: it is unknown or damaged.
        """
        return to_messages(self._store.restore(session_id).history)

    def get_session(self, session_id: str) -> JsonDict:
        """Return a session's `id`, `title`, `message_count`, `parent_session_id` and `model`.

        Raises `SessionStoreError`: it is unknown or damaged.
        """
        state = self._store.restore(session_id)
        origin = state.compacted_from or state.forked_from
        return {
            "id": session_id,
            "title": state.title,
            "message_count": len(state.history),
            "parent_session_id": origin[0] if origin else None,
            "model": state.config.get("model"),
        }
