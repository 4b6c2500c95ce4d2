"""`agent.message_metadata`: the identity that a message keeps beside what the model sees of it."""

from __future__ import annotations

from pod.context.hermes.message_identity import (
    ABSORBED_MESSAGE_UIDS,
    MESSAGE_UID,
    PERSISTENCE_ONLY_MESSAGE_FIELDS,
    TOOL_CALL_UID,
    TOOL_CALL_UIDS,
    copy_identity_fields,
    index_tool_call_uids,
    message_identity,
    message_uid_or_none,
    record_absorbed_message,
    resolve_tool_call_uid,
    stamp_message_uid,
    tool_call_uid_from_history,
)

__all__ = [
    "ABSORBED_MESSAGE_UIDS",
    "MESSAGE_UID",
    "PERSISTENCE_ONLY_MESSAGE_FIELDS",
    "TOOL_CALL_UID",
    "TOOL_CALL_UIDS",
    "copy_identity_fields",
    "index_tool_call_uids",
    "message_identity",
    "message_uid_or_none",
    "record_absorbed_message",
    "resolve_tool_call_uid",
    "stamp_message_uid",
    "tool_call_uid_from_history",
]
