"""SWE-agent trajectories (`.traj`): a JSON document; its `history` is what the model was sent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from .blocks import mapping, string
from .chat import Messages
from .documents import Bad, Begin, Element, End, Member, read_documents
from .draft import Conversation, Draft
from .jsontext import JsonObject, Malformed, parse
from .tally import Tally

NAME = "swe-agent"


def recognises(record: JsonObject) -> bool:
    """Tell whether the record is a trajectory."""
    return isinstance(record.get("history"), list) or (
        isinstance(record.get("trajectory"), list) and "info" in record
    )


def read(path: Path, tally: Tally) -> Iterator[Conversation]:
    """Yield the conversation of the file."""
    draft = Draft(NAME, tally)
    messages = Messages(draft)
    for event in read_documents(path, {"history", "trajectory"}):
        match event:
            case Element("history", dict() as message):
                tally.records += 1
                messages.take(0, message)
            case Element("trajectory", _):
                tally.left_out["repeated trajectory step"] += 1
            case Member("replay_config", value):
                draft.conversation.source |= _model(value)
                draft.keep("replay_config member", 0, value)
            case Member("environment", str() as value):
                draft.conversation.source["environment"] = value
            case Member(key, value):
                draft.keep(f"{key} member", 0, value)
            case Bad(line, why):
                tally.bad(line, why)
            case Begin() | End() | Element():
                pass

    yield draft.finished()


def _model(config: object) -> dict[str, object]:
    """Return the model's name, where the configuration, which may be text, says it."""
    try:
        value = mapping(parse(config) if isinstance(config, str) else config)
    except Malformed:
        return {}

    name = string(mapping(mapping(value.get("agent")).get("model")).get("name"))
    return {"model": name} if name else {}
