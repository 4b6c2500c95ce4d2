"""The identity of messages as dicts: reading it, minting it, and what a merge makes of it. Pure.

A uid names one logical message for ever. It is never made from what the message says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any

from pod.context.rows import (
    ABSORBED_MESSAGE_UIDS,
    MESSAGE_UID,
    TOOL_CALL_UID,
    TOOL_CALL_UIDS,
)
from worker.items import new_uid

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

PERSISTENCE_ONLY_MESSAGE_FIELDS = frozenset(
    {MESSAGE_UID, ABSORBED_MESSAGE_UIDS, TOOL_CALL_UIDS, TOOL_CALL_UID}
    | {"timestamp", "display_kind", "display_metadata", "_row_id", "_merged_turn_prefix"}
)
"""What travels beside a message and never reaches a provider."""

_IDENTITY: tuple[tuple[str, tuple[type, ...]], ...] = (
    (MESSAGE_UID, (str,)),
    (ABSORBED_MESSAGE_UIDS, (list,)),
    (TOOL_CALL_UIDS, (dict, list)),
    (TOOL_CALL_UID, (str,)),
)


def message_uid_or_none(message: Mapping[str, Any]) -> str | None:
    """Return the uid, or None where there is no text that could be one."""
    return _text(message.get(MESSAGE_UID))


def stamp_message_uid(message: MutableMapping[str, Any]) -> str:
    """Return the message's uid, after giving it one where it has none."""
    uid = message_uid_or_none(message) or new_uid()
    message[MESSAGE_UID] = uid
    return uid


def copy_identity_fields(source: Mapping[str, Any], target: MutableMapping[str, Any]) -> None:
    """Put the identity fields of `source` that hold something onto `target`."""
    for key, kinds in _IDENTITY:
        value = source.get(key)
        if isinstance(value, kinds) and value:
            target[key] = value.copy() if isinstance(value, dict | list) else value


def message_identity(message: MutableMapping[str, Any]) -> dict[str, Any]:
    """Return the identity fields for a copy of `message`, which is given a uid if it has none."""
    stamp_message_uid(message)
    identity: dict[str, Any] = {}
    copy_identity_fields(message, identity)
    return identity


def record_absorbed_message(
    survivor: MutableMapping[str, Any], dropped: Mapping[str, Any], *, dropped_leads: bool = False
) -> None:
    """Note on `survivor` that `dropped` was merged into it.

    The merged message goes by the uid of the part whose text comes first: the survivor's, or with
    `dropped_leads` the other's. The rest is listed in the order of the text, each once. A message
    without a uid leaves no trace.
    """
    own, other = message_uid_or_none(survivor), message_uid_or_none(dropped)
    if dropped_leads and other:
        survivor[MESSAGE_UID] = other
        listed = [*_absorbed(dropped), own, *_absorbed(survivor)]
    else:
        listed = [*_absorbed(survivor), other, *_absorbed(dropped)]

    present = survivor.get(MESSAGE_UID)
    absorbed = list(dict.fromkeys(uid for uid in listed if uid and uid != present))
    if absorbed:
        survivor[ABSORBED_MESSAGE_UIDS] = absorbed


# ------------------------------------------------------------------ calls


def index_tool_call_uids(index: MutableMapping[str, str], assistant: object) -> None:
    """Put the uids of a message's calls into `index`, under every spelling of their ids.

    A call without a uid takes an earlier one's place too: results belong to the nearest call.
    """
    for place, call in enumerate(_calls(assistant)):
        uid = _call_uid(assistant, call, place)
        for spelling in _spellings(call):
            if uid is None:
                index.pop(spelling, None)
            else:
                index[spelling] = uid


def resolve_tool_call_uid(index: Mapping[str, str], call_id: object) -> str | None:
    """Return the uid of the call that a result names, or None."""
    spellings = _parts(call_id) if isinstance(call_id, str) else ()
    return next((index[one] for one in spellings if one in index), None)


def tool_call_uid_from_history(messages: object, place: int) -> str | None:
    """Return the uid of the call that the result at `place` answers, or None.

    That is the nearest message before it that names the call, within the same turn.
    """
    rows = messages if isinstance(messages, list) else []
    result = rows[place] if 0 <= place < len(rows) else None
    call_id = result.get("tool_call_id") if isinstance(result, dict) else None
    wanted = set(_parts(call_id)) if isinstance(call_id, str) else set()
    for row in _before(rows, place):
        if row.get("role") == "user":
            return None

        if any(wanted.intersection(_spellings(call)) for call in _calls(row)):
            index: dict[str, str] = {}
            index_tool_call_uids(index, row)
            return resolve_tool_call_uid(index, call_id)

    return None


def _before(rows: Sequence[object], place: int) -> Iterator[Mapping[str, Any]]:
    return (row for row in reversed(rows[: max(0, place)]) if isinstance(row, dict))


def _calls(message: object) -> list[Mapping[str, Any]]:
    listed = message.get("tool_calls") if isinstance(message, dict) else None
    return [call for call in listed if isinstance(call, dict)] if isinstance(listed, list) else []


def _call_uid(assistant: object, call: Mapping[str, Any], place: int) -> str | None:
    uids = assistant.get(TOOL_CALL_UIDS) if isinstance(assistant, dict) else None
    if isinstance(uids, list):
        return _text(uids[place]) if place < len(uids) else None

    named = uids if isinstance(uids, dict) else {}
    return next((uid for one in _spellings(call) if (uid := _text(_last(named.get(one))))), None)


def _last(value: object) -> object:
    """Return the last of several uids of one id: the occurrence that came last."""
    return value[-1] if isinstance(value, list) and value else value


def _spellings(call: Mapping[str, Any]) -> list[str]:
    """Return every id that a call goes by: some servers have two, or both in one."""
    ids = (call.get(key) for key in ("id", "call_id", "response_item_id"))
    return [part for one in ids if isinstance(one, str) for part in _parts(one)]


def _parts(call_id: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part for part in (call_id, *call_id.split("|")) if part))


def _absorbed(message: Mapping[str, Any]) -> list[str]:
    listed = message.get(ABSORBED_MESSAGE_UIDS)
    return [uid for uid in map(_text, listed if isinstance(listed, list) else []) if uid]


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value.strip() else None
